//! What a safetensors file says of itself: 8 bytes with the length of its header, the header, which is JSON, and the
//! tensors' bytes.

use std::fmt;
use std::ops::Range;

use gpumap::{Mmap, Report};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

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
                        map.next_value::<IgnoredAny>()?;
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

/// The tensors, if each lies inside `len` bytes and is as long as its shape says, and no two share bytes or a name.
fn checked(entries: Entries, len: u64) -> Result<Vec<Tensor>, String> {
    let mut tensors = Vec::with_capacity(entries.0.len());
    for (name, entry) in entries.0 {
        let [start, end] = entry.data_offsets;
        let Entry { dtype, shape, .. } = entry;
        if start > end || end > len {
            return Err(format!(
                "the tensor {name} would lie in bytes {start}..{end} of the {len} behind the header; the file is \
                 cut, or damaged: fetch it again"
            ));
        }
        // Of types that are not known here nothing is demanded.
        if bits(&dtype).is_some_and(|bits| bytes(&shape, bits) != Some(end - start)) {
            return Err(format!(
                "the tensor {name} is of type {dtype} and shape {shape:?}, which are not the {} bytes that it has; \
                 the file is damaged: fetch it again",
                end - start
            ));
        }
        tensors.push(Tensor {
            name,
            dtype,
            shape,
            bytes: start..end,
        });
    }
    let in_common = |what: &str, one: &Tensor, other: &Tensor| {
        let (one, other) = (&one.name, &other.name);
        format!(
            "the tensors {one} and {other} have a {what} in common; the file is damaged: fetch it again"
        )
    };
    tensors.sort_by(|one, other| one.name.cmp(&other.name));
    if let Some([one, other]) = pair(&tensors, |one, other| one.name == other.name) {
        return Err(in_common("name", one, other));
    }
    tensors.sort_by_key(|tensor| (tensor.bytes.start, tensor.bytes.end));
    let filled: Vec<&Tensor> = tensors.iter().filter(|tensor| tensor.len() > 0).collect();
    if let Some([one, other]) = pair(&filled, |one, other| one.bytes.end > other.bytes.start) {
        return Err(in_common("byte", one, other));
    }
    Ok(tensors)
}

/// The first two neighbours of which it is so.
fn pair<T>(all: &[T], is_so: impl Fn(&T, &T) -> bool) -> Option<&[T; 2]> {
    all.array_windows().find(|[one, other]| is_so(one, other))
}

fn bytes(shape: &[u64], bits: u64) -> Option<u64> {
    let all = shape
        .iter()
        .try_fold(bits, |all, len| all.checked_mul(*len))?;
    all.is_multiple_of(8).then_some(all / 8)
}

fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
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
                "new":{"dtype":"F3","shape":[5],"data_offsets":[20,22]}}"#,
            22,
        );
        let names: Vec<_> = tensors.unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["a", "none", "b", "new"]);
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
                "a and b have a byte in common",
            ),
            (
                vec![one("a", "[8]", 0, 8), one("b", "[1]", 3, 4)],
                "a and b have a byte in common",
            ),
            (
                vec![
                    one("a", "[8]", 0, 8),
                    one("none", "[0]", 2, 2),
                    one("b", "[1]", 3, 4),
                ],
                "a and b have a byte in common",
            ),
            (
                vec![one("a", "[4]", 0, 4), one("a", "[4]", 4, 8)],
                "a and a have a name in common",
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
