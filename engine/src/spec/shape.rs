//! How much is drafted: levels, branches, tokens to verify.

use serde::Serialize;

/// A chain, or a tree that grows by its best branches. Names and meaning are SGLang's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DraftShape {
    /// Levels: draft passes of a cycle, the one that follows the verify pass included.
    pub steps: usize,
    /// Branches of each node, and nodes of a level that go on.
    pub topk: usize,
    /// Tokens that the target verifies, root included.
    pub verify_tokens: usize,
}

/// More levels than this never pay, and each is a pass.
const MOST_STEPS: usize = 32;
const MOST_BRANCHES: usize = 64;
/// The tree of the reference implementation has 60.
const MOST_TOKENS: usize = 256;

impl DraftShape {
    /// A chain of `steps` drafted tokens.
    pub const fn chain(steps: usize) -> Self {
        Self { steps, topk: 1, verify_tokens: steps + 1 }
    }

    /// Checks what a user asks for. Errors: numbers that contradict each other, or are out of range.
    pub fn new(steps: usize, topk: usize, verify_tokens: usize) -> Result<Self, String> {
        for (name, value, most) in [
            ("speculative-num-steps", steps, MOST_STEPS),
            ("speculative-eagle-topk", topk, MOST_BRANCHES),
            ("speculative-num-draft-tokens", verify_tokens, MOST_TOKENS),
        ] {
            if value == 0 || value > most {
                return Err(format!("--{name} is {value}; give 1 to {most}"));
            }
        }
        if topk == 1 && verify_tokens != steps + 1 {
            return Err(format!(
                "--speculative-num-draft-tokens is {verify_tokens}, but a chain (--speculative-eagle-topk 1) of {steps} \
                 steps verifies {}, root included",
                steps + 1
            ));
        }
        let largest = 1 + topk + (steps - 1) * topk * topk;
        if verify_tokens < 2 || verify_tokens > largest {
            return Err(format!(
                "--speculative-num-draft-tokens is {verify_tokens}; a tree of {steps} steps with {topk} branches has 2 to \
                 {largest} tokens, root included"
            ));
        }
        Ok(Self { steps, topk, verify_tokens })
    }

    /// The part of this shape that fits into fewer tokens to verify.
    pub fn within(self, verify_tokens: usize) -> Self {
        let drafted = verify_tokens.saturating_sub(1);
        Self {
            steps: self.steps.min(drafted),
            topk: self.topk.min(drafted.max(1)),
            verify_tokens: self.verify_tokens.min(verify_tokens),
        }
    }

    /// Cache positions of a sequence that draft passes use beyond its committed tokens.
    pub fn scratch_rows(self) -> usize {
        self.topk * (self.steps - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::DraftShape;

    #[test]
    fn the_usual_shapes_are_taken_and_contradictions_refused() {
        for (steps, topk, tokens) in [(3, 1, 4), (5, 4, 8), (4, 4, 16), (6, 10, 60), (1, 1, 2)] {
            assert!(DraftShape::new(steps, topk, tokens).is_ok(), "{steps} {topk} {tokens}");
        }
        assert_eq!(DraftShape::new(3, 1, 4).unwrap(), DraftShape::chain(3));
        assert!(DraftShape::new(3, 1, 5).unwrap_err().contains("verifies 4"));
        assert!(DraftShape::new(1, 2, 4).unwrap_err().contains("2 to 3 tokens"));
        assert!(DraftShape::new(0, 1, 1).unwrap_err().contains("speculative-num-steps is 0"));
    }

    #[test]
    fn a_shape_shrinks_to_the_rows_that_are_left() {
        assert_eq!(DraftShape::chain(4).within(3), DraftShape::chain(2));
        let tree = DraftShape::new(4, 4, 16).unwrap();
        assert_eq!(tree.within(16), tree);
        assert_eq!(tree.within(2), DraftShape::chain(1));
    }
}
