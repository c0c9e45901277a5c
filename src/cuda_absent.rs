//! What stands in for the room `cuda` in a build without it: nothing of it can be made, and asking
//! says so.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::range::ByteRange;
use crate::request::{Destination, Indices, Landing, RowNumbers};
use crate::sys::Mapping;

/// What stands against using a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This build leaves devices out.
    #[error("this build has no support for devices; build gpumap with its feature `cuda`")]
    NotBuilt,
}

impl DeviceError {
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::NotBuilt)
    }
}

type Result<T> = std::result::Result<T, DeviceError>;

/// No value has this type.
#[derive(Debug, Clone, Copy)]
enum Never {}

/// A GPU. This build, without the feature `cuda`, has none.
#[derive(Debug, Clone)]
pub struct Device(Never);

/// Memory on a device. This build, without the feature `cuda`, has none.
#[derive(Debug)]
pub struct DeviceBuffer(Never);

/// A borrowed piece of device memory. This build, without the feature `cuda`, has none.
#[derive(Debug)]
pub struct DeviceSliceMut<'a>(Never, PhantomData<&'a mut [u8]>);

/// Numbers of rows in memory of a device. This build, without the feature `cuda`, has none.
#[derive(Debug, Clone, Copy)]
pub struct DeviceIndices<'r>(Never, PhantomData<&'r [u64]>);

/// A stream of the caller's. This build, without the feature `cuda`, has none.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStream<'s>(Never, PhantomData<&'s ()>);

#[derive(Debug)]
pub(crate) struct HostIndices(Never);

#[derive(Debug, Clone)]
pub(crate) struct SharedIndices(Never);

#[derive(Debug)]
pub(crate) struct Enqueue<'e, 'd>(Never, PhantomData<(&'e (), &'d ())>);

#[derive(Debug)]
pub(crate) struct Enqueued<D>(Never, PhantomData<D>);

#[derive(Debug)]
pub(crate) struct Captured<D>(Never, PhantomData<D>);

/// None are ever lent.
#[derive(Debug)]
pub(crate) struct Kits;

#[derive(Debug, Clone, Copy)]
pub(crate) struct WrongNumber {
    pub(crate) at: u64,
    pub(crate) number: u64,
}

#[derive(Debug)]
pub(crate) struct Registered(Never);

#[derive(Debug)]
pub(crate) struct Sources(Never);

#[derive(Debug)]
pub(crate) struct PinnedBuffer(Never);

#[derive(Debug)]
pub(crate) struct Uses(Never);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    pub(crate) registers_read_only: bool,
    pub(crate) pageable: bool,
    pub(crate) same_addresses: bool,
}

pub(crate) const WINDOW_SHIFT: u32 = 26;
pub(crate) const LEAST_UNORDERED: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Ready(Never);

#[derive(Debug)]
pub(crate) struct Lane(Never);

#[derive(Debug)]
pub(crate) struct Crossing<'l, 'd>(Never, PhantomData<(&'l mut Lane, &'d ())>);

#[derive(Debug)]
pub(crate) struct Freight<'s>(Never, PhantomData<&'s Sources>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    pub(crate) registered: bool,
}

#[derive(Debug)]
pub(crate) struct Berth<'l>(Never, PhantomData<&'l ()>);

#[derive(Debug)]
pub(crate) struct Ferry<'l, 'd>(Never, PhantomData<(&'l (), &'d ())>);

impl Device {
    /// How many devices there are.
    ///
    /// # Errors
    /// Always, in this build.
    pub fn count() -> crate::Result<usize> {
        Err(DeviceError::NotBuilt.into())
    }

    pub(crate) fn open(_: usize) -> Result<Self> {
        Err(DeviceError::NotBuilt)
    }

    pub(crate) fn cuda_version() -> Result<i32> {
        Err(DeviceError::NotBuilt)
    }

    pub(crate) fn attribute(&self, _: i32) -> Result<i32> {
        match self.0 {}
    }

    pub(crate) fn in_this_process(&self) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn reach(&self) -> Reach {
        match self.0 {}
    }

    pub(crate) fn with_context<R>(&self, _: impl FnOnce() -> R) -> Result<R> {
        match self.0 {}
    }
}

#[allow(missing_docs, reason = "never called")]
impl DeviceIndices<'_> {
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }

    #[must_use]
    pub fn of_u32(buffer: &DeviceBuffer) -> Option<DeviceIndices<'_>> {
        match buffer.0 {}
    }

    #[must_use]
    pub fn of_u64(buffer: &DeviceBuffer) -> Option<DeviceIndices<'_>> {
        match buffer.0 {}
    }

    pub(crate) fn ordinal(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn to_host(self, _: &Device) -> Result<HostIndices> {
        match self.0 {}
    }
}

impl HostIndices {
    pub(crate) fn as_indices(&self) -> Indices<'_> {
        match self.0 {}
    }
}

impl Registered {
    pub(crate) fn new(device: &Device, _: &Arc<Mapping>, _: ByteRange) -> Result<Self> {
        match device.0 {}
    }

