//! The part of the spine for reads by cuFile: threads call it, each for a task at a time, and where it fails
//! unasked before its first byte the threads that copy take over.

use crate::cufile::{CufileFile, Proof};
use crate::error::{Error, Result};
use crate::plan::{self, Piece, Pieces};
use crate::read::Request;
use crate::report::{Fallback, Hindrance, Report};
use crate::request::{Landing, Route};
use crate::route::{Ask, Failure, buffered};
use crate::run::{Shore, Way, move_pieces};

/// Moves the pieces; those that are left for another way, none where all are moved.
pub(crate) fn run(
    request: &Request<'_>,
    ask: Ask<'_>,
    pieces: &[Piece],
    shore: &Shore,
    destination: Landing<'_>,
    report: &mut Report,
) -> Result<Pieces> {
    let before = report.clone();
    let error = match read(request, pieces, shore, destination, report) {
        Ok(()) => return Ok(Pieces::new()),
        Err(error) => error,
    };
    match error {
        Error::Cufile { source, .. }
            if ask.named.is_none() && report.route(Route::Gds) == before.route(Route::Gds) =>
        {
            // What was copied out of the page cache meanwhile is read again, and told of once.
            *report = Report {
                cufile: report.cufile.take(),
                storage_read_bytes: report.storage_read_bytes,
                ..before
            };
            fall_back(request, ask, source.into(), report)
        }
        error => Err(error),
    }
}

fn read(
    request: &Request<'_>,
    pieces: &[Piece],
    shore: &Shore,
    destination: Landing<'_>,
    report: &mut Report,
) -> Result<()> {
    let cufile = request.cufile()?;
    let file = request.map.cufile(&cufile);
    let reading = file.and_then(CufileFile::begin);
    let reading = reading.map_err(|error| request.error(error.into()))?;
    // The library waits for no stream.
    let waited = shore.ready.wait(&shore.device);
    waited.map_err(|error| request.error(Failure::Device(error)))?;
    let proof = Proof::begin(&cufile, request.options.measure);
    let done = move_pieces(
        request,
        pieces,
        Way::Cufile(&reading, shore),
        destination,
        report,
    );
    report.cufile = proof.end();
    // Threads of the library may have read, whose share nobody tells.
    report.storage_read_bytes = None;
    done
}

fn fall_back(
    request: &Request<'_>,
    ask: Ask<'_>,
    hindrance: Hindrance,
    report: &mut Report,
) -> Result<Pieces> {
    let cost = buffered::usable(ask);
    let cost = cost.map_err(|reason| request.refused(Route::Buffered, reason))?;
    report.fell_back(Fallback {
        from: Route::Gds,
        from_engine: None,
        to: Route::Buffered,
        to_engine: cost.engine,
        hindrance,
    });
    let all = 0..request.bytes;
    Ok(plan::rest(request.rows, all, Route::Buffered, cost))
}
