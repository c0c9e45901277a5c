//! Reading a file into device memory.

use std::fs::File as Opened;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::code;
use crate::cuda::Cuda;
use crate::files::File;
use crate::parts::Parts;
use crate::statistics::Operation;
use crate::world::{Scripted, World, world};

pub(crate) const BLOCK: u64 = 4096;
const PIECE: usize = 1 << 20;
/// What a read that fails or comes short may leave where its bytes did not go.
const GARBAGE: u8 = 0xbd;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) handle: usize,
    pub(crate) base: u64,
    pub(crate) len: usize,
    pub(crate) from: i64,
    pub(crate) skip: i64,
}

/// Why a read failed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Failure {
    Code(i32),
    Errno(i32),
}

impl From<crate::code::Status> for Failure {
    fn from(status: crate::code::Status) -> Self {
        Self::Code(status.code)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// A read that was found to be possible.
struct Begun {
    file: File,
    cuda: Cuda,
    at: u64,
    from: u64,
    device: usize,
    scripted: Option<Scripted>,
    most: usize,
    /// The how manieth call it is.
    number: u64,
}

pub(crate) fn read(wanted: Wanted) -> Result<usize, Failure> {
    let begun = world(|world| {
        let begun = world.begin(wanted);
        if begun.is_err() {
            world.statistics.operation(Operation::Read, false);
        }
        begun
    })?;
    while world(|world| begun.number <= world.held) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let brought = begun.bring(wanted.len);
    world(|world| world.finish(wanted, &begun, brought.ok()));
    brought
}

impl World {
    fn begin(&mut self, wanted: Wanted) -> Result<Begun, Failure> {
        let scripted = self.scripted("cuFileRead");
        let number = self.reads_begun();
        // Recorded of 1.11 and 1.15; later ones open the driver.
        if wanted.handle == 0 || self.open == 0 {
            return Err(Failure::Errno(libc::EINVAL));
        }
        let Some(file) = self.files.get(&wanted.handle).copied() else {
            self.complain("a read of a file that is not registered");
            // Others saw this one in `errno`, though the reference has it as a negative answer.
            return Err(Failure::Errno(code::HANDLE_NOT_REGISTERED));
        };
        if !file.is_still_open() {
            self.complain("a read of a file whose descriptor is closed");
            return Err(Failure::Errno(libc::EBADF));
        }
        let whole =
            u64::try_from(wanted.from).and_then(|from| Ok((from, u64::try_from(wanted.skip)?)));
        // Recorded of 1.15 on an H200, as all that is said of it here.
        let (from, skip) = whole.map_err(|_| Failure::Errno(code::INVALID_VALUE))?;
        let at = wanted.base.saturating_add(skip);
        let (cuda, device) = self.place(wanted.base, at, wanted.len)?;
        *self.reading.entry(wanted.handle).or_default() += 1;
        let most = match self.shortening && self.below(2) == 0 {
            true => 1 + self.below(wanted.len),
            false => wanted.len,
        };
        Ok(Begun {
            file,
            cuda,
            at,
            from,
            device,
            scripted,
            most,
            number,
        })
    }

    /// The device that a read goes to, which may. No context need be current, nor the memory's; that one of another
    /// device must not be is assumed.
    fn place(&mut self, base: u64, at: u64, len: usize) -> Result<(Cuda, usize), Failure> {
        let cuda = Cuda::loaded().ok_or(Failure::Code(code::CUDA_DRIVER_ERROR))?;
        let registered = self.registered(at, len.max(1));
        // Documented: reads into registered memory name what was registered.
        if registered.is_some_and(|(start, _)| start != base) {
            self.complain("a read into registered memory by another base");
        }
        let Some(device) = cuda.device_of(base).or_else(|| cuda.device_of(at)) else {
            self.see_freed_memory();
            return Err(Failure::Code(code::CUDA_POINTER_INVALID));
        };
        if cuda.device().is_some_and(|current| current != device) {
            return Err(Failure::Code(code::CUDA_CONTEXT_MISMATCH));
        }
        if cuda
            .device_of(at.saturating_add(len.max(1) as u64 - 1))
            .is_none()
        {
            self.complain("a read past the end of device memory");
            return Err(Failure::Errno(libc::EPERM));
        }
        let within = registered.is_none_or(|(start, buffer)| {
            start <= at && at + len as u64 <= start + buffer.len as u64
        });
        match within {
            true => Ok((cuda, device)),
            false => Err(Failure::Code(code::INVALID_MAPPING_RANGE)),
        }
    }

    fn finish(&mut self, wanted: Wanted, begun: &Begun, brought: Option<usize>) {
        let parts = Parts::of(
            self.start.mode,
            begun.file.direct,
            begun.from,
            begun.at,
            wanted.len,
        );
        self.statistics.read(begun.device, parts, brought);
        if let (Some(nvidia_fs), Some(bytes)) = (&mut self.nvidia_fs, brought) {
            nvidia_fs.count(parts.nvfs, bytes);
        }
        let left = self.reading.entry(wanted.handle).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.reading.remove(&wanted.handle);
        }
    }
}

impl Begun {
    fn bring(&self, len: usize) -> Result<usize, Failure> {
        let most = match self.scripted {
            Some(Scripted::Fails(status)) => {
                self.spoil(0, len)?;
                return Err(status.into());
            }
            Some(Scripted::Errno(errno)) => {
                self.spoil(0, len)?;
                return Err(Failure::Errno(errno));
            }
            Some(Scripted::Short(most)) => most.min(len),
            None => self.most,
        };
        let mut done = 0;
        while done < most {
            let bytes = self.read_blocks(self.from + done as u64, (most - done).min(PIECE))?;
            if bytes.is_empty() {
                return Ok(done);
            }
            self.cuda.write(self.at + done as u64, &bytes)?;
            done += bytes.len();
        }
        self.spoil(most, len)?;
        Ok(done)
    }

    /// Leaves garbage where bytes were asked for and did not go.
    fn spoil(&self, from: usize, len: usize) -> Result<(), Failure> {
        let garbage = vec![GARBAGE; (len - from).min(BLOCK as usize)];
        match garbage.is_empty() {
            true => Ok(()),
            false => Ok(self.cuda.write(self.at + from as u64, &garbage)?),
        }
    }

    /// Reads by whole blocks to a block of memory, as files want it that are open with `O_DIRECT`.
    fn read_blocks(&self, from: u64, len: usize) -> Result<Vec<u8>, Failure> {
        // SAFETY: the descriptor is open, and the file that is made of it here is never dropped.
        let file = ManuallyDrop::new(unsafe { Opened::from_raw_fd(self.file.fd) });
        let start = from / BLOCK * BLOCK;
        let head = (from - start) as usize;
        let whole = (head + len).next_multiple_of(BLOCK as usize);
        let mut memory = vec![0; whole + BLOCK as usize];
        let skip = memory.as_ptr().align_offset(BLOCK as usize);
        let got = file.read_at(&mut memory[skip..skip + whole], start)?;
        let end = got.min(head + len);
        Ok(memory[skip..skip + end]
            .get(head..)
            .unwrap_or_default()
            .to_vec())
    }
}
