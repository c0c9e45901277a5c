//! Views: what a kernel reads at their address is the file's, whatever backs them, as long as they live.

mod backing;
mod faults;
mod freshness;
mod lives;
mod streams;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use fake_cuda::control::Double;
use gpumap::{Device, DeviceStream, DeviceView, Mmap, Runtime, ViewOptions};

use crate::double::{Driver, SUCCESS, made};
use crate::driver::module;
use crate::scene::runtime;

/// Bytes of a row that one group of lanes moves.
const PART: u64 = 16_384;
const ONLY: ViewOptions = ViewOptions::new().zero_copy_only(true);

/// A kernel that copies what lies at an address.
struct Reader {
    driver: Driver,
    module: usize,
    function: usize,
    /// The number of the only row; and where a wrong one would be told.
    row: u64,
    wrong: u64,
    /// Current to this thread.
    context: Arc<CudaContext>,
}

impl Reader {
    fn new(double: Option<&Double>) -> Self {
        let context = CudaContext::new(0).unwrap();
        let driver = Driver::of(double);
        let module = module(&driver);
        Self {
            function: driver.function(module, c"gather_rows_u32"),
            row: driver.placed(&0u32.to_le_bytes()),
            wrong: driver.placed(&u64::MAX.to_le_bytes()),
            module,
            driver,
            context,
        }
    }

    fn start(&self, view: &DeviceView, to: u64, stream: usize) {
        let len = view.len();
        let lanes = 32;
        let blocks = u32::try_from((len.div_ceil(PART) * lanes).div_ceil(256)).unwrap();
        let rows = [
            self.row,
            0,
            1,
            view.address(),
            len,
            len,
            1,
            lanes,
            to,
            self.wrong,
        ];
        let launched = self
            .driver
            .launch(self.function, blocks, 256, stream, &rows);
        assert_eq!(launched, SUCCESS);
    }

    fn room(&self, len: u64) -> u64 {
        made(|to| self.driver.cuMemAlloc_v2(to, usize::try_from(len).unwrap()))
    }

    /// What landed there, which is freed.
    fn landed(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        let (to, len) = (bytes.as_mut_ptr(), bytes.len());
        assert_eq!(self.driver.cuMemcpyDtoH_v2(to, at, len), SUCCESS);
        assert_eq!(self.driver.cuMemFree_v2(at), SUCCESS);
        bytes
    }

    fn read(&self, view: &DeviceView) -> Vec<u8> {
        let to = self.room(view.len());
        self.start(view, to, 0);
        assert_eq!(self.driver.cuCtxSynchronize(), SUCCESS);
        self.landed(to, view.len())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.context.bind_to_thread().unwrap();
        self.driver.cuMemFree_v2(self.row);
        self.driver.cuMemFree_v2(self.wrong);
        self.driver.cuModuleUnload(self.module);
    }
}

/// A runtime that registers little at once.
fn small_chunks() -> Runtime {
    runtime(&[("GPUMAP_CHUNK", "64KiB")])
}

fn view(map: &Mmap, rt: &Runtime, start: u64, len: u64) -> DeviceView {
    map.view(&rt.device(0).unwrap(), start..start + len)
        .unwrap()
}

/// A stream by its handle, which lives for as long as the test uses it.
fn raw(device: &Device, stream: *mut c_void) -> DeviceStream<'_> {
    // SAFETY: it lives, and is the device's.
    #[allow(unsafe_code)]
    unsafe {
        DeviceStream::from_raw(device, stream)
    }
}
