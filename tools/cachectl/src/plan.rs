//! `plan`: how a read would be done.

use std::collections::BTreeMap;
use std::time::Duration;

use gpumap::{Memory, Plan, Reason, Route, Settings};

use crate::args::PlanArgs;
use crate::json::{Name, PlanRecord, PlanTotalRecord};
use crate::out::{Out, counted, size};
use crate::outcome::Outcome;
use crate::request::{self, Asked, Request};
use crate::values::To;
use crate::{units, words};

pub(crate) fn run(args: &PlanArgs, settings: Settings, out: &Out) -> Outcome {
    let to = args.request.to;
    let planned = Request::open(&args.request, args.workers.as_deref(), settings)
        .and_then(|request| plan(&request, to.memory()));
    let name = Name::from(request::file(&args.request));
    match planned {
        Ok(plan) => {
            told(name, to, &plan, out);
            Outcome::Done
        }
        Err(error) if out.json() => {
            out.record(PlanTotalRecord {
                name,
                destination: to.to_string(),
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

fn plan(request: &Request, to: Memory) -> Result<Plan, String> {
    let (map, options) = (&request.map, request.options);
    let plan = match &request.asked {
        Asked::Range(range) => map.plan_to(to, range.start()..range.end(), options),
        Asked::Rows(rows) => map.plan_gather_to(to, rows, options),
    };
    plan.map_err(|error| words::of(&error))
}

fn told(name: Name, to: To, plan: &Plan, out: &Out) {
    if !out.json() {
        return table(to, plan, out);
    }
    for (at, piece) in plan.pieces().iter().enumerate() {
        out.record(PlanRecord {
            piece: at as u64,
            route: piece.route.to_string(),
            engine: piece.engine.map(|engine| engine.to_string()),
            otherwise: piece.otherwise.map(|route| route.to_string()),
            destination_offset_bytes: piece.destination.start(),
            len_bytes: piece.destination.len(),
            first_row: piece.first_row() as u64,
        });
    }
    out.record(PlanTotalRecord {
        name,
        destination: to.to_string(),
        bytes: Some(plan.bytes()),
        expected_seconds: Some(plan.expected().as_secs_f64()),
        expected_in_all_seconds: Some(plan.expected_in_all().as_secs_f64()),
        pieces: Some(plan.pieces().len() as u64),
        reasons: reasons(|route| plan.reason(route)),
        not_in_place: plan.not_in_place().map(words::reason_of),
        error: None,
    });
}

/// Why routes were not taken, by their names.
pub(crate) fn reasons(of: impl Fn(Route) -> Option<Reason>) -> BTreeMap<String, String> {
    Route::ALL
        .into_iter()
        .filter_map(|route| Some((route.to_string(), words::reason_of(of(route)?))))
        .collect()
}

fn time(time: Duration) -> String {
    units::seconds(time.as_secs_f64())
}

/// One line for each route; there may be very many pieces.
fn table(to: To, plan: &Plan, out: &Out) {
    let pieces = plan.pieces();
    let count = counted(pieces.len() as u64, "piece");
    let (expected, in_all) = (plan.expected(), plan.expected_in_all());
    let later = match in_all > expected {
        true => format!(", {} with the reads to come", time(in_all)),
        false => String::new(),
    };
    let (bytes, to) = (size(plan.bytes()), to.words());
    out.line(format!(
        "{bytes}{to} in {count}, some {}{later}",
        time(expected)
    ));
    let (refused, taken): (Vec<_>, Vec<_>) = Route::ALL
        .into_iter()
        .partition(|&route| plan.reason(route).is_some());
    for route in taken {
        let of_route = || pieces.iter().filter(|piece| piece.route == route);
        if of_route().next().is_none() && pieces.iter().any(|piece| piece.otherwise == Some(route))
        {
            out.line(format!(
                "  {route}: rows that are resident when they are read"
            ));
            continue;
        }
        let bytes: u64 = of_route().map(|piece| piece.destination.len()).sum();
        let engine = of_route().find_map(|piece| piece.engine);
        let by = engine.map_or(String::new(), |engine| format!(", by {engine}"));
        let count = counted(of_route().count() as u64, "piece");
        out.line(format!("  {route}: {} in {count}{by}", size(bytes)));
    }
    for route in refused {
        if let Some(reason) = plan.reason(route) {
            let reason = words::reason_of(reason);
            out.line(format!("  not {route}: {reason}"));
        }
    }
    if let Some(reason) = plan.not_in_place() {
        let reason = words::reason_of(reason);
        out.line(format!("  not in place: {reason}"));
    }
}
