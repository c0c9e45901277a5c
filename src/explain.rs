//! A report in words: what happened, and what would make it faster.

use crate::read::{LEAST_ASKED, LEAST_ROWS_ASKED};
use crate::report::{Engine, Hindrance, Reason, Report, RouteUse};
use crate::request::Route;

impl Report {
    /// Two sentences: what happened, and what would make the same read faster, as far as this report shows.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let mut bytes = [0u8; 4096];
    /// let report = gpumap::Mmap::open(&path)?.read(..4096, &mut bytes)?;
    /// println!("{}", report.explain());
    /// // 4096 bytes came through the page cache (buffered) in 5.2µs, where 1.1µs were expected. ...
    /// assert!(report.explain().starts_with("4096 bytes came through the page cache (buffered) in "));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn explain(&self) -> String {
        if self.bytes == 0 {
            return "No bytes were read. There is nothing to make faster.".to_owned();
        }
        let parts: Vec<_> = Route::ALL
            .into_iter()
            .flat_map(|route| self.parts(route))
            .collect();
        let (elapsed, parts) = (self.elapsed, parts.join(", and "));
        let expected = match self.expected.is_zero() {
            true => String::new(),
            false => format!(", where {:.1?} were expected", self.expected),
        };
        format!("{parts} in {elapsed:.1?}{expected}. {}.", self.faster())
    }

    /// What went by a route: by each of its engines, where it has several.
    fn parts(&self, route: Route) -> Vec<String> {
        let engines: &[Engine] = match route {
            Route::Mapped => &[Engine::Copy, Engine::Dma, Engine::Kernel],
            Route::Direct => &[Engine::Pread, Engine::IoUring],
            Route::Buffered | Route::Gds => &[],
        };
        let by_engine = engines.iter().filter_map(|engine| self.engine(*engine));
        let by_engine: Vec<_> = by_engine.map(|used| part(route, used)).collect();
        if by_engine.is_empty() {
            let used = self.route(route);
            return used.map(|used| part(route, used)).into_iter().collect();
        }
        by_engine
    }

    /// The first thing that stood in the way.
    fn faster(&self) -> String {
        self.after_a_fallback()
            .or_else(|| self.by_cufile())
            .or_else(|| self.out_of_the_cache())
            .or_else(|| self.unnamed())
            .or_else(|| self.few())
            .or_else(|| self.in_place())
            .unwrap_or_else(|| {
                "It went out of the page cache by the fastest way that there is here: more threads \
                 (GPUMAP_WORKERS) help until memory is what limits, where it is of several pieces (GPUMAP_PIECE)"
                    .to_owned()
            })
    }

    fn after_a_fallback(&self) -> Option<String> {
        let fallback = self.fallbacks.last()?;
        let (from, to, why) = (fallback.from, fallback.to, &fallback.hindrance);
        let next = match why {
            Hindrance::Slow { .. } => {
                "drop the file and cache it by large reads (cachectl evict, then warm), so that it lies in large folios"
            }
            Hindrance::NoRoom { .. } => "ask for less, or set GPUMAP_REGISTERED higher",
            Hindrance::InUse => "drop the file's views, and wait for reads on streams, before",
            Hindrance::NotMapped => "map the file anew",
            Hindrance::Device(_) | Hindrance::Cufile(_) => "see what cachectl doctor says of it",
        };
        Some(format!(
            "It would have gone faster by {from}, which {to} took over from ({why}): {next}"
        ))
    }

    fn by_cufile(&self) -> Option<String> {
        self.route(Route::Gds)?;
        let told = match self.accelerated() {
            Some(true) => {
                "They went from storage to the device without the CPU: storage is the limit"
            }
            Some(false) => {
                "cuFile read through the CPU, without GPUDirect Storage: cachectl doctor says what that lacks here, \
                 and without the name of a route another is taken"
            }
            None => {
                "Whether cuFile went past the CPU is unknown: measure the read (ReadOptions::measure, --measure), or \
                 see cachectl paths"
            }
        };
        Some(told.to_owned())
    }

    /// What came from storage would come faster out of the page cache.
    fn out_of_the_cache(&self) -> Option<String> {
        let direct = self.route(Route::Direct).map_or(0, |used| used.bytes);
        let before = self.residency_before;
        let absent = before.is_some_and(|before| before.resident < before.pages);
        if direct * 10 < self.bytes && !absent {
            return None;
        }
        let told = match self.storage_read_bytes {
            Some(0) => {
                "Nothing came from storage: what was not cached lies in holes of the file, which are zeros that nobody \
                 stores, or others read it meanwhile"
            }
            Some(_) => {
                "Storage is what took the time: where the same bytes are read again, have them cached by the first \
                 read (Cache::Fill, GPUMAP_CACHE=fill) or before it (cachectl warm)"
            }
            None => {
                "Storage is what took the time, but for holes of the file: where the same bytes are read again, have \
                 them cached by the first read (Cache::Fill, GPUMAP_CACHE=fill) or before it (cachectl warm)"
            }
        };
        Some(told.to_owned())
    }

    /// Too little for several threads.
    fn few(&self) -> Option<String> {
        let few = self.bytes < LEAST_ASKED && self.rows < LEAST_ROWS_ASKED;
        let in_place = self.engine(Engine::Dma).or(self.engine(Engine::Kernel));
        (few && in_place.is_none()).then(|| {
            "It is too small for more threads to help: much of its time is that of the call, which many ranges by one \
             call share (a gather or a batch)"
                .to_owned()
        })
    }

    fn unnamed(&self) -> Option<String> {
        let named = self.reasons.contains(&Some(Reason::AnotherNamed));
        named.then(|| {
            "Its route was named: without a name the one that is expected to be the fastest is taken".to_owned()
        })
    }

    /// Into a device, by way of pinned memory or not.
    fn in_place(&self) -> Option<String> {
        if [Engine::Dma, Engine::Kernel]
            .map(|by| self.engine(by))
            .iter()
            .any(Option::is_some)
        {
            return Some(
                "The device read the file's pages itself, and what was registered for that is kept for the next read, \
                 which is the faster for it"
                    .to_owned(),
            );
        }
        let next = match self.not_in_place? {
            Reason::NotRegistered | Reason::Slower { .. } => {
                "where the same bytes are read again, saying so (ReadOptions::again, --again) has their pages \
                 registered, which the device then reads itself"
                    .to_owned()
            }
            reason => format!("the device does not read the file's pages itself, since {reason}"),
        };
        Some(format!("They crossed by way of pinned memory: {next}"))
    }
}