    pub(crate) fn pages(&self) -> ByteRange {
        match self.0 {}
    }
}

impl Sources {
    pub(crate) fn new(
        device: &Device,
        _: u64,
        _: impl IntoIterator<Item = Arc<Registered>>,
    ) -> Result<Self> {
        match device.0 {}
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn base(&self, _: u64) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self.0 {}
    }
}

impl PinnedBuffer {
    pub(crate) fn new(device: &Device, _: usize) -> Result<Self> {
        match device.0 {}
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.0 {}
    }

    pub(crate) fn address(&self) -> u64 {
        match self.0 {}
    }
}

impl Uses {
    pub(crate) fn new(device: &Device) -> Self {
        match device.0 {}
    }

    pub(crate) fn record(&self, _: DeviceStream<'_>) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        match self.0 {}
    }
}

/// What only a device could do; here so that programs build with the feature and without.
#[allow(missing_docs, clippy::missing_errors_doc, reason = "never called")]
impl Device {
    #[must_use]
    pub fn ordinal(&self) -> usize {
        match self.0 {}
    }

    pub fn name(&self) -> crate::Result<String> {
        match self.0 {}
    }

    pub fn memory(&self) -> crate::Result<(u64, u64)> {
        match self.0 {}
    }

    pub fn alloc(&self, _: u64) -> crate::Result<DeviceBuffer> {
        match self.0 {}
    }
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "never called")]
impl DeviceBuffer {
    #[must_use]
    pub fn len(&self) -> u64 {
        match self.0 {}
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }

    #[must_use]
    pub fn device(&self) -> &Device {
        match self.0 {}
    }

    #[must_use]
    pub fn address(&self) -> u64 {
        match self.0 {}
    }

    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_> {
        match self.0 {}
    }

    #[must_use]
    pub fn slice_mut(&mut self, _: impl RangeBounds<u64>) -> Option<DeviceSliceMut<'_>> {
        match self.0 {}
    }

    pub fn copy_to_host(&self, _: u64, _: &mut [u8]) -> crate::Result<()> {
        match self.0 {}
    }

    pub fn zero(&mut self) -> crate::Result<()> {
        match self.0 {}
    }

    pub fn fill(&mut self, _: u8) -> crate::Result<()> {
        match self.0 {}
    }
}

#[allow(missing_docs, reason = "never called")]
impl DeviceSliceMut<'_> {
    #[must_use]
    pub fn len(&self) -> u64 {
        match self.0 {}
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }
}

impl<'a> DeviceSliceMut<'a> {
    pub(crate) fn ordinal(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn address(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn registered(self) -> Self {
        match self.0 {}
    }

    pub(crate) fn registered_at(&self) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn reborrow(&mut self) -> DeviceSliceMut<'_> {
        match self.0 {}
    }

    pub(crate) fn split_to(&mut self, _: u64) -> DeviceSliceMut<'a> {
        match self.0 {}
    }

    pub(crate) fn split_end(&mut self, _: u64) -> DeviceSliceMut<'a> {
        match self.0 {}
    }
}

impl Ready {
    pub(crate) fn of_indices(device: &Device, _: &DeviceIndices<'_>) -> Result<Self> {
        match device.0 {}
    }

    pub(crate) fn of<'s, 'd: 's>(
        device: &Device,
        _: impl IntoIterator<Item = &'s DeviceSliceMut<'d>>,
    ) -> Result<Self> {
        match device.0 {}
    }

    pub(crate) fn wait(&self, _: &Device) -> Result<()> {
        match self.0 {}
    }
}

impl Lane {
    pub(crate) fn new(device: &Device, _: usize) -> Result<Self> {
        match device.0 {}
    }

    pub(crate) fn serves(&self, _: &Device) -> bool {
        match self.0 {}
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn begin<'d>(&mut self, ready: &'d Ready) -> Result<Crossing<'_, 'd>> {
        match ready.0 {}
    }

    pub(crate) fn begin_wide<'d>(&mut self, ready: &'d Ready) -> Result<Crossing<'_, 'd>> {
        match ready.0 {}
    }
}

impl Freight<'_> {
    pub(crate) fn add(&mut self, _: ByteRange, _: u64) -> Taken {
        match self.0 {}
    }

    pub(crate) fn registered(&self) -> u64 {
        match self.0 {}
    }
}

impl<'d> Crossing<'_, 'd> {
    pub(crate) fn freight<'s>(&self, _: &'s Sources) -> Freight<'s> {
        match self.0 {}
    }

    pub(crate) fn carry_freight<E: From<DeviceError>>(
        &mut self,
        _: &Freight<'_>,
        _: &DeviceSliceMut<'d>,
        _: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self.0 {}
    }

    pub(crate) fn slot_bytes(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn carry<E: From<DeviceError>>(
        &mut self,
        _: &[DeviceSliceMut<'d>],
        _: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self.0 {}
    }

    pub(crate) fn carry_behind<E: From<DeviceError>>(
        &mut self,
        _: usize,
        _: &[DeviceSliceMut<'d>],
        _: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self.0 {}
    }

    pub(crate) fn wait_for(&mut self, _: &'d Ready) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn settle(&mut self) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn copy(
        &mut self,
        _: &Arc<Registered>,
        _: ByteRange,
        _: DeviceSliceMut<'d>,
    ) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn is_a_number_wrong(&mut self) -> Result<bool> {
        match self.0 {}
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self.0 {}
    }
}

impl Berth<'_> {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.0 {}
    }
}

