//! What `load` prints.

use std::path::Path;

use super::File;
use crate::args::LoadArgs;
use crate::json::LoadTotalRecord;
use crate::out::{Out, counted, printable, shown, size};
use crate::{read, units};

pub(super) fn file(file: &File, args: &LoadArgs, out: &Out) {
    let record = &file.record;
    if let (Some(error), false) = (&record.error, out.json()) {
        out.problem(error);
    }
    if let (Some(tensors), Some(len), Some(align)) =
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

pub(super) fn total(record: LoadTotalRecord, args: &LoadArgs, out: &Out) {
    if let (Some(report), Some(seconds), false) = (&record.report, record.seconds, out.json()) {
        let files = counted(record.files - record.errors, "file");
        let (tensors, bytes) = (counted(record.tensors, "tensor"), size(report.bytes));
        let to = args.to.words();
        let (time, speed) = (units::seconds(seconds), read::speed(report.bytes, seconds));
        out.line(format!("{files}, {tensors}: {bytes}{to} in {time}{speed}"));
        read::travelled(report, args.measure, false, out);
        for error in &record.retried {
            out.line(format!("  read again in parts after: {}", printable(error)));
        }
    }
    out.record(record);
}
