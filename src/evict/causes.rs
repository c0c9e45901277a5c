//! Why pages stayed, each with its evidence.

use super::mappers::{self, Mapper, Seen};
use crate::error::Result;
use crate::range::ByteRange;
use crate::residency::{Counter, Residency, Source};
use crate::sys;
use crate::target::Opened;

/// One reason for which pages stayed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// What kind of reason.
    pub kind: CauseKind,
    /// How many pages, where that can be told. Causes overlap: the numbers do not sum up.
    pub pages: Option<u64>,
    /// What was seen, in words.
    pub evidence: String,
}

impl std::fmt::Display for Cause {
    /// `dirty (3 pages): …`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kind.fmt(f)?;
        if let Some(pages) = self.pages {
            write!(f, " ({pages} pages)")?;
        }
        write!(f, ": {}", self.evidence)
    }
}

/// Kinds of reasons for which pages stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CauseKind {
    /// Not yet written to storage.
    Dirty,
    /// Being written to storage.
    Writeback,
    /// Their read was still in flight; or they are pages that were never read, as beside a hole that
    /// was punched: cachestat counts both, and mincore neither.
    InFlight,
    /// In the page tables of a process.
    Mapped,
    /// Locked in memory, by mlock(2).
    Locked,
    /// Registered with a device, and used by views or reads.
    Registered,
    /// Part of a large folio that reaches outside the range.
    LargeFolio,
    /// The file system keeps its files in memory.
    FileSystem,
    /// Whether they stayed is not known.
    Untold,
    /// None of these was seen.
    Unknown,
}

impl std::fmt::Display for CauseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Dirty => "dirty",
            Self::Writeback => "writeback",
            Self::InFlight => "in_flight",
            Self::Mapped => "mapped",
            Self::Locked => "locked",
            Self::Registered => "registered",
            Self::LargeFolio => "large_folio",
            Self::FileSystem => "file_system",
            Self::Untold => "untold",
            Self::Unknown => "unknown",
        })
    }
}

/// Looks for every cause, for pages that stayed or may have.
pub(super) fn find(opened: &Opened, after: &Residency) -> Result<(Vec<Cause>, Vec<Mapper>)> {
    let Some(resident) = after.resident else {
        let evidence = match after.untold {
            Some(untold) => untold.to_string(),
            None => "nobody answered".to_owned(),
        };
        return Ok((
            vec![Cause {
                kind: CauseKind::Untold,
                pages: None,
                evidence,
            }],
            Vec::new(),
        ));
    };
    let seen = mappers::of(opened);
    let mut causes = Vec::new();
    causes.extend(counted(CauseKind::Dirty, after.dirty, "dirty"));
    causes.extend(counted(
        CauseKind::Writeback,
        after.writeback,
        "being written to storage",
    ));
    causes.extend(in_flight(opened, after, resident)?);
    causes.extend(mapped(&seen));
    causes.extend(locked(&seen));
    causes.extend(registered(opened));
    causes.extend(file_system(opened, resident));
    causes.extend(large_folio(opened)?);
    if causes.is_empty() {
        causes.push(unknown(resident, &seen));
    }
    Ok((causes, seen.mappers))
}

fn counted(kind: CauseKind, pages: Option<u64>, what: &str) -> Option<Cause> {
    let pages = pages.filter(|&pages| pages > 0)?;
    Some(Cause {
        kind,
        pages: Some(pages),
        evidence: format!("cachestat counts {pages} pages {what}"),
    })
}

/// cachestat counts pages whose read has not finished; mincore does not.
fn in_flight(opened: &Opened, after: &Residency, cached: u64) -> Result<Option<Cause>> {
    if after.source != Some(Source::Cachestat) {
        return Ok(None);
    }
    let settled = Counter::new(opened).settled()?;
    let pages = settled
        .resident
        .map_or(0, |settled| cached.saturating_sub(settled));
    Ok((pages > 0).then(|| Cause {
        kind: CauseKind::InFlight,
        pages: Some(pages),
        evidence: format!(
            "cachestat counts {pages} pages more than mincore: their read is under way, or never began"
        ),
    }))
}

