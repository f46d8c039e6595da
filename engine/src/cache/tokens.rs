//! The tokens of one sequence: a prompt that outputs share, and its own output.

use std::ops::Range;
use std::sync::Arc;

use super::PAGE_SIZE;

/// Prompt and output as one sequence of token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    prompt: Arc<[u32]>,
    output: Vec<u32>,
}

impl Tokens {
    pub fn new(prompt: Arc<[u32]>) -> Self {
        Self { prompt, output: Vec::new() }
    }

    pub fn prompt(&self) -> &Arc<[u32]> {
        &self.prompt
    }

    pub fn output(&self) -> &[u32] {
        &self.output
    }

    pub fn push(&mut self, token: u32) {
        self.output.push(token);
    }

    pub fn len(&self) -> usize {
        self.prompt.len() + self.output.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, position: usize) -> Option<u32> {
        match position.checked_sub(self.prompt.len()) {
            None => self.prompt.get(position).copied(),
            Some(index) => self.output.get(index).copied(),
        }
    }

    /// The tokens at these positions, cut at the end of the sequence.
    pub fn range(&self, positions: Range<usize>) -> Vec<u32> {
        positions.map_while(|position| self.get(position)).collect()
    }

    /// The tokens of page `index`; None unless the page is full.
    pub(super) fn page(&self, index: usize) -> Option<[u32; PAGE_SIZE]> {
        let start = index * PAGE_SIZE;
        if let Some(tokens) = self.prompt.get(start..start + PAGE_SIZE) {
            return tokens.try_into().ok();
        }
        let mut tokens = [0; PAGE_SIZE];
        for (offset, token) in tokens.iter_mut().enumerate() {
            *token = self.get(start + offset)?;
        }
        Some(tokens)
    }
}
