//! The kernels of `gather/gather.cu`, loaded into a device's context.

use std::ffi::{CStr, c_void};

use super::device::Device;
use super::driver::{Driver, Handle, Result};

/// What the driver compiles for the card at hand, and keeps.
const PTX: &str = concat!(include_str!("gather/gather.ptx"), "\0");

/// Threads of a block; the kernels that order rows count on it.
const THREADS: u32 = 256;
/// Rows that one block of those kernels takes.
const TILE: u64 = 16 * THREADS as u64;
/// The most windows that rows can be ordered by, and the threads of the kernel that sums them up.
pub(super) const MOST_WINDOWS: u32 = 1024;
/// A longer row is moved by several groups of lanes.
pub(super) const PART: u64 = 16 << 10;

/// A part of a row, as `gather_parts` takes it: where the device finds it, where it goes in the
/// destination, how long it is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) len: u64,
}

impl Part {
    /// As it lies in memory.
    pub(super) fn words(self) -> [u64; 3] {
        [self.from, self.to, self.len]
    }
}

/// The two widths of numbers of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    U32,
    U64,
}

/// Numbers of rows in memory of the device, and the rows that they mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    pub(super) indices: u64,
    pub(super) width: Width,
    pub(super) count: u64,
    /// Where the device finds row 0.
    pub(super) source: u64,
    /// Bytes from one row to the next.
    pub(super) stride: u64,
    pub(super) row_bytes: u64,
    /// Rows that there are; a number beyond is left out, and told.
    pub(super) rows: u64,
}

/// How the rows lie in windows of the source: `1 << shift` bytes each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) shift: u32,
    pub(super) count: u32,
}

/// The functions of one context. Unloaded by [`Kernels::unload`].
#[derive(Debug)]
pub(super) struct Kernels {
    module: Handle,
    gather_parts: Handle,
    gather_rows: [Handle; 2],
    count_windows: [Handle; 2],
    start_windows: Handle,
    order_rows: [Handle; 2],
}

// SAFETY: handles are names for the driver, which takes them on any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above; nothing about them changes.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// The device's context must be current.
    pub(super) fn load(driver: &Driver) -> Result<Self> {
        let mut module = std::ptr::null_mut();
        // SAFETY: it writes one handle; the text ends with a zero.
        unsafe { driver.module_load(&raw mut module, PTX.as_ptr().cast()) }?;
        let find = |name: &CStr| {
            let mut function = std::ptr::null_mut();
            // SAFETY: it writes one handle; the module lives, and the name ends with a zero.
            unsafe { driver.module_function(&raw mut function, module, name.as_ptr()) }?;
            Ok(function)
        };
        let of_both = |narrow, wide| Ok([find(narrow)?, find(wide)?]);
        let found = (|| {
            Ok(Self {
                module,
                gather_parts: find(c"gather_parts")?,
                gather_rows: of_both(c"gather_rows_u32", c"gather_rows_u64")?,
                count_windows: of_both(c"count_windows_u32", c"count_windows_u64")?,
                start_windows: find(c"start_windows")?,
                order_rows: of_both(c"order_rows_u32", c"order_rows_u64")?,
            })
        })();
        if found.is_err() {
            // SAFETY: loaded above; none of its functions is kept.
            let _ = unsafe { driver.module_unload(module) };
        }
        found
    }

    /// The device's context must be current.
    ///
    /// # Safety
    /// Nothing of it is used afterwards, nor under way.
    pub(super) unsafe fn unload(&self, driver: &Driver) {
        // SAFETY: as the caller says.
        let _ = unsafe { driver.module_unload(self.module) };
    }

    /// Moves parts of rows, a group of lanes each.
    ///
    /// # Safety
    /// `count` parts lie where the device can read them; it can read what each part means, and the aligned words
    /// of 16 bytes that have a byte of it; and write where that goes behind `to`; all that until the stream
    /// has passed.
    pub(super) unsafe fn gather_parts(
        &self,
        device: &Device,
        stream: Handle,
        (parts, count): (u64, u64),
        lanes: u32,
        to: u64,
    ) -> Result<()> {
        let arguments = [parts, count, lanes.into(), to];
        let threads = count * u64::from(lanes);
        // SAFETY: as the caller says; these are the kernel's arguments, little endian.
        unsafe { launch(device, stream, self.gather_parts, threads, &arguments) }
    }

    /// Moves rows by their numbers, in the order given, if not 0.
    ///
    /// # Safety
    /// As for `gather_parts`: the numbers, each row that there is, as many rows behind `to`, the order, and
    /// one number at `wrong`.
    pub(super) unsafe fn gather_rows(
        &self,
        device: &Device,
        stream: Handle,
        rows: Numbered,
        order: u64,
        to: u64,
        wrong: u64,
    ) -> Result<()> {
        let lanes = lanes(rows.row_bytes);
        let arguments = [
            rows.indices,
            order,
            rows.count,
            rows.source,
            rows.stride,
            rows.row_bytes,
            rows.rows,
            lanes.into(),
            to,
            wrong,
        ];
        let threads = rows.count * rows.row_bytes.div_ceil(PART) * u64::from(lanes);
        let function = self.gather_rows[rows.width as usize];
        // SAFETY: as above.
        unsafe { launch(device, stream, function, threads, &arguments) }
    }

    /// Orders rows by windows of the source.
    ///
    /// # Safety
    /// As for `gather_parts`: the numbers; as many counts, which are zero, as there are windows; and room for
    /// as many places at `order`.
    pub(super) unsafe fn order_rows(
        &self,
        device: &Device,
        stream: Handle,
        rows: Numbered,
        windows: Windows,
        (counts, order): (u64, u64),
    ) -> Result<()> {
        let Numbered {
            indices,
            width,
            count,
            stride,
            ..
        } = rows;
        let (shift, most) = (windows.shift.into(), windows.count.into());
        let threads = count.div_ceil(TILE) * u64::from(THREADS);
        let counted = [indices, count, stride, shift, most, counts];
        // SAFETY: as above.
        unsafe {
            launch(
                device,
                stream,
                self.count_windows[width as usize],
                threads,
                &counted,
            )
        }?;
        let summed = [counts, most];
        // SAFETY: as above; one block of as many threads as there can be windows.
        unsafe { launch_blocks(device, stream, self.start_windows, 1, MOST_WINDOWS, &summed) }?;
        let ordered = [indices, count, stride, shift, most, counts, order];
        // SAFETY: as above.
        unsafe {
            launch(
                device,
                stream,
                self.order_rows[width as usize],
                threads,
                &ordered,
            )
        }
    }
}

