//! What is asked for: ranges of a map, where their bytes go, and how the caller wants it done.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::path::Path;

use bytemuck::AnyBitPattern;

use crate::cuda::{DeviceBuffer, DeviceError, DeviceIndices, DeviceSliceMut};
use crate::error::{Error, Result};
use crate::range::ByteRange;
use crate::report::Engine;
use crate::sys::HostSliceMut;

/// How bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// cuFile reads from storage into device memory.
    Gds,
    /// The mapping is the source.
    Mapped,
    /// `pread` through the page cache.
    Buffered,
    /// Past the page cache, with O_DIRECT. Taken only where it is named. The first such read of a map
    /// finds out, by a read of its own, what it must be aligned to and whether the cache stays as it
    /// was; [`Mmap::plan`](crate::Mmap::plan) does so beforehand.
    Direct,
}

impl Route {
    /// All of them. The position in this array is the route's index.
    pub const ALL: [Self; 4] = [Self::Gds, Self::Mapped, Self::Buffered, Self::Direct];

    /// The name used in options, reports and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gds => "gds",
            Self::Mapped => "mapped",
            Self::Buffered => "buffered",
            Self::Direct => "direct",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a route's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a route; routes are gds, mapped, buffered and direct")]
pub struct NotARoute;

impl std::str::FromStr for Route {
    type Err = NotARoute;

    fn from_str(name: &str) -> Result<Self, NotARoute> {
        Self::ALL
            .into_iter()
            .find(|route| route.name() == name)
            .ok_or(NotARoute)
    }
}

/// How a read is to be done. The default leaves every choice to the runtime's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    pub(crate) route: Option<Route>,
    pub(crate) engine: Option<Engine>,
    pub(crate) workers: Option<usize>,
    pub(crate) measure: bool,
}

impl ReadOptions {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes this route or fails: a named route never falls back. Default: the setting
    /// `GPUMAP_ROUTE`.
    #[must_use]
    pub fn route(mut self, route: impl Into<Option<Route>>) -> Self {
        self.route = route.into();
        self
    }

    /// Takes this engine of the route that is named, or fails: a named engine never gives way to another.
    /// Default: whichever is expected to be the fastest.
    ///
    /// ```no_run
    /// use gpumap::{Engine, Mmap, ReadOptions, Route};
    /// let gpu = gpumap::Runtime::global()?.device(0)?;
    /// let mut weights = gpu.alloc(1 << 30)?;
    /// let in_place = ReadOptions::new().route(Route::Mapped).engine(Engine::Dma);
    /// Mmap::open("weights.bin")?.read_with(0..1 << 30, &mut weights, in_place)?;
    /// # Ok::<(), gpumap::Error>(())
    /// ```
    #[must_use]
    pub fn engine(mut self, engine: impl Into<Option<Engine>>) -> Self {
        self.engine = engine.into();
        self
    }

    /// Threads that may work on it, the caller's among them; 0 counts as 1. No effect on reads
    /// of a single piece. Default: as many as the route has use for. At most the setting
    /// `GPUMAP_WORKERS`, except for direct reads that have no ring.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// Fills [`Report::residency_before`](crate::Report::residency_before) and
    /// [`Report::storage_read_bytes`](crate::Report::storage_read_bytes). Costs
    /// some microseconds for each thread of the process, on each thread that reads. Default: off.
    #[must_use]
    pub fn measure(mut self, measure: bool) -> Self {
        self.measure = measure;
        self
    }
}

/// Where bytes land, with its length: slices, vectors and arrays of plain data
/// ([`AnyBitPattern`](https://docs.rs/bytemuck/latest/bytemuck/trait.AnyBitPattern.html): integers, floats, arrays of them, `MaybeUninit<u8>`), and memory on a device
/// ([`DeviceBuffer`](crate::DeviceBuffer), [`DeviceSliceMut`], and with the feature `cuda` cudarc's
/// `CudaSlice` and `CudaViewMut` of plain data).
///
/// A vector is filled to its length; it never grows. A read begins to write to device memory when the
/// memory's own stream has done what was put on it before; when the read returns, every stream sees
/// the bytes. This trait is sealed.
pub trait Destination: sealed::Landing {}

