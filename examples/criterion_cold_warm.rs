//! Cold against warm in a criterion benchmark, honestly: each run's state is proved before it,
//! only the read is timed, and a void sample is taken again, never counted.
//!
//! `cargo run --release --example criterion_cold_warm [FILE]`
//!
//! As a benchmark of your own: copy it to `benches/`, with `harness = false` in its `[[bench]]`, and
//! `criterion` and `tempfile` among the dev-dependencies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::Criterion;
use gpumap::sample::{Sampler, State};
use gpumap::{ByteRange, Mmap, Target};

/// The most of the file that is read.
const MOST: u64 = 16 << 20;
/// So many void samples for one result mean that the state cannot be had.
const MOST_VOID: u32 = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = Criterion::default().sample_size(10);
    let temporary = tempfile::NamedTempFile::new_in(std::env::current_dir()?)?;
    // `cargo bench` passes options, `--bench` first.
    let mut names = std::env::args_os()
        .skip(1)
        .filter(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    let path = match names.next() {
        Some(path) => PathBuf::from(path),
        None => {
            std::fs::write(temporary.path(), vec![7u8; 16 << 20])?;
            temporary.path().to_owned()
        }
    };
    for state in [State::Cold, State::Warm] {
        measure(&mut criterion, &path, state)?;
    }
    Ok(())
}

fn measure(
    criterion: &mut Criterion,
    path: &Path,
    state: State,
) -> Result<(), Box<dyn std::error::Error>> {
    let map = Mmap::open(path)?;
    let range = ByteRange::at(0, map.len().min(MOST)).unwrap_or_default();
    let mut bytes = vec![0u8; usize::try_from(range.len())?];
    let sampler = Sampler::new(state, Target::from(&map).range(0..range.len()))?;
    criterion.bench_function(&format!("read/{state}"), |b| {
        b.iter_custom(|runs| {
            let mut total = Duration::ZERO;
            let (mut valid, mut void) = (0, 0);
            while valid < runs {
                let sample = sampler
                    .run(|| map.read(0..range.len(), &mut bytes))
                    .expect("sample");
                sample.value.expect("read");
                match sample.void {
                    None => {
                        total += sample.elapsed;
                        valid += 1;
                    }
                    Some(why) => {
                        void += 1;
                        assert!(
                            void < MOST_VOID,
                            "{}: cannot be {state}: {why}",
                            path.display()
                        );
                    }
                }
            }
            total
        });
    });
    Ok(())
}
