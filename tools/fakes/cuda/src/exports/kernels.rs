//! Modules and kernels.

use std::ffi::{CStr, c_char, c_uint, c_void};

use super::{Handle, Out, current, leaving, stream};
use crate::code;
use crate::kernels::{Kernel, Launch};
use crate::work::Action;
use crate::world::Done;

/// Threads of a block, and blocks in each direction, that can be at most.
const MOST_THREADS: u64 = 1024;
const MOST_BLOCKS: [u32; 3] = [(1 << 31) - 1, 65_535, 65_535];

/// The arguments of a kernel, as they are now.
fn arguments(kernel: Kernel, places: *mut *mut c_void) -> Done<Vec<u64>> {
    if places.is_null() {
        return Err(code::INVALID_VALUE);
    }
    let numbered = kernel.arguments().iter().enumerate();
    let read = numbered.map(|(number, size)| {
        let mut bytes = [0u8; 8];
        // SAFETY: the caller of the driver hands over a place for each argument of the kernel, and at
        // each so many bytes.
        unsafe {
            let place = *places.add(number);
            std::ptr::copy_nonoverlapping(place.cast::<u8>(), bytes.as_mut_ptr(), *size);
        }
        u64::from_le_bytes(bytes)
    });
    Ok(read.collect())
}

/// How many blocks of how many threads.
fn dimensions(grid: [c_uint; 3], block: [c_uint; 3]) -> Done<(u64, u64)> {
    let all = |each: [c_uint; 3]| each.into_iter().map(u64::from).product::<u64>();
    let few = grid
        .iter()
        .zip(MOST_BLOCKS)
        .all(|(blocks, most)| *blocks <= most);
    let (blocks, threads) = (all(grid), all(block));
    if !few || blocks == 0 || threads == 0 || threads > MOST_THREADS {
        return Err(code::INVALID_VALUE);
    }
    Ok((blocks, threads))
}

export! {
    /// Takes PTX only.
    fn cuModuleLoadData(to: Out<Handle>, image: *const c_char) |world| {
        let context = current(world)?;
        world.may_wait()?;
        if image.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: PTX is text that ends with a zero.
        let ptx = unsafe { CStr::from_ptr(image) };
        let module = world.load_module(context, ptx.to_bytes())?;
        to.put(module as Handle)?;
    }

    fn cuModuleUnload(module: Handle) |world| {
        let context = leaving(world)?;
        world.may_wait()?;
        world.unload_module(module as u64)?;
        world.told(context)?;
    }

    fn cuModuleGetFunction(to: Out<Handle>, module: Handle, name: *const c_char) |world| {
        current(world)?;
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the name ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let function = world.function(module as u64, &name)?;
        to.put(function as Handle)?;
    }

    /// Arguments in a buffer (`extra`) are not known here.
    fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        _shared: c_uint,
        on: Handle,
        places: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) |world| {
        let context = current(world)?;
        let (module, kernel) = world.kernel(context, function as u64)?;
        let (blocks, threads) = dimensions([grid_x, grid_y, grid_z], [block_x, block_y, block_z])?;
        if !extra.is_null() {
            return Err(code::INVALID_VALUE);
        }
        if [grid_y, grid_z, block_y, block_z] != [1; 4] {
            world.violate("a kernel of one dimension launched in several");
        }
        let arguments = arguments(kernel, places)?;
        let launch = Launch { module, kernel, arguments, blocks, threads };
        world.put(context, stream(on), Action::Kernel(launch))?;
    }
}
