//! The program, end to end: its answers are parsed with the structs that are published for it.

#![allow(clippy::unwrap_used, reason = "tests and their helpers")]

mod calibrate;
#[cfg(feature = "cuda")]
mod device;
mod doctor;
mod ends;
mod evict;
mod gpu_run;
mod load;
mod memory;
mod names;
mod nobody;
#[cfg(feature = "cuda")]
mod paths;
mod plan;
mod read;
mod scene;
mod settings;
mod status;
mod warm;
