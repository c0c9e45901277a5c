//! What cuFile (GPUDirect Storage) finds on this machine, and what would hang or crash it.

mod acs;
mod config;
mod counters;
mod hazard;
mod iommu;
mod path;
mod setup;

pub(crate) use counters::NvidiaFsReads;
pub use hazard::GdsHazard;
pub(super) use hazard::{SafePlaces, in_every_version, safe};
pub use iommu::Iommu;
pub use path::GdsPath;
pub(super) use path::{KeptPaths, path};
pub use setup::GdsFacts;
pub(super) use setup::of;
