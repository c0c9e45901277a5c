use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::shares::{Borders, Stretch};

fn offers(costs: [Option<u64>; 4], limits: Limits) -> Offers {
    costs.map(|cost| {
        cost.map(|nanoseconds| Cost {
            nanoseconds,
            later: 0,
            engine: None,
            limits,
        })
        .ok_or(Reason::HostDestination)
    })
}

/// The pieces cover the rows once, in order, within the limits.
fn tiles(
    plan: &Plan,
    rows: Rows<'_>,
    bytes: u64,
    limits: Limits,
    ranges: &[Range<u64>],
) -> Result<(), TestCaseError> {
    let mut at = 0;
    let mut packed = Vec::new();
    for piece in plan.pieces() {
        prop_assert_eq!(piece.destination.start(), at);
        prop_assert!(!piece.destination.is_empty());
        prop_assert!(piece.destination.len() <= limits.bytes);
        at = piece.destination.end();
        let segments: Vec<_> = rows
            .segments(piece.start, piece.destination.len())
            .collect();
        prop_assert!(segments.len() <= limits.rows);
        packed.extend(
            segments
                .iter()
                .flat_map(|s| s.source.start()..s.source.end()),
        );
    }
    prop_assert_eq!(at, bytes);
    let expected: Vec<u64> = ranges.iter().cloned().flatten().collect();
    prop_assert_eq!(packed, expected);
    Ok(())
}

proptest! {
    #[test]
    fn pieces_tile_the_request_and_every_route_is_explained(
        rows in prop::collection::vec((0u64..5_000, 0u64..300), 0..1_200),
        limits in (1u64..4_000, 1usize..600),
        costs in prop::array::uniform4(prop::option::of(0u64..1_000)),
        named in prop::option::of(prop::sample::select(Route::ALL.to_vec())),
    ) {
        let ranges: Vec<Range<u64>> = rows.iter().map(|(at, len)| *at..at + len).collect();
        let (rows, bytes) = Rows::gather(&ranges, 6_000, Path::new("f")).unwrap();
        let limits = Limits { bytes: limits.0, rows: limits.1, grid: None };
        let offers = offers(costs, limits);
        let planned = plan(rows, bytes, named, &offers, None);
        prop_assert_eq!(&planned, &plan(rows, bytes, named, &offers, None));
        let plan = match planned {
            Ok(plan) => plan,
            Err((route, _)) => {
                prop_assert!(offers[route.index()].is_err());
                prop_assert!(named == Some(route) || offers.iter().all(Result::is_err));
                return Ok(());
            }
        };
        tiles(&plan, rows, bytes, limits, &ranges)?;

        let taken: Vec<_> =
            Route::ALL.into_iter().filter(|route| plan.reason(*route).is_none()).collect();
        prop_assert_eq!(taken.len(), 1);
        prop_assert!(plan.pieces().iter().all(|piece| piece.route == taken[0]));
        if named.is_none() {
            let best = costs.iter().flatten().min();
            prop_assert_eq!(costs[taken[0].index()].as_ref(), best);
        }
        let is_slower = |route| matches!(plan.reason(route), Some(Reason::Slower { .. }));
        let others = costs.iter().flatten().count() > 1 && named.is_none() && bytes > 0;
        prop_assert_eq!(Route::ALL.into_iter().any(is_slower), others);
    }
}

/// Stretches of these lengths, resident and absent in turn.
fn stretches(lens: &[u64], bytes: u64) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (len, resident) in lens
        .iter()
        .chain([&u64::MAX])
        .zip([true, false].into_iter().cycle())
    {
        let start = stretches.last().map_or(0, |last| last.destination.end());
        let end = start.saturating_add(*len).min(bytes);
        if start < end {
            let destination = ByteRange::new(start, end).unwrap();
            stretches.push(Stretch {
                destination,
                resident,
            });
        }
    }
    stretches
}

