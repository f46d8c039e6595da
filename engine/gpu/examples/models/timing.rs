//! Time of a decode step, or of a pass that verifies several tokens of each sequence, on the device alone: a recorded
//! pass replayed again and again, and the same with a wait after each, beside the bytes that it must read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::backend::{Backend, CacheShape, Choose, PassKey, Segment, StepInput, StepLimits};
use engine::collective::{CollectivePlan, Communicator, PassError};
use engine::executor::RankFactory;
use engine::load::{LoadFormat, OpenOptions, open_model, read_config};
use engine::model::{self, Attention, Decoder, Limits, ModelConfig, Pass, Share};
use engine::types::Phase;
use engine::weights::{DummyWeights, WeightSource};
use engine_cpu::map_file;
use engine_gpu::{CudaBackend, CudaRanks};

use crate::{Failure, gpu};

const PAGE: usize = 16;
const REPLAYS: usize = 50;
const ROUNDS: usize = 5;

/// What is timed: passes over so many tokens more of so many sequences that have `context` positions each.
#[derive(Clone)]
pub struct Sizes {
    pub context: usize,
    /// Sequences, and rows of each.
    pub passes: Vec<[usize; 2]>,
}

impl Sizes {
    /// SEQUENCES[,SEQUENCES...] CONTEXT [EACH...], decode steps where no EACH is given.
    pub fn parse(words: &[&str]) -> Result<Self, Failure> {
        let number = |word: &str| word.parse().ok().filter(|size| *size > 0);
        let parsed = || -> Option<Self> {
            let [sequences, context, each @ ..] = words else { return None };
            let sequences = sequences.split(',').map(number).collect::<Option<Vec<usize>>>()?;
            let each = each.iter().map(|word| number(word)).collect::<Option<Vec<usize>>>()?;
            let each = if each.is_empty() { vec![1] } else { each };
            let passes = sequences.iter().flat_map(|sequences| each.iter().map(|each| [*sequences, *each])).collect();
            Some(Self { context: number(context)?, passes })
        };
        parsed().ok_or_else(|| {
            "SEQUENCES, CONTEXT and EACH are numbers above 0; SEQUENCES may be several, as 1,8".to_owned()
        })
    }

    fn most(&self, of: impl Fn(&[usize; 2]) -> usize) -> usize {
        self.passes.iter().map(of).max().unwrap_or(1)
    }

    pub fn most_each(&self) -> usize {
        self.most(|[_, each]| *each)
    }
}

/// Times every pass of `sizes`, and its ratio to the first one.
pub fn run(config: &Path, sizes: &Sizes) -> Result<(), Failure> {
    let Opened { config, weights, stored } = open(config)?;
    let alone = Place { factory: &gpu(&config)?, rank: 0, share: Share::WHOLE, plan: None };
    let times = Timed::new(&alone, &config, &*weights, sizes).and_then(|mut timed| timed.times(sizes))?;
    print("", stored.unwrap_or_else(|| weight_bytes(&config)), &config, sizes, &times);
    Ok(())
}

/// Seconds of every pass: replayed one after the other, and with a wait after each.
pub type Times = Vec<[f64; 2]>;

/// `weights`: bytes of them that a step reads.
pub fn print(name: &str, weights: f64, config: &ModelConfig, sizes: &Sizes, times: &Times) {
    let Sizes { context, passes } = sizes;
    for (wait, what) in ["back to back", "waiting after each"].into_iter().enumerate() {
        for ([sequences, each], seconds) in passes.iter().zip(times) {
            let (bytes, seconds, first) =
                (weights + cache_bytes(config, *sequences, *context), seconds[wait], times[0][wait]);
            println!(
                "{name}{sequences} x {each} rows, context {context}, {what}: {:.4} ms a step, {:.0} GB/s of {:.3} GB, {:.3} x",
                seconds * 1e3,
                bytes / seconds / 1e9,
                bytes / 1e9,
                seconds / first
            );
        }
    }
}

struct Opened {
    config: ModelConfig,
    weights: Arc<dyn WeightSource>,
    /// Bytes of the model's file.
    stored: Option<f64>,
}

/// A model in a file, or a configuration with random weights.
fn open(path: &Path) -> Result<Opened, Failure> {
    if path.extension().is_none_or(|extension| extension != "gguf") {
        let config = read_config(path, LoadFormat::Auto, map_file).map_err(text)?;
        return Ok(Opened { config, weights: Arc::new(DummyWeights::new(0, "bfloat16")), stored: None });
    }
    let options = OpenOptions { open: map_file, ..OpenOptions::default() };
    let model = open_model(path, &options).map_err(text)?;
    let stored = Some(path.metadata().map_err(text)?.len() as f64);
    Ok(Opened { config: model.config, weights: model.source, stored })
}