impl<D: sealed::Landing + ?Sized> Destination for D {}

pub(crate) mod sealed {
    use crate::cuda::DeviceError;

    /// Turns a destination into memory that bytes can be carried to.
    pub trait Landing {
        /// The number of the device whose driver `landing` calls, which may not be called in every
        /// process.
        #[doc(hidden)]
        fn asks_driver_of(&self) -> Option<usize> {
            None
        }

        #[doc(hidden)]
        fn landing(&mut self) -> Result<super::Landing<'_>, DeviceError>;
    }
}

/// Where a destination lies: what a plan must know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Memory of the process.
    Host,
    /// Memory of the GPU of this number.
    Device(usize),
}

/// Borrowed memory that takes any bytes.
#[derive(Debug)]
#[doc(hidden)]
pub enum Landing<'d> {
    Host(HostSliceMut<'d>),
    Device(DeviceSliceMut<'d>),
}

impl<'d> Landing<'d> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Host(slice) => slice.len() as u64,
            Self::Device(slice) => slice.len(),
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        match self {
            Self::Host(_) => Memory::Host,
            Self::Device(slice) => Memory::Device(slice.ordinal()),
        }
    }

    /// Takes the first `len` bytes (all, where it has fewer) off the front.
    pub(crate) fn split_to(&mut self, len: u64) -> Self {
        match self {
            Self::Host(slice) => Self::Host(slice.split_to(len)),
            Self::Device(slice) => Self::Device(slice.split_to(len)),
        }
    }
}

impl sealed::Landing for DeviceBuffer {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Device(self.as_slice_mut()))
    }
}

impl sealed::Landing for DeviceSliceMut<'_> {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Device(self.reborrow()))
    }
}

impl<T: AnyBitPattern> sealed::Landing for [T] {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Host(HostSliceMut::new(self)))
    }
}

impl<T: AnyBitPattern> sealed::Landing for Vec<T> {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Host(HostSliceMut::new(self)))
    }
}

impl<T: AnyBitPattern, const N: usize> sealed::Landing for [T; N] {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Host(HostSliceMut::new(self)))
    }
}

impl<D: sealed::Landing + ?Sized> sealed::Landing for &mut D {
    fn asks_driver_of(&self) -> Option<usize> {
        (**self).asks_driver_of()
    }

    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        (**self).landing()
    }
}

impl<D: sealed::Landing + ?Sized> sealed::Landing for Box<D> {
    fn asks_driver_of(&self) -> Option<usize> {
        (**self).asks_driver_of()
    }

    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        (**self).landing()
    }
}

/// The rows of a request, relative to the start of the map. They are packed end to end in the
/// destination, so that a row's place there is the sum of the lengths before it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'r> {
    /// One contiguous read.
    One(ByteRange),
    /// A gather; checked by [`Rows::gather`].
    Many(&'r [Range<u64>]),
    /// A gather of rows of one length; checked by [`Rows::indexed`].
    Indexed(Indices<'r>, u64),
}

/// Numbers of rows of one length, from 0 at the start of the map: `&[u32]` or `&[u64]`, or as many in memory
/// of a device.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Indices<'r> {
    /// Narrow ones.
    U32(&'r [u32]),
    /// Wide ones.
    U64(&'r [u64]),
    /// Either, on a device.
    Device(DeviceIndices<'r>),
}

impl Indices<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U32(indices) => indices.len(),
            Self::U64(indices) => indices.len(),
            Self::Device(indices) => indices.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, at: usize) -> u64 {
        match self {
            Self::U32(indices) => indices[at].into(),
            Self::U64(indices) => indices[at],
            // The host does not see them: no row has this number.
            Self::Device(_) => u64::MAX,
        }
    }
}

/// Whatever holds numbers of these types one after another.
macro_rules! indices_from {
    ($($kind:ty => $variant:ident),*) => {$(
        impl<'r> From<&'r [$kind]> for Indices<'r> {
            fn from(indices: &'r [$kind]) -> Self {
                Self::$variant(indices)
            }
        }

        impl<'r> From<&'r Vec<$kind>> for Indices<'r> {
            fn from(indices: &'r Vec<$kind>) -> Self {
                Self::$variant(indices)
            }
        }

        impl<'r, const N: usize> From<&'r [$kind; N]> for Indices<'r> {
            fn from(indices: &'r [$kind; N]) -> Self {
                Self::$variant(indices)
            }
        }
    )*};
}

