//! What cuFile (GPUDirect Storage) finds on this machine, and what would hang or crash it.

mod acs;
mod hazard;
mod setup;
mod way;

pub use hazard::GdsHazard;
pub(super) use hazard::{SafePlaces, in_every_version, safe};
pub(super) use setup::of;
pub use setup::{GdsFacts, Iommu};
pub(super) use way::accelerated;
