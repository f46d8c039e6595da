//! Which residual-stream boundaries of the target a head reads.
//!
//! Boundary `b` is the residual stream after `b` layers: the input of layer `b`. Checkpoints name taps by two
//! conventions, boundaries or "output of layer i" (boundary `i + 1`), and do not say which. Wrong taps leave the output
//! right and make nearly every draft wrong, so the rule that was used is always said.

use std::fmt;

/// Layer ids as a configuration names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapIds {
    /// The key they were found under; none where the configuration is silent.
    pub key: Option<String>,
    pub ids: Vec<usize>,
}

/// How boundaries were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapRule {
    /// The user named boundaries.
    Override,
    /// The configuration's ids are outputs of layers: one was added.
    LayerOutputs { key: String },
    /// The configuration's ids are boundaries.
    Boundaries { key: String },
    /// The configuration names none: 2, half of the layers, the layers less 3.
    Default,
}

/// The boundaries, lowest first in the head's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taps {
    pub boundaries: Vec<usize>,
    pub rule: TapRule,
}

/// Fewest layers for which the default taps differ from each other.
const FEWEST_LAYERS: usize = 7;

/// Normalises to boundaries of a target of `layers` layers. A first id of 1 means outputs of layers, since no head taps
/// the input of layer 1 (the rule of SGLang, pull request 25454).
pub(super) fn choose(named: &TapIds, user: Option<&[usize]>, layers: usize) -> Result<Taps, String> {
    let (boundaries, rule) = match (user, &named.key) {
        (Some(user), _) => (user.to_vec(), TapRule::Override),
        (None, Some(key)) if named.ids.first() == Some(&1) => {
            (named.ids.iter().map(|id| id + 1).collect(), TapRule::LayerOutputs { key: key.clone() })
        }
        (None, Some(key)) => (named.ids.clone(), TapRule::Boundaries { key: key.clone() }),
        (None, None) if layers < FEWEST_LAYERS => {
            return Err(format!(
                "names no taps, and the default ones (2, half, less 3) coincide for {layers} layers; give --eagle3-taps"
            ));
        }
        (None, None) => (vec![2, layers / 2, layers - 3], TapRule::Default),
    };
    let taps = Taps { boundaries, rule };
    match taps.boundaries.iter().find(|boundary| **boundary > layers) {
        Some(high) => Err(format!("taps boundary {high} ({taps}), but the target has {layers} layers")),
        None if taps.boundaries.is_empty() => Err("has no taps; give --eagle3-taps".to_owned()),
        None => Ok(taps),
    }
}

impl fmt::Display for Taps {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let list: Vec<String> = self.boundaries.iter().map(usize::to_string).collect();
        write!(formatter, "{} ", list.join(", "))?;
        match &self.rule {
            TapRule::Override => formatter.write_str("as given by --eagle3-taps"),
            TapRule::LayerOutputs { key } => write!(formatter, "from `{key}`, read as outputs of layers (first id 1)"),
            TapRule::Boundaries { key } => write!(formatter, "from `{key}`, read as inputs of layers"),
            TapRule::Default => formatter.write_str("by default: the head names none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(ids: &[usize]) -> TapIds {
        TapIds { key: Some("ids".to_owned()), ids: ids.to_vec() }
    }

    #[test]
    fn both_conventions_become_boundaries() {
        let boundaries = |ids: &TapIds, layers| choose(ids, None, layers).unwrap().boundaries;
        assert_eq!(boundaries(&named(&[1, 29, 57]), 61), [2, 30, 58]);
        assert_eq!(boundaries(&named(&[2, 30, 58]), 61), [2, 30, 58]);
        assert_eq!(boundaries(&named(&[24, 30, 36]), 36), [24, 30, 36], "the last one is after the last layer");
        assert_eq!(boundaries(&TapIds::default(), 32), [2, 16, 29]);
        assert_eq!(choose(&named(&[1, 2]), Some(&[3, 4]), 8).unwrap().boundaries, [3, 4]);
    }

    #[test]
    fn the_rule_is_said_and_impossible_taps_are_refused() {
        let taps = choose(&named(&[1, 14, 26]), None, 30).unwrap();
        assert_eq!(taps.to_string(), "2, 15, 27 from `ids`, read as outputs of layers (first id 1)");
        assert!(choose(&named(&[2, 18, 37]), None, 36).unwrap_err().contains("boundary 37"));
        assert!(choose(&TapIds::default(), None, 6).unwrap_err().contains("--eagle3-taps"));
        assert!(choose(&TapIds::default(), Some(&[]), 6).unwrap_err().contains("no taps"));
    }
}