indices_from!(u32 => U32, u64 => U64);

impl<'r> From<DeviceIndices<'r>> for Indices<'r> {
    fn from(indices: DeviceIndices<'r>) -> Self {
        Self::Device(indices)
    }
}

/// Rows of one length, as a device looks them up: by numbers, `stride` bytes from one to the next.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "only a device looks at them")
)]
pub(crate) struct RowNumbers<'r> {
    pub(crate) numbers: Numbers<'r>,
    pub(crate) stride: u64,
    pub(crate) row_bytes: u64,
    /// All rows that there are, as bytes of the file.
    pub(crate) table: ByteRange,
}

/// Where the numbers come from.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "only a device looks at them")
)]
pub(crate) enum Numbers<'r> {
    Given(Indices<'r>),
    /// The starts of ranges are.
    Starts(&'r [Range<u64>]),
}

impl Indices<'_> {
    /// The least and the greatest; `None` where the host sees none.
    pub(crate) fn ends(&self) -> Option<(u64, u64)> {
        fn ends<T: Copy + Ord + Into<u64>>(all: &[T]) -> Option<(u64, u64)> {
            let (least, most) = (all.iter().min()?, all.iter().max()?);
            Some(((*least).into(), (*most).into()))
        }
        match self {
            Self::U32(indices) => ends(indices),
            Self::U64(indices) => ends(indices),
            Self::Device(_) => None,
        }
    }
}

/// One row, or a part of one: bytes of the map that lie together and land together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) row: usize,
    pub(crate) source: ByteRange,
}

impl<'r> Rows<'r> {
    /// Checks every row against the length of the map; gives the rows and the sum of lengths.
    pub(crate) fn gather(rows: &'r [Range<u64>], map_len: u64, path: &Path) -> Result<(Self, u64)> {
        let mut total = 0u64;
        for (at, row) in rows.iter().enumerate() {
            let checked = ByteRange::new(row.start, row.end).filter(|r| r.end() <= map_len);
            let Some(checked) = checked else {
                return Err(Error::OutOfRange {
                    path: path.to_owned(),
                    row: Some(at),
                    range: row.clone(),
                    len: map_len,
                });
            };
            total = total
                .checked_add(checked.len())
                .ok_or_else(|| Error::Overflow {
                    path: path.to_owned(),
                })?;
        }
        Ok((Self::Many(rows), total))
    }

