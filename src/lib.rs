//! Map a file; read any ranges of it by the fastest way the machine has right now; know, with
//! proof, how the bytes travelled.
//!
//! ```
//! use gpumap::{Mmap, Route};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("weights.bin");
//! # std::fs::write(&path, vec![7u8; 1 << 20])?;
//! let map = Mmap::open(&path)?;
//! let mut rows = vec![0f32; 2 * 64];
//! let report = map.gather(&[4096..4352, 0..256], &mut rows)?;
//! assert_eq!(report.route(Route::Buffered).map(|used| used.bytes), Some(512));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Beside the reading stand the modules about the page cache, usable alone: [`residency`] tells
//! what part of a file is cached, [`evict`] drops it and [`warm`] reads it in, both verified, and
//! [`sample`] measures cold against warm, or half of either, with the state proved before every run.
//! [`facts`] tells what the machine, a file and its storage can do, with the evidence.
//!
//! Bytes land in host memory or in the memory of a GPU ([`Device`], [`DeviceBuffer`]), by the same
//! calls. Without a GPU, or its driver, everything else works.
//!
//! # Beside cudarc
//! `CudaSlice` and `CudaViewMut` of cudarc 0.19 are destinations too; those of its other versions are other
//! types, and are not.
//!
//! ```no_run
//! # #[cfg(feature = "cuda")]
//! # fn read() -> Result<(), Box<dyn std::error::Error>> {
//! use cudarc::driver::CudaContext;
//!
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let mut rows = stream.alloc_zeros::<f32>(1000 * 64)?;
//! let table = gpumap::Mmap::open("table.bin")?;
//! table.read(0..1000 * 64 * 4, &mut rows)?;
//! table.gather_rows(&[999u32, 0, 41], 64 * 4, &mut rows.slice_mut(..3 * 64))?;
//! # Ok(())
//! # }
//! ```
//!
//! All of a build shares one cudarc, which takes exactly one version of CUDA's interface, and does not
//! compile with two. A program whose own cudarc chooses one leaves this crate's choice out:
//!
//! ```toml
//! gpumap = { version = "0.1", default-features = false, features = ["cuda"] }
//! cudarc = { version = "0.19", default-features = false, features = ["std", "driver", "dynamic-loading", "cuda-12080"] }
//! ```
//!
//! Where there is no driver cudarc panics; [`Runtime::device`] gives an error, and can be asked first.
//!
//! # Things this crate does not do
//! It writes no files, installs no signal handlers, prints nothing, and touches no mapped page
//! from user space in a safe call. It runs on 64-bit little-endian Linux.

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little"
)))]
compile_error!("gpumap runs on 64-bit little-endian Linux");

mod batch;
mod beside;
mod both_ends;
mod by_cufile;
mod captured;
mod costs;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "cuda_absent.rs"]
mod cuda;
mod cufile;
mod error;
pub mod evict;
mod explain;
pub mod facts;
mod feeds;
mod in_place;
mod lock;
mod mmap;
mod on_stream;
mod pending;
mod plan;
mod pool;
mod range;
mod read;
mod registrations;
mod report;
mod request;
pub mod residency;
mod rings;
mod route;
mod run;
mod runtime;
pub mod sample;
pub mod settings;
mod shares;
mod staging;
mod sys;
mod target;
mod view;
pub mod warm;
mod workers;

pub use batch::{Batch, BatchDestination, BatchError, BatchReport};
pub use captured::Captured;
pub use costs::Costs;
pub use cuda::{Device, DeviceBuffer, DeviceError, DeviceIndices, DeviceSliceMut, DeviceStream};
pub use cufile::{
    Cufile, CufileCode, CufileCounters, CufileError, CufileProperties, CufileReads, ParameterGuard,
    ParameterValue, RegisteredBuffer,
};
pub use error::{Error, FileKind, Result};
pub use mmap::{Advice, Mmap, MmapOptions};
pub use on_stream::{KeptIndices, OnStream};
pub use pending::{Pending, Refused};
pub use plan::{Piece, Plan};
pub use range::ByteRange;
pub use report::{Engine, Fallback, Hindrance, Reason, Report, ResidentPages, RouteUse};
pub use request::{Cache, Destination, Indices, Memory, NotARoute, ReadOptions, Route};
pub use runtime::{Runtime, RuntimeBuilder};
pub use settings::{Gds, Settings};
pub use target::Target;
pub use view::{Backing, DeviceView, ViewOptions};
