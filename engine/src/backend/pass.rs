use crate::types::Phase;

/// What a pass depends on beside the uploaded step. Passes of equal keys make the same calls with the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PassKey {
    /// Tells passes of different models or kinds apart.
    pub name: &'static str,
    pub phase: Phase,
    /// Rows that are computed.
    pub rows: usize,
    /// Rows that logits are computed for: of these, or, where a pass goes on with what it chose, of every round.
    pub logit_rows: usize,
}

impl PassKey {
    /// The name of the served model's passes.
    pub const TARGET: &'static str = "target";
}
