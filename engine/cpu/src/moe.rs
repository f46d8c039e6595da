//! Mixture of experts: the router's choice and the experts' sum.

use engine::backend::{BackendError, ExpertParts};
use engine::model::{Activation, MoeConfig, RouterScore};

use crate::elementwise::softmax;
use crate::kernels::Compute;
use crate::matrix::Matrix;

/// Experts of each row with their weights, `[rows, per_token]`.
pub struct Routes {
    per_token: usize,
    experts: Vec<u32>,
    weights: Vec<f32>,
}

/// All experts of a layer.
pub struct Experts {
    experts: Vec<Expert>,
}

struct Expert {
    gate_up: Matrix,
    down: Matrix,
}

/// Reused between calls.
#[derive(Default)]
pub struct Scratch {
    scores: Vec<f32>,
    choice: Vec<f32>,
    order: Vec<u32>,
    rows: Vec<(usize, f32)>,
    gathered: Vec<f32>,
    gate_up: Vec<f32>,
    activated: Vec<f32>,
    result: Vec<f32>,
}

impl Routes {
    pub fn new(rows: usize, per_token: usize) -> Self {
        Self { per_token, experts: vec![0; rows * per_token], weights: vec![0.0; rows * per_token] }
    }

    /// Chooses for one row. Ties go to the smaller expert.
    pub fn choose(
        &mut self,
        row: usize,
        config: &MoeConfig,
        logits: &[f32],
        bias: Option<&[f32]>,
        scratch: &mut Scratch,
    ) {
        let Scratch { scores, choice, order, .. } = scratch;
        scores.clear();
        scores.extend_from_slice(logits);
        match config.score {
            RouterScore::Softmax => softmax(scores),
            RouterScore::Sigmoid => scores.iter_mut().for_each(|score| *score = 1.0 / (1.0 + (-*score).exp())),
        }
        choice.clone_from(scores);
        if let Some(bias) = bias {
            choice.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
        }
        if config.groups > 1 {
            mask_groups(choice, config.groups, config.top_groups);
        }
        rank(choice, order);
        let chosen = row * self.per_token..(row + 1) * self.per_token;
        let total: f32 = order[..self.per_token].iter().map(|expert| scores[*expert as usize]).sum();
        let factor = config.scaling as f32 / if config.normalise { total + 1e-20 } else { 1.0 };
        for (place, expert) in chosen.zip(order.iter()) {
            self.experts[place] = *expert;
            self.weights[place] = scores[*expert as usize] * factor;
        }
    }

    /// The first `rows` rows that chose `expert`, with their weights.
    fn of(&self, expert: usize, rows: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        let chosen = self.experts[..rows * self.per_token].iter().zip(&self.weights).enumerate();
        let matching = chosen.filter(move |(_, (other, _))| **other as usize == expert);
        matching.map(|(place, (_, weight))| (place / self.per_token, *weight))
    }
}

/// Indices by descending score, ties by ascending index.
fn rank(scores: &[f32], order: &mut Vec<u32>) {
    order.clear();
    order.extend(0..scores.len() as u32);
    order.sort_by(|left, right| scores[*right as usize].total_cmp(&scores[*left as usize]).then(left.cmp(right)));
}

/// Leaves only the experts of the best groups; a group's score is the sum of its two best experts.
fn mask_groups(choice: &mut [f32], groups: usize, top_groups: usize) {
    let size = choice.len() / groups;
    let mut order = Vec::new();
    let best_two = |group: &[f32]| {
        let mut best = [f32::NEG_INFINITY; 2];
        for score in group {
            if *score > best[0] {
                best = [*score, best[0]];
            } else if *score > best[1] {
                best[1] = *score;
            }
        }
        if group.len() == 1 { best[0] } else { best[0] + best[1] }
    };
    let scores: Vec<f32> = choice.chunks(size).map(best_two).collect();
    rank(&scores, &mut order);
    for group in order.iter().skip(top_groups) {
        choice[*group as usize * size..(*group as usize + 1) * size].fill(f32::NEG_INFINITY);
    }
}

