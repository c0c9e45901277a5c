//! The files that the cases read.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempDir};

/// A small and a large file, and a model, on a real disk, written in order; made when first asked for.
#[derive(Debug)]
pub(crate) struct Scene {
    dir: std::path::PathBuf,
    small: OnceLock<NamedTempFile>,
    large: OnceLock<NamedTempFile>,
    best_fio: OnceLock<Vec<String>>,
    model: OnceLock<Model>,
    digests: OnceLock<Vec<Digest>>,
}

/// Safetensors files.
#[derive(Debug)]
struct Model {
    files: Vec<PathBuf>,
    /// Holds them; gone with this.
    _dir: TempDir,
}

/// What lies behind the header of a safetensors file.
#[derive(Debug)]
pub(crate) struct Digest {
    pub(crate) bytes: u64,
    /// In lower-case hexadecimal.
    pub(crate) sha256: String,
}

/// Bytes of the small file.
pub(crate) const SMALL: u64 = 1 << 30;
/// Bytes of the large file.
pub(crate) const LARGE: u64 = 4 << 30;
/// What the model is made of: 190 tensors of 4.6 GiB, in so many files.
const MODEL: [&str; 2] = ["5GiB", "4"];

impl Scene {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            small: OnceLock::new(),
            large: OnceLock::new(),
            best_fio: OnceLock::new(),
            model: OnceLock::new(),
            digests: OnceLock::new(),
        }
    }

    /// A file of 1 GiB, cached.
    pub(crate) fn small(&self) -> Result<&Path, String> {
        cached(&self.small, &self.dir, SMALL)
    }

    /// The options with which fio reads the small file fastest; looked for once.
    pub(crate) fn best_fio(
        &self,
        look: impl FnOnce() -> Result<Vec<String>, String>,
    ) -> Result<&[String], String> {
        if self.best_fio.get().is_none() {
            let _ = self.best_fio.set(look()?);
        }
        Ok(self.best_fio.get().map_or(&[], Vec::as_slice))
    }

    /// A file of 4 GiB, cached.
    pub(crate) fn large(&self) -> Result<&Path, String> {
        cached(&self.large, &self.dir, LARGE)
    }

    /// The files of a model, made by the example `make_model` that lies beside cachectl.
    pub(crate) fn model(&self, cachectl: &Path) -> Result<&[PathBuf], String> {
        if self.model.get().is_none() {
            let _ = self.model.set(model(&self.dir, cachectl)?);
        }
        Ok(self.model.get().map_or(&[], |model| &model.files))
    }

    /// What the model's tensors are, file by file.
    pub(crate) fn digests(&self, cachectl: &Path) -> Result<&[Digest], String> {
        if self.digests.get().is_none() {
            let files = self.model(cachectl)?.iter();
            let digests = files
                .map(|file| digest(file).map_err(|error| format!("{}: {error}", file.display())));
            let _ = self.digests.set(digests.collect::<Result<_, _>>()?);
        }
        Ok(self.digests.get().map_or(&[], Vec::as_slice))
    }
}

fn model(dir: &Path, cachectl: &Path) -> Result<Model, String> {
    let maker = cachectl.with_file_name("examples").join("make_model");
    let name = maker.display();
    let dir = tempfile::tempdir_in(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let made = Command::new(&maker).arg(dir.path()).args(MODEL).output();
    let made = made.map_err(|error| {
        format!("{name}: {error}; make it by cargo build --release --example make_model")
    })?;
    if !made.status.success() {
        let told = String::from_utf8_lossy(&made.stderr);
        return Err(format!("{name}: {}: {told}", made.status));
    }
    let said = |error: std::io::Error| format!("{}: {error}", dir.path().display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir.path()).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.extension().is_some_and(|end| end == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    Ok(Model { files, _dir: dir })
}

/// The example's tensors lie end to end, up to the end of the file.
fn digest(path: &Path) -> std::io::Result<Digest> {
    let mut file = std::fs::File::open(path)?;
    let mut header = [0; 8];
    file.read_exact(&mut header)?;
    let start = u64::from_le_bytes(header).saturating_add(8);
    file.seek(SeekFrom::Start(start))?;
    let mut hash = Sha256::new();
    let bytes = std::io::copy(&mut file, &mut hash)?;
    let sha256 = hash.finalize();
    let sha256 = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Digest { bytes, sha256 })
}

fn cached<'f>(cell: &'f OnceLock<NamedTempFile>, dir: &Path, len: u64) -> Result<&'f Path, String> {
    if cell.get().is_none() {
        let _ = cell.set(write(dir, len).map_err(|error| format!("{}: {error}", dir.display()))?);
    }
    let file = cell.get().ok_or("no file")?;
    warm(file.path())?;
    Ok(file.path())
}

/// A file of so many bytes, whole MiB of them, cold.
pub(crate) fn write(dir: &Path, len: u64) -> std::io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(dir)?;
    let mut block = vec![0u8; 1 << 20];
    for at in 0..len >> 20 {
        block
            .iter_mut()
            .zip(0u64..)
            .for_each(|(byte, i)| *byte = (at * 31 + i * 7).to_le_bytes()[0]);
        file.write_all(&block)?;
    }
    file.as_file().sync_all()?;
    // So that it is cached by reads, and lies in folios as those make them.
    gpumap::evict::file(file.path()).map_err(std::io::Error::other)?;
    Ok(file)
}

/// Reads the file by plain reads, and checks that all of it is cached; again where a page was
/// reclaimed meanwhile.
pub(crate) fn warm(path: &Path) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    for _ in 0..5 {
        let mut file = std::fs::File::open(path).map_err(said)?;
        std::io::copy(&mut file, &mut std::io::sink()).map_err(said)?;
        if gpumap::residency::settled(path)
            .map_err(|error| error.to_string())?
            .is_warm()
        {
            return Ok(());
        }
    }
    Err(format!("{}: it does not stay cached", path.display()))
}

/// Has the file cached by reads of single pages in a random order, so that it lies in the smallest folios.
pub(crate) fn warm_by_random_reads(path: &Path) -> Result<(), String> {
    const THREADS: u64 = 64;
    crate::storage::cold(path)?;
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(said)?;
    crate::raw::expect_random_reads(&file)?;
    let pages = file.metadata().map_err(said)?.len() / 4096;
    let read = |thread: u64| {
        let mut page = [0u8; 4096];
        // An odd factor permutes the numbers below a power of two.
        (thread..pages)
            .step_by(THREADS as usize)
            .try_for_each(|at| {
                let at = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages * 4096;
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, at)
            })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|at| scope.spawn(move || read(at)))
            .collect();
        let mut ends = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.try_for_each(|end| {
            end.map_err(|_| "a thread panicked".to_owned())?
                .map_err(said)
        })
    })?;
    match gpumap::residency::settled(path) {
        Ok(found) if found.is_warm() => Ok(()),
        _ => Err(format!("{}: it does not stay cached", path.display())),
    }
}
