//! One run: a runtime of its own, the state made and proved, one read.

use std::ops::Range;
use std::path::Path;

use gpumap::sample::Sampler;
use gpumap::{
    Destination, DeviceBuffer, Engine, Error, Memory, Mmap, ReadOptions, Report, Route, Runtime,
    Settings,
};

use super::cells::{Cell, Way};
use super::record::Part;
use crate::device;
use crate::memory::Aligned;
use crate::run::said;

/// What is read of the other file beforehand by the threads together, and by each way.
const TOGETHER: u64 = 64 << 20;
const BY_EACH: u64 = 1 << 20;

/// The files, and the memory that they are read into.
pub(super) struct Bench<'b> {
    pub(super) file: &'b Path,
    /// Bytes of it.
    pub(super) len: u64,
    /// Another file, that is read before each run.
    pub(super) beside: &'b Path,
    pub(super) host: Aligned,
    pub(super) device: Option<DeviceBuffer>,
}

/// What came of a run.
#[derive(Debug)]
pub(super) enum Run {
    Valid {
        seconds: f64,
        bytes: u64,
        by: Vec<Part>,
    },
    /// The state was not proved.
    Void(String),
    /// The way cannot be taken.
    Refused(String),
}

impl Bench<'_> {
    /// Takes one run. Nothing of the file is registered with a device when it begins: the runtime is new. What a
    /// runtime makes once (threads, slots, rings, the kernel, cuFile's driver) is made before, by reads of another
    /// file that are the same for every way.
    pub(super) fn run(&mut self, cell: &Cell, way: Way) -> Result<Run, String> {
        let runtime = runtime(cell.workers)?;
        self.warm_up(&runtime, cell)?;
        if runtime.registered_bytes() > 0 {
            return Err("pages are registered before the run".to_owned());
        }
        let (path, rows) = (self.file, cell.rows(self.len));
        let map = runtime.open(path).map_err(said)?;
        let options = way.options(cell.workers);
        // Whether direct reads are granted is measured by the first plan, outside of what is timed.
        if let Err(error) = plan(&map, cell, &rows, options) {
            return refused(way, &error);
        }
        let asked: u64 = rows.iter().map(|row| row.end - row.start).sum();
        let sampler = Sampler::new(cell.state, &map).map_err(said)?;
        let sample = self.take(cell, asked, |into| {
            sampler.run(|| read(&map, &rows, into, options))
        });
        let sample = sample?.map_err(said)?;
        let report = match sample.value {
            Ok(report) if report.bytes == asked => report,
            Ok(report) => return Err(format!("{} of {asked} bytes came", report.bytes)),
            Err(error) => return refused(way, &error),
        };
        Ok(match sample.void {
            Some(void) => Run::Void(said(void)),
            None => Run::Valid {
                seconds: sample.elapsed.as_secs_f64(),
                bytes: asked,
                by: parts(&report),
            },
        })
    }

    fn warm_up(&mut self, runtime: &Runtime, cell: &Cell) -> Result<(), String> {
        let map = runtime.open(self.beside).map_err(said)?;
        let workers = cell.workers;
        let mut read_some = |most: u64, row: u64, way: Way| {
            let len = map.len().min(most);
            let rows: Vec<_> = (0..len / row).map(|at| at * row..(at + 1) * row).collect();
            self.take(cell, len, |into| {
                read(&map, &rows, into, way.options(workers)).map_err(said)
            })?
        };
        read_some(TOGETHER, TOGETHER.min(map.len()), Way::BUFFERED)?;
        for way in cell.ways() {
            // What cannot be taken has nothing to make.
            let _ = read_some(BY_EACH, BY_EACH, way);
            let _ = read_some(BY_EACH, BY_EACH / 16, way);
        }
        Ok(())
    }

    /// Hands so much of the cell's destination to a read.
    fn take<T>(
        &mut self,
        cell: &Cell,
        bytes: u64,
        read: impl FnOnce(&mut dyn Destination) -> T,
    ) -> Result<T, String> {
        if cell.to_device {
            let device = self.device.as_mut().ok_or("there is no device")?;
            let mut part = device.slice_mut(..bytes).ok_or("too little memory")?;
            return Ok(read(&mut part));
        }
        let len = usize::try_from(bytes).map_err(said)?;
        let mut part = self.host.bytes().get_mut(..len);
        let part = part.as_mut().ok_or("too little memory")?;
        Ok(read(part))
    }
}

/// A named way may be refused; where none is named that is an error.
fn refused(way: Way, error: &Error) -> Result<Run, String> {
    let why = match error {
        Error::Route { reason, .. } => reason.to_string(),
        other => said(other),
    };
    if way == Way::AUTO {
        Err(why)
    } else {
        Ok(Run::Refused(why))
    }
}

/// Memory of the first device; why there is none else.
pub(super) fn on_device(bytes: u64) -> Result<(DeviceBuffer, String), String> {
    let buffer = device::alloc(bytes)?;
    let name = buffer.device().name().map_err(said)?;
    Ok((buffer, name))
}

/// Of the environment's settings none has a say but where cuFile lies.
fn runtime(workers: usize) -> Result<Runtime, String> {
    let mut settings = Settings::default();
    if let Ok(library) = std::env::var("GPUMAP_CUFILE") {
        settings.set("GPUMAP_CUFILE", &library).map_err(said)?;
    }
    settings
        .set("GPUMAP_WORKERS", &workers.to_string())
        .map_err(said)?;
    Ok(Runtime::builder().settings(settings).build())
}

fn plan(map: &Mmap, cell: &Cell, rows: &[Range<u64>], options: ReadOptions) -> gpumap::Result<()> {
    let memory = if cell.to_device {
        Memory::Device(0)
    } else {
        Memory::Host
    };
    let planned = match rows {
        [whole] => map.plan_to(memory, whole.clone(), options),
        rows => map.plan_gather_to(memory, rows, options),
    };
    planned.map(drop)
}

fn read(
    map: &Mmap,
    rows: &[Range<u64>],
    into: &mut dyn Destination,
    options: ReadOptions,
) -> gpumap::Result<Report> {
    match rows {
        [whole] => map.read_with(whole.clone(), into, options),
        rows => map.gather_with(rows, into, options),
    }
}

/// What moved the bytes: routes, and for `mapped` its engines.
fn parts(report: &Report) -> Vec<Part> {
    let routes = [Route::Buffered, Route::Direct, Route::Gds].map(|route| {
        let bytes = report.route(route).map(|used| used.bytes);
        (route.to_string(), bytes)
    });
    let engines = [Engine::Copy, Engine::Dma, Engine::Kernel].map(|engine| {
        let bytes = report.engine(engine).map(|used| used.bytes);
        (format!("{} {engine}", Route::Mapped), bytes)
    });
    let part = |(way, bytes): (String, Option<u64>)| Some(Part { way, bytes: bytes? });
    routes.into_iter().chain(engines).filter_map(part).collect()
}
