//! Cases that read what is cached into device memory, beside the limit of the link: a pinned copy of as
//! many bytes.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, PinnedHostSlice};
use gpumap::{DeviceBuffer, Engine, Mmap, ReadOptions, Route, Runtime, Settings};

use crate::pairs::{Series, measure};
use crate::raw;
use crate::run::{runtime, said, timed};
use crate::scene::Scene;
use crate::storage;

const BYTES: u64 = 2 << 30;
/// What one pinned copy takes; the limit is reached from here on.
const CHUNK: usize = 256 << 20;

pub(crate) fn alloc(bytes: u64) -> Result<DeviceBuffer, String> {
    let runtime = Runtime::builder().build();
    runtime
        .device(0)
        .and_then(|gpu| gpu.alloc(bytes))
        .map_err(said)
}

fn pinned(context: &Arc<CudaContext>, len: usize) -> Result<PinnedHostSlice<u8>, String> {
    // SAFETY: its bytes are all written here.
    #[allow(unsafe_code)]
    let pinned = unsafe { context.alloc_pinned::<u8>(len) };
    let mut pinned = pinned.map_err(said)?;
    pinned.as_mut_slice().map_err(said)?.fill(1);
    Ok(pinned)
}

/// What the link to the device can do: pinned copies.
pub(crate) struct Link {
    stream: Arc<CudaStream>,
    pinned: PinnedHostSlice<u8>,
    chunk: CudaSlice<u8>,
}

impl Link {
    pub(crate) fn new() -> Result<Self, String> {
        let context = CudaContext::new(0).map_err(said)?;
        let stream = context.new_stream().map_err(said)?;
        Ok(Self {
            pinned: pinned(&context, CHUNK)?,
            chunk: stream.alloc_zeros::<u8>(CHUNK).map_err(said)?,
            stream,
        })
    }

    /// Puts numbers into memory of the device.
    pub(crate) fn upload(&self, numbers: &[u32]) -> Result<CudaSlice<u32>, String> {
        let there = self.stream.clone_htod(numbers).map_err(said)?;
        self.stream.synchronize().map_err(said)?;
        Ok(there)
    }

    /// Seconds for so many bytes, in copies of 256 MiB or what is left.
    pub(crate) fn carry(&mut self, bytes: u64) -> Result<f64, String> {
        let bytes = usize::try_from(bytes).map_err(said)?;
        let pinned = self.pinned.as_slice().map_err(said)?;
        timed(|| {
            for at in (0..bytes).step_by(CHUNK) {
                let len = CHUNK.min(bytes - at);
                let mut to = self.chunk.slice_mut(..len);
                self.stream
                    .memcpy_htod(&pinned[..len], &mut to)
                    .map_err(said)?;
            }
            self.stream.synchronize().map_err(said)
        })
    }
}

/// 2 GiB in order.
pub(crate) fn in_order(
    scene: &Scene,
    pairs: usize,
    route: Route,
    workers: usize,
) -> Result<Series, String> {
    let map = runtime(route, "4MiB", workers)?
        .open(scene.large()?)
        .map_err(said)?;
    let mut memory = alloc(BYTES)?;
    let mut link = Link::new()?;
    // The mapped way of several threads, which copy.
    let options = ReadOptions::new().engine((route == Route::Mapped).then_some(Engine::Copy));
    measure(
        pairs,
        &mut || {
            timed(|| {
                let read = map.read_with(0..BYTES, &mut memory, options);
                read.map(drop).map_err(said)
            })
        },
        &mut || link.carry(BYTES),
    )
}

/// 2 GiB in order by 16 workers through as much pinned memory as a runtime has unasked, beside the same through another
/// amount.
pub(crate) fn pinned_bound(scene: &Scene, pairs: usize, other: &str) -> Result<Series, String> {
    let path = scene.large()?;
    let map = |pinned: Option<&str>| {
        let mut settings = Settings::default();
        let given = [
            ("WORKERS", Some("16")),
            ("ROUTE", Some("buffered")),
            ("PINNED", pinned),
        ];
        for (key, value) in given {
            if let Some(value) = value {
                settings
                    .set(&format!("GPUMAP_{key}"), value)
                    .map_err(said)?;
            }
        }
        let runtime = Runtime::builder().settings(settings).build();
        runtime.open(path).map_err(said)
    };
    let [map, other] = [map(None)?, map(Some(other))?];
    let mut memory = alloc(BYTES)?;
    let mut read = |map: &Mmap| timed(|| map.read(0..BYTES, &mut memory).map(drop).map_err(said));
    let read = std::cell::RefCell::new(&mut read);
    measure(pairs, &mut || (read.borrow_mut())(&map), &mut || {
        (read.borrow_mut())(&other)
    })
}

/// Random rows of 4 KiB, beside as many bare threads.
pub(crate) fn random(scene: &Scene, pairs: usize, workers: usize) -> Result<Series, String> {
    let path = scene.large()?;
    let map = runtime(Route::Buffered, "4MiB", workers)?
        .open(path)
        .map_err(said)?;
    let file = std::fs::File::open(path).map_err(said)?;
    let rows = storage::rows();
    let bytes = rows.iter().map(|row| row.end - row.start).sum::<u64>();
    let mut memory = alloc(bytes)?;
    let context = CudaContext::new(0).map_err(said)?;
    let stream = context.new_stream().map_err(said)?;
    let len = usize::try_from(bytes).map_err(said)?;
    let mut pinned = pinned(&context, len)?;
    let mut there = stream.alloc_zeros::<u8>(len).map_err(said)?;
    measure(
        pairs,
        &mut || timed(|| map.gather(&rows, &mut memory).map(drop).map_err(said)),
        &mut || {
            timed(|| {
                let into = pinned.as_mut_slice().map_err(said)?;
                raw::pread_rows(&file, into, &rows, workers)?;
                stream.memcpy_htod(&pinned, &mut there).map_err(said)?;
                stream.synchronize().map_err(said)
            })
        },
    )
}
