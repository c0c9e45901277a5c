//! Cases that read what is cached into device memory, beside the limit of the link: a pinned copy of as
//! many bytes.

use cudarc::driver::CudaContext;
use gpumap::{DeviceBuffer, Route, Runtime};

use crate::cases::{runtime, said, timed};
use crate::pairs::{Series, measure};
use crate::scene::Scene;

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
    let context = CudaContext::new(0).map_err(said)?;
    let stream = context.new_stream().map_err(said)?;
    // SAFETY: its bytes are all written before they are read.
    #[allow(unsafe_code)]
    let pinned = unsafe { context.alloc_pinned::<u8>(CHUNK) };
    let mut pinned = pinned.map_err(said)?;
    pinned.as_mut_slice().map_err(said)?.fill(1);
    let mut chunk = stream.alloc_zeros::<u8>(CHUNK).map_err(said)?;
    measure(
        pairs,
        &mut || timed(|| map.read(0..BYTES, &mut memory).map(drop).map_err(said)),
        &mut || {
            timed(|| {
                for _ in 0..BYTES / CHUNK as u64 {
                    stream.memcpy_htod(&pinned, &mut chunk).map_err(said)?;
                }
                stream.synchronize().map_err(said)
            })
        },
    )
}
