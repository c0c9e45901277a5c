//! What cuFile (GPUDirect Storage) finds on this machine, and what would hang or crash it.

mod hazard;

pub use hazard::GdsHazard;
pub(super) use hazard::safe;
