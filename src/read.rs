//! The spine: request → facts → plan → run → report.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::cuda::{Device, DeviceError, Registered, Sources};
use crate::cufile::Cufile;
use crate::error::{Error, Result};
use crate::facts::GdsPath;
use crate::feeds::Side;
use crate::mmap::Mapped;
use crate::plan::{self, Cost, Halves, Offers, Plan};
use crate::range::ByteRange;
use crate::registrations::{Missing, Needs, Seen};
use crate::report::{Engine, Reason, Report, ResidentPages};
use crate::request::{Cache, Cursor, Landing, Memory, ReadOptions, Route, Rows, Segment};
use crate::residency::Counter;
use crate::route::mapped::InPlace;
use crate::route::{Ask, Failure, buffered, direct, gds, mapped};
use crate::run;
use crate::runtime::Runtime;
use crate::settings::Gds;
use crate::shares::{Borders, Extent, Share, Shares};
use crate::sys::{self, DirectAlignment};

/// One call: what is read, from where, and how.
pub(crate) struct Request<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) map: &'r Mapped,
    pub(crate) rows: Rows<'r>,
    /// The lengths of the rows, summed.
    pub(crate) bytes: u64,
    pub(crate) options: ReadOptions,
    /// Set where nobody wants the bytes any more.
    pub(crate) cancelled: Option<&'r AtomicBool>,
    /// What the rows need to be registered, and the file then; found out once.
    pub(crate) needs: OnceLock<Option<(Needs, Seen)>>,
    /// What of it is resident; asked once.
    pub(crate) shares: OnceLock<Shares>,
}

/// Of so many rows it is cheaper to look at each chunk of the file between them than at each row.
const MANY_ROWS: usize = 1024;

/// Fewer bytes, in fewer rows, go through the page cache whether they are there or not, and are not asked about: the
/// kernel reads ahead for those that come one after another.
pub(crate) const LEAST_ASKED: u64 = 1 << 20;
pub(crate) const LEAST_ROWS_ASKED: u64 = 32;

/// Rows whose pages are registered are gathered beside others that are read where they have such a part of the bytes;
/// fewer are copied as well.
const LEAST_REGISTERED_PART: u64 = 4;