    /// The same for rows of `row_bytes` bytes each.
    pub(crate) fn indexed(
        indices: Indices<'r>,
        row_bytes: u64,
        map_len: u64,
        path: &Path,
    ) -> Result<(Self, u64)> {
        // Nearly always all are right, which takes no look at each.
        let most = indices
            .ends()
            .map_or(Some(0), |(_, most)| most.checked_add(1));
        let end = most.and_then(|most| most.checked_mul(row_bytes));
        let suspects = match end {
            Some(end) if end <= map_len => 0,
            _ => indices.len(),
        };
        for at in 0..suspects {
            let start = indices.get(at).checked_mul(row_bytes);
            let row = start.and_then(|start| ByteRange::at(start, row_bytes));
            if row.is_none_or(|row| row.end() > map_len) {
                // A number that is far off, as -1 is, is to blame like any other.
                let start = start.unwrap_or(u64::MAX);
                return Err(Error::OutOfRange {
                    path: path.to_owned(),
                    row: Some(at),
                    range: start..start.saturating_add(row_bytes),
                    len: map_len,
                });
            }
        }
        let total = (indices.len() as u64).checked_mul(row_bytes);
        let total = total.ok_or_else(|| Error::Overflow {
            path: path.to_owned(),
        })?;
        Ok((Self::Indexed(indices, row_bytes), total))
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(rows) => rows.len(),
            Self::Indexed(indices, _) => indices.len(),
        }
    }

    /// Row number `at`, which must exist.
    fn get(&self, at: usize) -> ByteRange {
        match self {
            Self::One(range) => *range,
            Self::Many(rows) => ByteRange::new(rows[at].start, rows[at].end).unwrap_or_default(),
            Self::Indexed(indices, row_bytes) => {
                ByteRange::at(indices.get(at) * row_bytes, *row_bytes).unwrap_or_default()
            }
        }
    }

    /// As numbers, where all rows have one length, of the rows in a part of the file.
    pub(crate) fn numbered(self, table: ByteRange) -> Option<RowNumbers<'r>> {
        let (numbers, stride, row_bytes) = match self {
            Self::One(_) => return None,
            Self::Indexed(indices, row_bytes) => (Numbers::Given(indices), row_bytes, row_bytes),
            Self::Many(rows) => {
                let len = |row: &Range<u64>| row.end - row.start;
                let first = len(rows.first()?);
                if first == 0 || rows.iter().any(|row| len(row) != first) {
                    return None;
                }
                (Numbers::Starts(rows), 1, first)
            }
        };
        Some(RowNumbers {
            numbers,
            stride,
            row_bytes,
            table,
        })
    }

    /// From the first byte that any row has to behind the last; more where there are empty rows.
    pub(crate) fn hull(self) -> ByteRange {
        let ends = match self {
            Self::One(range) => Some((range.start(), range.end())),
            Self::Many(rows) => {
                let starts = rows.iter().map(|row| row.start).min();
                starts.zip(rows.iter().map(|row| row.end).max())
            }
            // Without bytes in a row any number is one.
            Self::Indexed(_, 0) => None,
            Self::Indexed(indices, row_bytes) => indices
                .ends()
                .map(|(least, most)| (least * row_bytes, (most + 1) * row_bytes)),
        };
        ends.and_then(|(start, end)| ByteRange::new(start, end))
            .unwrap_or_default()
    }

    /// The segments, none of them empty, from `cursor` on for `bytes` bytes.
    pub(crate) fn segments(
        self,
        cursor: Cursor,
        bytes: u64,
    ) -> impl Iterator<Item = Segment> + Clone + use<'r> {
        let mut cursor = cursor;
        let mut left = bytes;
        std::iter::from_fn(move || {
            while left > 0 && cursor.row < self.count() {
                let row = self.get(cursor.row);
                let start = row.start() + cursor.skip;
                let len = (row.end() - start).min(left);
                let at = cursor.row;
                left -= len;
                cursor = if start + len == row.end() {
                    Cursor {
                        row: at + 1,
                        skip: 0,
                    }
                } else {
                    Cursor {
                        row: at,
                        skip: cursor.skip + len,
                    }
                };
                if let Some(source) = ByteRange::at(start, len).filter(|s| !s.is_empty()) {
                    return Some(Segment { row: at, source });
                }
            }
            None
        })
    }
}

impl Rows<'_> {
    /// The place `bytes` bytes behind `cursor`.
    pub(crate) fn after(self, cursor: Cursor, bytes: u64) -> Cursor {
        let Cursor { mut row, mut skip } = cursor;
        let mut left = bytes;
        while row < self.count() && left >= self.get(row).len() - skip {
            left -= self.get(row).len() - skip;
            (row, skip) = (row + 1, 0);
        }
        Cursor {
            row,
            skip: skip + left,
        }
    }
}

