//! Every tensor of a model (safetensors files) into the memory of a GPU, or of the host where there is none, by one call.
//!
//! `cargo run --release --example safetensors -- [--per-tensor] FILE…`: one allocation for each file, in which a tensor
//! lies where its header says, or one for each tensor. `cachectl load` does the same, and tells what is wrong with a file.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::collections::BTreeMap;
use std::error::Error;

use gpumap::{Batch, BatchDestination, Device, DeviceBuffer, Mmap, Runtime};
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A tensor's name, and its bytes behind the header.
type Tensors = Vec<(String, std::ops::Range<u64>)>;

enum Memory {
    Host(Vec<u8>),
    Device(DeviceBuffer),
}

impl Memory {
    fn new(gpu: Option<&Device>, len: u64) -> Result<Self> {
        Ok(match gpu {
            Some(gpu) => Self::Device(gpu.alloc(len)?),
            None => Self::Host(vec![0; usize::try_from(len)?]),
        })
    }

    fn destination<'d>(&'d mut self, batch: &mut Batch<'d>) -> BatchDestination {
        match self {
            Self::Host(bytes) => batch.destination(bytes),
            Self::Device(buffer) => batch.destination(buffer),
        }
    }

    /// What arrived, summed.
    fn sum(&self) -> Result<u64> {
        let copy;
        let bytes = match self {
            Self::Host(bytes) => bytes,
            Self::Device(buffer) => {
                let mut bytes = vec![0; usize::try_from(buffer.len())?];
                buffer.copy_to_host(0, &mut bytes)?;
                copy = bytes;
                &copy
            }
        };
        Ok(bytes.iter().map(|byte| u64::from(*byte)).sum())
    }
}

fn main() -> Result<()> {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let per_tensor = files.first().is_some_and(|word| word == "--per-tensor");
    files.drain(..usize::from(per_tensor));
    let rt = Runtime::global()?;
    let gpu = rt.device(0).ok();
    let mut models = Vec::new();
    for file in &files {
        let map = rt.open(file)?;
        let (start, tensors) = header(&map)?;
        models.push((map, start, tensors));
    }
    let mut memories = Vec::new();
    for (map, start, tensors) in &models {
        let lens = tensors.iter().map(|(_, bytes)| bytes.end - bytes.start);
        let lens: Vec<u64> = if per_tensor {
            lens.collect()
        } else {
            vec![map.len() - start]
        };
        let made = lens.into_iter().map(|len| Memory::new(gpu.as_ref(), len));
        memories.push(made.collect::<Result<Vec<_>>>()?);
    }

    let mut batch = Batch::new();
    for ((map, start, tensors), memories) in models.iter().zip(&mut memories) {
        let places: Vec<_> = memories
            .iter_mut()
            .map(|memory| memory.destination(&mut batch))
            .collect();
        for (number, (_, bytes)) in tensors.iter().enumerate() {
            let (place, at) = if per_tensor {
                (places[number], 0)
            } else {
                (places[0], bytes.start)
            };
            batch.add_at(map, start + bytes.start..start + bytes.end, place, at);
        }
    }
    let report = batch.read()?;

    let to = gpu.map_or(Ok("host memory".to_owned()), |gpu| gpu.name())?;
    let (tensors, bytes, reads) = (report.segments(), report.total.bytes, report.reads.len());
    println!("{tensors} tensors, {bytes} bytes into {to}, in {reads} reads");
    let sums = memories
        .iter()
        .flatten()
        .map(Memory::sum)
        .collect::<Result<Vec<_>>>()?;
    println!("the bytes sum to {}", sums.iter().sum::<u64>());
    Ok(())
}

/// Where the tensors' bytes begin in a file, and its tensors.
fn header(map: &Mmap) -> Result<(u64, Tensors)> {
    let mut len = [0; 8];
    map.read(..8, &mut len)?;
    let start = u64::from_le_bytes(len).saturating_add(8);
    let entries: BTreeMap<String, Value> = serde_json::from_slice(&map.read_to_vec(8..start)?)?;
    let tensors = entries
        .into_iter()
        .filter(|(name, _)| name != "__metadata__");
    let bytes = tensors.map(|(name, entry)| {
        let offset = |at: usize| {
            entry["data_offsets"][at]
                .as_u64()
                .ok_or("a tensor without data_offsets")
        };
        Ok((name, offset(0)?..offset(1)?))
    });
    Ok((start, bytes.collect::<Result<_>>()?))
}
