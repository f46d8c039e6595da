//! The layout of a GGUF file: header, metadata, tensor infos, aligned data.

use std::ops::Range;

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::cursor::Cursor;
use super::kind::kind;
use super::value::Value;
use crate::weights::{FileBytes, WeightType};

/// Fewest bytes of a metadata entry (name length, type, one byte) and of a tensor info (name length, dimensions, type,
/// offset).
const SMALLEST_ENTRY: usize = 8 + 4 + 1;
const SMALLEST_TENSOR: usize = 8 + 4 + 4 + 8;

const DIMENSIONS: u32 = 4;
const DEFAULT_ALIGNMENT: usize = 32;

/// A tensor as the file lists it.
pub(super) struct GgufTensor {
    pub kind: Result<WeightType, String>,
    /// Row-major: the file's dimensions in reverse.
    pub shape: Vec<usize>,
    /// Place in the file.
    pub bytes: Range<usize>,
}

/// A parsed file. Tensors lie inside it and do not overlap.
pub(super) struct GgufFile {
    pub bytes: FileBytes,
    metadata: IndexMap<String, Value>,
    /// Taken apart by the weight source.
    pub tensors: IndexMap<String, GgufTensor>,
}

impl GgufFile {
    /// Parses a file. Errors complete the sentence "FILE: ...".
    pub fn parse(bytes: FileBytes) -> Result<Self, String> {
        let content = (*bytes).as_ref();
        let mut cursor = Cursor::new(content, 0);
        check_version(&mut cursor)?;
        let tensor_count = cursor.count(SMALLEST_TENSOR, "the number of tensors")?;
        let entry_count = cursor.count(SMALLEST_ENTRY, "the number of metadata entries")?;
        let metadata = metadata(&mut cursor, entry_count)?;
        let alignment = alignment(&metadata, content)?;
        let infos = (0..tensor_count).map(|index| Info::read(&mut cursor, index)).collect::<Result<Vec<_>, _>>()?;
        let data = cursor.at().next_multiple_of(alignment);
        let mut tensors = IndexMap::with_capacity(infos.len());
        for info in infos {
            let tensor = info.place(data, alignment, content.len())?;
            if tensors.insert(info.name.to_owned(), tensor).is_some() {
                return Err(format!("tensor `{}` is listed twice", info.name));
            }
        }
        check_overlap(&tensors)?;
        Ok(Self { bytes, metadata, tensors })
    }

    pub fn content(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// A string value. An entry of another type counts as absent.
    pub fn text(&self, key: &str) -> Result<Option<&str>, String> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        value.text(self.content(), &format!("metadata key `{key}`")).transpose()
    }

    /// The strings of an array.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, String> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let what = format!("metadata key `{key}`");
        let texts = value.texts(self.content(), &what).ok_or_else(|| format!("{what} is not an array of strings"))?;
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// The numbers of an array.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, String> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let what = format!("metadata key `{key}`");
        let numbers =
            value.numbers(self.content(), &what).ok_or_else(|| format!("{what} is not an array of numbers"))?;
        numbers.collect::<Result<_, _>>().map(Some)
    }

    /// Length of an array.
    pub fn length(&self, key: &str) -> Option<usize> {
        self.metadata.get(key)?.len()
    }

    /// Scalars and short arrays as JSON, for typed reading.
    pub fn json(&self) -> Result<Map<String, Json>, String> {
        let mut map = Map::new();
        for (key, value) in &self.metadata {
            if let Some(json) = value.json(self.content(), &format!("metadata key `{key}`"))? {
                map.insert(key.clone(), json);
            }
        }
        Ok(map)
    }
}

fn check_version(cursor: &mut Cursor) -> Result<(), String> {
    let magic = cursor.take(4, "the magic number")?;
    if magic != b"GGUF" {
        return Err(format!("starts with the bytes {magic:02x?}, not with \"GGUF\": it is not a GGUF file"));
    }
    match cursor.u32("the version")? {
        2 | 3 => Ok(()),
        1 => Err("is GGUF version 1, which no tool writes since 2023; convert it again".to_owned()),
        swapped if swapped.swap_bytes() <= 3 => {
            Err("is a big-endian GGUF file; convert it to little-endian".to_owned())
        }
        other => Err(format!("is GGUF version {other}; versions 2 and 3 can be read")),
    }
}

