//! The engine `copy`: process_vm_readv out of the process's own mapping, straight into the
//! destination. No page-table faults, and an error instead of SIGBUS.

use std::io;

use super::super::{Ask, Failure, Rates, Source, all_there};
use crate::facts::Facts;
use crate::plan::Cost;
use crate::report::{Engine, Reason};
use crate::request::Segment;
use crate::sys::{HostSliceMut, Moved};

pub(super) fn usable(facts: &Facts, ask: Ask<'_>) -> Result<Cost, Reason> {
    let rates = Rates {
        nanoseconds_per_row: ask.costs.copy_nanoseconds_per_row,
        picoseconds_per_byte: ask.costs.copy_picoseconds_per_byte,
    };
    match facts.vm_readv_refused() {
        Some(errno) => Err(Reason::Refused {
            call: "process_vm_readv",
            errno,
        }),
        None => Ok(rates.cost(ask, Some(Engine::Copy), ask.copy_limits())),
    }
}

/// Moves the segments of a piece, end to end, into the destination.
pub(crate) fn run(
    source: Source<'_>,
    segments: impl Iterator<Item = Segment> + Clone,
    destination: HostSliceMut<'_>,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let sources = segments.clone().map(|segment| source.in_file(segment));
    let first = sources.clone().next().unwrap_or_default();
    let failed = |call| {
        move |source| Failure::Call {
            call,
            at: first,
            source,
        }
    };
    // `usable` refuses maps without a mapping. Success would claim that the bytes were written.
    let Some(mapping) = source.mapping else {
        let without = io::ErrorKind::InvalidInput.into();
        return Err(failed("process_vm_readv")(without));
    };
    let copied = mapping.copy(sources, destination, moved);
    all_there(source, segments)?;
    copied.map_err(failed("process_vm_readv"))
}
