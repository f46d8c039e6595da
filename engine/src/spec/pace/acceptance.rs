//! How many drafted tokens are accepted.

use super::mean::Mean;

/// Verifies before a low acceptance is called suspicious.
const SUSPICIOUS_AFTER: u64 = 200;
/// Tokens per verify below which hardly any draft is accepted: a head that fits its target gives 1.5 and more.
const SUSPICIOUS_BELOW: f64 = 1.2;

/// Counts and recent shares of accepted drafts.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// Verifies by number of accepted tokens.
    histogram: Vec<u64>,
    /// Of the verifies that accepted the tokens before: the recent share that accepted this one too.
    shares: Vec<Mean>,
    recent: Mean,
    drafted: u64,
    warned: bool,
}

impl Acceptance {
    pub(super) fn new(verify_tokens: usize) -> Self {
        let (histogram, shares) = (vec![0; verify_tokens], vec![Mean::default(); verify_tokens.saturating_sub(1)]);
        Self { histogram, shares, recent: Mean::default(), drafted: 0, warned: false }
    }

    pub(super) fn add(&mut self, drafted: usize, accepted: usize) {
        if let Some(count) = self.histogram.get_mut(accepted) {
            *count += 1;
        }
        self.drafted += drafted as u64;
        self.recent.add(accepted as f64 + 1.0);
        let depth = drafted.min(self.shares.len());
        for (position, share) in self.shares[..depth].iter_mut().enumerate().take(accepted + 1) {
            share.add(if accepted > position { 1.0 } else { 0.0 });
        }
        self.warn_once();
    }

    /// Verifies by number of accepted tokens, none first.
    pub fn histogram(&self) -> &[u64] {
        &self.histogram
    }

    pub fn verifies(&self) -> u64 {
        self.histogram.iter().sum()
    }

    pub fn drafted(&self) -> u64 {
        self.drafted
    }

    /// Tokens per verify, bonus included; none before the first one.
    pub fn tokens_per_verify(&self) -> Option<f64> {
        let accepted: u64 = self.histogram.iter().zip(0..).map(|(count, accepted)| count * accepted).sum();
        let verifies = self.verifies();
        (verifies > 0).then(|| 1.0 + accepted as f64 / verifies as f64)
    }

    /// Tokens per verify of a chain of `drafted` tokens; none where a position was never reached.
    pub(super) fn expected(&self, drafted: usize) -> Option<f64> {
        let (mut tokens, mut reached) = (1.0, 1.0);
        for share in self.shares.get(..drafted)? {
            reached *= if share.count() > 0 {
                share.value()
            } else if reached == 0.0 {
                0.0
            } else {
                return None;
            };
            tokens += reached;
        }
        Some(tokens)
    }

    /// What is probably wrong when hardly any draft is accepted.
    pub fn suspicion(&self) -> Option<String> {
        let low = self.verifies() >= SUSPICIOUS_AFTER && self.recent.value() < SUSPICIOUS_BELOW;
        low.then(|| {
            format!(
                "hardly any drafted token is accepted ({:.2} tokens per verify): the output is right, but speculation \
                 costs time for nothing. Likely causes: wrong taps (see the rule in the plan; set --eagle3-taps), a \
                 toggle of the head that its config.json does not name (norm_before_residual, norm_before_fc, fc_norm, \
                 norm_output), a head for another model, or prompts without the chat template that the head was \
                 trained with",
                self.recent.value()
            )
        })
    }

    fn warn_once(&mut self) {
        if self.warned {
            return;
        }
        if let Some(suspicion) = self.suspicion() {
            tracing::warn!("{suspicion}");
            self.warned = true;
        }
    }
}
