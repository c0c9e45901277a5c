//! `direct`: past the page cache, with O_DIRECT. Named, so that every plan explains it.

use super::Ask;
use crate::plan::Cost;
use crate::report::Reason;

pub(crate) fn usable(_: Ask) -> Result<Cost, Reason> {
    Err(Reason::NotBuilt)
}
