//! How the ranks of one executor come to the same decisions: rank 0 makes them, all act on them.
//!
//! Ranks are threads of one process, so a decision travels as data between hosts' threads; no device is involved.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::tree::Candidate;
use crate::collective::{CollectiveError, Operation, Site};
use crate::types::Patience;

/// What a step made of one batch entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Chosen tokens.
    pub tokens: Vec<u32>,
    /// Rows of the entry that stay: accepted nodes of a verify entry, none said for all rows of others.
    pub path: Vec<usize>,
}

/// What rank 0 decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Candidates of a draft pass, row by row, equally many for each.
    Candidates(Vec<Candidate>),
    /// One outcome per entry of the batch.
    Outcomes(Vec<Outcome>),
    /// The step gave nothing: its sequences are lost.
    Lost,
}

/// A decision of another kind than the one that is due: a defect of the engine.
pub(super) fn out_of_step(due: &str) -> Disagreement {
    let message = format!("rank 0 decided something else than the {due} that were due");
    CollectiveError { operation: Operation::Broadcast, site: Site::Draft, message }
}

/// One rank's end.
pub enum Agreement {
    Leader(Vec<Sender<Arc<Decision>>>),
    Follower { decisions: Receiver<Arc<Decision>>, deadline: Duration },
}

/// Rank 0 did not decide in time, or is gone.
pub type Disagreement = CollectiveError;

impl Agreement {
    /// The ends of `world_size` ranks, rank 0 first. A follower waits no longer than `deadline` for a decision.
    pub fn group(world_size: usize, deadline: Duration) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (1..world_size).map(|_| channel()).unzip();
        let followers = receivers.into_iter().map(|decisions| Self::Follower { decisions, deadline });
        std::iter::once(Self::Leader(senders)).chain(followers).collect()
    }

    /// Whether this rank decides.
    pub fn leads(&self) -> bool {
        matches!(self, Self::Leader(_))
    }

    /// On rank 0 tells everyone `decision`, which it must have; on the others waits for it.
    pub fn share(&mut self, decision: Option<Decision>) -> Result<Arc<Decision>, Disagreement> {
        match self {
            Self::Leader(followers) => {
                let decision = Arc::new(decision.unwrap_or(Decision::Lost));
                // A follower that is gone has said why.
                followers.iter().for_each(|follower| drop(follower.send(Arc::clone(&decision))));
                Ok(decision)
            }
            Self::Follower { decisions, deadline } => {
                let decided = Patience::new(*deadline).wait(|slice| match decisions.recv_timeout(slice) {
                    Err(RecvTimeoutError::Timeout) => None,
                    decided => Some(decided.ok()),
                });
                decided.flatten().ok_or_else(|| {
                    let message = "rank 0 has not decided: it is gone, or has stalled".to_owned();
                    CollectiveError { operation: Operation::Broadcast, site: Site::Draft, message }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_get_what_the_leader_decides_and_an_error_when_it_is_gone() {
        let mut ends = Agreement::group(3, Duration::from_millis(50));
        let candidates = Decision::Candidates(vec![Candidate { token: 3, log_probability: -0.5 }]);
        assert_eq!(*ends[0].share(Some(candidates.clone())).unwrap(), candidates);
        assert_eq!(*ends[1].share(None).unwrap(), candidates);
        assert_eq!(*ends[2].share(None).unwrap(), candidates);
        assert!(ends[2].share(None).unwrap_err().to_string().contains("rank 0 has not decided"), "it is late");
        drop(ends.remove(0));
        assert!(ends[0].share(None).unwrap_err().to_string().contains("rank 0"));
    }
}