proptest! {
    #[test]
    fn halves_go_each_by_its_cheapest_route_and_no_withdrawn_fact_makes_a_plan_fail(
        rows in prop::collection::vec((0u64..5_000, 0u64..3_000), 1..40),
        lens in prop::collection::vec(1u64..2_000, 1..20),
        when_read in any::<bool>(),
        limits in (1u64..4_000, 1usize..600),
        costs in prop::array::uniform3(prop::array::uniform4(prop::option::of(0u64..1_000))),
        registered in prop::option::of(0u64..1_000),
        withdrawn in 0usize..4,
        workers in 1u64..20,
    ) {
        let ranges: Vec<Range<u64>> = rows.iter().map(|(at, len)| *at..at + len).collect();
        let (rows, bytes) = Rows::gather(&ranges, 9_000, Path::new("f")).unwrap();
        let limits = Limits { bytes: limits.0, rows: limits.1, grid: None };
        let stretches = stretches(&lens, bytes);
        let borders = match when_read {
            true => Borders::WhenRead,
            false => Borders::Between(stretches.clone()),
        };
        let [whole, resident, absent] = costs.map(|costs| offers(costs, limits));
        let registered = registered.filter(|_| when_read);
        let registered = registered.map(|nanoseconds| Cost { nanoseconds, later: 0, engine: None, limits });
        let mut halves = Halves { resident, absent, registered, borders: &borders, workers };
        let planned = plan(rows, bytes, None, &whole, Some(&halves));
        prop_assert_eq!(&planned, &plan(rows, bytes, None, &whole, Some(&halves)));
        prop_assert_eq!(planned.is_ok(), whole.iter().any(Result::is_ok));
        let Ok(plan) = planned else { return Ok(()) };

        tiles(&plan, rows, bytes, limits, &ranges)?;

        let best = |offers: &Offers| {
            offers.iter().flatten().map(|cost| cost.nanoseconds).min().unwrap_or(u64::MAX)
        };
        let cheapest_of = |offers: &Offers, route: Route| {
            offers[route.index()].is_ok_and(|cost| cost.nanoseconds == best(offers))
        };
        let routes: Vec<_> =
            Route::ALL.into_iter().filter(|route| plan.reason(*route).is_none()).collect();
        prop_assert!(plan.expected().as_nanos() <= u128::from(best(&whole)));
        let by_kernel = plan.pieces().iter().any(|piece| piece.registered);
        if let Some(one) = routes.first().filter(|_| routes.len() == 1 && !by_kernel) {
            prop_assert!(cheapest_of(&whole, *one));
            prop_assert!(plan.pieces().iter().all(|piece| piece.route == *one && piece.otherwise.is_none()));
        } else {
            prop_assert_eq!(by_kernel, registered.is_some());
            prop_assert!(!by_kernel || plan.reason(Route::Mapped).is_none());
            prop_assert!(routes.len() == 2 || by_kernel);
            for piece in plan.pieces() {
                let stretch = stretches.iter().find(|stretch| {
                    stretch.destination.intersect(piece.destination) == piece.destination
                });
                match (piece.otherwise, stretch) {
                    (None, _) if when_read => {
                        prop_assert!(by_kernel);
                        prop_assert!(cheapest_of(&halves.absent, piece.route));
                    }
                    (Some(resident), _) if when_read => {
                        prop_assert_eq!(piece.route, Route::Direct);
                        prop_assert!(cheapest_of(&halves.resident, resident));
                        prop_assert!(cheapest_of(&halves.absent, piece.route));
                    }
                    (otherwise, Some(Stretch { resident: true, .. })) => {
                        prop_assert!(cheapest_of(&halves.resident, piece.route));
                        let direct = cheapest_of(&halves.absent, Route::Direct);
                        prop_assert!(otherwise.is_none_or(|by| by == Route::Direct && direct));
                    }
                    (Some(_), _) => prop_assert!(false, "a way out for what is absent"),
                    (None, Some(_)) => prop_assert!(cheapest_of(&halves.absent, piece.route)),
                    (None, None) => prop_assert!(false, "a piece over a border"),
                }
            }
        }

        let mut left = whole;
        for offers in [&mut left, &mut halves.resident, &mut halves.absent] {
            offers[withdrawn] = Err(Reason::NoStorage);
        }
        let still = left.iter().any(Result::is_ok);
        let again = super::plan(rows, bytes, None, &left, Some(&halves));
        prop_assert_eq!(again.is_ok(), still);
        let gone = Route::ALL[withdrawn];
        let uses = |piece: &Piece| piece.route == gone || piece.otherwise == Some(gone);
        prop_assert!(again.is_err() || again.is_ok_and(|plan| !plan.pieces().iter().any(uses)));
    }
}

