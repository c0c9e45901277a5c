//! What a safetensors file says of itself: 8 bytes with the length of its header, the header, which is JSON, and the
//! tensors' bytes.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use gpumap::{Mmap, Report};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::words;

/// The longest header that the format allows.
const LONGEST: u64 = 100_000_000;
/// Bytes of the header's length.
const LENGTH: u64 = 8;

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    /// Its bytes, from the first that any tensor may have.
    pub(super) bytes: Range<u64>,
}

impl Tensor {
    pub(super) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// The tensors of a file, in the order in which they lie in it.
#[derive(Debug)]
pub(super) struct Header {
    /// Where the tensors' bytes begin in the file.
    pub(super) start: u64,
    /// How many bytes there are.
    pub(super) len: u64,
    pub(super) tensors: Vec<Tensor>,
}

impl Header {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with the file, which it names, and what to do.
    pub(super) fn read(map: &Mmap) -> Result<Self, String> {
        let named = |wrong: String| format!("{}: {wrong}", map.path().display());
        let mut length = [0; LENGTH as usize];
        let left = map.len().checked_sub(LENGTH).ok_or_else(|| {
            named(format!(
                "is of {} bytes, and a safetensors file has 8 at least; check the name, or fetch it again",
                map.len()
            ))
        })?;
        read_into(map, &mut length)?;
        let header = u64::from_le_bytes(length);
        if header > left || header > LONGEST {
            return Err(named(format!(
                "its header would be of {header} bytes, and {} may be; it is cut, or no safetensors file: check the \
                 name, or fetch it again",
                left.min(LONGEST)
            )));
        }
        let start = LENGTH + header;
        let text = map.read_to_vec(LENGTH..start);
        let text = text.map_err(|error| words::of(&error))?;
        let entries: Entries = serde_json::from_slice(&text).map_err(|error| {
            named(format!(
                "its header is not that of a safetensors file ({error}); check the name, or fetch it again"
            ))
        })?;
        let len = map.len() - start;
        let tensors = checked(entries, len).map_err(named)?;
        Ok(Self {
            start,
            len,
            tensors,
        })
    }

    /// The largest power of 2, up to a page, at multiples of which all tensors begin.
    pub(super) fn alignment(&self) -> u64 {
        const PAGE: u64 = 4096;
        let starts = self.tensors.iter().map(|tensor| tensor.bytes.start);
        1 << starts.fold(PAGE, |all, start| all | start).trailing_zeros()
    }
}

fn read_into(map: &Mmap, into: &mut [u8; LENGTH as usize]) -> Result<Report, String> {
    map.read(..LENGTH, into).map_err(|error| words::of(&error))
}

/// An entry of the header, under a tensor's name.
#[derive(Debug, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Every entry but that of the metadata, also where two have one name.
#[derive(Debug)]
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<HashMap<String, String>>()?;
                    } else {
                        all.push((name, map.next_value()?));
                    }
                }
                Ok(Entries(all))
            }
        }
        from.deserialize_map(All)
    }
}

/// The tensors, if together they are the `len` bytes behind the header, end to end, each of a known type and as long as
/// its shape says, and no two share a name. The format's own implementation refuses everything else too, but for names in
/// common, which the format does not allow.
fn checked(entries: Entries, len: u64) -> Result<Vec<Tensor>, String> {
    let mut tensors = Vec::with_capacity(entries.0.len());
    for (name, entry) in entries.0 {
        tensors.push(one(name, entry, len)?);
    }
    tensors.sort_by(|one, other| one.name.cmp(&other.name));
    if let Some([twin, _]) = tensors
        .array_windows()
        .find(|[one, other]| one.name == other.name)
    {
        let name = &twin.name;
        return Err(format!(
            "two tensors have the name {name}; the file is damaged: fetch it again"
        ));
    }
    tensors.sort_by_key(|tensor| (tensor.bytes.start, tensor.bytes.end));
    end_to_end(&tensors, len)?;
    Ok(tensors)
}

/// A tensor, if it lies inside `len` bytes and is as long as its shape says.
fn one(name: String, entry: Entry, len: u64) -> Result<Tensor, String> {
    let [start, end] = entry.data_offsets;
    let Entry { dtype, shape, .. } = entry;
    if start > end || end > len {
        return Err(format!(
            "the tensor {name} would lie in bytes {start}..{end} of the {len} behind the header; the file is cut, or \
             damaged: fetch it again"
        ));
    }
    let bits = bits(&dtype).ok_or_else(|| {
        format!(
            "the tensor {name} is of type {dtype}, which the format does not have; the file is damaged, or newer than \
             this program: fetch it again, or a newer program"
        )
    })?;
    if bytes(&shape, bits) != Some(end - start) {
        return Err(format!(
            "the tensor {name} is of type {dtype} and shape {shape:?}, which are not the {} bytes that it has; the file \
             is damaged: fetch it again",
            end - start
        ));
    }
    Ok(Tensor {
        name,
        dtype,
        shape,
        bytes: start..end,
    })
}

