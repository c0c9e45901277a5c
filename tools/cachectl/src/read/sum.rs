//! The reports of several reads, as one.

use std::time::Duration;

use gpumap::{CufileCounters, CufileReads, Report, Route};

use crate::json::{CufileRecord, FallbackRecord, ReportRecord, ResidentRecord, RouteRecord};
use crate::plan::reasons;

/// A sum of reports. What is unknown for one is unknown for all.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    record: ReportRecord,
    begun: bool,
    slowest: Duration,
}

impl Sum {
    pub(crate) fn bytes(&self) -> u64 {
        self.record.bytes
    }

    pub(crate) fn add(&mut self, report: &Report) {
        let first = !std::mem::replace(&mut self.begun, true);
        let sum = &mut self.record;
        if first || report.elapsed > self.slowest {
            self.slowest = report.elapsed;
            sum.explanation = Some(report.explain());
        }
        sum.bytes += report.bytes;
        for route in Route::ALL {
            add_route(sum, route, report);
        }
        for (route, reason) in reasons(|route| report.reason(route)) {
            sum.reasons.entry(route).or_insert(reason);
        }
        if first {
            sum.not_in_place = report.not_in_place.map(crate::words::reason_of);
        }
        sum.fallbacks
            .extend(report.fallbacks.iter().map(|fallback| FallbackRecord {
                from: fallback.from.to_string(),
                from_engine: fallback.from_engine.map(|engine| engine.to_string()),
                to: fallback.to.to_string(),
                to_engine: fallback.to_engine.map(|engine| engine.to_string()),
                error: fallback.hindrance.to_string(),
            }));
        let pages = report.residency_before.map(|before| ResidentRecord {
            resident_pages: before.resident,
            pages: before.pages,
        });
        let both = |a: ResidentRecord, b: ResidentRecord| ResidentRecord {
            resident_pages: a.resident_pages + b.resident_pages,
            pages: a.pages + b.pages,
        };
        sum.residency_before = total(first, sum.residency_before, pages, both);
        let storage = report.storage_read_bytes;
        sum.storage_read_bytes = total(first, sum.storage_read_bytes, storage, |a, b| a + b);
        sum.accelerated = total(first, sum.accelerated, report.accelerated(), |a, b| a && b);
        let counted = report.cufile.as_ref().map(counted);
        sum.cufile = total(first, sum.cufile.take(), counted, both_counted);
    }

    /// A route that was taken for some windows has no reason for the others.
    pub(crate) fn into_record(mut self) -> ReportRecord {
        let Self { record, .. } = &mut self;
        record
            .reasons
            .retain(|route, _| !record.routes.contains_key(route));
        self.record
    }
}

fn add_route(sum: &mut ReportRecord, route: Route, report: &Report) {
    if let Some(used) = report.route(route) {
        let total: &mut RouteRecord = sum.routes.entry(route.to_string()).or_default();
        total.bytes += used.bytes;
        total.ops += used.ops;
        if let Some(engine) = used.engine {
            total.engine = Some(engine.to_string());
        }
    }
}

fn counted(reads: &CufileReads) -> CufileRecord {
    let by = match reads.from {
        CufileCounters::NvidiaFs => "nvidia_fs",
        _ => "cufile",
    };
    CufileRecord {
        counted_by: by.to_owned(),
        p2p: reads.p2p,
        nvfs: reads.nvfs,
        posix: reads.posix,
        unaligned: reads.unaligned,
        errors: reads.errors,
        bytes: reads.bytes,
        edges: reads.edges,
        others_possible: reads.others_possible,
    }
}

fn both_counted(a: CufileRecord, b: CufileRecord) -> CufileRecord {
    let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
    CufileRecord {
        p2p: both(a.p2p, b.p2p),
        nvfs: a.nvfs + b.nvfs,
        posix: both(a.posix, b.posix),
        unaligned: both(a.unaligned, b.unaligned),
        errors: a.errors + b.errors,
        bytes: a.bytes + b.bytes,
        edges: a.edges + b.edges,
        others_possible: a.others_possible || b.others_possible,
        ..a
    }
}

fn total<T>(first: bool, sum: Option<T>, one: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    if first {
        return one;
    }
    sum.zip(one).map(|(sum, one)| add(sum, one))
}
