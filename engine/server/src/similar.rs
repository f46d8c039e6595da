//! "Did you mean": the nearest of some names.

/// Longest name that may be a slip of another; comparing takes time by its square.
const LONGEST: usize = 64;

/// Similarity below which a name is not a likely slip of another.
const LEAST: f64 = 0.8;

/// The candidate most like `name`, if one is like it at all.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= LEAST)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_finds_its_name_and_noise_finds_none() {
        let names = ["max_tokens", "max_completion_tokens", "min_tokens"];
        assert_eq!(nearest("max_token", names), Some("max_tokens"));
        assert_eq!(nearest("maxtokens", names), Some("max_tokens"));
        assert_eq!(nearest("zzz", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"m".repeat(50_000_000), names), None);
    }
}
