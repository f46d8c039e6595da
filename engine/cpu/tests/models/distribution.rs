//! Chi-square over 200,000 seeds of the first two tokens after a root, sampled with drafts as the executor does it.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::sampler::{SamplerScratch, SamplerState};
use engine::spec::{DraftTree, Walk};
use engine::types::{Sampling, SamplingParams};

use crate::support::{Chunk, Golden, Rig};

const SEEDS: u64 = 200_000;

/// The reference's tree for prompt 0 and the target's logits at its nodes and, where no node was drafted, at others.
struct Target {
    golden: Golden,
    rig: Rig,
    tree: DraftTree,
    nodes: Vec<f32>,
    /// Logits after a first token that is not in the tree.
    others: BTreeMap<u32, Vec<f32>>,
}

impl Target {
    fn new() -> Self {
        let golden = Golden::open("eagle3-tiny");
        let cycle = &golden.runs("tree")[0]["cycles"][0];
        let parents = cycle["parents"].as_array().expect("parents").iter();
        let tree = DraftTree {
            tokens: crate::support::tokens(&cycle["draft_tokens"]),
            parents: parents.map(|parent| parent.as_i64().expect("a node").max(0) as usize).collect(),
            depths: crate::support::tokens(&cycle["depths"]),
        };
        let mut rig = Rig::new(&golden, 16);
        let prompt = golden.prompts[0].clone();
        rig.step(&[Chunk::plain(0, 0, &prompt)]);
        let mask = golden.bytes_of("tree.p0.c0.tree_mask").to_vec();
        let rows = Some((&tree.depths[..], &mask[..]));
        let nodes = rig.step(&[Chunk { sequence: 0, start: prompt.len(), tokens: &tree.tokens, tree: rows }]);
        Self { golden, rig, tree, nodes, others: BTreeMap::new() }
    }

    fn node(&self, node: usize) -> &[f32] {
        &self.nodes[node * 512..(node + 1) * 512]
    }

    /// Logits after the root and `token`: of the tree's node, or by a plain pass.
    fn after(&mut self, token: u32) -> Vec<f32> {
        if let Some(node) = self.tree.child(0, token) {
            return self.node(node).to_vec();
        }
        let (root, start) = (self.tree.tokens[0], self.golden.prompts[0].len());
        let (rig, tokens) = (&mut self.rig, [root, token]);
        let logits = self.others.entry(token).or_insert_with(|| {
            let rows = rig.step(&[Chunk::plain(0, start, &tokens)]);
            rows[512..].to_vec()
        });
        logits.clone()
    }
}

/// What the executor does with one seed: walk the tree; a token that is not in it is followed by a plain step.
fn sample(target: &mut Target, seed: u64, scratch: &mut SamplerScratch) -> (u32, u32) {
    let params = SamplingParams { temperature: 1.6, seed, ..SamplingParams::default() };
    let prompt = Arc::from(target.golden.prompts[0].as_slice());
    let end_tokens = Arc::from([]);
    let mut sampler = SamplerState::new(&Sampling {
        params: Arc::new(params),
        prompt,
        output: vec![target.tree.tokens[0]],
        choice: 0,
        end_tokens,
    });
    let (mut walk, mut drawn) = (Walk::new(), Vec::new());
    for node in 0..target.tree.rows() {
        if walk.wants(node) && drawn.len() < 2 {
            let token = sampler.sample(&mut target.node(node).to_vec(), scratch).expect("finite logits").id;
            sampler.append(token);
            walk.take(&target.tree, token);
            drawn.push(token);
        }
    }
    if drawn.len() < 2 {
        let mut logits = target.after(drawn[0]);
        drawn.push(sampler.sample(&mut logits, scratch).expect("finite logits").id);
    }
    (drawn[0], drawn[1])
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|logit| (f64::from(*logit) / 1.6).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Pearson's statistic over cells with at least 5 expected, the rest in one cell; and its degrees of freedom.
fn chi_square(cells: impl Iterator<Item = (f64, u64)>) -> (f64, f64) {
    let (mut statistic, mut count, mut rest) = (0.0, 0.0, (0.0, 0));
    for (expected, observed) in cells {
        if expected < 5.0 {
            rest = (rest.0 + expected, rest.1 + observed);
        } else {
            statistic += (observed as f64 - expected).powi(2) / expected;
            count += 1.0;
        }
    }
    if rest.0 >= 5.0 {
        return (statistic + (rest.1 as f64 - rest.0).powi(2) / rest.0, count);
    }
    (statistic, count - 1.0)
}

#[track_caller]
fn fits((statistic, freedom): (f64, f64), what: &str) {
    assert!(freedom > 10.0, "{what}: {freedom} degrees of freedom");
    // Four standard deviations of the statistic: one in some ten thousand draws of the seeds goes beyond.
    let bound = freedom + 4.0 * (2.0 * freedom).sqrt();
    assert!(statistic < bound, "{what}: {statistic} with {freedom} degrees of freedom");
}

#[test]
fn first_and_second_token_over_200_000_seeds() {
    let (mut target, mut scratch) = (Target::new(), SamplerScratch::new());
    let (mut first, mut pairs) = (vec![0u64; 512], BTreeMap::<(u32, u32), u64>::new());
    for seed in 0..SEEDS {
        let pair = sample(&mut target, seed, &mut scratch);
        first[pair.0 as usize] += 1;
        *pairs.entry(pair).or_default() += 1;
    }
    let accepted: u64 =
        (0..512).filter(|token| target.tree.child(0, *token).is_some()).map(|token| first[token as usize]).sum();
    assert!(accepted > SEEDS / 5 && accepted < SEEDS * 49 / 50, "both ways are taken: {accepted}");
    let root = softmax(target.node(0));
    let expected = |probability: f64| probability * SEEDS as f64;
    fits(chi_square(root.iter().zip(&first).map(|(p, count)| (expected(*p), *count))), "first token");
    let (mut cells, mut second) = (Vec::new(), vec![(0.0, 0u64); 512]);
    for token in 0..512u32 {
        // What is never seen has next to no probability.
        if first[token as usize] == 0 {
            continue;
        }
        for (next, p) in softmax(&target.after(token)).into_iter().enumerate() {
            let count = pairs.get(&(token, next as u32)).copied().unwrap_or(0);
            cells.push((expected(root[token as usize] * p), count));
            second[next].0 += expected(root[token as usize] * p);
            second[next].1 += count;
        }
    }
    fits(chi_square(cells.into_iter()), "pairs");
    fits(chi_square(second.into_iter()), "second token");
}
