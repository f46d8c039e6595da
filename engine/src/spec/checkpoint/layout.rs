//! Tensor names of the different layouts, brought to those of the official one.

use std::collections::HashMap;
use std::sync::Arc;

use super::Toggles;
use crate::load::LoadError;
use crate::weights::{TensorInfo, TensorView, WeightError, WeightSource};

/// A head's tensors under the official names.
pub(super) struct HeadWeights {
    source: Arc<dyn WeightSource>,
    /// Official name to the file's.
    names: HashMap<String, String>,
    unknown: Vec<String>,
}

/// Official names that are not below `midlayer.`.
const TOP: [&str; 7] =
    ["fc.weight", "fc.bias", "norm.weight", "lm_head.weight", "embed_tokens.weight", "input_norm.weight", "d2t"];

/// Tensors of training and of the verifier that some layouts carry along.
const IDLE: [&str; 4] = ["verifier_lm_head", "verifier_norm", "mask_hidden", "rotary_emb"];

impl HeadWeights {
    /// Errors: two tensors of one meaning.
    pub fn new(path: &str, source: Arc<dyn WeightSource>) -> Result<Self, LoadError> {
        let (mut names, mut unknown) = (HashMap::new(), Vec::new());
        for stored in source.names() {
            if IDLE.iter().any(|idle| stored.contains(idle)) {
                continue;
            }
            let official = official(&stored);
            let known = TOP.contains(&&*official) || official == "t2d" || official.starts_with("fc_norm.");
            if !known && !official.starts_with("midlayer.") {
                unknown.push(stored);
            } else if let Some(other) = names.insert(official.clone(), stored.clone()) {
                let message = format!("has `{other}` and `{stored}`, which both mean `{official}`");
                return Err(LoadError::File { path: path.to_owned(), message });
            }
        }
        unknown.sort();
        Ok(Self { source, names, unknown })
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    pub fn rows(&self, name: &str) -> Option<usize> {
        self.info(name).ok()?.shape.first().copied()
    }

    pub fn columns(&self, name: &str) -> Option<usize> {
        self.info(name).ok()?.shape.get(1).copied()
    }

    /// The kind of draft model that this is instead of EAGLE-3, if the tensors show another one.
    pub fn other_kind(&self, hidden: usize) -> Option<String> {
        if self.has("midlayer.self_attn.kv_a_proj_with_mqa.weight") {
            return Some(
                "has latent attention (MLA), which is not served; use a head with grouped-query attention".into(),
            );
        }
        let inputs = self.columns("midlayer.self_attn.q_proj.weight");
        let plain = inputs == Some(hidden) && !self.has("midlayer.hidden_norm.weight");
        if plain && self.columns("fc.weight") == Some(2 * hidden) {
            return Some(format!(
                "is an EAGLE-1 or 2 head: `fc.weight` joins one hidden state and an embedding ({} columns), and \
                 attention reads {hidden}; an EAGLE-3 head is needed",
                2 * hidden
            ));
        }
        let needed = ["midlayer.self_attn.q_proj.weight", "midlayer.hidden_norm.weight", "fc.weight"];
        let missing: Vec<&str> = needed.into_iter().filter(|name| !self.has(name)).collect();
        (!missing.is_empty()).then(|| format!("is not an EAGLE-3 head: it has no {}", missing.join(", ")))
    }

    /// What the file holds and nobody reads.
    pub fn warnings(&self, toggles: &Toggles) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, key, on) in [
            ("input_norm.weight", "norm_before_fc", toggles.norm_before_fc),
            ("fc_norm.0.weight", "fc_norm", toggles.fc_norm),
        ] {
            if self.has(name) && !on {
                warnings
                    .push(format!("has `{name}`, but the configuration does not switch `{key}` on: it is not used"));
            }
        }
        if !self.unknown.is_empty() {
            let more = self.unknown.len().saturating_sub(3);
            let named = self.unknown.iter().take(3).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            warnings.push(format!("holds tensors of no use to an EAGLE-3 head: {named}{more}"));
        }
        warnings
    }

    fn stored<'a>(&'a self, name: &'a str) -> &'a str {
        self.names.get(name).map_or(name, String::as_str)
    }
}

/// The official name of a stored one.
fn official(stored: &str) -> String {
    let name = stored.strip_prefix("model.").unwrap_or(stored);
    match name.strip_prefix("layers.0.") {
        Some(rest) => format!("midlayer.{rest}"),
        None if name == "draft_id_to_target_id" => "d2t".to_owned(),
        None if name == "target_id_in_draft" => "t2d".to_owned(),
        None => name.to_owned(),
    }
}

impl WeightSource for HeadWeights {
    fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        self.source.info(self.stored(name))
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        self.source.tensor(self.stored(name), shape)
    }
}
