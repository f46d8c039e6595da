//! Time of a decode step, or of a pass that verifies several tokens of each sequence, on the device alone: a recorded
//! pass replayed again and again, and the same with a wait after each, beside the bytes that it must read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::backend::{Backend, CacheShape, Choose, PassKey, Segment, StepInput, StepLimits};
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
const REPLAYS: usize = 50;
const ROUNDS: usize = 5;

/// `sequences` sequences of `context` positions each, and for every number of `each` so many tokens more of each: times,
/// and their ratio to the first number's.
pub fn run(config: &Path, sequences: usize, context: usize, each: &[usize]) -> Result<(), Failure> {
    let config = read_config(config, map_file).map_err(|error| error.to_string())?;
    let most = sequences * each.iter().copied().max().unwrap_or(1);
    let mut timed = Timed::new(&config, sequences, context, most)?;
    let failed = |error: PassError| error.to_string();
    let keys: Vec<PassKey> = each.iter().map(|each| timed.key(sequences, *each)).collect();
    keys.iter().try_for_each(|key| timed.record(*key)).map_err(failed)?;
    for wait in [false, true] {
        let name = if wait { "waiting after each" } else { "back to back" };
        let mut first = None;
        for (each, key) in each.iter().zip(&keys) {
            timed.prepare(sequences, context, *each).map_err(failed)?;
            let seconds = timed.median(*key, wait).map_err(failed)?;
            let bytes = bytes(&config, sequences, context);
            println!(
                "{sequences} x {each} rows, context {context}, {name}: {:.4} ms a step, {:.0} GB/s of {:.3} GB, {:.3} x",
                seconds * 1e3,
                bytes / seconds / 1e9,
                bytes / 1e9,
                seconds / first.unwrap_or(seconds)
            );
            first.get_or_insert(seconds);
        }
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
    vocabulary: usize,
    pages_each: usize,
}

impl Timed {
    fn new(config: &ModelConfig, sequences: usize, context: usize, most: usize) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let mut backend = gpu(config)?.backend(0).map_err(|error| failed(&error))?;
        let weights: Arc<dyn WeightSource> = Arc::new(DummyWeights::new(0, "bfloat16"));
        let (rows, pages_each) = (most.max(64), (context + most).div_ceil(PAGE));
        let limits = Limits { rows, logit_rows: rows, context: pages_each * PAGE };
        let decoder = model::load(&mut backend, &*weights, config, Share::WHOLE, limits, &mut |_| {})
            .map_err(|error| failed(&error))?;
        let layout = model::cache_layout(config, Share::WHOLE);
        let shape = CacheShape { layers: decoder.layers(), pages: pages_each * sequences, page_size: PAGE, layout };
        let cache = backend.allocate_cache(&shape).map_err(|error| failed(&error))?;
        let limits = StepLimits { rows, segments: sequences, pages: pages_each * sequences, mask_words: 0 };
        let heads = model::attention_heads(config, Share::WHOLE);
        let step = backend.allocate_step(&limits, heads).map_err(|error| failed(&error))?;
        backend.allocate_choices(limits.rows).map_err(|error| failed(&error))?;
        let communicator = Communicator::single();
        Ok(Self { backend, communicator, decoder, cache, step, vocabulary: config.vocabulary, pages_each })
    }

    /// The pass that is recorded for so many rows.
    fn key(&self, sequences: usize, each: usize) -> PassKey {
        let (rows, phase) = (sequences * each, if each > 1 { Phase::Verify } else { Phase::Decode });
        let recorded = self.backend.recorded_rows(phase, rows.max(64));
        let rows = recorded.into_iter().find(|size| *size >= rows).unwrap_or(rows);
        PassKey { name: "timing", phase, rows, logit_rows: rows }
    }

    /// Has the device record the pass. To be done for all before the first step.
    fn record(&mut self, key: PassKey) -> Result<(), PassError> {
        self.backend.upload(&mut self.step, &StepInput::default())?;
        self.pass(key)
    }

    /// Uploads the step that is replayed.
    fn prepare(&mut self, sequences: usize, context: usize, each: usize) -> Result<(), PassError> {
        let (rows, pages_each) = (sequences * each, self.pages_each);
        let mut input = StepInput {
            tokens: (0..rows as u32).collect(),
            positions: (0..rows).map(|row| (context + row % each) as u32).collect(),
            pages: (0..(pages_each * sequences) as u32).collect(),
            logit_rows: (0..rows as u32).collect(),
            ..StepInput::default()
        };
        input.segments.extend((0..sequences).map(|sequence| Segment {
            first_row: sequence * each,
            rows: each,
            start: context,
            pages: sequence * pages_each..(sequence + 1) * pages_each,
            tree: None,
        }));
        Ok(self.backend.upload(&mut self.step, &input)?)
    }

    fn pass(&mut self, key: PassKey) -> Result<(), PassError> {
        let Self { backend, communicator, decoder, cache, step, vocabulary, .. } = self;
        backend.pass(key, |backend| {
            let (phase, rows) = (key.phase, key.rows);
            let mut pass = Pass { backend, communicator, cache, step: &*step, phase, rows };
            decoder.forward(&mut pass)?;
            let logits = decoder.logits(&mut pass, 0..rows)?;
            let (width, vocabulary, place) = (*vocabulary, None, 0);
            Ok(pass.backend.choose(Choose { logits, width, rows, vocabulary, place })?)
        })
    }

    /// Seconds of a step: the median of several rounds, after one that is not counted.
    fn median(&mut self, key: PassKey, wait: bool) -> Result<f64, PassError> {
        self.replay(key, wait)?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(self.replay(key, wait)?);
        }
        times.sort();
        Ok(times[ROUNDS / 2].as_secs_f64() / REPLAYS as f64)
    }

    fn replay(&mut self, key: PassKey, wait: bool) -> Result<Duration, PassError> {
        let mut ids = vec![0; key.rows];
        self.backend.read_choices(0, &mut ids)?;
        let start = Instant::now();
        for _ in 0..REPLAYS {
            self.pass(key)?;
            if wait {
                self.backend.read_choices(0, &mut ids)?;
            }
        }
        self.backend.read_choices(0, &mut ids)?;
        Ok(start.elapsed())
    }
}
