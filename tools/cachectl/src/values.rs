//! Values on the command line: numbers of bytes, routes, destinations, states.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use gpumap::sample::State;
use gpumap::settings::parse_bytes;
use gpumap::{Memory, Route, Settings};

/// A name that is not empty.
pub(crate) fn named(name: OsString) -> Result<OsString, &'static str> {
    if name.is_empty() {
        Err("a name is empty; name a file")
    } else {
        Ok(name)
    }
}

/// A number of bytes, with a unit.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "not a number of bytes; accepted: such as 512, 4K, 1GiB".into())
}

/// A number of things of which there must be one.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("accepted: a number, at least 1".into()),
        Ok(number) => Ok(number),
    }
}

/// A number of threads, as the setting takes it: `auto` too.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let mut settings = Settings::default();
    match settings.set("GPUMAP_WORKERS", text) {
        Ok(()) => Ok(settings.workers()),
        Err(error) => Err(format!("accepted: {}", error.accepted)),
    }
}

/// A device, and not host memory.
pub(crate) fn device(text: &str) -> Result<To, String> {
    match text.parse() {
        Ok(to @ To::Gpu(_)) => Ok(to),
        _ => Err("accepted: gpu:N with the number of the device, as gpu:0".into()),
    }
}

pub(crate) fn state(text: &str) -> Result<State, String> {
    State::ALL
        .into_iter()
        .find(|state| state.name() == text)
        .ok_or_else(|| "accepted: cold, half, warm".into())
}

/// What has an allocation of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Per {
    File,
    Tensor,
}

impl FromStr for Per {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "file" => Ok(Self::File),
            "tensor" => Ok(Self::Tensor),
            _ => Err("accepted: file, tensor"),
        }
    }
}

/// A route, or the choice left to the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteChoice(pub(crate) Option<Route>);

impl FromStr for RouteChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(None));
        }
        let route = text.parse();
        route
            .map(|route| Self(Some(route)))
            .map_err(|_| "accepted: auto, buffered, mapped, direct, gds".into())
    }
}

impl fmt::Display for RouteChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or("auto", Route::name))
    }
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// Host memory.
    Host,
    /// Memory of the device of this number.
    Gpu(usize),
}

impl To {
    pub(crate) fn memory(self) -> Memory {
        match self {
            Self::Host => Memory::Host,
            Self::Gpu(number) => Memory::Device(number),
        }
    }

    /// What a line for people says of it: nothing of host memory.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Host => String::new(),
            Self::Gpu(_) => format!(" to {self}"),
        }
    }
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "host" {
            return Ok(Self::Host);
        }
        let number = text.strip_prefix("gpu:").and_then(|n| n.parse().ok());
        number.map(Self::Gpu).ok_or_else(|| {
            "accepted: host, or gpu:N with the number of the device, as gpu:0".into()
        })
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Gpu(number) => write!(f, "gpu:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_given_again() {
        for text in ["host", "gpu:0", "gpu:7"] {
            assert_eq!(text.parse::<To>().unwrap().to_string(), text);
        }
        for text in ["auto", "gds", "mapped", "buffered", "direct"] {
            assert_eq!(text.parse::<RouteChoice>().unwrap().to_string(), text);
        }
        for text in ["gpu", "gpu:", "gpu:-1", "Host", ""] {
            assert!(text.parse::<To>().is_err(), "{text:?}");
        }
        assert!(device("gpu:1").is_ok() && device("host").is_err());
        assert!("fast".parse::<RouteChoice>().is_err());
        assert!(state("hot").is_err() && count("0").is_err() && bytes("1X").is_err());
    }
}
