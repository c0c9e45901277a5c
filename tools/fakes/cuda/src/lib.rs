//! A double of the CUDA driver, for tests on machines without a GPU.
//!
//! It stands at the C boundary: a shared object with the driver's functions, which is loaded before
//! the program under test asks for `libcuda.so` ([`control::Double::load`]). What it does is what the
//! driver may do at worst:
//!
//! - Asynchronous work is done only when somebody waits for it, and then in a random order of those
//!   that streams and events allow, among work that nobody waited for.
//! - Pinned memory is read when a copy is done, not when it is asked for. Other memory is read at
//!   once, as the driver stages it.
//! - Registering memory holds its pages themselves (`pin`), at once and all of them: what is written to
//!   them is seen, what comes after the file was cut or punched is not. Copies and kernels read them
//!   when they are done. The number of open files that the process may have is raised for that.
//! - Kernels are known by their names (`kernels`), and done on the CPU. What reads or writes where the
//!   device cannot is noted, and every call in that context says so from then on.
//! - Work on a stream that captures is kept for a graph, and calls that wait spoil the capture
//!   (`capture`).
//! - Device memory starts with poison in it, and its addresses are no addresses of the host.
//! - Unknown handles, bad ranges and double frees give the driver's own errors. What the driver would
//!   let pass and no program should do is noted as a violation: freeing or unregistering memory,
//!   destroying a stream or unloading a module with work in flight, launching too few threads, using
//!   memory or a stream in another context than its own, releasing a context with things living in it,
//!   any call but `cuInit` in the child of a fork (where all of them fail).
//! - A script makes the n-th call of a function fail, or all calls from one on, as where a device is gone.
//! - A double can be had that lacks a function, as an older driver does (`lacking`).
//!
//! Sources: the CUDA driver API reference (streams, events, stream synchronization behavior, API
//! synchronization behavior), and runs on an H200 with driver 580.

mod capture;
mod code;
mod contexts;
pub mod control;
mod exports;
mod kernels;
mod lacking;
mod memory;
mod modules;
mod pin;
mod reach;
mod registered;
mod streams;
mod work;
mod world;
