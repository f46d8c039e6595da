//! What is done to single logits before a token is chosen.

use crate::types::SamplingParams;

/// What is done to one token's logit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogitChange {
    pub token: u32,
    /// Added first.
    pub bias: f32,
    /// Times that the token is in the output.
    pub outputs: u32,
    /// The token is in the output, or in a prompt that counts.
    pub occurred: bool,
    /// The token cannot be chosen.
    pub masked: bool,
}

impl LogitChange {
    /// The logit afterwards.
    pub(super) fn apply(&self, logit: f32, params: &SamplingParams) -> f32 {
        let mut logit = logit + self.bias;
        if self.occurred {
            logit = if logit > 0.0 { logit / params.repetition_penalty } else { logit * params.repetition_penalty };
        }
        if self.outputs > 0 {
            logit -= params.frequency_penalty * self.outputs as f32;
            logit -= params.presence_penalty;
        }
        if self.masked { f32::NEG_INFINITY } else { logit }
    }
}

/// Makes one change of several to the same token, from place `first` on.
pub(super) fn merge(changes: &mut Vec<LogitChange>, first: usize) {
    changes[first..].sort_by_key(|change| change.token);
    let mut kept = first;
    for at in first..changes.len() {
        let change = changes[at];
        match changes[first..kept].last().map(|last| last.token) {
            Some(token) if token == change.token => {
                let last = &mut changes[kept - 1];
                last.bias += change.bias;
                last.outputs += change.outputs;
                last.occurred |= change.occurred;
                last.masked |= change.masked;
            }
            _ => {
                changes[kept] = change;
                kept += 1;
            }
        }
    }
    changes.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_changed_once() {
        let change = |token, bias, outputs| LogitChange { token, bias, outputs, ..LogitChange::default() };
        let masked = LogitChange { token: 5, masked: true, ..LogitChange::default() };
        let mut changes = vec![change(5, 9.0, 9), change(7, 1.0, 0), change(5, 0.5, 0), masked, change(5, 0.0, 2)];
        merge(&mut changes, 1);
        let five = LogitChange { masked: true, ..change(5, 0.5, 2) };
        assert_eq!(changes, [change(5, 9.0, 9), five, change(7, 1.0, 0)], "what stands before is another row's");
    }

    #[test]
    fn bias_comes_first_and_the_mask_last() {
        let params = SamplingParams {
            repetition_penalty: 2.0,
            frequency_penalty: 0.25,
            presence_penalty: 0.5,
            ..SamplingParams::default()
        };
        let change = LogitChange { token: 0, bias: 1.0, outputs: 2, occurred: true, masked: false };
        assert_eq!(change.apply(3.0, &params), 4.0 / 2.0 - 0.5 - 0.5);
        assert_eq!(change.apply(-3.0, &params), -2.0 * 2.0 - 1.0);
        assert_eq!(LogitChange { masked: true, ..change }.apply(3.0, &params), f32::NEG_INFINITY);
    }
}
