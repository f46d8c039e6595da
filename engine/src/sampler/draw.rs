//! How the token of one row is chosen, apart from the state that it comes from: what a device is given.

use std::ops::Range;
use std::sync::Arc;

use super::change::LogitChange;
use super::choose::{self, Shape};
use super::philox::{Counter, random_bits};
use super::scratch::SamplerScratch;
use super::state::GREEDY_TEMPERATURE;
use crate::types::SamplingParams;

/// One row's parameters, its place in the random stream, and which of a list of changes are made to it first.
#[derive(Clone, Debug)]
pub struct Draw {
    pub params: Arc<SamplingParams>,
    pub counter: Counter,
    pub changes: Range<usize>,
}

impl Draw {
    /// The token; none for a row without a usable logit. The row is changed on the way and is as before on return.
    pub fn choose(&self, logits: &mut [f32], changes: &[LogitChange], scratch: &mut SamplerScratch) -> Option<u32> {
        let params = &*self.params;
        for change in &changes[self.changes.clone()] {
            scratch.set(logits, change.token, |logit| change.apply(logit, params));
        }
        let chosen = self.choose_changed(logits, scratch);
        scratch.restore(logits);
        chosen
    }

    fn choose_changed(&self, logits: &[f32], scratch: &mut SamplerScratch) -> Option<u32> {
        let SamplingParams { temperature, top_k, top_p, min_p, seed, .. } = *self.params;
        // A single candidate needs no draw, and `top_k` 1 is how many clients ask for greedy.
        if temperature < GREEDY_TEMPERATURE || top_k == 1 {
            return choose::largest(logits);
        }
        choose::draw(logits, Shape { temperature, top_k, top_p, min_p }, random_bits(seed, self.counter), scratch)
    }
}
