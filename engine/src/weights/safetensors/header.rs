//! The header of a safetensors file: 8 bytes of length, that many bytes of JSON, then the data.
//!
//! The `safetensors` crate reads it too, but its errors name neither tensor nor offset, and offsets near 2^64 overflow
//! in it; a damaged checkpoint must say what is damaged.

use std::fmt;
use std::ops::Range;

use indexmap::IndexMap;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::weights::WeightType;
use crate::weights::table::Stored;

/// Bytes of the length field.
const PREFIX: usize = 8;

/// Most dimensions of a tensor.
const DIMENSIONS: usize = 8;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    /// First byte and byte after the last, counted from the start of the data.
    data_offsets: (usize, usize),
}

/// The header's tensors by name; free-form metadata is skipped.
struct Header(IndexMap<String, Entry>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut tensors = IndexMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if tensors.contains_key(&name) {
                return Err(A::Error::custom(format_args!("tensor `{name}` is listed twice")));
            }
            let entry = map.next_value().map_err(|error| A::Error::custom(format_args!("tensor `{name}`: {error}")))?;
            tensors.insert(name, entry);
        }
        Ok(Header(tensors))
    }
}

/// Reads and checks a header: every tensor lies inside the file, is as long as its type and shape say, overlaps no
/// other, and no byte is left over. Errors complete the sentence "FILE: ...".
pub(super) fn read(bytes: &[u8], file: usize) -> Result<IndexMap<String, Stored>, String> {
    let header = json(bytes)?;
    let data = PREFIX + header.len();
    let Header(tensors) = serde_json::from_slice(header)
        .map_err(|error| format!("the header (bytes {PREFIX} to {data}) is not valid: {error}"))?;
    let mut stored = IndexMap::with_capacity(tensors.len());
    for (name, entry) in tensors {
        let place = place(&entry, data, bytes.len()).map_err(|message| format!("tensor `{name}` {message}"))?;
        stored.insert(name, Stored { kind: kind(&entry.dtype), shape: entry.shape, file, bytes: place });
    }
    check_cover(&stored, data, bytes.len())?;
    Ok(stored)
}

/// The JSON text.
fn json(bytes: &[u8]) -> Result<&[u8], String> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(format!(
            "has {} bytes; a safetensors file starts with {PREFIX} bytes of header length",
            bytes.len()
        ));
    };
    let length = u64::from_le_bytes(*prefix);
    usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(|| {
        format!(
            "the header length at offset 0 is {length}, but only {} bytes follow: the file is truncated, or it is no \
             safetensors file",
            rest.len()
        )
    })
}

/// A tensor's bytes in the file.
fn place(entry: &Entry, data: usize, file_length: usize) -> Result<Range<usize>, String> {
    let Entry { dtype, shape, data_offsets: (start, end) } = entry;
    if shape.len() > DIMENSIONS {
        return Err(format!("has {} dimensions; at most {DIMENSIONS} are possible", shape.len()));
    }
    if start > end {
        return Err(format!("has data_offsets [{start}, {end}], which end before they start"));
    }
    let available = file_length - data;
    if *end > available {
        return Err(format!(
            "ends at data offset {end}, but the file holds {available} bytes of data: it is truncated"
        ));
    }
    let bits = bits(dtype).ok_or_else(|| format!("has the unknown type \"{dtype}\""))?;
    let needed = shape.iter().try_fold(bits, |product, side| product.checked_mul(*side));
    match needed {
        Some(needed) if needed.is_multiple_of(8) && needed / 8 == end - start => Ok(data + start..data + end),
        Some(needed) => Err(format!(
            "has data_offsets [{start}, {end}], {} bytes, but {dtype} of shape {shape:?} takes {}",
            end - start,
            needed.div_ceil(8)
        )),
        None => Err(format!("has shape {shape:?}, whose size overflows")),
    }
}

/// Every byte of data belongs to exactly one tensor.
fn check_cover(stored: &IndexMap<String, Stored>, data: usize, file_length: usize) -> Result<(), String> {
    let mut order: Vec<(&Range<usize>, &str)> = stored.iter().map(|(name, entry)| (&entry.bytes, &**name)).collect();
    order.sort_by_key(|(bytes, _)| (bytes.start, bytes.end));
    let (mut end, mut before) = (data, "the header");
    for (bytes, name) in order {
        if bytes.start < end {
            return Err(format!("tensor `{name}` starts at data offset {} inside `{before}`", bytes.start - data));
        }
        if bytes.start > end {
            return Err(format!("{} bytes before tensor `{name}` belong to no tensor", bytes.start - end));
        }
        (end, before) = (bytes.end, name);
    }
    if end != file_length {
        return Err(format!("the last {} bytes belong to no tensor", file_length - end));
    }
    Ok(())
}

/// Bits of one element, for every type that the format knows.
fn bits(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

fn kind(dtype: &str) -> Result<WeightType, String> {
    Ok(match dtype {
        "F32" => WeightType::F32,
        "F16" => WeightType::F16,
        "BF16" => WeightType::Bf16,
        "I32" => WeightType::I32,
        "I64" => WeightType::I64,
        "BOOL" => WeightType::Bool,
        other => return Err(other.to_owned()),
    })
}
