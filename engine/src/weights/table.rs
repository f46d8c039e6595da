//! Where each tensor of a checkpoint lies.

use std::borrow::Cow;
use std::ops::Range;

use indexmap::IndexMap;

use super::{FileBytes, TensorInfo, TensorView, WeightError, WeightType};

/// A tensor's place. The reader has checked that `bytes` lies inside the file and is as long as type and shape say.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The type, or the file's name for one that we cannot read.
    pub kind: Result<WeightType, String>,
    pub shape: Vec<usize>,
    /// Index into the table's files.
    pub file: usize,
    pub bytes: Range<usize>,
}

/// Tensors of one or several files by Hugging Face name, in file order.
#[derive(Default)]
pub(super) struct Table {
    pub files: Vec<(String, FileBytes)>,
    pub entries: IndexMap<String, Stored>,
}

impl Table {
    pub fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    pub fn find(&self, name: &str) -> Result<&Stored, WeightError> {
        self.entries.get(name).ok_or_else(|| {
            // Several shards stand for one checkpoint; its first file leads to it.
            let path = self.files.first().map_or("", |(path, _)| path);
            missing(path, name, self.entries.keys().map(String::as_str))
        })
    }

    pub fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        let stored = self.find(name)?;
        Ok(TensorInfo { kind: self.kind(name, stored)?, shape: stored.shape.clone() })
    }

    /// The tensor without copying, if it has the stated shape.
    pub fn view(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        let stored = self.find(name)?;
        if stored.shape != shape {
            return Err(WeightError::Shape {
                path: self.files[stored.file].0.clone(),
                name: name.to_owned(),
                actual: stored.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        let (_, file) = &self.files[stored.file];
        let bytes = Cow::Borrowed(&(**file).as_ref()[stored.bytes.clone()]);
        Ok(TensorView { kind: self.kind(name, stored)?, shape: shape.to_vec(), bytes })
    }

    fn kind(&self, name: &str, stored: &Stored) -> Result<WeightType, WeightError> {
        stored.kind.clone().map_err(|kind| WeightError::File {
            path: self.files[stored.file].0.clone(),
            message: format!("tensor `{name}` has type {kind}, which cannot be read; convert the checkpoint"),
        })
    }
}

/// The error for a name that does not exist, with the three names most alike.
pub(super) fn missing<'a>(path: &str, name: &str, names: impl Iterator<Item = &'a str>) -> WeightError {
    let mut near: Vec<(usize, &str)> = names.map(|other| (likeness(name, other), other)).collect();
    near.sort_by_key(|(likeness, other)| (std::cmp::Reverse(*likeness), *other));
    let near = near.into_iter().filter(|(likeness, _)| *likeness * 2 >= name.len());
    let near = near.take(3).map(|(_, other)| other.to_owned()).collect();
    WeightError::Missing { path: path.to_owned(), name: name.to_owned(), near }
}

/// Length of the common start and the common end of two names: names differ by a layer or by one word.
fn likeness(left: &str, right: &str) -> usize {
    let start = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    let rest = left.len().min(right.len()) - start;
    let end = left.bytes().rev().zip(right.bytes().rev()).take(rest).take_while(|(left, right)| left == right).count();
    start + end
}
