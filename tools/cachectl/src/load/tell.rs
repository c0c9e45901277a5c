//! What `load` prints.

use std::path::Path;

use super::File;
use crate::args::LoadArgs;
use crate::json::LoadTotalRecord;
use crate::out::{Out, counted, printable, shown, size};
use crate::read::{self, Parts};
use crate::units;

pub(super) fn file(file: &File, args: &LoadArgs, out: &Out) {
    let record = &file.record;
    if let Some(error) = &record.error {
        if !out.json() {
            return out.problem(error);
        }
    } else if let (Some(tensors), Some(len), Some(align)) =
        (record.tensors, record.len_bytes, record.align_bytes)
    {
        let name = shown(Path::new(&record.name.path));
        let (tensors, len, align) = (counted(tensors, "tensor"), size(len), size(align));
        out.line(format!("{name}: {tensors}, {len}, at multiples of {align}"));
    }
    if let Some(digest) = &record.digest {
        out.line(format!("  sha256 {digest}"));
    }
    if args.tensors {
        for tensor in &file.tensors {
            let name = printable(&tensor.tensor);
            let (dtype, shape) = (printable(&tensor.dtype), &tensor.shape);
            let (at, len) = (tensor.at_bytes, size(tensor.len_bytes));
            let digest = tensor
                .digest
                .as_ref()
                .map_or(String::new(), |digest| format!(", sha256 {digest}"));
            out.line(format!(
                "  {name}: {dtype} {shape:?}, {len}, from byte {at} on{digest}"
            ));
            out.record(tensor.clone());
        }
    }
    out.record(record.clone());
}

/// `reads`: how many the bytes went by.
pub(super) fn total(record: LoadTotalRecord, reads: usize, args: &LoadArgs, out: &Out) {
    if let (Some(report), Some(seconds), false) = (&record.report, record.seconds, out.json()) {
        let files = counted(record.files - record.errors, "file");
        let (tensors, bytes) = (counted(record.tensors, "tensor"), size(report.bytes));
        let to = args.to.words();
        let (time, speed) = (units::seconds(seconds), read::speed(report.bytes, seconds));
        out.line(format!("{files}, {tensors}: {bytes}{to} in {time}{speed}"));
        let parts = match reads {
            0 | 1 => Parts::One,
            several => Parts::Reads(several as u64),
        };
        read::travelled(report, args.measure, parts, out);
        for error in &record.retried {
            out.line(format!("  read again in parts after: {}", printable(error)));
        }
    }
    out.record(record);
}

/// Why no file was looked at.
pub(super) fn not_begun(error: String, args: &LoadArgs, out: &Out) {
    if !out.json() {
        return out.problem(&error);
    }
    out.record(LoadTotalRecord {
        destination: args.to.to_string(),
        error: Some(error),
        ..LoadTotalRecord::default()
    });
}