fn mapped(seen: &Seen) -> Option<Cause> {
    let touched = seen
        .mappers
        .iter()
        .map(|mapper| mapper.touched_bytes)
        .max()?;
    let names: Vec<_> = seen
        .mappers
        .iter()
        .take(8)
        .map(|m| format!("{} ({})", m.pid, m.command))
        .collect();
    Some(Cause {
        kind: CauseKind::Mapped,
        pages: Some(touched / sys::page_size()),
        evidence: format!(
            "in the page tables of {}: {}",
            match seen.mappers.len() {
                1 => "1 process".to_owned(),
                many => format!("{many} processes"),
            },
            names.join(", ")
        ),
    })
}

fn locked(seen: &Seen) -> Option<Cause> {
    let bytes = seen
        .mappers
        .iter()
        .map(|mapper| mapper.locked_bytes)
        .max()
        .filter(|&b| b > 0)?;
    Some(Cause {
        kind: CauseKind::Locked,
        pages: Some(bytes / sys::page_size()),
        evidence: format!("smaps shows {bytes} bytes locked in memory"),
    })
}

/// Pages that devices read in place, by views or by reads under way, cannot go.
fn registered(opened: &Opened) -> Option<Cause> {
    let registrations = opened.runtime.registrations();
    let bytes = registrations.used_of(opened.stat.identity, opened.page_bytes());
    (bytes > 0).then(|| Cause {
        kind: CauseKind::Registered,
        pages: Some(bytes / sys::page_size()),
        evidence: format!(
            "registered with a device: {bytes} bytes are used by views or reads of this runtime; drop these"
        ),
    })
}

fn file_system(opened: &Opened, resident: u64) -> Option<Cause> {
    let name = opened.file_system.in_memory()?;
    Some(Cause {
        kind: CauseKind::FileSystem,
        pages: Some(resident),
        evidence: format!("{name} keeps its files in memory: there is no storage to drop them to"),
    })
}

/// A range whose edge lies inside a folio: the page at the edge stayed, and its neighbour outside
/// is resident too.
fn large_folio(opened: &Opened) -> Result<Option<Cause>> {
    if opened.is_whole() {
        return Ok(None);
    }
    let counter = Counter::new(opened);
    let size = sys::page_size();
    let bytes = opened.page_bytes();
    let page = |at: Option<u64>| match at.and_then(|at| ByteRange::at(at, size)) {
        Some(page) => counter.resident(page).map(|resident| resident == Some(1)),
        None => Ok(false),
    };
    let at_start = page(Some(bytes.start()))? && page(bytes.start().checked_sub(size))?;
    let at_end = page(bytes.end().checked_sub(size))? && page(Some(bytes.end()))?;
    let edge = match (at_start, at_end) {
        (false, false) => return Ok(None),
        (true, false) => "the first page",
        (false, true) => "the last page",
        (true, true) => "the first and last pages",
    };
    Ok(Some(Cause {
        kind: CauseKind::LargeFolio,
        pages: None,
        evidence: format!(
            "{edge} of the range and the neighbours outside it stayed: a folio that reaches over \
             the edge goes as a whole or not at all; evict the whole file, or run as its owner"
        ),
    }))
}

fn unknown(resident: u64, seen: &Seen) -> Cause {
    let hidden = match seen.hidden {
        0 => String::new(),
        hidden => format!(", and {hidden} processes could not be looked at"),
    };
    Cause {
        kind: CauseKind::Unknown,
        pages: Some(resident),
        evidence: format!(
            "clean, and not mapped by any process that can be seen{hidden}; such pages may be \
             pinned (registered with a device, or direct I/O in flight) or have just been read again"
        ),
    }
}