/// Whether tensors, in the order in which they lie, cover `len` bytes without a gap, and none lies in another.
fn end_to_end(tensors: &[Tensor], len: u64) -> Result<(), String> {
    let mut done: Option<&Tensor> = None;
    for tensor in tensors {
        let at = done.map_or(0, |before| before.bytes.end);
        let start = tensor.bytes.start;
        match done {
            Some(before) if start < at => return Err(overlap(before, tensor)),
            _ if start > at => return Err(nobodys(at..start, len)),
            _ => done = Some(tensor),
        }
    }
    let end = done.map_or(0, |last| last.bytes.end);
    if end < len {
        return Err(nobodys(end..len, len));
    }
    Ok(())
}

fn overlap(one: &Tensor, other: &Tensor) -> String {
    format!(
        "the tensors {} and {} overlap, in bytes {:?} and {:?} behind the header; the file is damaged: fetch it again",
        one.name, other.name, one.bytes, other.bytes
    )
}

fn nobodys(gap: Range<u64>, len: u64) -> String {
    format!(
        "bytes {gap:?} of the {len} behind the header belong to no tensor, which the format does not allow; the file is \
         damaged: fetch it again"
    )
}

fn bytes(shape: &[u64], bits: u64) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let all = shape
        .iter()
        .try_fold(bits, |all, len| all.checked_mul(*len))?;
    all.is_multiple_of(8).then_some(all / 8)
}

/// Bits of an element, of every type that the format has (safetensors 0.8).
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(header: &str, len: u64) -> Result<Vec<Tensor>, String> {
        checked(serde_json::from_str(header).unwrap(), len)
    }

    #[test]
    fn tensors_come_in_the_order_in_which_they_lie() {
        let tensors = tried(
            r#"{"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},"__metadata__":{"format":"pt"},
                "a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},
                "none":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]},
                "wide":{"dtype":"F32","shape":[4611686018427387904,0],"data_offsets":[20,20]},
                "small":{"dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[20,22]}}"#,
            22,
        );
        let names: Vec<_> = tensors.unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["a", "none", "b", "wide", "small"]);
    }

    #[test]
    fn metadata_is_text_by_names() {
        for (header, accepted) in [
            (r#"{"__metadata__":{"x":"3"}}"#, true),
            (r#"{"__metadata__":{"x":3}}"#, false),
            (r#"{"__metadata__":["x"]}"#, false),
        ] {
            let read = serde_json::from_str::<Entries>(header);
            assert_eq!(read.is_ok(), accepted, "{header}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_the_tensor() {
        let one = |name: &str, shape: &str, start: u64, end: u64| {
            format!(r#""{name}":{{"dtype":"U8","shape":{shape},"data_offsets":[{start},{end}]}}"#)
        };
        for (entries, told) in [
            (
                vec![one("past", "[9]", 0, 9)],
                "past would lie in bytes 0..9 of the 8",
            ),
            (
                vec![one("back", "[0]", 5, 4)],
                "back would lie in bytes 5..4",
            ),
            (
                vec![one("short", "[3]", 0, 4)],
                "short is of type U8 and shape [3]",
            ),
            (
                vec![one("big", "[4294967296,4294967296]", 0, 0)],
                "big is of type",
            ),
            (
                vec![one("a", "[4]", 0, 4), one("b", "[5]", 3, 8)],
                "a and b overlap, in bytes 0..4 and 3..8",
            ),
            (
                vec![one("a", "[8]", 0, 8), one("b", "[1]", 3, 4)],
                "a and b overlap",
            ),
            (
                vec![one("a", "[8]", 0, 8), one("none", "[0]", 2, 2)],
                "a and none overlap",
            ),
            (
                vec![one("a", "[4]", 0, 4), one("a", "[4]", 4, 8)],
                "two tensors have the name a",
            ),
            (
                vec![one("a", "[3]", 0, 3), one("b", "[4]", 4, 8)],
                "bytes 3..4 of the 8 behind the header belong to no tensor",
            ),
            (vec![one("a", "[7]", 1, 8)], "bytes 0..1 of the 8"),
            (vec![one("a", "[7]", 0, 7)], "bytes 7..8 of the 8"),
            (vec![], "bytes 0..8 of the 8"),
            (
                vec![one("wide", "[1]", 0, 8).replace("U8", "F128")],
                "wide is of type F128, which the format does not have",
            ),
        ] {
            let error = tried(&format!("{{{}}}", entries.join(",")), 8).unwrap_err();
            assert!(
                error.contains(told) && error.contains("fetch it again"),
                "{error}"
            );
        }
    }
}
