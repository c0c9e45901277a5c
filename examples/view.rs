//! Gives the kernels of a GPU an address at which they read a file, and tells what lies there.
//!
//! `cargo run --example view [FILE]`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use gpumap::Runtime;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::NamedTempFile::new()?;
    let path = match std::env::args().nth(1) {
        Some(path) => path.into(),
        None => {
            std::fs::write(temporary.path(), [7u8; 100_000])?;
            temporary.path().to_owned()
        }
    };
    let rt = Runtime::global()?;
    let gpu = match rt.device(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("no GPU to view a file from: {error}");
            return Ok(());
        }
    };
    let view = rt.open(path)?.view(&gpu, ..)?;
    println!(
        "{} finds {} bytes at {:#x}",
        gpu.name()?,
        view.len(),
        view.address()
    );
    println!("there lies: {}", view.backing());
    if let Some(obstacle) = view.obstacle() {
        println!("not the registered pages of the file: {obstacle}");
    }
    // Here a kernel would be launched that takes the address, and its stream be told to the view
    // (`view.record(&stream)`); the drop then waits for it.
    println!("the file is as it was: {}", view.is_current());
    println!("of it are registered: {} bytes", rt.registered_bytes());
    Ok(())
}
