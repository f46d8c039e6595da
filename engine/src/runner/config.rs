//! What an operator may choose about the engine's loop; everything else follows from the executor's capacity.

use std::sync::Arc;

use crate::spec::PaceSettings;

/// Settings of the engine's loop.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// End-of-sequence tokens of the model; the request's own stop tokens are added to them.
    pub end_tokens: Arc<[u32]>,
    /// Most requests that wait for admission; the next one is refused.
    pub max_waiting: u32,
    /// Most prompt tokens that wait for admission.
    pub max_waiting_tokens: u64,
    /// Most outputs of one request (`n`).
    pub max_choices: u32,
    /// Most prompt rows in one step, so that a long prompt does not delay running outputs; 0 means no limit but the
    /// executor's rows.
    pub max_prefill_rows: u32,
    /// Reuse pages of equal prompt prefixes across requests.
    pub prefix_cache: bool,
    /// Plan the next step and send events while a step is in flight. Answers are the same either way.
    pub overlap: bool,
    /// How to speculate; none where the executor has no draft model.
    pub speculation: Option<PaceSettings>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            end_tokens: Arc::from([]),
            max_waiting: 1024,
            max_waiting_tokens: u64::MAX,
            max_choices: 128,
            max_prefill_rows: 0,
            prefix_cache: true,
            overlap: true,
            speculation: None,
        }
    }
}
