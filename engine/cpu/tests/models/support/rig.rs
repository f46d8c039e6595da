use engine::backend::{Backend, CacheShape, MoveRows, RowMove, Segment, StepInput, StepLimits, TreeMask};
use engine::collective::Communicator;
use engine::model::{self, Decoder, Limits, ModelConfig, Pass, Share};
use engine::types::Phase;
use engine::weights::WeightSource;
use engine_cpu::kernels::{Compute, Pool, Precision};
use engine_cpu::{Buffer, CpuBackend};

use super::Golden;

const ROWS: usize = 128;
const PAGES_EACH: usize = 32;
const SEQUENCES: usize = 4;

/// A model on one rank, without an executor: what it computes can be seen.
pub struct Rig {
    pub backend: CpuBackend,
    pub communicator: Communicator<CpuBackend>,
    pub decoder: Decoder<CpuBackend>,
    cache: <CpuBackend as Backend>::Cache,
    step: <CpuBackend as Backend>::Step,
    pub page_size: usize,
    vocabulary: usize,
}

/// Rows of one sequence.
pub struct Chunk<'a> {
    pub sequence: usize,
    /// Positions in the cache already.
    pub start: usize,
    pub tokens: &'a [u32],
    /// Depth of each row below the root, and who sees whom, row by row.
    pub tree: Option<(&'a [u32], &'a [u8])>,
}

impl<'a> Chunk<'a> {
    pub fn plain(sequence: usize, start: usize, tokens: &'a [u32]) -> Self {
        Self { sequence, start, tokens, tree: None }
    }
}

impl Rig {
    pub fn new(golden: &Golden, page_size: usize) -> Self {
        Self::open(&golden.config, &*golden.weights, page_size, Precision::Exact)
    }

    /// Keys and values are kept as `archway serve` keeps them with this precision.
    pub fn open(config: &ModelConfig, weights: &dyn WeightSource, page_size: usize, precision: Precision) -> Self {
        let compute = Compute::new(Pool::new(2).expect("a thread"), precision);
        let mut backend = CpuBackend::new(compute, precision.cache());
        let limits = Limits { rows: ROWS, logit_rows: 5, context: 512 };
        let mut layers_heard = 0;
        let decoder = model::load(&mut backend, weights, config, Share::WHOLE, limits, &mut |done| layers_heard = done)
            .expect("the model loads");
        assert_eq!(layers_heard, config.layers, "progress ends with the last layer");
        let (layers, layout) = (decoder.layers(), model::cache_layout(config, Share::WHOLE));
        let shape = CacheShape { layers, pages: PAGES_EACH * SEQUENCES, page_size, layout };
        let cache = backend.allocate_cache(&shape).expect("memory");
        let limits = StepLimits { rows: ROWS, segments: SEQUENCES, pages: PAGES_EACH * SEQUENCES, mask_words: ROWS };
        let heads = model::attention_heads(config, Share::WHOLE);
        let step = backend.allocate_step(&limits, heads).expect("memory");
        let communicator = Communicator::single();
        Self { backend, communicator, decoder, cache, step, page_size, vocabulary: config.vocabulary }
    }

    /// Copies the residual stream at these boundaries from now on.
    pub fn tap(&mut self, boundaries: Vec<usize>) {
        self.decoder.tap(&mut self.backend, boundaries).expect("memory");
    }

    /// The first `elements` of what the last step tapped.
    pub fn taps(&mut self, elements: usize) -> Vec<f32> {
        let buffer: &Buffer = self.decoder.taps().expect("taps");
        let mut values = vec![0.0; elements];
        self.backend.read(buffer, 0, &mut values).expect("read");
        values
    }

    /// One step; logits `[rows, vocabulary]` of all its rows.
    pub fn step(&mut self, chunks: &[Chunk<'_>]) -> Vec<f32> {
        let input = self.input(chunks);
        let rows = input.rows();
        self.backend.upload(&mut self.step, &input).expect("the step fits");
        let mut pass = Pass {
            backend: &mut self.backend,
            communicator: &mut self.communicator,
            cache: &mut self.cache,
            step: &self.step,
            phase: Phase::Prefill,
            rows,
        };
        self.decoder.forward(&mut pass).expect("a pass");
        let mut logits = vec![0.0; rows * self.vocabulary];
        for (chunk, first) in logits.chunks_mut(self.decoder.logit_capacity() * self.vocabulary).zip((0..).step_by(5)) {
            let range = first..first + chunk.len() / self.vocabulary;
            let buffer = self.decoder.logits(&mut pass, range).expect("logits");
            pass.backend.read(buffer, 0, chunk).expect("read");
        }
        logits
    }

    /// Pages of a sequence for `end` positions: far from each other and in descending order.
    pub fn pages(&self, sequence: usize, end: usize) -> impl Iterator<Item = u32> + use<> {
        (0..end.div_ceil(self.page_size)).map(move |page| ((PAGES_EACH - 1 - page) * SEQUENCES + sequence) as u32)
    }

    /// Makes the rows `path` of a chunk that began at `start` consecutive in the cache.
    pub fn compact(&mut self, sequence: usize, start: usize, path: &[usize]) {
        let pages: Vec<u32> = self.pages(sequence, PAGES_EACH * self.page_size).collect();
        let place = |row: usize| {
            let position = start + row;
            pages[position / self.page_size] * self.page_size as u32 + (position % self.page_size) as u32
        };
        let moves = path.iter().enumerate().map(|(to, from)| RowMove { from: place(*from), to: place(to) }).collect();
        let input = StepInput { moves, ..StepInput::default() };
        self.backend.upload(&mut self.step, &input).expect("the moves fit");
        let arguments = MoveRows { step: &self.step, cache: &mut self.cache };
        self.backend.move_rows(arguments).expect("rows move");
    }

    fn input(&self, chunks: &[Chunk<'_>]) -> StepInput {
        let mut input = StepInput::default();
        for chunk in chunks {
            let (first_row, first_page) = (input.rows(), input.pages.len());
            let end = chunk.start + chunk.tokens.len();
            input.pages.extend(self.pages(chunk.sequence, end));
            input.tokens.extend(chunk.tokens);
            let depth = |row: usize| chunk.tree.map_or(row as u32, |(depths, _)| depths[row]);
            input.positions.extend((0..chunk.tokens.len()).map(|row| chunk.start as u32 + depth(row)));
            let first_word = input.mask.len();
            let tree = chunk.tree.map(|(_, mask)| {
                input.mask.extend(mask.chunks(chunk.tokens.len()).map(word));
                TreeMask { committed: chunk.start, words: first_word..input.mask.len() }
            });
            let (rows, pages) = (chunk.tokens.len(), first_page..input.pages.len());
            input.segments.push(Segment { first_row, rows, start: chunk.start, pages, tree });
        }
        input.logit_rows = (0..input.rows() as u32).collect();
        input
    }
}

/// A row of at most 64 flags as a word, lowest bit first.
fn word(row: &[u8]) -> u64 {
    assert!(row.len() <= 64);
    row.iter().enumerate().fold(0, |word, (bit, flag)| word | u64::from(*flag) << bit)
}
