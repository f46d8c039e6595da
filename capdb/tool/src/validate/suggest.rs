//! Did you mean …?

/// The candidate that `word` is most likely a slip of, if one is near enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    // A longer word may hold more slips; a word of two letters none that we could tell from another word.
    let allowed = (word.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.chars().count())
        .min_by_key(|(distance, candidate)| (*distance, candidate.len().abs_diff(word.len())))
        .map(|(_, candidate)| candidate)
}

/// A hint for an unknown word: the nearest candidate, or the whole list where it is short.
pub fn hint<'a>(word: &str, candidates: &[&'a str]) -> (String, Option<&'a str>) {
    const SHORT: usize = 24;
    match nearest(word, candidates.iter().copied()) {
        Some(near) => (format!("did you mean `{near}`?"), Some(near)),
        None if candidates.is_empty() => ("nothing may stand here".into(), None),
        None if candidates.len() <= SHORT => (format!("known here: {}", candidates.join(", ")), None),
        None => (format!("known here: {} and {} more", candidates[..SHORT].join(", "), candidates.len() - SHORT), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_not_other_words() {
        let words = ["one_shot", "two_shot", "multimem", "nccl"];
        assert_eq!(nearest("one_shto", words), Some("one_shot"));
        assert_eq!(nearest("Multimem", words), Some("multimem"));
        assert_eq!(nearest("h201", ["h20", "h200"]), Some("h200"));
        assert_eq!(nearest("nvls", words), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(hint("nvls", &words).0, "known here: one_shot, two_shot, multimem, nccl");
    }
}
