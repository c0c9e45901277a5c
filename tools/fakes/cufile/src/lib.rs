//! A double of libcufile (GPUDirect Storage), for tests on machines without it.
//!
//! It stands at the C boundary: a shared object with the library's functions and its name. It reads files
//! with `pread`, and writes through the driver of GPUs that the process has loaded: the double of it.
//!
//! # How a test uses it
//!
//! In a child process of its own, behind `fake_cuda::control::Double::load`:
//!
//! ```no_run
//! use fake_cufile::control::{Fail, Live, Made, Mode, Version};
//!
//! let cufile = Made::of(Version::V1_15).mode(Mode::P2p).load().unwrap();
//! cufile.fail("cuFileRead", 2, Fail::Errno(5)); // the second call from now
//! // … what is tested opens "libcufile.so.0", or `cufile.path()` …
//! assert_eq!(cufile.live(), Live::default());
//! assert_eq!(cufile.complaints(), [""; 0]);
//! ```
//!
//! The double of the driver counts what reads do there: for each MiB a stream, and one `cuMemcpyHtoDAsync_v2`
//! on it.
//!
//! A program is given a folder in `LD_LIBRARY_PATH`, into which `Made::place` puts a file; what the double
//! shall do is written into the file. With `Made::strict` the program is aborted at its end where something
//! lives or was done wrong.
//!
//! # Versions
//!
//! Cargo makes one shared object, with all functions. `Made` makes a copy of one version: it writes the
//! version into the copy, and spoils the names of the functions that this version does not have, so that the
//! loader finds none (`control::make`). Statistics are as large as the version has them, to the byte.
//!
//! # What it does at worst
//!
//! - Reads come short, in the middle of blocks too (`Double::short_reads`). Those that fail or come short
//!   leave garbage where they were to write.
//! - A read waits for no stream, not even the null stream: its bytes go by a stream of its own.
//! - It uses the program's own descriptor, and sees whether that was closed.
//! - Opening the driver where the library spins for ever aborts the process (`Made::hazard`). So does the end
//!   of the process with statistics on and the driver open.
//! - Bad parameters are taken, and do not last.
//! - Noted as complaints: registering a file or memory twice, letting go of what is not registered, reads of
//!   files that are not registered or past the end of memory, reads into registered memory that name another
//!   base, closing, deregistering or ending under a read,
//!   closing the driver with things registered, freeing memory that is registered, any call in the child of
//!   a fork.
//! - A script makes the n-th call of a function fail.
//!
//! # What it is based on
//!
//! *Recorded*, of libraries 1.11, 1.14, 1.15, 1.19 and 1.20 on a machine without a GPU: which functions and
//! parameters each has, sizes and places of all structures, and the answers before the driver is open. That
//! registering a file opens it, and spins with it where opening spins; 5033 without libcuda; 5001 for
//! closing and for statistics; 5006 for deregistering memory; -1 and `EINVAL` for a read. On an H200 with
//! 1.15, in the compatibility mode: every read is one by posix, and comes short at the end of the file; 5027
//! without an entry of udev; opening twice counts; what is set counts once; statistics are started after their level
//! was set, and again only after that; -1 and 5022 or `EPERM` in `errno` for reads that begin below 0 or end behind the
//! memory; reads need no current context.
//!
//! *Seen by others*, in public records: how reads with edges are counted where they are accelerated (`parts`);
//! that `cuFileRead` may answer -1 with a code of its own in `errno`; that reads can go by the CPU with all
//! counters of devices at zero ([`control::Mode::Silent`]).
//!
//! *Documented*, in the library's reference: what wrong arguments are answered with, 5006 for closing under
//! reads, 5026 for parameters, 5022 for levels that are not enabled, no fork. In nvidia-fs's source: how it
//! tells what it counts.
//!
//! *Assumed*, and said so beside it: that a file which is open without `O_DIRECT` is never accelerated, that
//! a context that is current must be one of the memory's device, that a bad parameter is forgotten, and what is left where no reference says anything.
//!
//! `tests/library/driver/cufile.rs` asserts of this, and of the library itself where there is one, what can
//! be asked of both.

mod buffers;
mod code;
pub mod control;
mod cuda;
mod driver;
mod exports;
mod files;
mod made;
mod nvidia_fs;
mod parameters;
mod parts;
mod reads;
mod statistics;
mod world;
