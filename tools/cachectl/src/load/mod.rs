//! `load`: reads the tensors of models into memory, those of all files by one call. A command of its own beside
//! `read`, which shows what it read to nobody and needs no more memory than a window.

mod header;
mod names;
mod rounds;
mod tell;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use gpumap::{Batch, BatchReport, Mmap, Runtime, Settings};
use sha2::{Digest, Sha256};

use crate::args::LoadArgs;
use crate::json::{LoadRecord, LoadTotalRecord, Name, TensorRecord, hex};
use crate::memory::{self, Memory};
use crate::out::Out;
use crate::outcome::Outcome;
use crate::read::sum::Sum;
use crate::values::Per;
use crate::{request, words};
use header::Header;
use names::{Named, Promise};

pub(crate) fn run(args: &LoadArgs, settings: Settings, out: &Out) -> Outcome {
    let runtime = request::runtime(&args.way, args.workers.as_deref(), settings);
    let runtime = runtime.and_then(|runtime| {
        memory::device(args.to, &runtime)?;
        Ok(runtime)
    });
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tell::not_begun(error, args, out);
            return Outcome::Failed;
        }
    };
    let begun = Instant::now();
    let mut files = files(&args.files, &runtime);
    let reports = rounds::load(&mut files, args, &runtime);
    let whole = begun.elapsed();
    let mut total = total(args, &reports);
    total.whole_seconds = total.seconds.map(|_| whole.as_secs_f64());
    total.files = files.len() as u64;
    for file in &mut files {
        if args.digest {
            file.digest();
        }
        tell::file(file, args, out);
        total.errors += u64::from(file.record.error.is_some());
    }
    let outcome = match total.errors {
        0 => Outcome::Done,
        _ => Outcome::Failed,
    };
    let reads = reports.iter().map(|report| report.reads.len()).sum();
    tell::total(total, reads, args, out);
    outcome
}

/// A file, as far as it has come.
struct File {
    record: LoadRecord,
    tensors: Vec<TensorRecord>,
    map: Option<Mmap>,
    /// One for all tensors, or one for each.
    memories: Vec<Memory>,
}

/// Every file that is to be loaded, with its header read, or with what is wrong with it.
fn files(names: &[OsString], runtime: &Runtime) -> Vec<File> {
    let file = |named: Result<Named, (PathBuf, String)>| match named {
        Err((path, error)) => File::failed(&path, error),
        Ok(named) => match open(&named, runtime) {
            Ok((map, header)) => File::new(&named.path, map, header),
            Err(error) => File::failed(&named.path, error),
        },
    };
    names::all(names).into_iter().map(file).collect()
}

/// A file with its header, if that has the tensors that indexes promised.
fn open(named: &Named, runtime: &Runtime) -> Result<(Mmap, Header), String> {
    let by = |promise: &Promise| format!(" (a shard that {} names)", promise.index.display());
    let map = runtime.open(&named.path).map_err(|error| {
        let by = named.promises.first().map_or(String::new(), by);
        format!("{}{by}", words::of(&error))
    })?;
    let header = Header::read(&map)?;
    let there: HashSet<&String> = header.tensors.iter().map(|tensor| &tensor.name).collect();
    for promise in &named.promises {
        if let Some(missing) = promise.tensors.iter().find(|name| !there.contains(name)) {
            return Err(format!(
                "{}: the tensor {missing} is not in it{}; fetch the shards and the index again",
                named.path.display(),
                by(promise)
            ));
        }
    }
    Ok((map, header))
}

impl File {
    fn failed(path: &std::path::Path, error: String) -> Self {
        Self {
            record: LoadRecord {
                name: Name::from(path),
                error: Some(error),
                ..LoadRecord::default()
            },
            tensors: Vec::new(),
            map: None,
            memories: Vec::new(),
        }
    }

