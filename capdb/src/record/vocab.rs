//! Every word that a record may use, with its meaning.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::ReasonClass;

/// `vocab.yaml`: closed lists, each word with its meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VocabFile {
    #[schemars(regex(pattern = r"^vocab/1(\.[0-9]+)?$"))]
    pub schema: String,
    pub topologies: IndexMap<String, Word>,
    pub algorithms: IndexMap<String, Word>,
    pub dtypes: IndexMap<String, Word>,
    pub evidence: IndexMap<String, Word>,
    pub support: IndexMap<String, Word>,
    pub features: IndexMap<String, FeatureWord>,
    pub fusions: IndexMap<String, Word>,
    pub attention: IndexMap<String, Word>,
    pub quantization: IndexMap<String, Word>,
    pub reasons: IndexMap<String, ReasonWord>,
}

/// A word and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Word {
    #[schemars(length(min = 1))]
    pub meaning: String,
}

/// A feature, and whether code that uses it is portable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeatureWord {
    #[schemars(length(min = 1))]
    pub meaning: String,
    /// Usable in base targets, so that every machine that runs the base code must have it. Features of `a` and `f`
    /// targets are not portable.
    pub portable: bool,
    /// The driver attribute that answers it, where one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub attribute: Option<String>,
}

/// A reason of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonWord {
    pub class: ReasonClass,
    #[schemars(length(min = 1))]
    pub meaning: String,
    /// What the reader can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub hint: Option<String>,
}
