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
//! - Device memory starts with poison in it, and its addresses are no addresses of the host.
//! - Unknown handles, bad ranges and double frees give the driver's own errors. What the driver would
//!   let pass and no program should do is noted as a violation: freeing memory or destroying a stream
//!   with work in flight, using memory or a stream in another context than its own, releasing a context
//!   with things living in it, any call but `cuInit` in the child of a fork (where all of them fail).
//! - A script makes the n-th call of a function fail.
//!
//! Sources: the CUDA driver API reference (streams, events, stream synchronization behavior, API
//! synchronization behavior), and runs on an H200 with driver 580.

pub mod control;
mod exports;
mod world;
