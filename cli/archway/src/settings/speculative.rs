//! vLLM's way to ask for speculation: one JSON object.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::Speculative;

/// The keys of vLLM's `--speculative-config` that mean something here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeConfig {
    pub method: Option<Speculative>,
    /// Folder of the draft model.
    pub model: Option<String>,
    /// Drafted tokens of a chain.
    pub num_speculative_tokens: Option<u32>,
}

impl FromStr for SpeculativeConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            format!("{error}; give an object with the keys method (\"eagle3\"), model and num_speculative_tokens")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_object_is_read_and_others_are_explained() {
        let text = r#"{"method": "eagle3", "model": "head", "num_speculative_tokens": 3}"#;
        let config: SpeculativeConfig = text.parse().unwrap();
        assert_eq!(config.method, Some(Speculative::Eagle3));
        assert_eq!((config.model.as_deref(), config.num_speculative_tokens), (Some("head"), Some(3)));
        for wrong in ["eagle3", r#"{"method": "ngram"}"#, r#"{"quantization": "fp8"}"#] {
            assert!(
                wrong.parse::<SpeculativeConfig>().unwrap_err().contains("give an object with the keys"),
                "{wrong}"
            );
        }
        // The head runs on the target's ranks: another number is refused by name, not taken and dropped.
        let ranks =
            r#"{"method": "eagle3", "draft_tensor_parallel_size": 1}"#.parse::<SpeculativeConfig>().unwrap_err();
        assert!(ranks.contains("draft_tensor_parallel_size"), "{ranks}");
    }
}
