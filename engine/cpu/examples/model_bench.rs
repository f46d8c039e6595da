//! Speed of a whole model on the CPU, without scheduler and server: one prompt, one stream, eight streams.
//!
//! `cargo run --release -p engine-cpu --example model_bench -- MODEL.gguf [threads]` prints one line of JSON on stdout.
//! Tokens are chosen greedily. The read bandwidth is measured between the figures, with the same threads.

use std::{
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use engine::{
    backend::{Backend, CacheShape, Segment, StepInput, StepLimits},
    collective::Communicator,
    load::{OpenOptions, open_model},
    model::{self, Decoder, Limits, Pass, Share},
    types::Phase,
};
use engine_cpu::{
    CpuBackend,
    kernels::{CacheElement, Compute, Pool, Precision},
    map_file,
};

const PROMPT: usize = 512;
const SHORT_PROMPT: usize = 16;
const OUTPUT: usize = 64;
const STREAMS: usize = 8;
const PAGE: usize = 16;
const CONTEXT: usize = PROMPT + OUTPUT;
const READ_BYTES: usize = 256 << 20;

/// A model on one rank.
struct Runner {
    backend: CpuBackend,
    communicator: Communicator<CpuBackend>,
    decoder: Decoder<CpuBackend>,
    cache: <CpuBackend as Backend>::Cache,
    step: <CpuBackend as Backend>::Step,
    logits: Vec<f32>,
    vocabulary: usize,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("usage: model_bench MODEL.gguf [threads]");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.next().map_or(cores, |text| text.parse().expect("the number of threads"));
    let mut runner = Runner::new(Path::new(&file), threads);
    let pool = Pool::new(threads).expect("threads");
    runner.decode(1, 4);
    let before = read_bandwidth(&pool);
    let prefill = runner.prefill();
    let single = runner.decode(1, OUTPUT);
    let streams = runner.decode(STREAMS, OUTPUT);
    let bandwidth = before.max(read_bandwidth(&pool));
    let bytes = std::fs::metadata(&file).expect("the model's file").len() as f64;
    println!(
        "{{\"prefill_tokens_per_second\": {prefill:.1}, \"decode_tokens_per_second\": {single:.1}, \
         \"streams_tokens_per_second\": {streams:.1}, \"streams\": {STREAMS}, \"threads\": {threads}, \
         \"read_bandwidth_gb_per_second\": {bandwidth:.2}, \"decode_share_of_read_bandwidth\": {:.3}}}",
        single * bytes / 1e9 / bandwidth
    );
}

impl Runner {
    fn new(file: &Path, threads: usize) -> Self {
        let options = OpenOptions { open: map_file, ..OpenOptions::default() };
        let model = open_model(file, &options).expect("a model");
        let compute = Compute::new(Pool::new(threads).expect("threads"), Precision::Fast);
        let mut backend = CpuBackend::new(compute, CacheElement::F16);
        let limits = Limits { rows: PROMPT, logit_rows: STREAMS, context: CONTEXT };
        let (source, config) = (&*model.source, &model.config);
        let decoder = model::load(&mut backend, source, config, Share::WHOLE, limits, &mut |_| ()).expect("weights");
        let pages = STREAMS * CONTEXT.div_ceil(PAGE);
        let layout = model::cache_layout(config, Share::WHOLE);
        let shape = CacheShape { layers: decoder.layers(), pages, page_size: PAGE, layout };
        let cache = backend.allocate_cache(&shape).expect("memory");
        let limits = StepLimits { rows: PROMPT, segments: STREAMS, pages, mask_words: 0 };
        let heads = model::attention_heads(config, Share::WHOLE);
        let step = backend.allocate_step(&limits, heads).expect("memory");
        let (logits, vocabulary) = (vec![0.0; STREAMS * config.vocabulary], config.vocabulary);
        Self { backend, communicator: Communicator::single(), decoder, cache, step, logits, vocabulary }
    }

    /// One step of streams with equally many new tokens each; returns each stream's next token.
    fn step(&mut self, tokens: &[Vec<u32>], start: usize, phase: Phase) -> Vec<u32> {
        let input = input(tokens, start);
        self.backend.upload(&mut self.step, &input).expect("the step fits");
        let mut pass = Pass {
            backend: &mut self.backend,
            communicator: &mut self.communicator,
            cache: &mut self.cache,
            step: &self.step,
            phase,
            rows: input.rows(),
        };
        self.decoder.forward(&mut pass).expect("a pass");
        let logits = &mut self.logits[..tokens.len() * self.vocabulary];
        let buffer = self.decoder.logits(&mut pass, 0..tokens.len()).expect("logits");
        pass.backend.read(buffer, 0, logits).expect("read");
        logits.chunks_exact(self.vocabulary).map(largest).collect()
    }

    /// Prompt tokens per second.
    fn prefill(&mut self) -> f64 {
        let tokens = [prompt(PROMPT, 0)];
        let best = (0..3).map(|_| seconds(|| self.step(&tokens, 0, Phase::Prefill)).0).fold(f64::INFINITY, f64::min);
        PROMPT as f64 / best
    }

    /// Output tokens per second of all streams together.
    fn decode(&mut self, streams: usize, count: usize) -> f64 {
        let mut next: Vec<Vec<u32>> = (0..streams).map(|stream| prompt(SHORT_PROMPT, stream)).collect();
        next = self.step(&next, 0, Phase::Prefill).into_iter().map(|token| vec![token]).collect();
        let (seconds, ()) = seconds(|| {
            for at in 0..count {
                let tokens = self.step(&next, SHORT_PROMPT + at, Phase::Decode);
                next = tokens.into_iter().map(|token| vec![token]).collect();
            }
        });
        (streams * count) as f64 / seconds
    }
}

/// Token ids that are not special tokens of any vocabulary of this size.
fn prompt(count: usize, stream: usize) -> Vec<u32> {
    (0..count).map(|at| ((at * 7919 + stream * 104_729 + 13) % 40_000 + 100) as u32).collect()
}

fn input(tokens: &[Vec<u32>], start: usize) -> StepInput {
    let mut input = StepInput::default();
    for (stream, tokens) in tokens.iter().enumerate() {
        let (first_row, first_page) = (input.rows(), input.pages.len());
        let pages = (start + tokens.len()).div_ceil(PAGE);
        input.pages.extend((0..pages).map(|page| (page * STREAMS + stream) as u32));
        input.tokens.extend(tokens);
        input.positions.extend((start..start + tokens.len()).map(|position| position as u32));
        let pages = first_page..input.pages.len();
        input.segments.push(Segment { first_row, rows: tokens.len(), start, pages, tree: None });
        input.logit_rows.push(input.rows() as u32 - 1);
    }
    input
}

fn largest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    best as u32
}

fn seconds<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let result = run();
    (begin.elapsed().as_secs_f64(), result)
}

/// GB/s at which all threads together read memory.
fn read_bandwidth(pool: &Pool) -> f64 {
    let words: Vec<u64> = (0..READ_BYTES as u64 / 8).collect();
    let pieces: Vec<&[u64]> = words.chunks(1 << 17).collect();
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    while begin.elapsed() < Duration::from_millis(300) {
        let run = || {
            pool.run(pieces.len(), |index| {
                black_box(sum(pieces[index]));
            })
        };
        best = best.min(seconds(run).0);
    }
    READ_BYTES as f64 / best / 1e9
}

fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 32];
    for chunk in words.as_chunks::<32>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |total, sum| total.wrapping_add(*sum))
}
