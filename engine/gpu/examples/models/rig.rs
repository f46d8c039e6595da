//! A model on one rank of any backend, without an executor: its logits can be seen.

use std::sync::Arc;

use engine::backend::{Backend, CacheShape, Segment, StepInput, StepLimits};
use engine::collective::Communicator;
use engine::model::{self, Decoder, Limits, ModelConfig, Pass, Share};
use engine::types::Phase;
use engine::weights::WeightSource;

use crate::Failure;

const ROWS: usize = 128;
const PAGE: usize = 16;
const PAGES_EACH: usize = 8;
const SEQUENCES: usize = 4;

pub struct Rig<B: Backend> {
    backend: B,
    communicator: Communicator<B>,
    decoder: Decoder<B>,
    cache: B::Cache,
    step: B::Step,
    vocabulary: usize,
}

impl<B: Backend> Rig<B> {
    pub fn new(mut backend: B, config: &ModelConfig, weights: &Arc<dyn WeightSource>) -> Result<Self, Failure> {
        let limits = Limits { rows: ROWS, logit_rows: ROWS, context: PAGE * PAGES_EACH };
        let decoder = model::load(&mut backend, &**weights, config, Share::WHOLE, limits, &mut |_| {})
            .map_err(|error| error.to_string())?;
        let layout = model::cache_layout(config, Share::WHOLE);
        let shape = CacheShape { layers: decoder.layers(), pages: PAGES_EACH * SEQUENCES, page_size: PAGE, layout };
        let limits = StepLimits { rows: ROWS, segments: SEQUENCES, pages: PAGES_EACH * SEQUENCES, mask_words: ROWS };
        let cache = backend.allocate_cache(&shape).map_err(|error| error.to_string())?;
        let heads = model::attention_heads(config, Share::WHOLE);
        let step = backend.allocate_step(&limits, heads).map_err(|error| error.to_string())?;
        let communicator = Communicator::single();
        Ok(Self { backend, communicator, decoder, cache, step, vocabulary: config.vocabulary })
    }

    /// One step of several sequences' next tokens; logits `[rows, vocabulary]` of all rows.
    pub fn step(&mut self, chunks: &[(usize, usize, &[u32])]) -> Result<Vec<f32>, Failure> {
        let input = input(chunks);
        let rows = input.rows();
        self.pass(&input, rows).map_err(|error| error.to_string())
    }

    fn pass(&mut self, input: &StepInput, rows: usize) -> Result<Vec<f32>, engine::collective::PassError> {
        self.backend.upload(&mut self.step, input)?;
        let mut pass = Pass {
            backend: &mut self.backend,
            communicator: &mut self.communicator,
            cache: &mut self.cache,
            step: &self.step,
            phase: Phase::Prefill,
            rows,
        };
        self.decoder.forward(&mut pass)?;
        let mut logits = vec![0.0; rows * self.vocabulary];
        let buffer = self.decoder.logits(&mut pass, 0..rows)?;
        pass.backend.read(buffer, 0, &mut logits)?;
        Ok(logits)
    }
}

/// Chunks of (sequence, positions in the cache already, tokens). Pages of a sequence are far from each other.
fn input(chunks: &[(usize, usize, &[u32])]) -> StepInput {
    let mut input = StepInput::default();
    for (sequence, start, tokens) in chunks {
        let (first_row, first_page) = (input.rows(), input.pages.len());
        let pages = 0..(start + tokens.len()).div_ceil(PAGE);
        input.pages.extend(pages.map(|page| ((PAGES_EACH - 1 - page) * SEQUENCES + sequence) as u32));
        input.tokens.extend_from_slice(tokens);
        input.positions.extend((*start as u32..).take(tokens.len()));
        let pages = first_page..input.pages.len();
        input.segments.push(Segment { first_row, rows: tokens.len(), start: *start, pages, tree: None });
    }
    input.logit_rows = (0..input.rows() as u32).collect();
    input
}