/// Weights in bf16 that a step reads.
pub fn weight_bytes(config: &ModelConfig) -> f64 {
    let Attention::Grouped { key_value_heads, head_dimension, .. } = config.attention else { return f64::NAN };
    let (hidden, layers) = (config.hidden, config.layers);
    let attention = 2 * hidden * (config.heads + key_value_heads) * head_dimension;
    2.0 * (layers * (attention + 3 * hidden * config.intermediate) + hidden * config.vocabulary) as f64
}

/// Keys and values that a step reads.
fn cache_bytes(config: &ModelConfig, rows: usize, context: usize) -> f64 {
    let Attention::Grouped { key_value_heads, head_dimension, .. } = config.attention else { return f64::NAN };
    2.0 * (rows * context * config.layers * 2 * key_value_heads * head_dimension) as f64
}

/// A rank, and the share of the model that it has.
pub struct Place<'a> {
    pub factory: &'a CudaRanks,
    pub rank: usize,
    pub share: Share,
    /// How it sums with others; none where it goes on with its own parts as if they were sums.
    pub plan: Option<Arc<CollectivePlan>>,
}

pub struct Timed {
    backend: CudaBackend,
    communicator: Communicator<CudaBackend>,
    decoder: Decoder<CudaBackend>,
    cache: <CudaBackend as Backend>::Cache,
    step: <CudaBackend as Backend>::Step,
    vocabulary: usize,
    pages_each: usize,
}

impl Timed {
    pub fn new(
        place: &Place<'_>,
        config: &ModelConfig,
        weights: &dyn WeightSource,
        sizes: &Sizes,
    ) -> Result<Self, Failure> {
        let (sequences, context, share) = (sizes.most(|[sequences, _]| *sequences), sizes.context, place.share);
        let mut backend = place.factory.backend(place.rank).map_err(text)?;
        let communicator = match &place.plan {
            Some(plan) => {
                let group = place.factory.collective(place.rank, &mut backend).map_err(text)?;
                Communicator::new(group, Arc::clone(plan), Arc::default())
            }
            None => Communicator::single(),
        };
        let (rows, most_each) = (sizes.most(|[sequences, each]| sequences * each), sizes.most_each());
        let (rows, pages_each) = (rows.max(64), (context + most_each).div_ceil(PAGE));
        let limits = Limits { rows, logit_rows: rows, context: pages_each * PAGE };
        let decoder = model::load(&mut backend, weights, config, share, limits, &mut |_| {}).map_err(text)?;
        let layout = model::cache_layout(config, share);
        let shape = CacheShape { layers: decoder.layers(), pages: pages_each * sequences, page_size: PAGE, layout };
        let cache = backend.allocate_cache(&shape).map_err(text)?;
        let limits = StepLimits { rows, segments: sequences, pages: pages_each * sequences, mask_words: 0 };
        let step = backend.allocate_step(&limits, model::attention_heads(config, share)).map_err(text)?;
        backend.allocate_choices(limits.rows).map_err(text)?;
        Ok(Self { backend, communicator, decoder, cache, step, vocabulary: config.vocabulary, pages_each })
    }

    /// Records every pass, then times each. Ranks of a group do this together.
    pub fn times(&mut self, sizes: &Sizes) -> Result<Times, Failure> {
        let keys: Vec<PassKey> = sizes.passes.iter().map(|pass| self.key(*pass)).collect();
        self.communicator.meet().map_err(text)?;
        keys.iter().try_for_each(|key| self.record(*key)).map_err(text)?;
        let time = |(pass, key): (&[usize; 2], &PassKey)| {
            self.prepare(*pass, sizes.context)?;
            Ok([self.median(*key, false)?, self.median(*key, true)?])
        };
        sizes.passes.iter().zip(&keys).map(time).collect::<Result<_, PassError>>().map_err(text)
    }

    /// The pass that is recorded for so many rows.
    fn key(&self, [sequences, each]: [usize; 2]) -> PassKey {
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
    fn prepare(&mut self, [sequences, each]: [usize; 2], context: usize) -> Result<(), PassError> {
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
        self.communicator.meet()?;
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

fn text(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}
