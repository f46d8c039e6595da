use engine::backend::{Backend, CacheShape, Segment, StepInput, StepLimits, TreeMask};
use engine::model::{Limits, Pass, Share, attention_heads, cache_layout};
use engine::spec::{DraftModel, HeadCheckpoint, Hidden};
use engine::types::Phase;
use engine_cpu::{Buffer, CpuBackend};

use super::Rig;

const ROWS: usize = 64;
const PAGES: usize = 16;

/// A draft model beside a [`Rig`]'s target, for one sequence, in slot 0.
pub struct DraftRig {
    pub model: DraftModel<CpuBackend>,
    cache: <CpuBackend as Backend>::Cache,
    step: <CpuBackend as Backend>::Step,
    pick: <CpuBackend as Backend>::Step,
    page_size: usize,
    vocabulary: usize,
}

impl DraftRig {
    pub fn new(rig: &mut Rig, head: &HeadCheckpoint) -> Self {
        rig.tap(head.taps.boundaries.clone());
        let limits = Limits { rows: ROWS, logit_rows: 3, context: 256 };
        let model = DraftModel::load(&mut rig.backend, head, &rig.decoder, Share::WHOLE, limits, 2).expect("it loads");
        let layout = cache_layout(&head.config, Share::WHOLE);
        let shape = CacheShape { layers: 1, pages: PAGES, page_size: rig.page_size, layout };
        let limits = StepLimits { rows: ROWS, segments: 1, pages: PAGES, mask_words: ROWS };
        let cache = rig.backend.allocate_cache(&shape).expect("memory");
        let heads = attention_heads(&head.config, Share::WHOLE);
        let mut step = || rig.backend.allocate_step(&limits, heads).expect("memory");
        let (step, pick) = (step(), step());
        Self { model, cache, step, pick, page_size: rig.page_size, vocabulary: head.config.vocabulary }
    }

    /// The pass over committed rows: row `i` reads the target's row `rows[i]` and token `ids[i]`. Returns the logits of
    /// the last row.
    pub fn extend(&mut self, rig: &mut Rig, start: usize, ids: &[u32], rows: &[usize]) -> Vec<f32> {
        let input = self.input(start, (0..ids.len()).map(|row| (start + row) as u32).collect(), ids, None);
        self.upload(rig, &input, rows);
        let features = rig.decoder.taps().expect("taps");
        let mut pass = Pass {
            backend: &mut rig.backend,
            communicator: &mut rig.communicator,
            cache: &mut self.cache,
            step: &self.step,
            phase: Phase::Draft,
            rows: ids.len(),
        };
        self.model.extend(&mut pass, &self.pick, features).expect("a pass");
        // Slot 0 keeps the last row, slot 1 what it has.
        let kept = StepInput { logit_rows: vec![2 + ids.len() as u32 - 1, 1], ..StepInput::default() };
        rig.backend.upload(&mut self.pick, &kept).expect("fits");
        self.model.carry(&mut rig.backend, &self.pick, ids.len()).expect("kept");
        self.logits(rig, ids.len() - 1..ids.len())
    }

    /// A pass over drafted rows at cache position `start`, all at one rotary position, with the rows' visibility among
    /// the drafted ones. Returns their logits.
    pub fn draft(
        &mut self,
        rig: &mut Rig,
        (committed, start): (usize, usize),
        position: u32,
        ids: &[u32],
        from: (Hidden, &[usize]),
        mask: Vec<u64>,
    ) -> Vec<f32> {
        let input = self.input(start, vec![position; ids.len()], ids, Some((committed, mask)));
        self.upload(rig, &input, from.1);
        let mut pass = Pass {
            backend: &mut rig.backend,
            communicator: &mut rig.communicator,
            cache: &mut self.cache,
            step: &self.step,
            phase: Phase::Draft,
            rows: ids.len(),
        };
        self.model.draft(&mut pass, &self.pick, from.0).expect("a pass");
        self.logits(rig, 0..ids.len())
    }

    fn logits(&mut self, rig: &mut Rig, range: std::ops::Range<usize>) -> Vec<f32> {
        let mut all = Vec::new();
        for row in range {
            let mut pass = Pass {
                backend: &mut rig.backend,
                communicator: &mut rig.communicator,
                cache: &mut self.cache,
                step: &self.step,
                phase: Phase::Draft,
                rows: 1,
            };
            let buffer = self.model.logits(&mut pass, row..row + 1).expect("logits");
            let mut values = vec![0.0; self.vocabulary];
            pass.backend.read(buffer, 0, &mut values).expect("read");
            all.extend(values);
        }
        all
    }

    fn upload(&mut self, rig: &mut Rig, input: &StepInput, picks: &[usize]) {
        rig.backend.upload(&mut self.step, input).expect("the pass fits");
        let picks = StepInput { logit_rows: picks.iter().map(|row| *row as u32).collect(), ..StepInput::default() };
        rig.backend.upload(&mut self.pick, &picks).expect("the picks fit");
    }

    fn input(&self, start: usize, positions: Vec<u32>, ids: &[u32], tree: Option<(usize, Vec<u64>)>) -> StepInput {
        let (rows, pages) = (ids.len(), (start + ids.len()).div_ceil(self.page_size));
        let (committed, mask) = tree.map_or((None, Vec::new()), |(committed, mask)| (Some(committed), mask));
        let tree = committed.map(|committed| TreeMask { committed, words: 0..mask.len() });
        StepInput {
            tokens: ids.to_vec(),
            positions,
            segments: vec![Segment { first_row: 0, rows, start, pages: 0..pages, tree }],
            pages: (0..pages as u32).collect(),
            mask,
            logit_rows: (0..rows as u32).collect(),
            moves: Vec::new(),
        }
    }

    pub fn read(rig: &mut Rig, buffer: &Buffer, elements: usize) -> Vec<f32> {
        let mut values = vec![0.0; elements];
        rig.backend.read(buffer, 0, &mut values).expect("read");
        values
    }
}
