//! The draft vocabulary: the target's most frequent tokens, by which a head's output is kept small.

use std::sync::Arc;

use crate::load::LoadError;
use crate::weights::{WeightSource, WeightType};

/// Draft ids to target ids; ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftVocabulary {
    /// None where draft and target ids are the same.
    tokens: Option<Arc<[u32]>>,
}

impl DraftVocabulary {
    /// Draft and target ids are the same.
    pub const fn identity() -> Self {
        Self { tokens: None }
    }

    /// The target's token of a draft id.
    pub fn target(&self, draft: u32) -> u32 {
        self.tokens.as_ref().map_or(draft, |tokens| tokens[draft as usize])
    }

    /// Target ids by draft id; none where they are the same.
    pub fn tokens(&self) -> Option<&[u32]> {
        self.tokens.as_deref()
    }

    /// Reads `d2t` (offsets: target id less draft id) and checks it, and `t2d` where it is there, against each other.
    /// `size` draft tokens of a vocabulary of `vocabulary`.
    pub(super) fn read(
        weights: &dyn WeightSource,
        size: usize,
        vocabulary: usize,
        path: &str,
    ) -> Result<Self, LoadError> {
        let fail = |message: String| LoadError::File { path: path.to_owned(), message };
        if weights.info("d2t").is_err() {
            if size == vocabulary {
                return Ok(Self::identity());
            }
            let message = format!("has {size} draft tokens of {vocabulary} and no `d2t` that says which");
            return Err(fail(message));
        }
        let tokens = targets(&offsets(weights, size, path)?, vocabulary).map_err(fail)?;
        if weights.info("t2d").is_ok() {
            check_mask(weights, &tokens, vocabulary, path)?;
        }
        Ok(Self { tokens: Some(tokens.into()) })
    }
}

fn offsets(weights: &dyn WeightSource, size: usize, path: &str) -> Result<Vec<i64>, LoadError> {
    let tensor = weights.tensor("d2t", &[size])?;
    let bytes = &*tensor.bytes;
    match tensor.kind {
        WeightType::I64 => Ok(bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect()),
        WeightType::I32 => Ok(bytes.as_chunks().0.iter().map(|word| i64::from(i32::from_le_bytes(*word))).collect()),
        kind => Err(LoadError::File { path: path.to_owned(), message: format!("has `d2t` in {kind}; it must be I64") }),
    }
}

/// Target ids; they must ascend, which a file of absolute ids in place of offsets does not.
fn targets(offsets: &[i64], vocabulary: usize) -> Result<Vec<u32>, String> {
    let mut tokens: Vec<u32> = Vec::with_capacity(offsets.len());
    for (draft, offset) in offsets.iter().enumerate() {
        let target = offset.checked_add(draft as i64);
        let Some(target) =
            target.and_then(|target| u32::try_from(target).ok()).filter(|id| (*id as usize) < vocabulary)
        else {
            return Err(format!(
                "maps draft token {draft} to token {draft} + {offset} in `d2t`, outside the vocabulary of {vocabulary}; \
                 `d2t` must hold offsets, and may hold absolute ids here"
            ));
        };
        if tokens.last().is_some_and(|last| *last >= target) {
            return Err(format!(
                "maps draft tokens to tokens that do not ascend in `d2t`, first at draft token {draft}"
            ));
        }
        tokens.push(target);
    }
    Ok(tokens)
}

/// `t2d` marks the same tokens.
fn check_mask(weights: &dyn WeightSource, tokens: &[u32], vocabulary: usize, path: &str) -> Result<(), LoadError> {
    let mask = weights.tensor("t2d", &[vocabulary])?;
    let marked = mask.bytes.iter().filter(|byte| **byte != 0).count();
    let agree = mask.kind == WeightType::Bool && tokens.iter().all(|token| mask.bytes[*token as usize] != 0);
    if agree && marked == tokens.len() {
        return Ok(());
    }
    let message =
        format!("has a `t2d` ({}, {marked} tokens) that does not mark the {} tokens of `d2t`", mask.kind, tokens.len());
    Err(LoadError::File { path: path.to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_give_ascending_tokens() {
        assert_eq!(targets(&[0, 0, 5, 5], 9).unwrap(), [0, 1, 7, 8]);
        assert!(targets(&[0, 0, 5, 6], 9).unwrap_err().contains("outside the vocabulary"));
        assert!(targets(&[-1], 9).unwrap_err().contains("outside"));
        assert!(targets(&[3, 2], 9).unwrap_err().contains("do not ascend"));
        let absolute: Vec<i64> = (0..100).map(|id| 2 * id).collect();
        assert!(targets(&absolute, 200).unwrap_err().contains("may hold absolute ids"));
    }
}
