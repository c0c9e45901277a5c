//! Why a file is not warm, each with its evidence.

use super::streams::Stopped;
use crate::facts::{self, Limit};
use crate::sys;
use crate::target::Opened;

/// One reason for which pages are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// What kind of reason.
    pub kind: CauseKind,
    /// How many pages are missing, where that is known.
    pub pages: Option<u64>,
    /// What was seen, in words.
    pub evidence: String,
}

impl std::fmt::Display for Cause {
    /// `reclaimed (3 pages): …`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kind.fmt(f)?;
        if let Some(pages) = self.pages {
            write!(f, " ({pages} pages)")?;
        }
        write!(f, ": {}", self.evidence)
    }
}

/// Kinds of reasons for which pages are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CauseKind {
    /// The listener ended the work.
    Cancelled,
    /// The file was shortened meanwhile.
    Shrank,
    /// A control group leaves less memory than the file takes.
    MemoryLimit,
    /// The machine has less memory than the file takes.
    Memory,
    /// They were read, and are gone again: the kernel took the memory back.
    Reclaimed,
}

impl std::fmt::Display for CauseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "cancelled",
            Self::Shrank => "shrank",
            Self::MemoryLimit => "memory_limit",
            Self::Memory => "memory",
            Self::Reclaimed => "reclaimed",
        })
    }
}

/// Looks for causes, where pages are missing or reading ended early.
pub(super) fn find(opened: &Opened, missing: Option<u64>, stopped: Option<Stopped>) -> Vec<Cause> {
    let cause = |kind, evidence| Cause {
        kind,
        pages: missing,
        evidence,
    };
    let mut causes = Vec::new();
    match stopped {
        Some(Stopped::Cancelled) => {
            causes.push(cause(
                CauseKind::Cancelled,
                "ended by the caller".to_owned(),
            ));
        }
        Some(Stopped::Shrank(end)) => causes.push(cause(
            CauseKind::Shrank,
            format!("the file ended at byte {end} meanwhile"),
        )),
        None => {}
    }
    if causes.is_empty() && missing.is_some_and(|missing| missing > 0) {
        let short = short_of_memory(opened, missing.unwrap_or(0));
        let (kind, evidence) = short.unwrap_or_else(|| {
            let evidence = "read, and absent afterwards: the kernel took the memory back";
            (CauseKind::Reclaimed, evidence.to_owned())
        });
        causes.push(cause(kind, evidence));
    }
    causes
}

fn short_of_memory(opened: &Opened, missing_pages: u64) -> Option<(CauseKind, String)> {
    let machine = facts::machine(&opened.runtime);
    let wanted = opened.page_bytes().len();
    let missing = missing_pages.saturating_mul(sys::page_size());
    if let Some(Limit::At(limit)) = machine.memory_limit_bytes.value {
        let used = machine.memory_used_bytes.value.unwrap_or(0);
        if limit < wanted || limit.saturating_sub(used) < missing {
            let evidence = format!(
                "{}: a limit of {limit} bytes, {used} of them used; {wanted} are meant",
                machine.memory_limit_bytes.evidence
            );
            return Some((CauseKind::MemoryLimit, evidence));
        }
    }
    let memory = machine
        .memory_bytes
        .value
        .filter(|memory| *memory < wanted)?;
    let evidence = format!("the machine has {memory} bytes of memory; {wanted} are meant");
    Some((CauseKind::Memory, evidence))
}
