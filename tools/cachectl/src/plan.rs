//! `plan`: how a read would be done.

use std::collections::BTreeMap;

use gpumap::{Plan, ReadOptions, Route, Settings};

use crate::args::PlanArgs;
use crate::json::{Name, PlanRecord, PlanTotalRecord};
use crate::out::{Out, size};
use crate::outcome::Outcome;
use crate::request::{self, Asked, Request};

pub(crate) fn run(args: &PlanArgs, settings: Settings, out: &Out) -> Outcome {
    let planned = Request::open(&args.request, None, settings).and_then(|request| plan(&request));
    let name = Name::from(request::file(&args.request));
    match planned {
        Ok(plan) => {
            told(name, &plan, out);
            Outcome::Done
        }
        Err(error) if out.json() => {
            out.record(PlanTotalRecord {
                name,
                error: Some(error),
                ..PlanTotalRecord::default()
            });
            Outcome::Failed
        }
        Err(error) => {
            out.problem(&error);
            Outcome::Failed
        }
    }
}

fn plan(request: &Request) -> Result<Plan, String> {
    let options = ReadOptions::new();
    let plan = match &request.asked {
        Asked::Range(range) => request.map.plan(range.start()..range.end(), options),
        Asked::Rows(rows) => request.map.plan_gather(rows, options),
    };
    plan.map_err(|error| error.to_string())
}

fn told(name: Name, plan: &Plan, out: &Out) {
    if !out.json() {
        return table(plan, out);
    }
    for (at, piece) in plan.pieces().iter().enumerate() {
        out.record(PlanRecord {
            piece: at as u64,
            route: piece.route.to_string(),
            engine: piece.engine.map(|engine| engine.to_string()),
            destination_offset_bytes: piece.destination.start(),
            len_bytes: piece.destination.len(),
            first_row: piece.first_row() as u64,
        });
    }
    out.record(PlanTotalRecord {
        name,
        bytes: Some(plan.bytes()),
        pieces: Some(plan.pieces().len() as u64),
        reasons: reasons(|route| plan.reason(route).map(|reason| reason.to_string())),
        error: None,
    });
}

/// Why routes were not taken, by their names.
pub(crate) fn reasons(of: impl Fn(Route) -> Option<String>) -> BTreeMap<String, String> {
    Route::ALL
        .into_iter()
        .filter_map(|route| Some((route.to_string(), of(route)?)))
        .collect()
}

/// One line for each route; there may be very many pieces.
fn table(plan: &Plan, out: &Out) {
    out.line(format!(
        "{} in {} pieces",
        size(plan.bytes()),
        plan.pieces().len()
    ));
    for route in Route::ALL {
        if let Some(reason) = plan.reason(route) {
            out.line(format!("  not {route}: {reason}"));
            continue;
        }
        let pieces = plan.pieces().iter().filter(|piece| piece.route == route);
        let (mut count, mut bytes, mut engine) = (0u64, 0, None);
        for piece in pieces {
            count += 1;
            bytes += piece.destination.len();
            engine = piece.engine.or(engine);
        }
        let by = engine.map_or(String::new(), |engine| format!(", by {engine}"));
        out.line(format!("  {route}: {} in {count} pieces{by}", size(bytes)));
    }
}
