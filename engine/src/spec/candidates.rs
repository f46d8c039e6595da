//! The best tokens of a row of draft logits.

use super::tree::Candidate;
use super::vocabulary::DraftVocabulary;

/// Appends the `count` best tokens of a row, best first; ties by ascending id. With one there is nothing to compare
/// across rows, so its probability is not computed. A row that is not finite gives its first tokens: what is drafted
/// need not make sense.
pub(super) fn append_best(logits: &[f32], count: usize, vocabulary: &DraftVocabulary, to: &mut Vec<Candidate>) {
    let first = to.len();
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(count + 1);
    let mut lowest = f32::NEG_INFINITY;
    for (&logit, id) in logits.iter().zip(0u32..) {
        if best.len() < count || logit > lowest {
            let place = best.partition_point(|(other, _)| *other >= logit);
            best.insert(place, (logit, id));
            best.truncate(count);
            lowest = best.last().map_or(f32::NEG_INFINITY, |(logit, _)| *logit);
        }
    }
    let normaliser = if count == 1 { 0.0 } else { log_sum_exp(logits, best.first().map_or(0.0, |(logit, _)| *logit)) };
    to.extend(best.iter().map(|(logit, id)| {
        let log_probability = if count == 1 { 0.0 } else { logit - normaliser };
        Candidate { token: vocabulary.target(*id), log_probability }
    }));
    debug_assert_eq!(to.len(), first + count.min(logits.len()));
}

fn log_sum_exp(logits: &[f32], largest: f32) -> f32 {
    largest + logits.iter().map(|logit| f64::from((logit - largest).exp())).sum::<f64>().ln() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_tokens_come_first_with_their_log_probabilities() {
        let (vocabulary, mut best) = (DraftVocabulary::identity(), Vec::new());
        append_best(&[0.0, 3.0, 1.0, 3.0, 2.0], 3, &vocabulary, &mut best);
        assert_eq!(best.iter().map(|candidate| candidate.token).collect::<Vec<_>>(), [1, 3, 4]);
        let sum = [0.0f64, 3.0, 1.0, 3.0, 2.0].iter().map(|logit| logit.exp()).sum::<f64>();
        assert!((f64::from(best[0].log_probability) - (3.0 - sum.ln())).abs() < 1e-6);
        best.clear();
        append_best(&[f32::NAN, f32::NEG_INFINITY, f32::NAN], 2, &vocabulary, &mut best);
        assert_eq!(best.len(), 2);
    }
}
