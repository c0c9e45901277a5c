//! Which files are read together: all of them by one call, but for those with tensors of one name. Of these the first is
//! read, and another only where it failed.

use std::collections::HashMap;

use gpumap::{Batch, BatchReport, ReadOptions, Runtime};

use super::File;
use crate::args::LoadArgs;
use crate::words;

/// The file of each tensor.
type Names = HashMap<String, String>;

/// Reads every file that can be, and writes down what is wrong with the others.
pub(super) fn load(files: &mut [File], args: &LoadArgs, runtime: &Runtime) -> Vec<BatchReport> {
    let mut reports = Vec::new();
    let mut loaded = Names::new();
    let mut waiting: Vec<&mut File> = files.iter_mut().filter(|file| file.map.is_some()).collect();
    while !waiting.is_empty() {
        let (mut round, mut later, mut names) = (Vec::new(), Vec::new(), Names::new());
        for file in waiting {
            if let Some(twice) = in_common(file, &loaded) {
                file.fail(twice);
            } else if in_common(file, &names).is_some() {
                later.push(file);
            } else {
                file.allocate(args, runtime);
                if file.map.is_some() {
                    enter(file, &mut names);
                    round.push(file);
                }
            }
        }
        reports.extend(read(&mut round, args));
        for file in round {
            if file.record.error.is_none() {
                enter(file, &mut loaded);
            }
        }
        waiting = later;
    }
    reports
}

/// What to tell where a tensor is another file's too.
fn in_common(file: &File, names: &Names) -> Option<String> {
    let mut tensors = file.tensors.iter();
    let (tensor, first) = tensors.find_map(|tensor| names.get_key_value(&tensor.tensor))?;
    let name = &file.record.name.path;
    Some(format!(
        "{name}: the tensor {tensor} is in {first} too; load one of the two, or those that an index names"
    ))
}

fn enter(file: &File, names: &mut Names) {
    let path = &file.record.name.path;
    let tensors = file.tensors.iter().map(|tensor| tensor.tensor.clone());
    names.extend(tensors.map(|tensor| (tensor, path.clone())));
}

/// Reads all tensors of these by one call, and writes down which were not.
fn read(files: &mut [&mut File], args: &LoadArgs) -> Option<BatchReport> {
    let mut batch = Batch::with(ReadOptions::new().measure(args.measure));
    for file in files.iter_mut() {
        file.join(&mut batch);
    }
    if batch.is_empty() {
        return None;
    }
    let error = match batch.read() {
        Ok(report) => return Some(report),
        Err(error) => error,
    };
    let failures = error
        .failures()
        .map(|(number, error)| (number, words::of(error)));
    let mut failures: HashMap<usize, String> = failures.collect();
    let mut number = 0;
    for file in files.iter_mut() {
        for tensor in &mut file.tensors {
            tensor.error = failures.remove(&number);
            number += 1;
        }
        let failed = file.tensors.iter().find_map(|tensor| {
            let error = tensor.error.as_ref()?;
            Some(format!("tensor {}: {error}", tensor.tensor))
        });
        if let Some(failed) = failed {
            file.fail(failed);
        }
    }
    Some(error.into_report())
}
