//! `mapped`: the mapping is the source. Its engines: `copy` gives the bytes to the CPU, `in_place` lets the
//! device read the pages itself.

mod copy;
mod in_place;

use super::Ask;
use crate::facts::Facts;
use crate::plan::Cost;
use crate::report::{Engine, Reason};

pub(crate) use copy::run;
pub(crate) use in_place::{
    InPlace, Means, Part, Setback, by_size, copy as dma, copy_part, gather, gives_way, parts,
    preaders, put_rows, sources,
};

/// By the cheapest engine, or by the one that is named.
pub(crate) fn usable(facts: &Facts, ask: Ask<'_>) -> Result<Cost, Reason> {
    let in_place = usable_in_place(ask);
    if matches!(ask.engine, Some(Engine::Dma | Engine::Kernel)) {
        return in_place;
    }
    let copy = usable_by_copy(facts, ask);
    match in_place {
        Ok(cost) if ask.engine.is_none() => match copy {
            Ok(copy) if copy.nanoseconds <= cost.nanoseconds => Ok(copy),
            _ => Ok(cost),
        },
        _ => copy,
    }
}

/// By a device, which reads the pages itself.
pub(crate) fn usable_in_place(ask: Ask<'_>) -> Result<Cost, Reason> {
    shown(ask)?;
    in_place::usable(ask)
}

/// By a device's kernel, out of pages that are registered, all of them.
pub(crate) fn usable_if_registered(ask: Ask<'_>) -> Result<Cost, Reason> {
    shown(ask)?;
    in_place::usable_if_registered(ask)
}

/// By the engine that is always there, as far as the system allows it.
pub(crate) fn usable_by_copy(facts: &Facts, ask: Ask<'_>) -> Result<Cost, Reason> {
    shown(ask)?;
    copy::usable(facts, ask)
}

/// The mapping shows the file.
fn shown(ask: Ask<'_>) -> Result<(), Reason> {
    match ask {
        Ask { mapped: false, .. } => Err(Reason::NotMapped),
        Ask { stale: true, .. } => Err(Reason::MappingStale),
        _ => Ok(()),
    }
}
