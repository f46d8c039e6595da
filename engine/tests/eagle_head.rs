//! EAGLE-3 heads in every layout that people have, and what is said of those that cannot be served.

use std::path::Path;

use engine::load::parse_config;
use engine::model::ModelConfig;
use engine::spec::{HeadCheckpoint, TapRule, Toggles, open_head};
use engine::weights::read_file;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

/// A head that a test changes before it is written.
struct Draft {
    config: Value,
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/eagle3-tiny").join(name)
}

fn target() -> ModelConfig {
    let path = golden("target/config.json");
    parse_config("config.json", &std::fs::read_to_string(path).unwrap()).unwrap()
}

impl Draft {
    fn official() -> Self {
        let bytes = std::fs::read(golden("draft/model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let owned = |(name, view): (&str, TensorView<'_>)| {
            (name.to_owned(), view.dtype(), view.shape().to_vec(), view.data().to_vec())
        };
        let config = std::fs::read_to_string(golden("draft/config.json")).unwrap();
        Self { config: serde_json::from_str(&config).unwrap(), tensors: tensors.iter().map(owned).collect() }
    }

    fn renamed(mut self, name: impl Fn(&str) -> String) -> Self {
        self.tensors.iter_mut().for_each(|tensor| tensor.0 = name(&tensor.0));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.0 != name);
        self
    }

    fn with(mut self, name: &str, shape: &[usize], value: f32) -> Self {
        let bytes = value.to_le_bytes().repeat(shape.iter().product());
        self.tensors.push((name.to_owned(), Dtype::F32, shape.to_vec(), bytes));
        self
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    fn offsets(mut self, change: impl Fn(usize, i64) -> i64) -> Self {
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.0 == "d2t").unwrap();
        let words = tensor.3.as_chunks::<8>().0.iter().enumerate();
        tensor.3 = words.flat_map(|(id, word)| change(id, i64::from_le_bytes(*word)).to_le_bytes()).collect();
        self
    }

    fn open_with(&self, taps: Option<&[usize]>) -> Result<HeadCheckpoint, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        let views = self
            .tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        let file = safetensors::serialize(views.collect::<Vec<_>>(), None).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
        open_head(folder.path(), &target(), taps, read_file).map_err(|error| error.to_string())
    }

    fn open(&self) -> HeadCheckpoint {
        self.open_with(None).unwrap()
    }

    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        let message = self.open_with(None).err().expect("the head is refused");
        parts.iter().for_each(|part| assert!(message.contains(part), "`{part}` is not in: {message}"));
    }
}

#[test]
fn layouts_are_read_as_the_official_one() {
    let official = Draft::official().open();
    assert_eq!((official.taps.boundaries.as_slice(), &official.taps.rule), (&[2, 4, 5][..], &TapRule::Default));
    assert_eq!((official.own_embedding, official.own_output, official.toggles), (false, true, Toggles::default()));
    assert_eq!(official.warnings, [""; 0]);
    let layered = |name: &str| format!("model.{}", name.replace("midlayer.", "layers.0."));
    let mapped = |name: &str| layered(name).replace("d2t", "draft_id_to_target_id");
    for head in [Draft::official().renamed(layered).open(), Draft::official().renamed(mapped).open()] {
        assert_eq!(head.vocabulary, official.vocabulary);
        for (name, shape) in [("midlayer.self_attn.q_proj.weight", [64, 128]), ("fc.weight", [64, 192])] {
            let (left, right) = (head.weights.tensor(name, &shape), official.weights.tensor(name, &shape));
            assert_eq!(left.unwrap().bytes, right.unwrap().bytes, "{name}");
        }
    }
}

#[test]
fn the_speculators_layout_nests_the_layer() {
    let mut draft = Draft::official();
    let mut layer = draft.config.clone();
    layer.as_object_mut().unwrap().remove("draft_vocab_size");
    draft.config = json!({
        "architectures": ["Eagle3Speculator"], "draft_vocab_size": 128, "norm_before_residual": true,
        "norm_before_fc": false, "target_hidden_size": null, "eagle_aux_hidden_state_layer_ids": [2, 4, 7],
        "transformer_layer_config": layer,
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "tiny"}},
    });
    let draft = draft.renamed(|name| name.replace("midlayer.", "layers.0.")).with("verifier_norm.weight", &[64], 1.0);
    let head = draft.open();
    assert!(head.toggles.norm_before_residual && !head.toggles.norm_before_fc);
    assert_eq!(head.taps.boundaries, [2, 4, 7]);
    assert_eq!(head.warnings, [""; 0], "the verifier's tensors are of no interest");
    draft
        .set("speculators_config", json!({"algorithm": "peagle"}))
        .refused(&["speculators_config.algorithm", "peagle"]);
}

#[test]
fn taps_of_both_conventions_and_by_hand() {
    let nested = |ids: Value| Draft::official().set("eagle_config", json!({"eagle_aux_hidden_state_layer_ids": ids}));
    assert_eq!(nested(json!([1, 3, 4])).open().taps.boundaries, [2, 4, 5]);
    assert_eq!(nested(json!([2, 4, 8])).open().taps.boundaries, [2, 4, 8]);
    let by_hand = nested(json!([1, 3, 4])).open_with(Some(&[3, 4, 6])).unwrap();
    assert_eq!((by_hand.taps.boundaries.as_slice(), by_hand.taps.rule), (&[3, 4, 6][..], TapRule::Override));
    nested(json!([2, 4, 9])).refused(&["boundary 9", "8 layers", "eagle_config.eagle_aux_hidden_state_layer_ids"]);
    nested(json!([2, 4])).refused(&["joins 192 values", "2 taps", "--eagle3-taps"]);
    nested(json!("2,4,5")).refused(&["eagle_aux_hidden_state_layer_ids", "must be a list"]);
}