fn part(route: Route, used: RouteUse) -> String {
    let how = match (route, used.engine) {
        (Route::Gds, _) => "came by cuFile",
        (Route::Mapped, Some(Engine::Dma | Engine::Kernel)) => {
            "were read by the device out of the file's pages"
        }
        (Route::Mapped, _) => "were copied out of the file's pages",
        (Route::Buffered, _) => "came through the page cache",
        (Route::Direct, _) => "came past the page cache",
    };
    let engine = used
        .engine
        .map_or(String::new(), |engine| format!(" by {engine}"));
    format!("{} bytes {how} ({route}{engine})", used.bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::{Fallback, ResidentPages};

    fn read(uses: &[(Route, Option<Engine>, u64)]) -> Report {
        let mut report = Report {
            elapsed: Duration::from_millis(20),
            expected: Duration::from_millis(10),
            ..Report::default()
        };
        for (route, engine, bytes) in uses {
            let (bytes, engine, ops) = (*bytes, *engine, 1);
            report.add(*route, RouteUse { bytes, ops, engine });
        }
        report
    }

    #[test]
    fn it_says_which_way_the_bytes_went() {
        let mixed = [
            (Route::Mapped, Some(Engine::Copy), 6),
            (Route::Direct, Some(Engine::IoUring), 4),
        ];
        let told = read(&mixed).explain();
        let first = "6 bytes were copied out of the file's pages (mapped by copy), and 4 bytes came past the page cache \
                     (direct by io_uring) in 20.0ms, where 10.0ms were expected. Storage";
        assert!(told.starts_with(first), "{told}");
    }

    #[test]
    fn what_was_not_planned_was_not_expected() {
        let mut read = read(&[(Route::Mapped, Some(Engine::Kernel), 6)]);
        read.expected = Duration::ZERO;
        assert!(read.explain().contains("(mapped by kernel) in 20.0ms. "));
    }

    /// Rows beside each other: some are registered, some resident, some absent.
    #[test]
    fn it_tells_what_each_engine_of_a_route_did() {
        let beside = [
            (Route::Mapped, Some(Engine::Kernel), 6),
            (Route::Mapped, Some(Engine::Copy), 3),
            (Route::Direct, Some(Engine::IoUring), 1),
        ];
        let told = read(&beside).explain();
        let first = "3 bytes were copied out of the file's pages (mapped by copy), and 6 bytes were read by the device \
                     out of the file's pages (mapped by kernel), and 1 bytes came past the page cache (direct by io_uring) in ";
        assert!(told.starts_with(first), "{told}");
    }

    #[test]
    fn it_names_the_first_thing_in_the_way_and_is_two_sentences() {
        let buffered = [(Route::Buffered, None, 10 << 20)];
        let direct = [(Route::Direct, Some(Engine::Pread), 10 << 20)];
        let some = |change: &dyn Fn(&mut Report)| {
            let mut report = read(&buffered);
            change(&mut report);
            report
        };
        let cases = [
            (Report::default(), "nothing to make faster"),
            (read(&buffered), "GPUMAP_WORKERS"),
            (read(&[(Route::Gds, None, 10)]), "ReadOptions::measure"),
            (read(&[(Route::Buffered, None, 5)]), "too small for more"),
            (read(&direct), "but for holes of the file: where"),
            (
                Report {
                    storage_read_bytes: Some(10 << 20),
                    ..read(&direct)
                },
                "took the time: where",
            ),
            (
                Report {
                    storage_read_bytes: Some(0),
                    ..read(&direct)
                },
                "Nothing came from storage",
            ),
            (
                read(&[(Route::Mapped, Some(Engine::Dma), 10)]),
                "is kept for the next read",
            ),
            (
                some(&|report| report.not_in_place = Some(Reason::NotRegistered)),
                "--again",
            ),
            (
                some(&|report| report.not_in_place = Some(Reason::NoRegistration)),
                "registers no mapping",
            ),
            (
                some(&|report| report.reasons[0] = Some(Reason::AnotherNamed)),
                "without a name",
            ),
            (
                some(&|report| {
                    report.residency_before = Some(ResidentPages {
                        resident: 1,
                        pages: 2,
                    });
                }),
                "cachectl warm",
            ),
            (
                some(&|report| {
                    report.fell_back(Fallback {
                        from: Route::Mapped,
                        from_engine: Some(Engine::Dma),
                        to: Route::Buffered,
                        to_engine: None,
                        hindrance: Hindrance::NoRoom { most: 5 },
                    });
                }),
                "GPUMAP_REGISTERED",
            ),
        ];
        for (report, next) in cases {
            let told = report.explain();
            let (_, second) = told.split_once(". ").unwrap();
            assert!(second.contains(next), "{told}");
            assert!(second.ends_with('.') && !second.contains(". "), "{told}");
        }
    }
}