/// Lanes that move a row together. Measured on an NVIDIA H200, rows ordered by windows of 64 MiB: of 128
/// bytes 393 million a second with 8 and 335 with 32, of 353 bytes at odd places 105 and 127, of 1412 bytes 27
/// and 34; of 512 and 4096 bytes alike.
pub(super) fn lanes(row_bytes: u64) -> u32 {
    if row_bytes <= 256 { 8 } else { 32 }
}

unsafe fn launch(
    device: &Device,
    stream: Handle,
    function: Handle,
    threads: u64,
    arguments: &[u64],
) -> Result<()> {
    let blocks = u32::try_from(threads.div_ceil(THREADS.into())).unwrap_or(u32::MAX);
    // SAFETY: as the caller says.
    unsafe { launch_blocks(device, stream, function, blocks, THREADS, arguments) }
}

/// Every argument is handed over in 8 bytes; a kernel that takes 4 reads the lower ones.
unsafe fn launch_blocks(
    device: &Device,
    stream: Handle,
    function: Handle,
    blocks: u32,
    threads: u32,
    arguments: &[u64],
) -> Result<()> {
    let pointer = |argument: &u64| std::ptr::from_ref(argument).cast_mut().cast::<c_void>();
    let mut pointers: smallvec::SmallVec<[*mut c_void; 10]> =
        arguments.iter().map(pointer).collect();
    let extra = std::ptr::null_mut();
    // SAFETY: as the caller says; the arguments are copied before the call returns.
    unsafe {
        device.driver().launch(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream,
            pointers.as_mut_ptr(),
            extra,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drivers and cards before these refuse newer ones.
    #[test]
    fn old_drivers_and_cards_take_the_kernels() {
        let lines: Vec<_> = PTX.lines().collect();
        assert!(lines.contains(&".version 7.4"), "CUDA 11.4");
        assert!(lines.contains(&".target sm_60"), "compute capability 6.0");
    }

    #[test]
    fn the_kernels_are_those_of_the_source() {
        use std::fmt::Write as _;
        let source = include_bytes!("gather/gather.cu");
        let digest = sha2::Sha256::digest(source);
        let mut text = String::new();
        for byte in digest {
            write!(text, "{byte:02x}").unwrap();
        }
        let made_of = PTX.lines().next().unwrap();
        assert!(made_of.ends_with(&text), "run tools/ptx/build: {made_of}");
    }

    use sha2::Digest as _;
}