impl Request<'_> {
    /// The route that is named for this kind of destination: in the options, by `GPUMAP_GDS=on`, or else by
    /// `GPUMAP_ROUTE`.
    pub(crate) fn named(&self, to: Memory) -> Option<Route> {
        let settings = self.runtime.settings();
        let on = settings.gds() == Gds::On && to != Memory::Host;
        let by_gds = on.then_some(Route::Gds);
        self.options.route.or(by_gds).or(settings.route())
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// facts → plan.
    pub(crate) fn plan(&self, ask: Ask<'_>) -> Result<Plan> {
        let offers = self.offers(ask);
        let halves = self.halves(ask);
        let mut plan = plan::plan(self.rows, self.bytes, ask.named, &offers, halves.as_ref())
            .map_err(|(route, reason)| self.refused(route, reason))?;
        plan.not_in_place = self.not_in_place(ask, &plan);
        Ok(plan)
    }

    /// Every route's answer for what is resident, and for what is absent, where both is there. The resident half goes
    /// by threads that copy: they are done long before storage is.
    fn halves(&self, ask: Ask<'_>) -> Option<Halves<'_>> {
        let Shares::Mixed { absent, borders } = self.shares.get()? else {
            return None;
        };
        let registered = match borders {
            Borders::WhenRead => self.registered(ask),
            Borders::Between(_) => None,
        };
        let (kept, registered) = registered.unzip();
        let Extent { bytes, rows } = kept.unwrap_or_default();
        let resident = Ask {
            bytes: (ask.bytes - absent.bytes).saturating_sub(bytes),
            rows: ask.rows.saturating_sub(absent.rows + rows).max(1),
            absent: Extent::default(),
            in_place: None,
            direct: Err(Reason::Resident),
            gds: Err(Reason::Resident),
            ..ask
        };
        let absent = Ask {
            bytes: absent.bytes,
            rows: absent.rows,
            absent: *absent,
            in_place: None,
            ..ask
        };
        let (mut resident, mut absent) = (self.offers(resident), self.offers(absent));
        if *borders == Borders::WhenRead {
            // The thread that finds a row absent has host memory to put it to.
            absent[Route::Gds.index()] = Err(Reason::Resident);
        }
        if resident[Route::Mapped.index()].is_ok() {
            // Pread reads ahead where it meets the mark that an earlier read left, and fills the page cache.
            resident[Route::Buffered.index()] = Err(Reason::OtherEngine);
        }
        Some(Halves {
            resident,
            absent,
            registered,
            borders,
            workers: ask.workers,
        })
    }

    /// What of the rows has its pages registered, and what a device takes to gather it, where that is a share that is
    /// worth it.
    fn registered(&self, ask: Ask<'_>) -> Option<(Extent, Cost)> {
        // No row need be looked at for host memory, nor where nothing is registered.
        ask.in_place?;
        let kept = self.kept();
        if kept.is_empty() {
            return None;
        }
        // In the order of the file.
        let is_kept = |bytes: &ByteRange| {
            let at = kept.partition_point(|kept| kept.pages().end() <= bytes.start());
            let pages = kept.get(at).map(|kept| kept.pages());
            pages.is_some_and(|pages| pages.intersect(*bytes) == *bytes)
        };
        let rows = self.in_file().filter(is_kept);
        let extent = rows.fold(Extent::default(), |sum, row| Extent {
            bytes: sum.bytes + row.len(),
            rows: sum.rows + 1,
        });
        let cost = mapped::usable_if_registered(Ask {
            bytes: extent.bytes,
            rows: extent.rows,
            ..ask
        });
        let worth = extent.bytes >= ask.bytes / LEAST_REGISTERED_PART;
        cost.ok().filter(|_| worth).map(|cost| (extent, cost))
    }

    /// What is registered, and shows the file as it is, of the chunks that the rows lie in.
    fn kept(&self) -> Vec<Arc<Registered>> {
        let needs = self.needs().zip(self.map.mapping.as_deref());
        needs.map_or_else(Vec::new, |((needs, seen), mapping)| {
            self.runtime.registrations().kept(mapping, needs, seen)
        })
    }

    /// The same for a device to gather rows out of.
    pub(crate) fn kept_sources(&self, device: &Device) -> Result<Sources, DeviceError> {
        let chunk_bytes = self.runtime.registrations().chunk_bytes();
        Sources::new(device, chunk_bytes, self.kept())
    }

    /// Why a device does not read in place, where it could be asked to.
    fn not_in_place(&self, ask: Ask<'_>, plan: &Plan) -> Option<Reason> {
        let piece = plan.pieces().first()?;
        let in_place = piece.registered || piece.engine.is_some_and(Engine::is_in_place);
        if ask.to == Memory::Host || in_place {
            return None;
        }
        Some(match mapped::usable_in_place(ask) {
            Err(reason) => reason,
            Ok(_) if self.options.engine.is_some() => Reason::OtherEngine,
            Ok(_) if ask.named.is_some_and(|named| named != Route::Mapped) => Reason::AnotherNamed,
            Ok(dearer) => Reason::Slower {
                nanoseconds: dearer.in_all(),
                taken_nanoseconds: plan.in_all(),
            },
        })
    }

    pub(crate) fn refused(&self, route: Route, reason: Reason) -> Error {
        Error::Route {
            path: self.map.path.clone(),
            route,
            reason,
        }
    }

    /// What routes are asked.
    pub(crate) fn ask(&self, to: Memory) -> Result<Ask<'_>> {
        let settings = self.runtime.settings();
        let named = self.named(to);
        // Not the setting, which may ask the system each time.
        let most = self.runtime.workers().limit();
        let workers = self.options.workers.unwrap_or(most).min(most);
        let in_place = match to {
            Memory::Host => None,
            Memory::Device(ordinal) => Some(self.in_place(ordinal)?),
        };
        let absent = match named.is_some() || self.options.engine.is_some() {
            true => Extent::default(),
            false => self.absent(in_place),
        };
        Ok(Ask {
            rows: self.rows.count() as u64,
            bytes: self.bytes,
            offset: self.map.offset,
            mapped: self.map.mapping.is_some(),
            stale: self.map.may_be_stale(),
            to,
            absent,
            direct: self
                .past_the_cache(Route::Direct, named, absent)
                .and_then(|()| self.direct()),
            gds: self.gds(named, to, absent)?,
            in_place,
            named,
            engine: self.options.engine,
            workers: workers as u64,
            piece_bytes: settings.piece_bytes(),
            costs: settings.costs(),
        })
    }

    /// Why nobody would read past the page cache unasked.
    fn past_the_cache(
        &self,
        by: Route,
        named: Option<Route>,
        absent: Extent,
    ) -> Result<(), Reason> {
        match named {
            Some(route) if route == by => Ok(()),
            Some(_) => Err(Reason::AnotherNamed),
            None if self.bytes == 0 => Err(Reason::NothingAsked),
            None if absent.bytes == 0 && self.map.lies_in_memory() => Err(Reason::NoStorage),
            None if absent.bytes == 0 => Err(Reason::Resident),
            None if self.cache() == Cache::Fill => Err(Reason::FillsNothing),
            None => Ok(()),
        }
    }

    /// What the read does to the page cache.
    fn cache(&self) -> Cache {
        self.options
            .cache
            .unwrap_or(self.runtime.settings().cache())
    }

    /// What is known to be absent. Pages that are registered are not, and few are not asked about.
    fn absent(&self, in_place: Option<InPlace>) -> Extent {
        let whole = Extent {
            bytes: self.bytes,
            rows: self.rows.count() as u64,
        };
        let missing = in_place.and_then(|in_place| in_place.missing.ok());
        let registered = missing.is_some_and(|missing| missing.bytes == 0);
        let few = whole.bytes < LEAST_ASKED && whole.rows < LEAST_ROWS_ASKED;
        if registered || few || whole.bytes == 0 {
            return Extent::default();
        }
        self.shares.get_or_init(|| self.find_shares()).absent(whole)
    }

    /// Whether a row is resident for the most part; where nobody tells, it is not.
    pub(crate) fn is_resident(&self, counter: Option<&Counter<'_>>, row: Segment) -> bool {
        let share = counter.and_then(|counter| self.share(counter, row.source));
        share.is_some_and(Share::is_resident)
    }

    fn share(&self, counter: &Counter<'_>, bytes: ByteRange) -> Option<Share> {
        let in_file = bytes.shifted(self.map.offset)?;
        let pages = in_file.pages(sys::page_size());
        Some(Share {
            pages: pages.end - pages.start,
            resident: counter.resident(in_file).ok()??,
        })
    }

    fn find_shares(&self) -> Shares {
        let Some(opened) = self.map.opened() else {
            return Shares::Unknown;
        };
        let counter = Counter::new(&opened);
        Shares::of(self.rows, self.bytes, &|bytes| self.share(&counter, bytes))
    }

    /// Every route's answer, in the order of `Route::ALL`.
    fn offers(&self, ask: Ask<'_>) -> Offers {
        let of_engine = |cost: Cost| match self.options.engine {
            Some(engine) if cost.engine != Some(engine) => Err(Reason::OtherEngine),
            _ => Ok(cost),
        };
        Route::ALL.map(|route| {
            let cost = self.offer(route, ask).and_then(of_engine)?;
            let later = self.later(route, cost, ask);
            Ok(Cost { later, ..cost })
        })
    }

    fn offer(&self, route: Route, ask: Ask<'_>) -> Result<Cost, Reason> {
        match route {
            Route::Gds => gds::usable(ask),
            Route::Mapped => mapped::usable(self.runtime.facts(), ask),
            Route::Buffered => buffered::usable(ask),
            Route::Direct => direct::usable(self.runtime.facts(), ask),
        }
    }

    /// What the reads that are said to come cost by the same route, after one at this cost.
    fn later(&self, route: Route, cost: Cost, ask: Ask<'_>) -> u64 {
        let again = u64::from(self.options.again);
        if again == 0 {
            return 0;
        }
        let mut next = ask;
        if Side::of(route) == Side::Cache {
            next.absent = Extent::default();
        }
        if cost.engine.is_some_and(Engine::is_in_place) {
            next.in_place = ask.in_place.map(InPlace::registered);
        }
        let one = self.offer(route, next).unwrap_or(cost);
        one.nanoseconds.saturating_mul(again)
    }

    /// What cuFile would be asked for, or why it is not. Where it is named, and its driver cannot be opened, that is
    /// the error.
    fn gds(&self, named: Option<Route>, to: Memory, absent: Extent) -> Result<Result<u64, Reason>> {
        let Memory::Device(ordinal) = to else {
            return Ok(Err(Reason::HostDestination));
        };
        let settings = self.runtime.settings();
        if settings.gds() == Gds::Off {
            return Ok(Err(Reason::GdsOff));
        }
        let version = match named {
            Some(Route::Gds) => Some(self.cufile()?.version()),
            _ => match self.gds_not_worth(named, ordinal, absent) {
                Err(reason) => return Ok(Err(reason)),
                Ok(()) => None,
            },
        };
        let hazard = self.runtime.facts().gds_hazard(&self.map.file, version);
        if let Some(hazard) = hazard {
            return Ok(Err(Reason::Gds(hazard)));
        }
        if self.map.direct_may_be_stale(self.in_file()) {
            return Ok(Err(Reason::MayBeDirty));
        }
        Ok(Ok(settings.gds_task_bytes()))
    }

    /// Why nobody would take cuFile unasked: the cheapest to find out comes first.
    fn gds_not_worth(
        &self,
        named: Option<Route>,
        ordinal: usize,
        absent: Extent,
    ) -> Result<(), Reason> {
        let least = self.runtime.settings().gds_threshold();
        let average = self.bytes / (self.rows.count() as u64).max(1);
        if named.is_none() && self.bytes > 0 && average < least {
            return Err(Reason::BelowThreshold { least });
        }
        self.past_the_cache(Route::Gds, named, absent)?;
        let path = self.gds_path(ordinal);
        if !path.is_some_and(GdsPath::is_accelerated) {
            return Err(Reason::NotAccelerated { path });
        }
        match gds::are_aligned(self.in_file()) {
            true => Ok(()),
            false => Err(Reason::Unaligned),
        }
    }

    fn gds_path(&self, ordinal: usize) -> Option<GdsPath> {
        let device = self.runtime.find_device(ordinal).ok()?;
        let facts = self.runtime.facts();
        facts.gds_path(&self.map.opened()?, &device)
    }

    /// cuFile, with its driver open; the error names the file.
    pub(crate) fn cufile(&self) -> Result<Cufile> {
        self.runtime.cufile().map_err(|error| match error {
            Error::Cufile { source, .. } => self.error(source.into()),
            Error::Device { source, .. } => self.error(source.into()),
            other => other,
        })
    }

    fn in_place(&self, ordinal: usize) -> Result<InPlace> {
        let device = self.runtime.find_device(ordinal);
        let device = device.map_err(|error| self.error(error.into()))?;
        if !device.reach().registers_read_only {
            let missing = Err(Reason::NoRegistration);
            return Ok(InPlace { missing });
        }
        let missing = self.needs().zip(self.map.mapping.as_deref());
        let missing = missing.map(|((needs, seen), mapping)| {
            let registrations = self.runtime.registrations();
            registrations.missing(mapping, needs, seen)
        });
        Ok(InPlace {
            missing: missing.ok_or(Reason::NotMapped),
        })
    }

    /// What would have to be registered for a device to have all of it in place at once.
    pub(crate) fn offer_in_place(&self, ordinal: usize) -> Result<Missing> {
        let stale = self.map.may_be_stale().then_some(Reason::MappingStale);
        let missing = match stale {
            Some(reason) => Err(reason),
            None => self.in_place(ordinal)?.missing,
        };
        let missing = missing.and_then(|missing| missing.fits_at_once().map(|()| missing));
        missing.map_err(|reason| self.refused(Route::Mapped, reason))
    }

    /// What the rows need to be registered, and the file as it is; `None` where nothing is mapped, or fstat
    /// fails, which the read will tell.
    pub(crate) fn needs(&self) -> Option<&(Needs, Seen)> {
        let find = || {
            let mapping = self.map.mapping.as_deref()?;
            let seen = Seen::now(&self.map.file).ok()?;
            let registrations = self.runtime.registrations();
            let many = self.rows.count() >= MANY_ROWS;
            let hull = many.then(|| self.rows.hull().shifted(self.map.offset));
            let kept = hull.and_then(|hull| registrations.all_kept(mapping, hull?, &seen));
            let needs = kept.unwrap_or_else(|| registrations.needs(mapping, self.in_file()));
            Some((needs, seen))
        };
        self.needs.get_or_init(find).as_ref()
    }

    /// What direct reads of these rows must be aligned to. Asked only where the route is named: the
    /// first answer for a mount takes a read from storage.
    fn direct(&self) -> Result<DirectAlignment, Reason> {
        let file = self.map.direct()?;
        if self.map.direct_may_be_stale(self.in_file()) {
            return Err(Reason::MayBeDirty);
        }
        Ok(file.align)
    }

    /// The bytes of the file that the rows mean.
    pub(crate) fn in_file(&self) -> impl Iterator<Item = ByteRange> + Clone {
        let segments = self.rows.segments(Cursor::default(), self.bytes);
        segments.filter_map(|segment| segment.source.shifted(self.map.offset))
    }

    /// The whole way. The destination's length must equal the bytes asked for.
    pub(crate) fn read(&self, destination: Landing<'_>) -> Result<Report> {
        let begun = Instant::now();
        if destination.len() != self.bytes {
            return Err(Error::Length {
                path: self.map.path.clone(),
                asked: self.bytes,
                destination: destination.len(),
            });
        }
        let mut ask = self.ask(destination.memory())?;
        if let Landing::Scattered(_) = destination {
            let missing = Err(Reason::SeveralPlaces);
            ask.in_place = Some(InPlace { missing });
        }
        let plan = self.plan(ask)?;
        let mut report = Report {
            rows: self.rows.count() as u64,
            expected: plan.expected(),
            reasons: plan.reasons,
            not_in_place: plan.not_in_place,
            residency_before: self
                .options
                .measure
                .then(|| self.resident_pages())
                .flatten(),
            ..Report::default()
        };
        run::run(self, ask, &plan, destination, &mut report)?;
        report.elapsed = begun.elapsed();
        Ok(report)
    }
}

impl Request<'_> {
    /// Pages that the rows touch and how many of them are resident; `None` where unknown.
    fn resident_pages(&self) -> Option<ResidentPages> {
        let map = self.map;
        let opened = map.opened()?;
        let counter = Counter::new(&opened);
        let mut total = ResidentPages {
            resident: 0,
            pages: 0,
        };
        for in_file in self.in_file() {
            let pages = in_file.pages(sys::page_size());
            total.pages += pages.end - pages.start;
            total.resident += counter.resident(in_file).ok()??;
        }
        Some(total)
    }

    pub(crate) fn error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Call { call, at, source } => {
                Error::system_at(&self.map.path, call, at.into(), source)
            }
            Failure::Cancelled => Error::Cancelled {
                path: self.map.path.clone(),
            },
            Failure::Device(source) => Error::Device {
                path: Some(self.map.path.clone()),
                source,
            },
            Failure::Cufile(source) => Error::Cufile {
                path: Some(self.map.path.clone()),
                source,
            },
            Failure::Ended { row, at, available } => Error::Truncated {
                path: self.map.path.clone(),
                row: (!matches!(self.rows, Rows::One(_))).then_some(row),
                file_offset: at.start(),
                asked: at.len(),
                available,
            },
        }
    }
}
