//! Reads a file in blocks into the memory of a GPU while it computes with the block before: two buffers
//! change places.
//!
//! `cargo run --example overlap_to_device [FILE]`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use gpumap::{Device, DeviceBuffer, Error, Mmap, Pending, Refused, Runtime};

const BLOCK: u64 = 1 << 20;

/// A block that is on its way, or there already.
enum Ahead {
    Pending(Pending<DeviceBuffer>),
    There(DeviceBuffer),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::NamedTempFile::new()?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => path.into(),
        None => {
            std::fs::write(temporary.path(), vec![3u8; 5_000_000])?;
            temporary.path().to_owned()
        }
    };
    let rt = Runtime::global()?;
    match rt.device(0) {
        Ok(gpu) => println!("the bytes sum to {}", sum(&rt.open(path)?, &gpu)?),
        Err(error) => println!("no GPU to read into: {error}"),
    }
    Ok(())
}

fn sum(map: &Mmap, gpu: &Device) -> Result<u64, Error> {
    let mut sum = 0;
    let mut spare = gpu.alloc(BLOCK)?;
    let mut ahead = begin(map, 0, gpu.alloc(BLOCK)?)?;
    let mut next = BLOCK;
    while let Some(block) = ahead {
        let block = arrived(block)?;
        // The next block travels while this one is summed.
        ahead = begin(map, next, spare)?;
        next += BLOCK;
        sum += sum_of(&block)?;
        spare = block;
    }
    Ok(sum)
}

/// Begins to read the block at `start`; `None` behind the end. The last block is shorter, and a
/// destination is as long as what is read, so that it takes a buffer of its own.
fn begin(map: &Mmap, start: u64, mut into: DeviceBuffer) -> Result<Option<Ahead>, Error> {
    let end = (start + BLOCK).min(map.len());
    if start >= end {
        return Ok(None);
    }
    if end - start < into.len() {
        into = into.device().alloc(end - start)?;
    }
    match map.submit(start..end, into) {
        Ok(pending) => Ok(Some(Ahead::Pending(pending))),
        // Others of this runtime have submitted as much as may be: read it here and now.
        Err(Refused {
            mut destination,
            error: Error::Busy { .. },
        }) => {
            map.read(start..end, &mut destination)?;
            Ok(Some(Ahead::There(destination)))
        }
        Err(refused) => Err(refused.error),
    }
}

fn arrived(block: Ahead) -> Result<DeviceBuffer, Error> {
    match block {
        Ahead::Pending(pending) => {
            let (report, block) = pending.wait();
            report?;
            Ok(block)
        }
        Ahead::There(block) => Ok(block),
    }
}

/// Stands for a kernel at the buffer's address. One must be done before the buffer is read into again.
fn sum_of(block: &DeviceBuffer) -> Result<u64, Error> {
    let mut bytes = vec![0u8; usize::try_from(block.len()).unwrap_or(usize::MAX)];
    block.copy_to_host(0, &mut bytes)?;
    Ok(bytes.iter().map(|&byte| u64::from(byte)).sum())
}
