//! The library as its users see it, tried on real files.
//!
//! A test that needs what a machine may lack prints `skipped: NAME: …` there. The variable
//! `GPUMAP_TEST_REQUIRE` (a list of `fs`, `seccomp`, `owner`, `images`, `cgroup`, `double`, `examples`)
//! turns such a skip into a failure.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests and their helpers"
)]

mod batch;
mod child;
mod conform;
mod contracts;
#[cfg(feature = "cuda")]
mod device;
mod direct;
#[cfg(feature = "cuda")]
mod double;
#[cfg(feature = "cuda")]
mod driver;
mod errors;
mod evict;
mod facts;
mod file_systems;
mod fork;
mod hosts;
mod lifetimes;
mod mixed;
mod property;
mod refused;
mod residency;
mod sample;
mod scene;
mod shrink;
mod sparse;
mod submit;
mod warm;
