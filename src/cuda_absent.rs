//! What stands in for the room `cuda` in a build without it: nothing of it can be made, and asking
//! says so.

use std::marker::PhantomData;

/// What stands against using a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This build leaves devices out.
    #[error("this build has no support for devices; build gpumap with its feature `cuda`")]
    NotBuilt,
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

#[derive(Debug)]
pub(crate) struct Ready(Never);

#[derive(Debug)]
pub(crate) struct Lane(Never);

#[derive(Debug)]
pub(crate) struct Crossing<'l, 'd>(Never, PhantomData<(&'l mut Lane, &'d ())>);

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
}

impl DeviceBuffer {
    pub(crate) fn as_slice_mut(&mut self) -> DeviceSliceMut<'_> {
        match self.0 {}
    }
}

impl<'a> DeviceSliceMut<'a> {
    pub(crate) fn len(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn ordinal(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn reborrow(&mut self) -> DeviceSliceMut<'_> {
        match self.0 {}
    }

    pub(crate) fn split_to(&mut self, _: u64) -> DeviceSliceMut<'a> {
        match self.0 {}
    }
}

impl Ready {
    pub(crate) fn of(device: &Device, _: &DeviceSliceMut<'_>) -> Result<Self> {
        match device.0 {}
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
}

impl<'d> Crossing<'_, 'd> {
    pub(crate) fn slot_bytes(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn carry<E: From<DeviceError>>(
        &mut self,
        _: DeviceSliceMut<'d>,
        _: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self.0 {}
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self.0 {}
    }
}
