//! The room for libcufile, NVIDIA's library for reads from storage into device memory (GPUDirect Storage).
//!
//! # Safety
//! The library's functions take addresses and write structures that grow from version to version. All of them
//! are called in this folder, and what they write to is larger than any version's. Numbers of the library stay
//! integers, and its addresses do not leave this room.
#![allow(unsafe_code)]

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

use std::sync::Arc;

use crate::cuda::{Device, DeviceError};
use crate::error::Result;
use crate::facts::Facts;
use crate::settings::{Gds, Settings};
use driver::Driver;
use library::Library;
use symbols::Symbols;

pub use code::CufileCode;
pub use error::CufileError;
pub(crate) use file::CufileFile;
pub use parameters::ParameterValue;
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
        Ok(Self {
            driver: Arc::new(driver),
        })
    }

    /// The library's version, as it numbers them: 1000 times the major number and 10 times the minor, so that
    /// 1150 is 1.15.
    #[must_use]
    pub fn version(&self) -> i32 {
        self.driver.version()
    }

    /// How often the driver is open in this process (`cuFileUseCount`): more than once where others, or another
    /// runtime, use cuFile too.
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
        Ok(properties::of(self.driver.symbols()?)?)
    }

    /// The value that a parameter has while the driver is open (`cuFileGetParameterSizeT`, `Bool` and `String`,
    /// cuFile 1.14 and later). Names are those of the vendor's header without `CUFILE_PARAM_`.
    ///
    /// # Errors
    /// [`Error::Cufile`](crate::Error::Cufile): a name that is not known, a version without parameters, or
    /// without this one; [`Error::Device`](crate::Error::Device) in the child of a fork.
    pub fn parameter(&self, name: &str) -> Result<ParameterValue> {
        Ok(parameters::get(self.driver.symbols()?, name)?)
    }

    pub(crate) fn in_this_process(&self) -> Result<()> {
        self.driver.symbols().map(drop)?;
        Ok(())
    }
}
