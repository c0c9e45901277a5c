//! Reads a file in blocks while it computes with the block before: two buffers change places.
//!
//! `cargo run --example overlap [FILE]`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use gpumap::{Error, Mmap, Pending};

const BLOCK: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::NamedTempFile::new()?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => path.into(),
        None => {
            std::fs::write(temporary.path(), vec![3u8; 5_000_000])?;
            temporary.path().to_owned()
        }
    };
    let map = Mmap::open(path)?;
    println!("the bytes sum to {}", sum(&map)?);
    Ok(())
}

fn sum(map: &Mmap) -> Result<u64, Error> {
    let mut sum = 0;
    let mut spare = vec![0u8; 0];
    let mut ahead = begin(map, 0, vec![0u8; 0])?;
    let mut next = BLOCK;
    while let Some(pending) = ahead {
        let (report, block) = pending.wait();
        report?;
        // The next block travels while this one is summed.
        ahead = begin(map, next, spare)?;
        next += BLOCK;
        sum += block.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        spare = block;
    }
    Ok(sum)
}

/// Begins to read the block at `start`, the last one shorter; `None` behind the end.
fn begin(map: &Mmap, start: u64, mut into: Vec<u8>) -> Result<Option<Pending<Vec<u8>>>, Error> {
    let end = (start + BLOCK).min(map.len());
    if start >= end {
        return Ok(None);
    }
    into.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
    Ok(Some(map.submit(start..end, into)?))
}
