use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::load::parse_config;
use engine::model::ModelConfig;
use engine::spec::{HeadCheckpoint, open_head};
use engine::weights::{SafetensorsWeights, WeightSource, read_file};
use safetensors::SafeTensors;
use serde_json::Value;

/// The golden models of this test: Llama, Qwen2, Qwen3, Qwen3-MoE, DeepSeek-V3.
pub const GOLDEN: [&str; 5] = ["eagle3-tiny", "qwen2-tiny", "qwen3-tiny", "qwen3-moe-tiny", "deepseek-v3-tiny"];

/// A small model and what transformers computes with it.
pub struct Golden {
    pub name: &'static str,
    pub config: Arc<ModelConfig>,
    pub weights: Arc<dyn WeightSource>,
    pub prompts: Vec<Vec<u32>>,
    /// Greedy continuations.
    pub greedy: Vec<Vec<u32>>,
    bytes: Vec<u8>,
}

impl Golden {
    pub fn open(name: &'static str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name);
        let model = if name == "eagle3-tiny" { folder.join("target") } else { folder.clone() };
        let config = read(&model.join("config.json"));
        let config = parse_config(&model.display().to_string(), &config).expect("config.json");
        let weights = SafetensorsWeights::open_folder(&model, read_file).expect("model.safetensors");
        let vectors: Value = serde_json::from_str(&read(&folder.join("vectors.json"))).expect("vectors.json");
        let list = |value: &Value| value.as_array().expect("a list").iter().map(tokens).collect();
        Self {
            name,
            config: Arc::new(config),
            weights: Arc::new(weights),
            prompts: list(&vectors["prompts"]),
            greedy: vectors["greedy"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|entry| tokens(entry.get("tokens").unwrap_or(entry)))
                .collect(),
            bytes: std::fs::read(folder.join("vectors.safetensors")).expect("vectors.safetensors"),
        }
    }

    /// Tokens whose logits transformers computed for prompt `index`, and the logits, `[tokens, vocabulary]`.
    pub fn teacher_forced(&self, index: usize) -> (Vec<u32>, Vec<f32>) {
        let name = if self.name == "eagle3-tiny" { "target_logits" } else { "logits" };
        let logits = self.floats(&format!("p{index}.{name}"));
        let tokens = self.prompts[index].iter().chain(&self.greedy[index]).copied();
        (tokens.take(logits.len() / self.config.vocabulary).collect(), logits)
    }

    /// The residual stream at `boundary` for prompt 0, `[tokens, hidden]`.
    pub fn residual(&self, boundary: usize) -> Vec<f32> {
        let name = if self.name == "eagle3-tiny" { "target_hidden" } else { "hidden" };
        self.floats(&format!("p0.{name}.{boundary}"))
    }

    /// The head of `eagle3-tiny`, for its target.
    pub fn head(&self) -> HeadCheckpoint {
        self.head_with(|_| {})
    }

    /// The same with another configuration, and with the norms that newer heads have.
    pub fn head_with(&self, change: impl FnOnce(&mut Value)) -> HeadCheckpoint {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/eagle3-tiny/draft");
        let mut config: Value = serde_json::from_str(&read(&folder.join("config.json"))).expect("config.json");
        change(&mut config);
        let copy = tempfile::tempdir().expect("can make a folder");
        std::fs::write(copy.path().join("config.json"), config.to_string()).expect("can write");
        let bytes = std::fs::read(folder.join("model.safetensors")).expect("can read");
        let (own, extra) = (SafeTensors::deserialize(&bytes), SafeTensors::deserialize(&self.bytes));
        let (own, extra) = (own.expect("safetensors"), extra.expect("safetensors"));
        let variants = extra.iter().filter_map(|(name, view)| Some((name.strip_prefix("variant.weights.")?, view)));
        let all: Vec<_> = own.iter().chain(variants).collect();
        let file = safetensors::serialize(all, None).expect("can be written");
        std::fs::write(copy.path().join("model.safetensors"), file).expect("can write");
        open_head(copy.path(), &self.config, None, read_file).expect("the head fits")
    }

    /// Complete runs of the reference: `tree`, `chain` or `wide`.
    pub fn runs(&self, configuration: &str) -> Vec<Value> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(self.name);
        let vectors: Value = serde_json::from_str(&read(&folder.join("vectors.json"))).expect("vectors.json");
        vectors["configs"][configuration]["runs"].as_array().expect("runs").clone()
    }

    /// Variants of the head's layer with their flags and drafts.
    pub fn variants(&self) -> Vec<(String, Value)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(self.name);
        let vectors: Value = serde_json::from_str(&read(&folder.join("vectors.json"))).expect("vectors.json");
        let variants = vectors["variants"].as_object().expect("variants");
        variants.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let words = self.bytes_of(name).as_chunks().0.iter();
        words.map(|word| f32::from_le_bytes(*word)).collect()
    }

    pub fn integers(&self, name: &str) -> Vec<u32> {
        let words = self.bytes_of(name).as_chunks().0.iter();
        words.map(|word| u32::try_from(i64::from_le_bytes(*word)).expect("not negative")).collect()
    }

    pub fn bytes_of(&self, name: &str) -> &[u8] {
        SafeTensors::deserialize(&self.bytes).expect("safetensors").tensor(name).expect(name).data()
    }
}

fn read(path: &PathBuf) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn tokens(value: &Value) -> Vec<u32> {
    let list = value.as_array().expect("a list of tokens");
    list.iter().map(|token| token.as_u64().expect("a token") as u32).collect()
}
