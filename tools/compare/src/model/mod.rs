//! Cases that load a model, safetensors files, into device memory: `cachectl load` beside other loaders of such files.
//! Each load is by a fresh process, and is timed by that from where its GPU has a context until every tensor is there:
//! opening, headers, memory and reading are in it on both sides, imports and closing on neither.

mod loader;
mod ours;
mod state;

use std::path::{Path, PathBuf};

use crate::device::Link;
use crate::pairs::{Series, measure};
use crate::scene::Scene;
pub(crate) use loader::Peer;
use loader::Work;
use ours::Ours;
pub(crate) use state::State;

/// In a state, beside a peer at the best of its settings.
pub(crate) fn beside(
    scene: &Scene,
    pairs: usize,
    cachectl: &Path,
    state: State,
    peer: Peer,
) -> Result<Series, String> {
    // Before a model is made for it.
    peer.is_here()?;
    let files = scene.model(cachectl)?;
    let work = Work {
        files,
        make: &|| state.make(files),
    };
    state.begin(files)?;
    let ours = checked(scene, cachectl, files, state)?;
    let mut best = loader::best(peer, state, &work)?;
    measure(
        pairs,
        &mut || {
            (work.make)()?;
            ours.load()
        },
        &mut || best.load(&work),
    )
}

/// Warm, beside what the link to the device can do.
pub(crate) fn beside_link(scene: &Scene, pairs: usize, cachectl: &Path) -> Result<Series, String> {
    let files = scene.model(cachectl)?;
    let mut link = Link::new()?;
    State::Warm.begin(files)?;
    let ours = checked(scene, cachectl, files, State::Warm)?;
    let bytes = ours.bytes();
    measure(
        pairs,
        &mut || {
            State::Warm.make(files)?;
            ours.load()
        },
        &mut || link.carry(bytes),
    )
}

/// Our side, after a load of which every byte was looked at as it lay on the device.
fn checked<'s>(
    scene: &'s Scene,
    cachectl: &'s Path,
    files: &'s [PathBuf],
    state: State,
) -> Result<Ours<'s>, String> {
    let ours = Ours::new(cachectl, files, scene.digests(cachectl)?);
    state.make(files)?;
    ours.check()?;
    Ok(ours)
}
