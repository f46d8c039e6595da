//! Which sequences get how many rows of the next step. Integers only, deterministic, and without a clock.
//!
//! Policy:
//! - **Rank** is priority (lower first), then arrival. Waiting sequences are admitted strictly in rank order: one that
//!   does not fit blocks the ones behind it, so large prompts do not starve. Priority decides about admission and
//!   preemption only; every running sequence is served.
//! - **Decodes first.** Every running sequence that only needs its next token gets its row, or its verify rows. While
//!   prompts wait, a quarter of the rows (at least one) stays reserved for them, so neither side starves the other;
//!   where decodes do not all fit, those served longest ago go first.
//! - **Prompts in chunks** fill the rest, in rank order: started ones, then newly admitted ones. A sequence is admitted
//!   only if all its tokens fit into pages now, with one page to spare for each running sequence.
//! - **Preemption.** When a running sequence needs a page and none can be had, the last in rank gives all of its pages
//!   back and waits again (it may be the one that asked); its tokens are computed again later, mostly from the prefix
//!   tree. The first in rank is never preempted, so something always advances.
//! - **Speculation.** A verify entry reserves pages for its longest outcome, falls back to a plain decode before
//!   anything is preempted for it, and gives the surplus back once the accepted count is known.
//! - **Several outputs of one prompt** are separate sequences. The others wait until the first has computed the prompt
//!   and then share its pages through the prefix tree.
//!
//! A step goes through [`Scheduler::plan`], [`Scheduler::launch`] and [`Scheduler::commit`]. Planning may happen while
//! the step before is in flight: it then assumes the longest outcome, and `launch` drops what has ended meanwhile. A plan of
//! plain decodes can even be launched then ([`Scheduler::follows`]): two steps are in flight, and commits come in order.

mod admit;
mod commit;
mod launch;
mod plan;
mod preempt;
mod sequence;
mod state;

#[cfg(test)]
mod tests;

pub use commit::{Progress, ProtocolError};
pub use plan::Plan;
pub use sequence::SequenceId;
pub use state::{Scheduler, SchedulerConfig, SchedulerStats};
