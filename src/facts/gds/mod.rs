//! What cuFile (GPUDirect Storage) finds on this machine, and what would hang or crash it.

mod acs;
mod config;
mod counters;
mod hazard;
mod path;
mod setup;

pub(crate) use counters::NvidiaFsReads;
pub use hazard::GdsHazard;
pub(super) use hazard::{SafePlaces, in_every_version, safe};
pub use path::GdsPath;
pub(super) use path::path;
pub(super) use setup::of;
pub use setup::{GdsFacts, Iommu};
