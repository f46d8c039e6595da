use engine::types::SamplingParams;

use super::Golden;

/// Numbers that look random, for cases that are the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub fn prompt(&mut self, golden: &Golden, longest: u64) -> Vec<u32> {
        let length = 1 + self.below(longest) as usize;
        // Half of them begin as the model's language does.
        let known = &golden.prompts[self.below(3) as usize];
        let mut prompt: Vec<u32> =
            if self.below(2) == 0 { known.iter().copied().take(length).collect() } else { Vec::new() };
        while prompt.len() < length {
            prompt.push(self.below(512) as u32);
        }
        prompt
    }

    /// Parameters of every kind, alone and together.
    pub fn params(&mut self) -> SamplingParams {
        let pick = |numbers: &mut Self, values: &[f32]| values[numbers.below(values.len() as u64) as usize];
        SamplingParams {
            temperature: pick(self, &[0.0, 0.3, 0.7, 1.0, 1.5]),
            top_k: [0, 0, 1, 5, 40][self.below(5) as usize],
            top_p: pick(self, &[1.0, 1.0, 0.9, 0.5]),
            min_p: pick(self, &[0.0, 0.0, 0.05]),
            seed: self.below(1 << 30),
            repetition_penalty: pick(self, &[1.0, 1.0, 1.3]),
            presence_penalty: pick(self, &[0.0, 0.0, 0.6]),
            frequency_penalty: pick(self, &[0.0, 0.0, 0.4]),
            logit_bias: if self.below(3) == 0 { vec![(272, -4.0), (238, 2.5)] } else { Vec::new() },
            stop_token_ids: if self.below(2) == 0 { vec![445, 272, 63] } else { Vec::new() },
            min_tokens: [0, 0, 7][self.below(3) as usize],
            max_tokens: 1 + self.below(30) as u32,
            n: 1 + self.below(3) as u32,
            logprobs: [None, Some(0), Some(3)][self.below(3) as usize],
            ..SamplingParams::default()
        }
    }
}
