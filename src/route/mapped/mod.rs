//! `mapped`: the mapping is the source. Its engines: `copy` gives the bytes to the CPU, `in_place` lets the
//! device read the pages itself.

mod copy;
mod in_place;

use super::Ask;
use crate::facts::Facts;
use crate::plan::Cost;
use crate::report::{Engine, Reason};

pub(crate) use copy::run;
pub(crate) use in_place::{InPlace, Means, Setback, copy as dma, gather, sources};

/// By the cheapest engine, or by the one that is named.
pub(crate) fn usable(facts: &Facts, ask: Ask) -> Result<Cost, Reason> {
    if !ask.mapped {
        return Err(Reason::NotMapped);
    }
    if ask.stale {
        return Err(Reason::MappingStale);
    }
    match ask.engine {
        None => {
            let copy = copy::usable(facts, ask);
            match in_place::usable(ask) {
                Ok(cost) if copy.is_ok_and(|copy| copy.nanoseconds <= cost.nanoseconds) => copy,
                Ok(cost) => Ok(cost),
                Err(_) => copy,
            }
        }
        Some(Engine::Dma | Engine::Kernel) => in_place::usable(ask),
        Some(_) => copy::usable(facts, ask),
    }
}

/// By the engine that is always there, as far as the system allows it.
pub(crate) fn usable_by_copy(facts: &Facts, ask: Ask) -> Result<Cost, Reason> {
    copy::usable(facts, ask)
}
