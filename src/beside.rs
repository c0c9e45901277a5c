//! The part of the spine for gathers of rows of which some are registered: a device's kernel gathers these, and in the
//! same launches puts those to their places that threads read into slots.

use crate::cuda::Sources;
use crate::error::{Error, Result};
use crate::plan::Piece;
use crate::read::Request;
use crate::report::{Engine, Fallback, Hindrance, Reason, Report};
use crate::request::{Cursor, Landing, Route};
use crate::route::all_there;
use crate::run::{Shore, Way, move_pieces};

/// Moves the pieces. Where the device does not gather all is read into slots, and copied from there.
pub(crate) fn run(
    request: &Request<'_>,
    pieces: &[Piece],
    shore: &Shore,
    mut destination: Landing<'_>,
    report: &mut Report,
) -> Result<()> {
    let before = report.clone();
    let attempt = request.kept_sources(&shore.device);
    let attempt = attempt.map_err(|error| request.error(error.into()));
    let attempt = attempt.and_then(|sources| {
        let destination = destination.reborrow();
        gather(request, pieces, shore, &sources, destination, report)
    });
    let hindrance = match attempt {
        Err(Error::Device { source, .. }) => Hindrance::Device(source),
        done => return done,
    };
    // What has arrived is read again, and told of once.
    *report = Report {
        storage_read_bytes: report.storage_read_bytes,
        ..before
    };
    let (route, engine) = pieces
        .first()
        .map_or((Route::Buffered, None), |piece| (piece.route, piece.engine));
    report.fell_back(Fallback {
        from: Route::Mapped,
        from_engine: Some(Engine::Kernel),
        to: route,
        to_engine: engine,
        hindrance,
    });
    let way = Way::Slots(shore, None);
    move_pieces(request, pieces, way, destination, report)
}

fn gather(
    request: &Request<'_>,
    pieces: &[Piece],
    shore: &Shore,
    sources: &Sources,
    destination: Landing<'_>,
    report: &mut Report,
) -> Result<()> {
    let way = Way::Slots(shore, Some(sources));
    move_pieces(request, pieces, way, destination, report)?;
    if report.engine(Engine::Kernel).is_none() {
        // Released since it was planned.
        report.not_in_place = Some(Reason::NotRegistered);
        if report.route(Route::Mapped).is_none() {
            report.reasons[Route::Mapped.index()] = Some(Reason::NotRegistered);
        }
    }
    // Registered pages outlast the file that they are of.
    let segments = request.rows.segments(Cursor::default(), request.bytes);
    let there = all_there(request.map.source(), segments);
    there.map_err(|failure| request.error(failure))
}

/// On the double of the driver, with pieces as a plan would have them.
#[cfg(feature = "cuda")]
#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::ops::Range;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::cuda::the_double;
    use crate::range::ByteRange;
    use crate::request::{ReadOptions, Rows};
    use crate::runtime::Runtime;
    use crate::settings::Settings;

    const CHUNK: u64 = 64 << 10;
    const CHUNKS: u64 = 16;

    /// Rows of 100 bytes: of the last chunk and the first in turn.
    fn rows() -> Vec<Range<u64>> {
        let start = |n: u64| {
            n * 150
                + if n.is_multiple_of(2) {
                    (CHUNKS - 1) * CHUNK
                } else {
                    0
                }
        };
        (0..400).map(|n| start(n)..start(n) + 100).collect()
    }

    /// Gathers them with the first or the last chunk registered; `meanwhile` happens once that is known.
    fn gather(
        registered: u64,
        route: Route,
        cancelled: Option<&AtomicBool>,
        meanwhile: impl FnOnce(&File),
    ) -> (Result<Report>, Vec<u8>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; (CHUNKS * CHUNK) as usize]).unwrap();
        let mut settings = Settings::default();
        settings.set("GPUMAP_CHUNK", "64KiB").unwrap();
        settings.set("GPUMAP_PIECE", "8KiB").unwrap();
        let rt = Runtime::builder().settings(settings).build();
        let device = rt.find_device(0).unwrap();
        let map = rt.open(file.path()).unwrap();
        let first = registered * CHUNK;
        map.register(&device, first..first + CHUNK).unwrap();
        let ranges = rows();
        let (rows, bytes) = Rows::gather(&ranges, map.len(), Path::new("f")).unwrap();
        let mut buffer = device.alloc(bytes).unwrap();
        buffer.fill(1).unwrap();
        let mut request = map.request(rows, bytes, ReadOptions::new());
        request.cancelled = cancelled;
        request.needs();
        meanwhile(file.as_file());
        let pieces = (0..bytes / 8_000).map(|at| Piece {
            route,
            engine: None,
            otherwise: None,
            registered: true,
            destination: ByteRange::at(at * 8_000, 8_000).unwrap(),
            start: rows.after(Cursor::default(), at * 8_000),
        });
        let pieces: Vec<_> = pieces.collect();
        let mut report = Report::default();
        let done = {
            let to = buffer.as_slice_mut();
            let shore = Shore::of(&request, [&to]).unwrap();
            run(&request, &pieces, &shore, Landing::Device(to), &mut report)
        };
        let mut landed = vec![0; bytes as usize];
        buffer.copy_to_host(0, &mut landed).unwrap();
        (done.map(|()| report), landed)
    }

    #[test]
    fn rows_by_either_way_fail_as_one_read() {
        let double = the_double();
        // Other tests leak on purpose.
        let alive = || (double.under_way(), double.live(), double.violations());
        let before = alive();
        let half = rows().len() as u64 * 50;
        for registered in [0, CHUNKS - 1] {
            for route in [Route::Buffered, Route::Mapped] {
                let (done, landed) = gather(registered, route, None, |_| ());
                let report = done.unwrap();
                assert!(landed.iter().all(|byte| *byte == 7));
                assert_eq!((report.bytes, &report.fallbacks[..]), (2 * half, &[][..]));
                assert_eq!(report.engine(Engine::Kernel).unwrap().bytes, half);
                // The last chunk is there no more: in the page cache, or in registered pages alone.
                let cut = |file: &File| file.set_len((CHUNKS - 1) * CHUNK + 5).unwrap();
                let (done, landed) = gather(registered, route, None, cut);
                assert!(
                    matches!(done, Err(Error::Truncated { row: Some(0), .. })),
                    "{done:?}"
                );
                assert!(landed.iter().all(|byte| [0, 1, 7].contains(byte)));
            }
        }
        let (done, landed) = gather(0, Route::Buffered, Some(&true.into()), |_| ());
        assert!(matches!(done, Err(Error::Cancelled { .. })), "{done:?}");
        assert!(landed.iter().all(|byte| *byte == 1));
        assert_eq!(alive(), before);
    }
}
