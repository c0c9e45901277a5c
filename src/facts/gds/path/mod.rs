//! Which way cuFile's reads of a file into a device would go. What is found beforehand is what speaks for it and
//! against it; that a read was accelerated is shown only by counters, while reading.

mod against;
mod carriers;
mod kept;
#[cfg(test)]
mod tests;

use std::fmt;

use super::{GdsFacts, GdsHazard};
use crate::facts::fact::shown_as_they_are;
use crate::facts::{DeviceFacts, Fact, FileFacts};

pub(in crate::facts) use kept::KeptPaths;

/// Of RAIDs by software cuFile's reads are accelerated on those of this level.
const STRIPED: &str = "raid0";

/// Which way cuFile's reads would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdsPath {
    /// None: cuFile might hang or crash, and is not tried.
    Unsafe,
    /// None: nothing accelerates them, and the settings forbid the way through host memory.
    Refused,
    /// Through host memory, in cuFile's compatibility mode: not accelerated.
    Staged,
    /// From storage into the device by nvidia-fs.
    NvidiaFs,
    /// From storage into the device by the kernel's PCI peer-to-peer transfers.
    PeerToPeer,
}

impl GdsPath {
    /// Whether reads go past the CPU.
    pub(crate) const fn is_accelerated(self) -> bool {
        matches!(self, Self::NvidiaFs | Self::PeerToPeer)
    }
}

impl fmt::Display for GdsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsafe => "none (unsafe)",
            Self::Refused => "none (refused)",
            Self::Staged => "staged in host memory",
            Self::NvidiaFs => "nvidia-fs",
            Self::PeerToPeer => "PCI peer-to-peer",
        })
    }
}

shown_as_they_are!(GdsPath);

/// `driver` is what stands against cuFile's driver in every version of it.
pub(in crate::facts) fn path(
    file: &FileFacts,
    device: &DeviceFacts,
    gds: &GdsFacts,
    driver: Option<GdsHazard>,
) -> Fact<GdsPath> {
    if let Some(hazard) = driver {
        return Fact::known(GdsPath::Unsafe, hazard.evidence()).with_mend(hazard.mend());
    }
    let safe = &file.gds_file_safe;
    if safe.value == Some(false) {
        return safe.clone().map(|_| GdsPath::Unsafe);
    }
    match against::whoever_carries(file, gds) {
        Some(why) => not_accelerated(why, gds),
        None => carriers::carried(file, device, gds),
    }
}

/// Something that speaks against an accelerated read, and what to do about it.
struct Against {
    evidence: String,
    mend: String,
}

impl Against {
    fn new(evidence: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            evidence: evidence.into(),
            mend: mend.into(),
        }
    }
}

fn not_accelerated(why: Against, gds: &GdsFacts) -> Fact<GdsPath> {
    let may = &gds.allow_compat_mode;
    let refused = may.value == Some(false) && gds.force_compat_mode.value != Some(true);
    let fact = if refused {
        let evidence = format!("{}; {}", why.evidence, may.evidence);
        Fact::known(GdsPath::Refused, evidence)
    } else {
        Fact::known(GdsPath::Staged, why.evidence)
    };
    fact.with_mend(why.mend)
}

/// Whether cuFile's settings have this on the list of what is not accelerated.
fn denied(gds: &GdsFacts, entry: &str) -> Option<Against> {
    let list = gds.denylist.value.as_ref()?;
    let evidence = || format!("{}: {entry}", gds.denylist.evidence);
    let is_there = list.iter().any(|it| it == entry);
    is_there.then(|| Against::new(evidence(), "take it off the list"))
}

/// Whether nvidia-fs serves disks of this driver.
fn serves(gds: &GdsFacts, driver: &str) -> bool {
    let served = gds.nvidia_fs_modules.value.iter().flatten();
    served.into_iter().any(|it| it == driver)
}
