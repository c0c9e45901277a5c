//! Captures a gather in a CUDA graph: each launch looks up the rows whose numbers lie on the device by then.
//!
//! `cargo run --example graph`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(unsafe_code, reason = "nothing tells when a graph is gone")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use gpumap::{Device, DeviceIndices, Runtime};

const ROW: usize = 256;
const ROWS: u32 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rt = Runtime::global()?;
    match rt.device(0) {
        Ok(gpu) => replay(&rt, &gpu),
        Err(error) => {
            println!("no GPU to launch a graph on: {error}");
            Ok(())
        }
    }
}

fn replay(rt: &Runtime, gpu: &Device) -> Result<(), Box<dyn std::error::Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let words = (0..ROWS * 64).flat_map(u32::to_ne_bytes);
    std::fs::write(file.path(), words.collect::<Vec<_>>())?;
    let table = rt.open(file.path())?;
    // In a capture nothing can be registered.
    table.register(gpu, ..)?;

    let context = CudaContext::new(gpu.ordinal())?;
    // SAFETY: all of cudarc's memory is used on one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let mut numbers = stream.clone_htod(&[0u32; 3])?;
    let rows = gpu.alloc(3 * ROW as u64)?;

    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    let indices = DeviceIndices::from(&numbers);
    // SAFETY: the numbers outlive the graph, and are written to on the stream on which it is launched.
    let gather = unsafe { table.capture_gather_rows(&stream, indices, ROW as u64, rows) }?;
    let graph = stream.end_capture(CUgraphInstantiate_flags(0))?;
    let graph = graph.ok_or("nothing was captured")?;

    for wanted in [[7, 9_999, 7], [41, 0, 5_000]] {
        stream.memcpy_htod(&wanted, &mut numbers)?;
        graph.launch()?;
        stream.synchronize()?;
        let same = gathered(&stream, gather.address())? == on_disk(file.path(), &wanted)?;
        println!("rows {wanted:?}: the bytes of pread: {same}");
    }
    println!("the file is as it was: {}", gather.is_current());
    drop(graph);
    // SAFETY: the graph is destroyed, and its last launch was waited for.
    drop(unsafe { gather.release() });
    Ok(())
}

/// What the graph has left in the destination, which `gather` holds.
fn gathered(
    stream: &std::sync::Arc<cudarc::driver::CudaStream>,
    address: u64,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    // SAFETY: so many bytes lie there; they are not freed here.
    let rows = unsafe { stream.upgrade_device_ptr::<u8>(address, 3 * ROW) };
    let bytes = stream.clone_dtoh(&rows);
    rows.leak();
    Ok(bytes?)
}

fn on_disk(path: &std::path::Path, rows: &[u32]) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0; rows.len() * ROW];
    for (row, place) in rows.iter().zip(bytes.chunks_exact_mut(ROW)) {
        file.read_exact_at(place, u64::from(*row) * ROW as u64)?;
    }
    Ok(bytes)
}
