//! What a device reads in place: registered pages of a mapped file, by the copy engine and by the kernel.

mod beside;
mod both_ends;
mod bounds;
mod engines;
mod faults;
mod freshness;
mod lives;

use std::ops::Range;

use gpumap::{Device, Engine, Mmap, ReadOptions, Report, Result, Route};

use super::held;

/// The engines that read in place.
const ENGINES: [Engine; 2] = [Engine::Dma, Engine::Kernel];

fn by(engine: Engine) -> ReadOptions {
    ReadOptions::new().route(Route::Mapped).engine(engine)
}

/// What lands in a buffer that held other bytes before.
fn landed(
    gpu: &Device,
    len: u64,
    read: impl FnOnce(&mut gpumap::DeviceBuffer) -> Result<Report>,
) -> Result<(Vec<u8>, Report)> {
    let mut buffer = gpu.alloc(len)?;
    buffer.fill(0xee)?;
    let report = read(&mut buffer)?;
    Ok((held(&buffer), report))
}

fn read(gpu: &Device, map: &Mmap, range: Range<u64>, options: ReadOptions) -> Result<Vec<u8>> {
    let len = range.end - range.start;
    let landed = landed(gpu, len, |into| map.read_with(range, into, options));
    landed.map(|(bytes, _)| bytes)
}
