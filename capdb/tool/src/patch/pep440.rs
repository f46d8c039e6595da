//! Python's versions as semantic versions, where that can be done without a lie.

use semver::{BuildMetadata, Prerelease, Version};

/// `0.5.9` → 0.5.9, `0.5.9rc1` → 0.5.9-rc.1, `0.5.9.dev3` → 0.5.9-0.dev3, `0.5.9.post1` → 0.5.9+post.1.
///
/// Ordering is kept, except that a post-release counts as its release. `None` for what has no counterpart: epochs, more than
/// three numbers, a development version of a pre-release.
pub fn to_semver(text: &str) -> Option<Version> {
    let text = text.trim().to_ascii_lowercase();
    let (public, local) = text.split_once('+').map_or((text.as_str(), None), |(public, local)| (public, Some(local)));
    let end = public.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(public.len());
    // In `0.5.9.post1` the dot belongs to what follows.
    let (release, rest) = public.split_at(end);
    let release = release.strip_suffix('.').unwrap_or(release);
    let numbers: Vec<u64> = release.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [major, minor, patch] = match numbers.as_slice() {
        [major] => [*major, 0, 0],
        [major, minor] => [*major, *minor, 0],
        [major, minor, patch] => [*major, *minor, *patch],
        _ => return None,
    };
    let mut version = Version::new(major, minor, patch);
    let mut build = Vec::new();
    match split_word(rest)? {
        ("", None) => {}
        ("a" | "alpha", number) => version.pre = pre("a", number)?,
        ("b" | "beta", number) => version.pre = pre("b", number)?,
        ("rc" | "c" | "pre" | "preview", number) => version.pre = pre("rc", number)?,
        ("dev", number) => version.pre = Prerelease::new(&format!("0.dev{}", number.unwrap_or(0))).ok()?,
        ("post" | "rev" | "r", number) => build.push(format!("post.{}", number.unwrap_or(0))),
        _ => return None,
    }
    build.extend(local.map(|local| local.replace(['_', '-'], ".")));
    version.build = BuildMetadata::new(&build.join(".")).ok()?;
    Some(version)
}

fn pre(word: &str, number: Option<u64>) -> Option<Prerelease> {
    Prerelease::new(&format!("{word}.{}", number.unwrap_or(0))).ok()
}

/// `rc1` → `("rc", 1)`; `None` where more follows.
fn split_word(rest: &str) -> Option<(&str, Option<u64>)> {
    let rest = rest.trim_start_matches(['.', '-', '_']);
    let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
    let (word, number) = rest.split_at(end);
    if number.is_empty() {
        return Some((word, None));
    }
    number.trim_start_matches(['.', '-', '_']).parse().ok().map(|number| (word, Some(number)))
}

#[cfg(test)]
mod tests {
    use super::to_semver;

    #[test]
    fn maps_what_has_a_counterpart() {
        for (python, semantic) in [
            ("0.5.9", "0.5.9"),
            ("0.11", "0.11.0"),
            ("0.5.9rc1", "0.5.9-rc.1"),
            ("0.5.9.dev3", "0.5.9-0.dev3"),
            ("0.5.9.post1", "0.5.9+post.1"),
            ("0.33.0+cu130", "0.33.0+cu130"),
            ("0.1.0.dev5+g4ba787ec9", "0.1.0-0.dev5+g4ba787ec9"),
        ] {
            assert_eq!(to_semver(python).map(|version| version.to_string()).as_deref(), Some(semantic), "{python}");
        }
    }

    #[test]
    fn keeps_the_order() {
        let versions = ["0.5.9.dev1", "0.5.9a1", "0.5.9b1", "0.5.9rc1", "0.5.9"].map(|text| to_semver(text).unwrap());
        assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
    }

    #[test]
    fn refuses_what_has_none() {
        for text in ["", "1!2.0", "1.2.3.4", "0.5.9rc1.dev2", "unknown", "0.5.9.post1.dev2", "1..2"] {
            assert_eq!(to_semver(text), None, "{text}");
        }
    }
}