#[test]
fn what_a_checkpoint_leaves_out_is_the_targets() {
    let shared =
        Draft::official().set("draft_vocab_size", Value::Null).without("lm_head.weight").without("d2t").without("t2d");
    let head = shared.open();
    assert_eq!((head.own_output, head.config.vocabulary, head.vocabulary.target(77)), (false, 512, 77));
    let own = Draft::official().with("embed_tokens.weight", &[512, 64], 0.5).open();
    assert!(own.own_embedding);
    Draft::official().without("lm_head.weight").refused(&["no `lm_head.weight`", "128 by 64"]);
    Draft::official().without("d2t").refused(&["128 draft tokens of 512", "no `d2t`"]);
}

#[test]
fn other_kinds_of_draft_models_are_refused_by_name() {
    Draft::official().set("parallel_drafting", json!(true)).refused(&["parallel-drafting", "P-EAGLE"]);
    Draft::official().set("kv_lora_rank", json!(512)).refused(&["latent attention (MLA)"]);
    Draft::official()
        .set("architectures", json!(["Eagle3DeepseekV2ForCausalLM"]))
        .refused(&["Eagle3DeepseekV2", "MLA"]);
    Draft::official().set("num_hidden_layers", json!(2)).refused(&["num_hidden_layers", "one layer"]);
    Draft::official()
        .set("quantization_config", json!({"quant_method": "awq", "bits": 4}))
        .refused(&["quantization_config", "quantised head"]);
    Draft::official().set("eagle_config", json!({"use_aux_hidden_state": false})).refused(&["EAGLE-1 and 2"]);
    let mut first = Draft::official().without("midlayer.hidden_norm.weight").without("fc.weight");
    first = first.with("fc.weight", &[64, 128], 0.1);
    first.tensors.iter_mut().filter(|tensor| tensor.0.contains("q_proj")).for_each(|tensor| {
        tensor.2 = vec![64, 64];
        tensor.3.truncate(64 * 64 * 4);
    });
    first.refused(&["EAGLE-1 or 2 head", "128 columns"]);
    Draft::official().without("fc.weight").refused(&["not an EAGLE-3 head", "fc.weight"]);
}

#[test]
fn heads_for_other_targets_and_damaged_files_are_refused() {
    Draft::official().set("vocab_size", json!(1000)).refused(&["another target", "1000", "512 tokens"]);
    Draft::official().set("target_hidden_size", json!(128)).refused(&["another target", "128", "64"]);
    let wide = Draft::official().without("fc.weight").with("fc.weight", &[64, 300], 0.1);
    wide.refused(&["another target", "3 taps of width 100"]);
    Draft::official().offsets(|id, offset| offset + id as i64).refused(&["`d2t`", "absolute ids"]);
    Draft::official().offsets(|id, offset| if id == 5 { 0 } else { offset }).refused(&["do not ascend"]);
    let mut marked = Draft::official();
    marked.tensors.iter_mut().filter(|tensor| tensor.0 == "t2d").for_each(|tensor| tensor.3[0] ^= 1);
    marked.refused(&["`t2d`", "does not mark the 128 tokens"]);
    let twice = Draft::official().with("layers.0.hidden_norm.weight", &[64], 1.0);
    twice.refused(&["both mean `midlayer.hidden_norm.weight`"]);
    Draft::official().without("norm.weight").refused(&["norm.weight", "is missing"]);
    Draft::official().set("fc_norm", json!(true)).refused(&["fc_norm.0.weight", "is missing"]);
    Draft::official().set("intermediate_size", json!(256)).refused(&["mlp.gate_proj.weight", "[128, 64]", "[256, 64]"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden("draft/config.json"), folder.path().join("config.json")).unwrap();
    let whole = std::fs::read(golden("draft/model.safetensors")).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), &whole[..whole.len() - 100]).unwrap();
    let refusal = || open_head(folder.path(), &target(), None, read_file).err().unwrap().to_string();
    assert!(refusal().contains("model.safetensors"), "{}", refusal());
    std::fs::rename(folder.path().join("model.safetensors"), folder.path().join("pytorch_model.bin")).unwrap();
    assert!(refusal().contains("a Python pickle, which is not read; convert it"), "{}", refusal());
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(refusal().contains("has no config.json"), "{}", refusal());
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(refusal().contains("does not exist"), "{}", refusal());
}

#[test]
fn what_is_unusual_is_said() {
    let odd = Draft::official().with("fc_norm.0.weight", &[64], 1.0).with("something.weight", &[2], 0.0);
    let head = odd.set("head_dim", json!(80)).open();
    let said = |part: &str| assert!(head.warnings.iter().any(|warning| warning.contains(part)), "{:?}", head.warnings);
    ["`head_dim` is 80, but the weights have 16", "`something.weight`", "does not switch `fc_norm` on"]
        .into_iter()
        .for_each(said);
}
