//! The part of the spine for gathers of rows of which some are registered: a device's kernel gathers these, and in the
//! same launches puts those to their places that threads read into slots.

use crate::cuda::Sources;
use crate::error::{Error, Result};
use crate::plan::Piece;
use crate::read::Request;
use crate::report::{Engine, Fallback, Hindrance, Report};
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
    // Registered pages outlast the file that they are of.
    let segments = request.rows.segments(Cursor::default(), request.bytes);
    let there = all_there(request.map.source(), segments);
    there.map_err(|failure| request.error(failure))
}
