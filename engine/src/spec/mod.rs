//! EAGLE-3: speculative decoding that changes no token.
//!
//! Nouns: a [`HeadCheckpoint`] is opened and checked against its target; its [`Taps`] say which residual-stream
//! boundaries it reads and its [`DraftVocabulary`] which tokens it can draft; a [`DraftShape`] says how much is drafted;
//! the [`DraftModel`] computes; a [`Drafter`] is one rank's part in a cycle: it grows a [`DraftTree`] per sequence,
//! which the target verifies in one pass; a [`Walk`] finds what is accepted; an [`Agreement`] keeps the ranks together;
//! a [`Pace`] knows whether it pays and chooses the width.
//!
//! A cycle: draft from the last committed row's output, verify, accept, make the accepted path consecutive in the
//! target's cache, and run the draft model over the accepted rows with the target's real features, so that its cache is
//! always that of real features. Every step does this last part, whether it speculates or not: the head stays in step.
//! Chains can be drafted by the device on its own ([`Drafter::draft_chains`]), and the head can follow before the host
//! knows what was accepted ([`Drafter::extend_ahead`]): then nothing waits in between.

mod agreement;
mod candidates;
mod checkpoint;
mod drafter;
mod model;
mod pace;
mod shape;
mod taps;
mod tree;
mod vocabulary;
mod walk;

pub use agreement::{Agreement, Decision, Disagreement, Outcome};
pub use checkpoint::{HeadCheckpoint, Toggles, open_head};
pub use drafter::{BACKLOG_STEPS, DraftStep, Drafter, DrafterConfig, EntryRows};
pub use model::{DraftModel, Hidden};
pub use pace::{Acceptance, Pace, PaceReport, PaceSettings, PacedStep, WidthReport};
pub use shape::DraftShape;
pub use taps::{TapRule, Taps};
pub use tree::{Candidate, DraftTree, TreeBuilder};
pub use vocabulary::DraftVocabulary;
pub use walk::Walk;
