//! `gds`: cuFile reads from storage into device memory. Named, so that every plan explains it.

use super::Ask;
use crate::plan::Cost;
use crate::report::Reason;

/// Every destination is host memory so far.
pub(crate) fn usable(_: Ask) -> Result<Cost, Reason> {
    Err(Reason::HostDestination)
}
