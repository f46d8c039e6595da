//! Every tree of the reference's runs, node by node, and the caches that later trees rest on.

use std::sync::Arc;
use std::time::Duration;

use engine::backend::{Backend, chosen_index};
use engine::model::Share;
use engine::spec::{Agreement, DraftShape, DraftStep, DraftTree, Drafter, DrafterConfig, Outcome, Walk};
use engine::types::{Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SamplingParams, SlotId};
use engine_cpu::CpuBackend;
use serde_json::Value;

use crate::support::{Chunk, Golden, Rig, tokens};

struct Cycles<'a> {
    golden: &'a Golden,
    rig: Rig,
    drafter: Drafter<CpuBackend>,
    agreement: Agreement,
    shape: DraftShape,
}

impl<'a> Cycles<'a> {
    fn new(golden: &'a Golden, shape: DraftShape) -> Self {
        let (head, mut rig) = (golden.head(), Rig::new(golden, 16));
        rig.tap(head.taps.boundaries.clone());
        let config = DrafterConfig { shape, pages: 16, page_size: 16, slots: 2, rows: 64, logit_rows: 3, context: 256 };
        let drafter =
            Drafter::load(&mut rig.backend, &head, &rig.decoder, Share::WHOLE, config).expect("the head loads");
        rig.backend.allocate_choices(config.places().end).expect("memory");
        let agreement = Agreement::group(1, Duration::from_secs(1)).remove(0);
        Self { golden, rig, drafter, agreement, shape }
    }

    fn entry(&self, phase: Phase, tokens: &[u32], start: usize) -> BatchEntry {
        BatchEntry {
            // Slot 1 of two, so that its place is not the first one anywhere.
            slot: SlotId(1),
            phase,
            tokens: tokens.to_vec(),
            start: start as u32,
            pages: (0..16).rev().map(PageId).collect(),
            verify_tokens: if phase == Phase::Verify { self.shape.verify_tokens as u32 } else { 0 },
            logits: LogitsRows::Last,
            sample: true,
            begin: (start == 0).then(|| Sampling {
                params: Arc::new(SamplingParams::default()),
                prompt: Arc::from(tokens),
                output: Vec::new(),
                choice: 0,
                end_tokens: Arc::from([]),
            }),
        }
    }

    fn draft(&mut self, batch: &Batch) -> Option<DraftTree> {
        let (backend, communicator, agreement) =
            (&mut self.rig.backend, &mut self.rig.communicator, &mut self.agreement);
        self.drafter.begin(backend, batch).expect("kept");
        let mut at = DraftStep { backend, communicator, agreement, batch };
        let tree = self.drafter.draft(&mut at).expect("drafts").remove(0);
        if self.drafter.drafts_alone(1) {
            assert_eq!(self.draft_alone(batch), tree, "what the device drafts on its own");
        }
        tree
    }

    /// The same by the backend's own choices.
    fn draft_alone(&mut self, batch: &Batch) -> Option<DraftTree> {
        let (backend, communicator) = (&mut self.rig.backend, &mut self.rig.communicator);
        let mut tree = self.drafter.draft_chains(backend, communicator, batch).expect("drafts").remove(0)?;
        let mut choices = vec![0; self.drafter.choices()];
        backend.read_choices(0, &mut choices).expect("read");
        for token in &mut tree.tokens {
            *token = chosen_index(*token).map_or(*token, |place| choices[place]);
        }
        Some(tree)
    }

    fn extend(&mut self, batch: &Batch, outcome: Outcome) {
        let (backend, communicator, agreement) =
            (&mut self.rig.backend, &mut self.rig.communicator, &mut self.agreement);
        let features = self.rig.decoder.taps().expect("taps");
        let mut at = DraftStep { backend, communicator, agreement, batch };
        self.drafter.extend(&mut at, features, &[0], &[outcome]).expect("a pass");
    }

    fn run(&mut self, prompt: &[u32], cycles: &[Value], what: &str) {
        let root = tokens(&cycles[0]["draft_tokens"])[0];
        let batch = Batch { entries: vec![self.entry(Phase::Prefill, prompt, 0)], ..Batch::default() };
        assert_eq!(self.draft(&batch), None, "nothing to verify");
        self.rig.step(&[Chunk::plain(0, 0, prompt)]);
        self.extend(&batch, Outcome { tokens: vec![root], path: Vec::new() });
        for (number, cycle) in cycles.iter().enumerate() {
            let what = format!("{what}, cycle {number}");
            let (start, root) =
                (cycle["committed_before"].as_u64().expect("a number") as usize, tokens(&cycle["draft_tokens"])[0]);
            let batch = Batch { entries: vec![self.entry(Phase::Verify, &[root], start)], ..Batch::default() };
            let tree = self.draft(&batch).expect("a tree");
            assert_eq!(tree.tokens, tokens(&cycle["draft_tokens"]), "{what}");
            assert_eq!(tree.depths, tokens(&cycle["depths"]), "{what}");
            let parents = cycle["parents"].as_array().expect("parents").iter();
            let parents: Vec<usize> = parents.map(|parent| parent.as_i64().expect("a node").max(0) as usize).collect();
            assert_eq!(tree.parents, parents, "{what}");
            let outcome = self.verify(&tree, start);
            let path: Vec<usize> = tokens(&cycle["accepted_path"]).into_iter().map(|node| node as usize).collect();
            assert_eq!(outcome.path, path, "{what}");
            assert_eq!(outcome.tokens.last(), Some(&tokens(&serde_json::json!([cycle["bonus"]]))[0]), "{what}");
            self.rig.compact(0, start, &path);
            self.extend(&batch, outcome);
        }
    }

    /// The target's pass and the greedy way through the tree.
    fn verify(&mut self, tree: &DraftTree, start: usize) -> Outcome {
        let rows = tree.rows();
        let mut words = Vec::new();
        tree.mask(&mut words);
        let seen: Vec<u8> = words.iter().flat_map(|word| (0..rows).map(move |bit| (word >> bit & 1) as u8)).collect();
        let mask = (!tree.is_chain()).then_some((&tree.depths[..], &seen[..]));
        let logits = self.rig.step(&[Chunk { sequence: 0, start, tokens: &tree.tokens, tree: mask }]);
        let (mut walk, mut chosen) = (Walk::new(), Vec::new());
        for (node, row) in logits.chunks(self.golden.config.vocabulary).enumerate() {
            if walk.wants(node) {
                let best = (0..row.len()).max_by(|left, right| row[*left].total_cmp(&row[*right])).expect("a token");
                chosen.push(best as u32);
                walk.take(tree, best as u32);
            }
        }
        Outcome { tokens: chosen, path: walk.path().to_vec() }
    }
}

#[test]
fn trees_paths_and_bonus_tokens_of_whole_runs() {
    let golden = Golden::open("eagle3-tiny");
    for (name, steps, topk, verified) in [("tree", 4, 4, 16), ("chain", 4, 1, 5), ("wide", 6, 10, 60)] {
        let shape = DraftShape::new(steps, topk, verified).expect("a shape");
        for run in golden.runs(name) {
            let prompt = run["prompt"].as_u64().expect("a number") as usize;
            let cycles = run["cycles"].as_array().expect("cycles");
            Cycles::new(&golden, shape).run(&golden.prompts[prompt], cycles, &format!("{name}, prompt {prompt}"));
        }
    }
}
