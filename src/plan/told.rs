//! A plan in words.

use std::fmt;

use super::Plan;
use crate::request::Route;

impl fmt::Display for Plan {
    /// One line for all of it, and one for each route: what goes by it, or why nothing does.
    ///
    /// ```
    /// use gpumap::{Mmap, ReadOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let plan = Mmap::open(&path)?.plan(.., ReadOptions::new())?;
    /// println!("{plan}");
    /// // 10000 bytes, expected to take 2.0µs
    /// //   not gds: it lands in device memory, and the destination is host memory
    /// //   ...
    /// assert!(plan.to_string().contains("\n  buffered: 10000 bytes, pieces: 1"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, expected) = (self.bytes, self.expected());
        write!(f, "{bytes} bytes, expected to take {expected:.1?}")?;
        for route in Route::ALL {
            match self.reason(route) {
                Some(reason) => write!(f, "\n  not {route}: {reason}")?,
                None => self.taken(route, f)?,
            }
        }
        match self.not_in_place {
            Some(reason) => write!(f, "\n  not in place: {reason}"),
            None => Ok(()),
        }
    }
}

impl Plan {
    fn taken(&self, route: Route, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_route = || self.pieces.iter().filter(|piece| piece.route == route);
        let Some(first) = by_route().next() else {
            return match self.pieces.is_empty() {
                true => Ok(()),
                false => write!(
                    f,
                    "\n  {route}: what is found to be otherwise when it is read"
                ),
            };
        };
        write!(f, "\n  {route}")?;
        if let Some(engine) = first.engine {
            write!(f, " by {engine}")?;
        }
        let bytes: u64 = by_route().map(|piece| piece.destination.len()).sum();
        write!(f, ": {bytes} bytes, pieces: {}", by_route().count())
    }
}