    fn new(path: &std::path::Path, map: Mmap, header: Header) -> Self {
        let name = Name::from(path);
        let record = LoadRecord {
            name: name.clone(),
            offset_bytes: Some(header.start),
            len_bytes: Some(header.len),
            tensors: Some(header.tensors.len() as u64),
            align_bytes: Some(header.alignment()),
            ..LoadRecord::default()
        };
        let tensors = header.tensors.into_iter().map(|tensor| TensorRecord {
            name: name.clone(),
            offset_bytes: header.start + tensor.bytes.start,
            len_bytes: tensor.len(),
            at_bytes: tensor.bytes.start,
            tensor: tensor.name,
            dtype: tensor.dtype,
            shape: tensor.shape,
            digest: None,
            error: None,
        });
        Self {
            tensors: tensors.collect(),
            record,
            map: Some(map),
            memories: Vec::new(),
        }
    }

    /// Takes the memory for its tensors; where that cannot be had the file is left out.
    fn allocate(&mut self, args: &LoadArgs, runtime: &Runtime) {
        let whole = self.record.len_bytes.filter(|_| self.map.is_some());
        let lens: Vec<u64> = match args.per {
            Per::File => whole.into_iter().collect(),
            Per::Tensor => self.tensors.iter().map(|tensor| tensor.len_bytes).collect(),
        };
        if args.per == Per::Tensor {
            self.tensors
                .iter_mut()
                .for_each(|tensor| tensor.at_bytes = 0);
        }
        let memories = lens
            .into_iter()
            .map(|len| Memory::new(args.to, runtime, len));
        match memories.collect() {
            Ok(memories) => self.memories = memories,
            Err(error) => self.fail(format!("{}: {error}", self.record.name.path)),
        }
    }

    /// Leaves it out.
    fn fail(&mut self, error: String) {
        self.map = None;
        self.memories.clear();
        self.record.error = Some(error);
    }

    /// Hands its tensors to a batch.
    fn join<'d>(&'d mut self, batch: &mut Batch<'d>) {
        let Some(map) = &self.map else { return };
        let destinations: Vec<_> = self
            .memories
            .iter_mut()
            .map(|memory| memory.join(batch))
            .collect();
        let own = destinations.len() > 1;
        for (number, tensor) in self.tensors.iter().enumerate() {
            // A file without tensors has no destination either.
            if let Some(to) = destinations.get(if own { number } else { 0 }) {
                let start = tensor.offset_bytes;
                batch.add_at(map, start..start + tensor.len_bytes, *to, tensor.at_bytes);
            }
        }
    }

    /// Hashes what arrived, if all of it did.
    fn digest(&mut self) {
        if self.record.error.is_some() || self.map.is_none() {
            return;
        }
        let mut all = Sha256::new();
        let own = self.memories.len() > 1;
        for (number, tensor) in self.tensors.iter_mut().enumerate() {
            let mut one = Sha256::new();
            let part = tensor.at_bytes..tensor.at_bytes + tensor.len_bytes;
            let memory = self.memories.get_mut(if own { number } else { 0 });
            let shown = memory.map_or(Ok(()), |memory| {
                memory.show(part, |bytes| {
                    all.update(bytes);
                    one.update(bytes);
                })
            });
            if let Err(error) = shown {
                self.record.error = Some(format!("{}: {error}", self.record.name.path));
                return;
            }
            tensor.digest = Some(hex(&one.finalize()));
        }
        self.record.digest = Some(hex(&all.finalize()));
    }
}

fn total(args: &LoadArgs, reports: &[BatchReport]) -> LoadTotalRecord {
    let mut sum = Sum::default();
    let mut record = LoadTotalRecord {
        destination: args.to.to_string(),
        ..LoadTotalRecord::default()
    };
    for report in reports {
        report.reads.iter().for_each(|read| sum.add(read));
        record.tensors += report.segments() as u64;
        record.retried.extend(report.retried.iter().map(words::of));
        *record.seconds.get_or_insert(0.0) += report.total.elapsed.as_secs_f64();
    }
    record.report = (!reports.is_empty()).then(|| sum.into_record());
    record
}
