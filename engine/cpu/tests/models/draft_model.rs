//! The draft model against the reference implementation of EAGLE-3, tensor by tensor: wrong taps, residuals or
//! positions hardly change what this small head drafts, so acceptance would not show them.

use engine::spec::Hidden;
use serde_json::{Value, json};

use crate::support::{Chunk, DraftRig, Golden, Rig, assert_close};

/// One sequence of the configuration `tree`.
struct Case {
    golden: Golden,
    rig: Rig,
    draft: DraftRig,
    prompt: usize,
}

impl Case {
    fn new(prompt: usize) -> Self {
        let golden = Golden::open("eagle3-tiny");
        let mut rig = Rig::new(&golden, 4);
        let draft = DraftRig::new(&mut rig, &golden.head());
        Self { golden, rig, draft, prompt }
    }

    fn name(&self, cycle: usize, tensor: &str) -> String {
        format!("tree.p{}.c{cycle}.{tensor}", self.prompt)
    }

    fn check(&mut self, cycle: usize, tensor: &str, actual: &[f32]) {
        let name = self.name(cycle, tensor);
        assert_close(actual, &self.golden.floats(&name), &name);
    }

    /// The draft model over committed rows, which are these rows of the target's last step.
    fn extend(&mut self, cycle: usize, start: usize, rows: &[usize]) {
        let ids = self.golden.integers(&self.name(cycle, "extend_ids"));
        let logits = self.draft.extend(&mut self.rig, start, &ids, rows);
        self.check(cycle, "extend_logits_last", &logits);
        let elements = ids.len() * self.golden.config.hidden;
        let joined = DraftRig::read(&mut self.rig, self.draft.model.inputs(), elements);
        self.check(cycle, "fc_out", &joined);
        let outputs = DraftRig::read(&mut self.rig, self.draft.model.outputs(), elements);
        self.check(cycle, "extend_hidden", &outputs);
    }

    /// The later levels of a cycle, for a draft cache of `committed` rows.
    fn levels(&mut self, cycle: usize, committed: usize) {
        for step in 1..=3 {
            let name = |tensor: &str| format!("step{step}.{tensor}");
            let ids = self.golden.integers(&self.name(cycle, &name("ids")));
            let positions = self.golden.integers(&self.name(cycle, &name("positions")));
            let (rows, seen) = (ids.len(), self.golden.bytes_of(&self.name(cycle, &name("tree_mask"))).to_vec());
            let before = rows * (step - 1);
            let mask: Vec<u64> = seen.chunks(before + rows).map(word).collect();
            let parent = |mask: &u64| (mask & ((1 << before) - 1)).ilog2() as usize + rows - before;
            let from: (Hidden, Vec<usize>) = match step {
                1 => (Hidden::Carried, vec![0; rows]),
                _ => (Hidden::Previous, mask.iter().map(parent).collect()),
            };
            let place = (committed, committed + before);
            let logits = self.draft.draft(&mut self.rig, place, positions[0], &ids, (from.0, &from.1), mask);
            let elements = rows * self.golden.config.hidden;
            let inputs = DraftRig::read(&mut self.rig, self.draft.model.inputs(), elements);
            self.check(cycle, &name("in_hidden"), &inputs);
            let outputs = DraftRig::read(&mut self.rig, self.draft.model.outputs(), elements);
            self.check(cycle, &name("hidden"), &outputs);
            self.check(cycle, &name("logits"), &logits);
        }
    }
}

fn word(row: &[u8]) -> u64 {
    row.iter().enumerate().fold(0, |word, (bit, flag)| word | u64::from(*flag) << bit)
}

#[test]
fn passes_over_prompts_paths_and_drafted_rows() {
    for prompt in 0..4 {
        let mut case = Case::new(prompt);
        let tokens = case.golden.prompts[prompt].clone();
        case.rig.step(&[Chunk::plain(0, 0, &tokens)]);
        let rows: Vec<usize> = (0..tokens.len()).collect();
        case.extend(0, 0, &rows);
        case.levels(0, tokens.len());
        // The target verifies the reference's tree; the accepted rows feed the next pass.
        let (drafted, depths) =
            (case.golden.integers(&case.name(0, "draft_tokens")), case.golden.integers(&case.name(0, "tree_depths")));
        let mask = case.golden.bytes_of(&case.name(0, "tree_mask")).to_vec();
        let tree = Some((&depths[..], &mask[..]));
        case.rig.step(&[Chunk { sequence: 0, start: tokens.len(), tokens: &drafted, tree }]);
        let run = &case.golden.runs("tree")[prompt];
        let path = crate::support::tokens(&run["cycles"][0]["accepted_path"]);
        let path: Vec<usize> = path.into_iter().map(|row| row as usize).collect();
        case.extend(1, tokens.len(), &path);
        case.levels(1, tokens.len() + path.len());
    }
}

/// Extra norms of newer heads, and combinations of them as published heads have them.
#[test]
fn variants_of_the_layer() {
    const FLAGS: [(&str, &str); 4] =
        [("nbr", "norm_before_residual"), ("nbf", "norm_before_fc"), ("fcn", "fc_norm"), ("no", "norm_output")];
    let golden = Golden::open("eagle3-tiny");
    let variants = golden.variants();
    assert_eq!(variants.len(), 6);
    for (variant, description) in variants {
        let change = |config: &mut Value| {
            for (short, key) in FLAGS {
                config[key] = json!(description["flags"][short] == json!(true));
            }
        };
        let head = golden.head_with(change);
        let mut rig = Rig::new(&golden, 16);
        let mut draft = DraftRig::new(&mut rig, &head);
        let tokens = &golden.prompts[0];
        rig.step(&[Chunk::plain(0, 0, tokens)]);
        let ids = golden.integers("tree.p0.c0.extend_ids");
        let rows: Vec<usize> = (0..tokens.len()).collect();
        let check = |tensor: &str, actual: &[f32]| {
            let name = format!("variant.{variant}.{tensor}");
            assert_close(actual, &golden.floats(&name), &name);
        };
        check("extend_logits_last", &draft.extend(&mut rig, 0, &ids, &rows));
        let elements = ids.len() * golden.config.hidden;
        check("fc_out", &DraftRig::read(&mut rig, draft.model.inputs(), elements));
        check("extend_hidden", &DraftRig::read(&mut rig, draft.model.outputs(), elements));
        let drafted = crate::support::tokens(&description["draft_tokens"]);
        for step in 1..=3 {
            let from = if step == 1 { Hidden::Carried } else { Hidden::Previous };
            let (committed, mask) = (tokens.len(), vec![(1 << step) - 1]);
            let (place, position) = ((committed, committed + step - 1), (committed + step - 1) as u32);
            let id = &drafted[step..=step];
            let logits = draft.draft(&mut rig, place, position, id, (from, &[0]), mask);
            check(&format!("step{step}.logits"), &logits);
            let hidden = golden.config.hidden;
            check(&format!("step{step}.in_hidden"), &DraftRig::read(&mut rig, draft.model.inputs(), hidden));
            check(&format!("step{step}.hidden"), &DraftRig::read(&mut rig, draft.model.outputs(), hidden));
        }
    }
}
