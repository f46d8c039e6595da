//! Many compiled units in one file, for hosts without a compiler.

use std::collections::BTreeMap;
use std::path::Path;

use engine::files::read_bounded;
use serde::{Deserialize, Serialize};

use super::{CompileError, Compiled};

/// Most bytes of a pack: a hundred times what all kernels of all targets take.
const LARGEST: u64 = 1 << 30;
const MAGIC: &[u8; 16] = b"archway kernels\n";

/// Compiled units by recipe: what a pack was compiled by does not matter to the host that loads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    units: BTreeMap<String, (Label, Compiled)>,
}

/// What a person wants to know of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub unit: String,
    pub target: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    recipe: String,
    label: Label,
    bytes: usize,
}

impl Pack {
    pub fn insert(&mut self, recipe: String, unit: &str, target: &str, compiled: Compiled) {
        let label = Label { unit: unit.to_owned(), target: target.to_owned() };
        self.units.insert(recipe, (label, compiled));
    }

    pub fn get(&self, recipe: &str) -> Option<&Compiled> {
        self.units.get(recipe).map(|(_, compiled)| compiled)
    }

    pub fn labels(&self) -> impl Iterator<Item = &Label> {
        self.units.values().map(|(label, _)| label)
    }

    /// Magic, length of the index (u32, little end first), index in JSON, entries one after the other.
    pub fn write(&self, path: &Path) -> Result<(), CompileError> {
        let (mut index, mut entries) = (Vec::new(), Vec::new());
        for (recipe, (label, compiled)) in &self.units {
            let bytes = compiled.to_bytes();
            index.push(Entry { recipe: recipe.clone(), label: label.clone(), bytes: bytes.len() });
            entries.extend(bytes);
        }
        let index = serde_json::to_vec(&index).expect("an index is plain data");
        let bytes = [&MAGIC[..], &(index.len() as u32).to_le_bytes(), &index, &entries].concat();
        std::fs::write(path, bytes).map_err(|error| CompileError::File { path: path.to_owned(), error })
    }

    /// Errors: the file cannot be read, is not a pack, or is damaged.
    pub fn read(path: &Path) -> Result<Self, CompileError> {
        let bytes = read_bounded(path, LARGEST).map_err(|error| CompileError::File { path: path.to_owned(), error })?;
        let wrong = |what: &str| CompileError::Pack { path: path.to_owned(), what: what.to_owned() };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("it does not begin as one"))?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(|| wrong("it ends in its head"))?;
        let (index, mut rest) =
            rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(|| wrong("it ends in its index"))?;
        let index: Vec<Entry> = serde_json::from_slice(index).map_err(|error| wrong(&format!("index: {error}")))?;
        let mut units = BTreeMap::new();
        for Entry { recipe, label, bytes } in index {
            let Label { unit, target } = &label;
            let (entry, others) =
                rest.split_at_checked(bytes).ok_or_else(|| wrong(&format!("it ends in {unit} for {target}")))?;
            let compiled =
                Compiled::from_bytes(entry).ok_or_else(|| wrong(&format!("{unit} for {target} is damaged")))?;
            units.insert(recipe, (label, compiled));
            rest = others;
        }
        Ok(Self { units })
    }
}