impl<'l, 'd> Ferry<'l, 'd> {
    pub(crate) fn begin(
        _: &'l mut Lane,
        _: impl Iterator<Item = &'l mut Lane>,
        ready: &'d Ready,
    ) -> Result<(Self, Vec<Berth<'l>>)> {
        match ready.0 {}
    }

    pub(crate) fn carry(&mut self, _: Berth<'l>, _: DeviceSliceMut<'d>) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn landed(&mut self) -> Result<Vec<Berth<'l>>> {
        match self.0 {}
    }

    pub(crate) fn settle(&mut self) -> Result<()> {
        match self.0 {}
    }
}

/// Moves rows for one destination.
pub(crate) trait Gathers<'d> {
    fn gather_parts(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        row_bytes: u64,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64>;

    fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<()>;
}

impl<'d> Gathers<'d> for Crossing<'_, 'd> {
    fn gather_parts(
        &mut self,
        _: &Sources,
        _: impl Iterator<Item = (ByteRange, u64)>,
        _: u64,
        _: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        match self.0 {}
    }

    fn gather_rows(
        &mut self,
        _: &Sources,
        _: &RowNumbers<'_>,
        _: &DeviceSliceMut<'d>,
    ) -> Result<()> {
        match self.0 {}
    }
}

impl<'d> Gathers<'d> for Enqueue<'_, 'd> {
    fn gather_parts(
        &mut self,
        _: &Sources,
        _: impl Iterator<Item = (ByteRange, u64)>,
        _: u64,
        _: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        match self.0 {}
    }

    fn gather_rows(
        &mut self,
        _: &Sources,
        _: &RowNumbers<'_>,
        _: &DeviceSliceMut<'d>,
    ) -> Result<()> {
        match self.0 {}
    }
}

impl<'d> Enqueue<'_, 'd> {
    pub(crate) fn takes(&self, _: &DeviceIndices<'_>) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn begin(&mut self, _: &DeviceSliceMut<'d>) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn copy(
        &mut self,
        _: &Sources,
        _: impl Iterator<Item = (ByteRange, u64)>,
        _: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        match self.0 {}
    }
}

impl<D> Enqueued<D> {
    pub(crate) fn address(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn is_done(&self) -> Result<bool> {
        match self.0 {}
    }

    pub(crate) fn before(&self, _: DeviceStream<'_>) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn wait(self) -> (Result<Option<WrongNumber>>, D) {
        match self.0 {}
    }
}

pub(crate) fn put<D: Destination, E: From<DeviceError>>(
    device: &Device,
    _: DeviceStream<'_>,
    _: &Arc<Kits>,
    _: Option<SharedIndices>,
    _: D,
    _: impl for<'d> FnOnce(&mut Enqueue<'_, 'd>, Landing<'d>) -> std::result::Result<(), E>,
) -> std::result::Result<Enqueued<D>, (D, E)> {
    match device.0 {}
}

#[allow(unsafe_code)]
pub(crate) unsafe fn capture<D: Destination, E: From<DeviceError>>(
    device: &Device,
    _: DeviceStream<'_>,
    _: &Arc<Kits>,
    _: D,
    _: impl for<'d> FnOnce(&mut Enqueue<'_, 'd>, Landing<'d>) -> std::result::Result<(), E>,
) -> std::result::Result<Captured<D>, (D, E)> {
    match device.0 {}
}

impl<D> Captured<D> {
    pub(crate) fn address(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn is_a_number_wrong(&self) -> bool {
        match self.0 {}
    }

    #[allow(unsafe_code)]
    pub(crate) unsafe fn release(self) -> D {
        match self.0 {}
    }
}

#[allow(
    missing_docs,
    unsafe_code,
    clippy::missing_safety_doc,
    reason = "never called"
)]
impl<'s> DeviceStream<'s> {
    #[must_use]
    pub unsafe fn from_raw(device: &'s Device, _: *mut std::ffi::c_void) -> Self {
        match device.0 {}
    }

    pub(crate) fn ordinal(&self) -> usize {
        match self.0 {}
    }
}

impl<'s> From<&DeviceStream<'s>> for DeviceStream<'s> {
    fn from(stream: &DeviceStream<'s>) -> Self {
        match stream.0 {}
    }
}

impl SharedIndices {
    pub(crate) fn of_buffer(buffer: Arc<DeviceBuffer>, _: bool) -> Option<Self> {
        match buffer.0 {}
    }

    pub(crate) fn numbers(&self) -> DeviceIndices<'_> {
        match self.0 {}
    }
}

impl Kits {
    pub(crate) fn new(_: u64, _: u64) -> Self {
        Self
    }

    pub(crate) fn release(&self) -> u64 {
        0
    }
}
