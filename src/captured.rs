//! Gathers that become a part of a graph: the device does them each time that the graph is launched.

use crate::cuda::{self, DeviceIndices, DeviceStream};
use crate::error::Result;
use crate::in_place;
use crate::mmap::Mmap;
use crate::pending::Refused;
use crate::report::Reason;
use crate::request::{Destination, Route};
use crate::sys::Stat;

/// A gather that is a part of a graph; from [`Mmap::capture_gather_rows`].
///
/// It holds what the graph uses: the destination, the registered pages, scratch memory. Nothing tells when
/// the graph is gone; so this cannot be waited for, and where it is dropped all that it holds is leaked: the
/// pages stay registered, and cached. [`release`](Self::release) it when the graph is destroyed.
#[derive(Debug)]
#[must_use = "dropped, it leaks what the graph uses"]
pub struct Captured<D> {
    captured: cuda::Captured<D>,
    map: Mmap,
    /// The file when it was captured; `None` where a change since then might not show.
    stat: Option<Stat>,
}

impl<D> Captured<D> {
    /// The destination's address on the device, for what else the graph does; 0 where nothing is read.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.captured.address()
    }

    /// Whether a number meant no row in the last launch that is done; its row is as it was before then. Wait for
    /// the launch first, on its stream.
    #[must_use]
    pub fn is_a_number_wrong(&self) -> bool {
        self.captured.is_a_number_wrong()
    }

    /// Whether the file is known to be as it was when the gather was captured: the same length and times, by
    /// fstat(2). What is written to the file in place is seen by each launch, and still gives `false` here. A file
    /// that was cut and written anew has other pages from then on: capture the gather again.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let file = &self.map.shared().file;
        self.stat.is_some_and(|stat| stat.is_still_of(file))
    }

    /// The destination; what else the graph used is let go of.
    ///
    /// # Safety
    /// No launch of the graph, nor of another that this is a part of, is under way, and none follows: as when all
    /// of them are destroyed and their launches were waited for.
    #[allow(unsafe_code)]
    pub unsafe fn release(self) -> D {
        // SAFETY: as the caller says.
        unsafe { self.captured.release() }
    }
}

impl Mmap {
    /// Puts a gather of rows, whose numbers lie on the device, into the graph that the stream is being captured
    /// into. Each launch of the graph looks up the numbers that are there then. All of the map must be
    /// registered ([`register`](Self::register)) before.
    ///
    /// It waits for nothing: a launch must come after whatever else uses the numbers and the destination. Memory
    /// that the gather needs is taken by the call, also where the capture's mode forbids that elsewhere. cudarc's
    /// slices record events unless its `disable_event_tracking` was called, which spoil a capture: turn its
    /// numbers into [`DeviceIndices`] before the capture begins, and use a [`DeviceBuffer`](crate::DeviceBuffer) as
    /// destination, or disable them. `examples/graph.rs` shows all of it.
    ///
    /// ```no_run
    /// # #[cfg(feature = "cuda")]
    /// # fn capture(
    /// #     stream: &std::sync::Arc<cudarc::driver::CudaStream>,
    /// #     numbers: gpumap::DeviceIndices<'_>,
    /// #     rows: gpumap::DeviceBuffer,
    /// # ) -> gpumap::Result<()> {
    /// let table = gpumap::Mmap::open("embeddings.f32")?;
    /// // … register the table, begin the capture …
    /// // SAFETY: the numbers live until the graph is destroyed, and are written to between launches alone, of which
    /// // one follows the other.
    /// let gather = unsafe { table.capture_gather_rows(stream, numbers, 256, rows) }?;
    /// // … put kernels into the graph that use gather.address(), end the capture, launch the graph, destroy it …
    /// // SAFETY: the graph is destroyed, and its last launch was waited for.
    /// let rows = unsafe { gather.release() };
    /// # drop(rows);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// While the graph can be launched the numbers' memory lives. While a launch is under way nobody writes to the
    /// numbers, and no other launch is under way of this graph or one that this is a part of.
    ///
    /// # Errors
    /// [`Refused`], which holds the destination, as for [`gather_rows_on`](Self::gather_rows_on); also where the
    /// stream is not being captured ([`DeviceError::NoCapture`](crate::DeviceError)), and [`Error::Route`](crate::Error::Route)
    /// where pages are not registered. Where a call of the driver failed the capture may be spoilt.
    #[allow(unsafe_code)]
    #[doc(alias = "CUDA graph")]
    pub unsafe fn capture_gather_rows<'s, 'r, D: Destination + Send + 'static>(
        &self,
        stream: impl Into<DeviceStream<'s>>,
        indices: impl Into<DeviceIndices<'r>>,
        row_bytes: u64,
        destination: D,
    ) -> Result<Captured<D>, Refused<D>> {
        let (stream, indices) = (stream.into(), indices.into());
        let found = self.device_of(stream);
        let found = found.and_then(|device| Ok((device, self.table(indices, row_bytes)?)));
        let (device, table) = match found {
            Ok(found) => found,
            Err(error) => return Err(Refused { destination, error }),
        };
        let kits = self.runtime().kits();
        let stat = Stat::of(&self.shared().file).ok();
        // SAFETY: as the caller says.
        let captured = unsafe {
            cuda::capture(&device, stream, kits, destination, |enqueue, landing| {
                let to = self.on_a_device(landing, table.bytes)?;
                if to.is_empty() {
                    return Ok(());
                }
                enqueue.begin(&to)?;
                enqueue.takes(&indices)?;
                let request = table.request(self);
                let missing = request.offer_in_place(device.ordinal())?;
                if missing.bytes > 0 {
                    return Err(request.refused(Route::Mapped, Reason::NotRegistered));
                }
                let sources = in_place::lasting_sources(&request, &device)?;
                table.gather(&request, &sources, enqueue, &to).map(drop)
            })
        };
        match captured {
            Ok(captured) => Ok(Captured {
                captured,
                map: self.clone(),
                stat: stat.filter(Stat::is_settled),
            }),
            Err((destination, error)) => Err(self.refusal(destination, error)),
        }
    }
}
