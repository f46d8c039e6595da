//! The nouns of the engine: plain data that imports nothing of ours.

mod batch;
mod output;
mod patience;
mod request;
mod sampling;

pub use batch::{Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SlotId, chosen, chosen_index};
pub use output::{EntryOutput, FinishReason, StepOutput, StepTiming, TokenLogprobs, TokenOutput};
pub use patience::Patience;
pub use request::{EventSink, Request, RequestEvent, RequestFailure, RequestId, Usage};
pub use sampling::SamplingParams;