fn metadata(cursor: &mut Cursor, count: usize) -> Result<IndexMap<String, Value>, String> {
    let mut metadata = IndexMap::new();
    for index in 0..count {
        let key = cursor.text(&format!("the name of metadata entry {index}"))?;
        let value = Value::read(cursor, &format!("metadata key `{key}`"))?;
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(format!("metadata key `{key}` is listed twice"));
        }
    }
    Ok(metadata)
}

fn alignment(metadata: &IndexMap<String, Value>, content: &[u8]) -> Result<usize, String> {
    const KEY: &str = "general.alignment";
    let Some(value) = metadata.get(KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    let json = value.json(content, KEY)?;
    let number = json.as_ref().and_then(Json::as_u64).and_then(|number| usize::try_from(number).ok());
    number.filter(|number| number.is_power_of_two() && *number <= 1 << 20).ok_or_else(|| {
        format!("metadata key `{KEY}` is {}, but must be a power of two up to 1048576", json.unwrap_or(Json::Null))
    })
}

/// A tensor info as it stands in the file.
struct Info<'a> {
    name: &'a str,
    shape: Vec<usize>,
    kind: u32,
    /// Counted from the start of the data.
    offset: u64,
}

impl<'a> Info<'a> {
    fn read(cursor: &mut Cursor<'a>, index: usize) -> Result<Self, String> {
        let name = cursor.text(&format!("the name of tensor {index}"))?;
        let what = format!("tensor `{name}`");
        let (at, dimensions) = (cursor.at(), cursor.u32(&what)?);
        if dimensions == 0 || dimensions > DIMENSIONS {
            return Err(format!("{what} at offset {at} has {dimensions} dimensions; 1 to {DIMENSIONS} are possible"));
        }
        let mut shape = Vec::with_capacity(dimensions as usize);
        for _ in 0..dimensions {
            let (at, side) = (cursor.at(), cursor.u64(&what)?);
            let usable = usize::try_from(side).ok().filter(|side| *side > 0);
            shape.push(usable.ok_or_else(|| format!("{what} has a dimension of {side} at offset {at}"))?);
        }
        shape.reverse();
        Ok(Self { name, shape, kind: cursor.u32(&what)?, offset: cursor.u64(&what)? })
    }

    fn place(&self, data: usize, alignment: usize, file_length: usize) -> Result<GgufTensor, String> {
        let Self { name, shape, offset, .. } = self;
        let kind = kind(self.kind).ok_or_else(|| {
            format!("tensor `{name}` has the unknown type number {}: newer format or damaged", self.kind)
        })?;
        let size = kind.size(shape).ok_or_else(|| {
            format!(
                "tensor `{name}` has shape {shape:?}, which is not a whole number of {} blocks or overflows",
                kind.name
            )
        })?;
        if !offset.is_multiple_of(alignment as u64) {
            return Err(format!(
                "tensor `{name}` has the offset {offset}, which is not a multiple of the alignment {alignment}"
            ));
        }
        let start = usize::try_from(*offset).ok().and_then(|offset| offset.checked_add(data));
        let end = start.and_then(|start| start.checked_add(size)).filter(|end| *end <= file_length);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(format!(
                "tensor `{name}` takes {size} bytes from data offset {offset} (data starts at {data}), but the file ends \
                 at {file_length}: it is truncated or damaged"
            ));
        };
        let readable = kind.readable.ok_or_else(|| kind.name.to_owned());
        Ok(GgufTensor { kind: readable, shape: shape.clone(), bytes: start..end })
    }
}

fn check_overlap(tensors: &IndexMap<String, GgufTensor>) -> Result<(), String> {
    let mut order: Vec<(&Range<usize>, &str)> = tensors.iter().map(|(name, tensor)| (&tensor.bytes, &**name)).collect();
    order.sort_by_key(|(bytes, _)| (bytes.start, bytes.end));
    for pair in order.windows(2) {
        let ((before, first), (after, second)) = (pair[0], pair[1]);
        if after.start < before.end {
            return Err(format!(
                "tensors `{first}` (bytes {} to {}) and `{second}` (bytes {} to {}) overlap",
                before.start, before.end, after.start, after.end
            ));
        }
    }
    Ok(())
}