proptest! {
    /// As cuFile wants it: what lies in the middle of a row is aligned in the file.
    #[test]
    fn pieces_end_at_multiples_in_the_file(
        rows in prop::collection::vec((0u64..50_000, 0u64..30_000), 1..20),
        offset in 0u64..10_000,
        blocks in 1u64..5,
    ) {
        let ranges: Vec<Range<u64>> = rows.iter().map(|(at, len)| *at..at + len).collect();
        let (rows, bytes) = Rows::gather(&ranges, 100_000, Path::new("f")).unwrap();
        let task = blocks * 4096;
        let limits = Limits { bytes: task, rows: 1, grid: Some(offset) };
        let offers = offers([Some(1), None, None, None], limits);
        let plan = plan(rows, bytes, None, &offers, None).unwrap();
        let mut packed = Vec::new();
        for piece in plan.pieces() {
            let segments: Vec<_> =
                rows.segments(piece.start, piece.destination.len()).collect();
            prop_assert_eq!(segments.len(), 1);
            let source = segments[0].source;
            let (start, end) = (source.start() + offset, source.end() + offset);
            prop_assert!(start / task == (end - 1) / task);
            let row = &ranges[segments[0].row];
            prop_assert!(end % task == 0 || source.end() == row.end);
            prop_assert!(start % task == 0 || source.start() == row.start);
            packed.extend(source.start()..source.end());
        }
        prop_assert!(packed.into_iter().eq(ranges.into_iter().flatten()));
    }
}

/// Of 8 threads, where the halves take 60 (resident) and 100 (absent), each for itself.
#[test]
fn halves_take_turns_where_the_same_threads_do_both() {
    let stretches = Borders::Between(stretches(&[1000], 2000));
    let rows = Rows::One(ByteRange::at(0, 2000).unwrap());
    let limits = Limits {
        bytes: 4096,
        rows: 1,
        grid: None,
    };
    let offer =
        |route: Route, cost| offers(Route::ALL.map(|it| (it == route).then_some(cost)), limits);
    let expected = |absent, borders, workers| {
        let halves = Halves {
            resident: offer(Route::Buffered, 60),
            absent: offer(absent, 100),
            registered: None,
            borders,
            workers,
        };
        let whole = offer(Route::Buffered, 10_000);
        let plan = plan(rows, 2000, None, &whole, Some(&halves)).unwrap();
        plan.expected().as_nanos()
    };
    assert_eq!(expected(Route::Direct, &stretches, 8), 60 + 48);
    assert_eq!(expected(Route::Gds, &stretches, 1), 160);
    assert_eq!(expected(Route::Mapped, &stretches, 8), 60 + 96);
    assert_eq!(expected(Route::Direct, &Borders::WhenRead, 10), 160);
}

/// Reasons compare what all reads take, the first and those that are said to come.
#[test]
fn reads_to_come_are_in_what_is_compared_and_not_in_what_is_expected() {
    let rows = Rows::One(ByteRange::at(0, 2000).unwrap());
    let mut offers = offers([Some(10), Some(30), None, None], Limits::NONE);
    for offer in offers.iter_mut().flatten() {
        offer.later = 100 - offer.nanoseconds;
    }
    offers[0].as_mut().unwrap().later = 95;
    let plan = plan(rows, 2000, None, &offers, None).unwrap();
    assert_eq!((plan.expected().as_nanos(), plan.in_all()), (30, 100));
    let [first, second, ..] = Route::ALL;
    assert_eq!(plan.reason(second), None);
    let slower = Reason::Slower {
        nanoseconds: 105,
        taken_nanoseconds: 100,
    };
    assert_eq!(plan.reason(first), Some(slower));
}

#[test]
fn a_contiguous_read_is_cut_at_the_piece_size() {
    let rows = Rows::One(ByteRange::at(100, 10_000).unwrap());
    let plan = plan(
        rows,
        10_000,
        None,
        &offers(
            [None, None, Some(1), None],
            Limits {
                bytes: 4096,
                rows: 1,
                grid: None,
            },
        ),
        None,
    )
    .unwrap();
    let ends: Vec<_> = plan
        .pieces()
        .iter()
        .map(|piece| piece.destination.end())
        .collect();
    assert_eq!(ends, [4096, 8192, 10_000]);
}

#[test]
fn a_plan_in_words_has_a_line_for_each_route() {
    let rows = Rows::One(ByteRange::new(0, 10).unwrap());
    let offers = offers(
        [None, Some(7000), Some(2000), None],
        Limits {
            bytes: 5,
            ..Limits::NONE
        },
    );
    let plan = plan(rows, 10, None, &offers, None).unwrap();
    let host = Reason::HostDestination.to_string();
    let lines = [
        "10 bytes, expected to take 2.0µs".to_owned(),
        format!("  not gds: {host}"),
        "  not mapped: expected to take 7.0µs, and the route taken 2.0µs".to_owned(),
        "  buffered: 10 bytes, pieces: 2".to_owned(),
        format!("  not direct: {host}"),
    ];
    assert_eq!(plan.to_string(), lines.join("\n"));
}