impl Experts {
    pub fn load(parts: &[ExpertParts<'_>]) -> Result<Self, BackendError> {
        let load = |parts: &ExpertParts<'_>| {
            let gate_up = Matrix::load(&[parts.gate.clone(), parts.up.clone()], None)?;
            Ok(Expert { gate_up, down: Matrix::load(std::slice::from_ref(&parts.down), None)? })
        };
        Ok(Self { experts: parts.iter().map(load).collect::<Result<_, _>>()? })
    }

    /// Every row's weighted sum of its experts' results, in ascending order of expert, so that a row's sum does not
    /// depend on the rows beside it. `input` and `output` are `[rows, width]`.
    pub fn mix(
        &self,
        compute: &Compute,
        routes: &Routes,
        activation: Activation,
        input: &[f32],
        scratch: &mut Scratch,
        output: &mut [f32],
    ) {
        output.fill(0.0);
        for (index, expert) in self.experts.iter().enumerate() {
            let width = expert.down.rows;
            scratch.rows.clear();
            scratch.rows.extend(routes.of(index, input.len() / width));
            if scratch.rows.is_empty() {
                continue;
            }
            scratch.gathered.clear();
            for (row, _) in &scratch.rows {
                scratch.gathered.extend_from_slice(&input[row * width..(row + 1) * width]);
            }
            expert.run(compute, activation, scratch);
            for ((row, weight), result) in scratch.rows.iter().zip(scratch.result.chunks_exact(width)) {
                let output = &mut output[row * width..(row + 1) * width];
                output.iter_mut().zip(result).for_each(|(sum, value)| *sum += weight * value);
            }
        }
    }
}

impl Expert {
    /// The gathered rows to `scratch.result`.
    fn run(&self, compute: &Compute, activation: Activation, scratch: &mut Scratch) {
        let Scratch { rows, gathered, gate_up, activated, result, .. } = scratch;
        let (rows, width) = (rows.len(), self.down.columns);
        gate_up.resize(rows * 2 * width, 0.0);
        activated.resize(rows * width, 0.0);
        result.resize(rows * self.down.rows, 0.0);
        self.gate_up.multiply(compute, gathered, gate_up, rows);
        if width > 0 {
            compute.activate(activation, gate_up, width, activated);
        }
        self.down.multiply(compute, activated, result, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::{MoeConfig, RouterScore, Routes, Scratch};

    fn config(score: RouterScore) -> MoeConfig {
        MoeConfig {
            experts: 6,
            experts_per_token: 2,
            intermediate: 1,
            shared_experts: 0,
            shared_intermediate: 0,
            score,
            correction_bias: true,
            groups: 3,
            top_groups: 1,
            normalise: false,
            scaling: 2.0,
        }
    }

    fn choose(config: &MoeConfig, logits: &[f32], bias: Option<&[f32]>) -> (Vec<u32>, Vec<f32>) {
        let mut routes = Routes::new(1, config.experts_per_token);
        routes.choose(0, config, logits, bias, &mut Scratch::default());
        (routes.experts, routes.weights)
    }

    /// Two of six experts, of the one best group of two. Biases are so low that every choice is negative: an expert
    /// outside the group must not win for being 0, and the weights are the scores without the bias.
    #[test]
    fn groups_mask_and_the_bias_only_chooses() {
        let bias = [-5.0, -5.0, -4.0, -4.0, -5.0, -5.0];
        let (experts, weights) = choose(&config(RouterScore::Sigmoid), &[0.0, 9.0, -1.0, 0.0, 1.0, 1.0], Some(&bias));
        assert_eq!(experts, [3, 2]);
        let sigmoid = |logit: f32| 1.0 / (1.0 + (-logit).exp());
        assert!((weights[0] - 2.0 * sigmoid(0.0)).abs() < 1e-6 && (weights[1] - 2.0 * sigmoid(-1.0)).abs() < 1e-6);
    }

    #[test]
    fn ties_go_to_the_smaller_expert_and_weights_add_up_when_normalised() {
        let config = MoeConfig { groups: 1, normalise: true, scaling: 1.0, ..config(RouterScore::Softmax) };
        let (experts, weights) = choose(&config, &[1.0, 2.0, 2.0, 1.0, 2.0, 0.0], None);
        assert_eq!(experts, [1, 2]);
        assert!(weights.iter().all(|weight| (weight - 0.5).abs() < 1e-6), "{weights:?}");
    }
}
