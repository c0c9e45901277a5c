//! `gds`: cuFile reads from storage into device memory. Named, so that every plan explains it; this
//! version does not use cuFile.

use super::Ask;
use crate::plan::Cost;
use crate::report::Reason;
use crate::request::Memory;

pub(crate) fn usable(ask: Ask) -> Result<Cost, Reason> {
    Err(match ask.to {
        Memory::Host => Reason::HostDestination,
        Memory::Device(_) => Reason::NotBuilt,
    })
}
