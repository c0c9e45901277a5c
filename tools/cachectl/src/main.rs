//! The program; everything is in the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    cachectl::main()
}
