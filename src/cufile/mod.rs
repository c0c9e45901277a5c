//! The room for libcufile, NVIDIA's library for reads from storage into device memory (GPUDirect Storage).
//!
//! # Safety
//! The library's functions take addresses and write structures that grow from version to version. All of them
//! are called in this folder, and what they write to is larger than any version's. Numbers of the library stay
//! integers, and its addresses do not leave this room.
#![allow(unsafe_code)]

mod buffer;
mod code;
mod driver;
mod error;
mod file;
#[cfg(feature = "cuda")]
mod library;
#[cfg(not(feature = "cuda"))]
#[path = "library_absent.rs"]
mod library;
mod parameters;
mod proof;
mod properties;
mod statistics;
mod symbols;
#[cfg(feature = "cuda")]
mod toolkit;

use std::sync::Arc;

use crate::cuda::{Device, DeviceBuffer, DeviceError};
use crate::error::Result;
use crate::facts::Facts;
use crate::pending::Refused;
use crate::settings::{Gds, Settings};
use driver::Driver;
use library::Library;
use parameters::Parameter;
use symbols::Symbols;

pub use buffer::RegisteredBuffer;
pub use code::CufileCode;
pub use error::CufileError;
pub(crate) use file::{CufileFile, CufileReading};
pub use parameters::{ParameterGuard, ParameterValue};
pub(crate) use proof::Proof;
pub use proof::{CufileCounters, CufileReads};
pub use properties::CufileProperties;

/// cuFile, with its driver open. Cheap to clone; the driver is closed when the last clone is gone, that of the
/// [`Runtime`](crate::Runtime) among them. From [`Runtime::cufile`](crate::Runtime::cufile). The global runtime lives as
/// long as the process and so leaves it open at its end; a runtime of one's own closes it.
///
/// ```no_run
/// let cufile = gpumap::Runtime::global()?.cufile()?;
/// println!("cuFile {}", cufile.version());               // 1150 is 1.15
/// println!("{:?}", cufile.parameter("FORCE_COMPAT_MODE")?);
/// # Ok::<(), gpumap::Error>(())
/// ```
///
/// # References
/// [cuFile API reference](https://docs.nvidia.com/gpudirect-storage/api-reference-guide/index.html)
#[derive(Debug, Clone)]
pub struct Cufile {
    driver: Arc<Driver>,
}

impl Cufile {
    /// Finds the library, and opens its driver where nothing is known that would hang or crash it.
    pub(crate) fn open(
        settings: &Settings,
        facts: &Facts,
        device: impl FnOnce() -> Result<Device, DeviceError>,
    ) -> Result<Self> {
        if settings.gds() == Gds::Off {
            return Err(CufileError::Off.into());
        }
        // Before the library, whose driver needs a context.
        let device = device()?;
        let library = Library::find(settings.cufile())?;
        let symbols = Symbols::find(&library)?;
        library.keep();
        let version = symbols.version()?;
        if let Some(hazard) = facts.gds_driver_hazard(Some(version)) {
            return Err(CufileError::Hazard(hazard).into());
        }
        let driver = Driver::open(symbols, version, device)?;
        Ok(Self { driver })
    }

    /// The library's version, as it numbers them: 1000 times the major number and 10 times the minor, so that
    /// 1150 is 1.15.
    #[must_use]
    pub fn version(&self) -> i32 {
        self.driver.version()
    }

    /// How often the driver is open in this process (`cuFileUseCount`): more than once where others, or another
    /// runtime, use cuFile too. Less by one while it waits to be opened again, with a parameter that was set.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) in the child of a fork.
    pub fn use_count(&self) -> Result<u64> {
        Ok(self.driver.symbols()?.use_count())
    }

    /// What the driver says of itself (`cuFileDriverGetProperties`).
    ///
    /// # Errors
    /// [`Error::Cufile`](crate::Error::Cufile) where the call fails; [`Error::Device`](crate::Error::Device) in
    /// the child of a fork.
    pub fn properties(&self) -> Result<CufileProperties> {
        Ok(properties::of(self.driver.enter()?.symbols())?)
    }

    /// The value that a parameter has while the driver is open (`cuFileGetParameterSizeT`, `Bool` and `String`,
    /// cuFile 1.14 and later). Names are those of the vendor's header without `CUFILE_PARAM_`.
    ///
    /// # Errors
    /// [`Error::Cufile`](crate::Error::Cufile): a name that is not known, a version without parameters, or
    /// without this one; [`Error::Device`](crate::Error::Device) in the child of a fork.
    pub fn parameter(&self, name: &str) -> Result<ParameterValue> {
        let parameter = Parameter::named(name)?;
        Ok(parameter.get(self.driver.enter()?.symbols())?)
    }

    /// Sets a parameter for as long as the guard lives (`cuFileSetParameterSizeT`, `Bool` and `String`, cuFile 1.14
    /// and later). The library takes values only while its driver is closed, and for one opening: so the driver is
    /// closed here, and opened again, with all values that guards hold, by whatever uses it next. When the guard is
    /// dropped the driver is closed again, by the last read where some are under way, and what was in force before
    /// is set for its next opening.
    ///
    /// Reads that are under way are not waited for: half of one would go by the one value, half by the other. A bad
    /// value is taken, and told only by what [`parameter`](Self::parameter) has afterwards. Whatever was set by other
    /// means, for the first opening, counted for that alone.
    ///
    /// ```no_run
    /// # fn read_staged() -> gpumap::Result<()> {
    /// let cufile = gpumap::Runtime::global()?.cufile()?;
    /// let staged = cufile.set_parameter("FORCE_COMPAT_MODE", true)?;
    /// assert_eq!(cufile.parameter("FORCE_COMPAT_MODE")?, true.into());
    /// // … reads by the CPU …
    /// drop(staged);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Cufile`](crate::Error::Cufile): those of [`parameter`](Self::parameter); another kind of value;
    /// [`CufileError::InUse`]; 5026 where somebody else in this process has the driver open. Nothing has changed
    /// then. [`Error::Device`](crate::Error::Device) in the child of a fork.
    pub fn set_parameter(
        &self,
        name: &str,
        value: impl Into<ParameterValue>,
    ) -> Result<ParameterGuard> {
        let parameter = Parameter::named(name)?;
        let guard = ParameterGuard::new(&self.driver, parameter, value.into())?;
        Ok(guard)
    }

    /// Registers memory of a device (`cuFileBufRegister`), which spares accelerated reads a copy. It takes of the
    /// GPU's window on the bus (BAR1), and is undone when the memory is dropped.
    ///
    /// ```no_run
    /// # fn main() -> gpumap::Result<()> {
    /// let rt = gpumap::Runtime::global()?;
    /// let map = rt.open("weights.bin")?;
    /// let mut weights = rt.cufile()?.register(rt.device(0)?.alloc(1 << 20)?)?;
    /// map.read(..1 << 20, &mut weights)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Refused`], which holds the memory, and becomes an [`Error`](crate::Error) by `?`: what cuFile answers to
    /// memory that is empty or registered already, or of which no more can be pinned.
    pub fn register(
        &self,
        memory: DeviceBuffer,
    ) -> Result<RegisteredBuffer, Refused<DeviceBuffer>> {
        RegisteredBuffer::new(&self.driver, memory)
    }

    pub(crate) fn in_this_process(&self) -> Result<()> {
        self.driver.symbols().map(drop)?;
        Ok(())
    }
}