/// A place in the packed bytes of a request: `skip` bytes into row number `row`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    pub(crate) row: usize,
    pub(crate) skip: u64,
}

/// Asserts at compile time that uninitialised memory is a destination.
const _: fn(&mut [MaybeUninit<u8>]) -> Result<Landing<'_>, DeviceError> =
    <[MaybeUninit<u8>] as sealed::Landing>::landing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_found_by_its_name_and_index() {
        for (at, route) in Route::ALL.into_iter().enumerate() {
            assert_eq!(route.name().parse(), Ok(route));
            assert_eq!(route.index(), at);
        }
        assert_eq!("GDS".parse::<Route>(), Err(NotARoute));
    }

    #[test]
    fn rows_are_checked() {
        let path = Path::new("f");
        let huge = [0..u64::MAX, 0..u64::MAX];
        assert!(matches!(
            Rows::gather(&huge, u64::MAX, path),
            Err(Error::Overflow { .. })
        ));
        let outside = [0..1, 3..9];
        let error = Rows::gather(&outside, 8, path).unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { row: Some(1), .. }),
            "{error}"
        );
        #[expect(clippy::reversed_empty_ranges, reason = "the mistake under test")]
        let reversed = [0..1, 5..3];
        assert!(Rows::gather(&reversed, 8, path).is_err());
        let (_, total) = Rows::gather(&[2..2, 0..8, 0..8], 8, path).unwrap();
        assert_eq!(total, 16);
    }

    #[test]
    fn numbered_rows_are_checked() {
        let path = Path::new("f");
        let indexed = |indices: Indices<'_>, row_bytes, len| {
            Rows::indexed(indices, row_bytes, len, path).map(|(_, total)| total)
        };
        assert_eq!(indexed((&[2u32, 0, 2]).into(), 10, 30).unwrap(), 30);
        assert_eq!(indexed((&vec![9u64; 5]).into(), 0, 0).unwrap(), 0);
        let nothing = Rows::Indexed((&[u64::MAX]).into(), 0);
        assert!(nothing.hull().is_empty());
        let error = indexed((&[0u32, 3]).into(), 10, 39).unwrap_err();
        assert!(
            matches!(&error, Error::OutOfRange { row: Some(1), range, .. } if *range == (30..40)),
            "{error}"
        );
        for (index, row_bytes) in [(u64::MAX, 2), (u64::MAX, 1), (1, u64::MAX)] {
            let error = indexed((&[0, index]).into(), row_bytes, u64::MAX).unwrap_err();
            assert!(
                matches!(error, Error::OutOfRange { row: Some(1), .. }),
                "{error}"
            );
        }
        let error = indexed((&[0u64; 2]).into(), u64::MAX, u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Overflow { .. }), "{error}");
    }

    #[test]
    fn the_place_behind_a_cursor_is_where_the_segments_go_on() {
        let ranges = [0..10, 4..4, 20..25, 30..31];
        let (rows, total) = Rows::gather(&ranges, 100, Path::new("f")).unwrap();
        for first in 0..=total {
            let mut bytes: Vec<u64> = Vec::new();
            let start = rows.after(Cursor::default(), first);
            for (cursor, len) in [(Cursor::default(), first), (start, total - first)] {
                let segments = rows.segments(cursor, len);
                bytes.extend(segments.flat_map(|s| s.source.start()..s.source.end()));
            }
            assert!(
                bytes.into_iter().eq(ranges.iter().cloned().flatten()),
                "{first}"
            );
        }
    }

    #[test]
    fn segments_skip_empty_rows_and_split_at_the_cursor() {
        let rows = [0..10, 4..4, 20..25];
        let (rows, _) = Rows::gather(&rows, 100, Path::new("f")).unwrap();
        let got: Vec<_> = rows
            .segments(Cursor { row: 0, skip: 7 }, 6)
            .map(|s| (s.row, s.source.start(), s.source.end()))
            .collect();
        assert_eq!(got, [(0, 7, 10), (2, 20, 23)]);
    }
}
