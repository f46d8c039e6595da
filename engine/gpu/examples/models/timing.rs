//! Time of a decode step on the device alone: a recorded pass replayed again and again, and the same with a wait after
//! each, beside the bytes that it must read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::backend::{Backend, CacheShape, PassKey, Segment, StepInput, StepLimits};
use engine::collective::{Communicator, PassError};
use engine::executor::RankFactory;
use engine::load::read_config;
use engine::model::{self, Attention, Decoder, Limits, ModelConfig, Pass, Share};
use engine::types::Phase;
use engine::weights::{DummyWeights, WeightSource};
use engine_cpu::map_file;
use engine_gpu::CudaBackend;

use crate::{Failure, gpu};

const PAGE: usize = 16;
const REPLAYS: usize = 100;
const ROUNDS: usize = 5;

/// `rows` sequences of `context` positions each, one token more.
pub fn run(config: &Path, rows: usize, context: usize) -> Result<(), Failure> {
    let config = read_config(config, map_file).map_err(|error| error.to_string())?;
    let mut timed = Timed::new(&config, rows, context)?;
    let bytes = bytes(&config, rows, context);
    let failed = |error: PassError| error.to_string();
    timed.replay(REPLAYS, false).map_err(failed)?;
    for (name, wait) in [("back to back", false), ("waiting after each", true)] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(timed.replay(REPLAYS, wait).map_err(failed)?);
        }
        times.sort();
        let seconds = times[ROUNDS / 2].as_secs_f64() / REPLAYS as f64;
        println!(
            "{rows} rows, context {context}, {name}: {:.4} ms a step, {:.0} GB/s of {:.3} GB, {:.1} tokens/s",
            seconds * 1e3,
            bytes / seconds / 1e9,
            bytes / 1e9,
            rows as f64 / seconds
        );
    }
    Ok(())
}

/// Weights that a step reads, and keys and values.
fn bytes(config: &ModelConfig, rows: usize, context: usize) -> f64 {
    let Attention::Grouped { key_value_heads, head_dimension, .. } = config.attention else { return f64::NAN };
    let (hidden, layers) = (config.hidden, config.layers);
    let attention = 2 * hidden * (config.heads + key_value_heads) * head_dimension;
    let weights = layers * (attention + 3 * hidden * config.intermediate) + hidden * config.vocabulary;
    let cached = rows * context * layers * 2 * key_value_heads * head_dimension;
    2.0 * (weights + cached) as f64
}

struct Timed {
    backend: CudaBackend,
    communicator: Communicator<CudaBackend>,
    decoder: Decoder<CudaBackend>,
    cache: <CudaBackend as Backend>::Cache,
    step: <CudaBackend as Backend>::Step,
    key: PassKey,
    vocabulary: usize,
}

impl Timed {
    fn new(config: &ModelConfig, rows: usize, context: usize) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let mut backend = gpu(config)?.backend(0).map_err(|error| failed(&error))?;
        let weights: Arc<dyn WeightSource> = Arc::new(DummyWeights::new(0, "bfloat16"));
        let pages_each = (context + 1).div_ceil(PAGE);
        let limits = Limits { rows: rows.max(64), logit_rows: rows.max(64), context: pages_each * PAGE };
        let decoder = model::load(&mut backend, &*weights, config, Share::WHOLE, limits, &mut |_| {})
            .map_err(|error| failed(&error))?;
        let layout = model::cache_layout(config, Share::WHOLE);
        let shape = CacheShape { layers: decoder.layers(), pages: pages_each * rows, page_size: PAGE, layout };
        let cache = backend.allocate_cache(&shape).map_err(|error| failed(&error))?;
        let limits = StepLimits { rows: rows.max(64), segments: rows, pages: pages_each * rows, mask_words: 0 };
        let step = backend.allocate_step(&limits).map_err(|error| failed(&error))?;
        let recorded = backend.recorded_rows(rows.max(64)).into_iter().find(|size| *size >= rows).unwrap_or(rows);
        let key = PassKey { name: "timing", phase: Phase::Decode, rows: recorded, logit_rows: recorded };
        let communicator = Communicator::single();
        let mut timed = Self { backend, communicator, decoder, cache, step, key, vocabulary: config.vocabulary };
        timed.prepare(rows, context).map_err(|error| failed(&error))?;
        Ok(timed)
    }

    /// Records, then uploads the step that is replayed.
    fn prepare(&mut self, rows: usize, context: usize) -> Result<(), PassError> {
        self.backend.upload(&mut self.step, &StepInput::default())?;
        self.pass()?;
        let pages_each = (context + 1).div_ceil(PAGE);
        let mut input = StepInput {
            tokens: (0..rows as u32).collect(),
            positions: vec![context as u32; rows],
            pages: (0..(pages_each * rows) as u32).collect(),
            logit_rows: (0..rows as u32).collect(),
            ..StepInput::default()
        };
        input.segments.extend((0..rows).map(|row| Segment {
            first_row: row,
            rows: 1,
            start: context,
            pages: row * pages_each..(row + 1) * pages_each,
            tree: None,
        }));
        Ok(self.backend.upload(&mut self.step, &input)?)
    }

    fn pass(&mut self) -> Result<(), PassError> {
        let Self { backend, communicator, decoder, cache, step, key, vocabulary } = self;
        backend.pass(*key, |backend| {
            let (phase, rows) = (key.phase, key.rows);
            let mut pass = Pass { backend, communicator, cache, step: &*step, phase, rows };
            decoder.forward(&mut pass)?;
            let logits = decoder.logits(&mut pass, 0..rows)?;
            Ok(pass.backend.choose(logits, *vocabulary, rows)?)
        })
    }

    fn replay(&mut self, count: usize, wait: bool) -> Result<Duration, PassError> {
        let mut ids = vec![0; self.key.rows];
        self.backend.read_choices(&mut ids)?;
        let start = Instant::now();
        for _ in 0..count {
            self.pass()?;
            if wait {
                self.backend.read_choices(&mut ids)?;
            }
        }
        self.backend.read_choices(&mut ids)?;
        Ok(start.elapsed())
    }
}
