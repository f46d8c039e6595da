//! Several GPUs against one: greedy tokens of the golden models and of random ones whose heads and vocabularies do not
//! divide evenly, by every way to sum.

use std::path::Path;
use std::sync::Arc;

use engine::collective::CallCounters;
use engine::load::parse_config;
use engine::model::ModelConfig;
use engine::plan::{AllReduceChoice, FusionChoice, PlanRequest};
use engine::weights::{DummyWeights, SafetensorsWeights, WeightSource, read_file};

use crate::greedy::{self, Choice, Run};
use crate::{Failure, devices, eagle, gpu};

/// A Llama with a single key-value head, which every rank keeps, and a vocabulary that no number of ranks divides.
const ODD: &str = r#"{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 96, "intermediate_size": 160,
  "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 251,
  "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
  "tie_word_embeddings": false, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2
}"#;

/// A name, and what is asked for.
pub type Way = (&'static str, AllReduceChoice, FusionChoice);

/// Every way that a plan can sum.
pub const WAYS: [Way; 5] = [
    ("the plan's choice", AllReduceChoice::Auto, FusionChoice::Auto),
    ("unfused", AllReduceChoice::Auto, FusionChoice::Unfused),
    ("two_shot", AllReduceChoice::TwoShot, FusionChoice::Auto),
    ("two_shot, unfused", AllReduceChoice::TwoShot, FusionChoice::Unfused),
    ("nccl", AllReduceChoice::Nccl, FusionChoice::Auto),
];

/// Asks for a way, in every phase.
pub fn with(allreduce: AllReduceChoice, fusion: FusionChoice) -> impl FnOnce(PlanRequest) -> PlanRequest {
    move |request| PlanRequest { allreduce, allreduce_prefill: allreduce, fusion, ..request }
}

/// All models on `ranks` GPUs, then speculation.
pub fn compare(ranks: usize, folder: &Path) -> Result<(), Failure> {
    compare_plain(ranks, folder)?;
    eagle::compare_ranks(ranks, &folder.join("eagle3-tiny"))
}

fn compare_plain(ranks: usize, folder: &Path) -> Result<(), Failure> {
    for name in ["eagle3-tiny/target", "qwen2-tiny", "qwen3-tiny"] {
        let path = folder.join(name);
        let text = std::fs::read_to_string(path.join("config.json")).map_err(|error| format!("{name}: {error}"))?;
        let config = parse_config(name, &text).map_err(|error| error.to_string())?;
        let weights = SafetensorsWeights::open_folder(&path, read_file).map_err(|error| error.to_string())?;
        compare_model(ranks, (name, Arc::new(config)), Arc::new(weights), &WAYS[..1])?;
    }
    let config = parse_config("odd", ODD).map_err(|error| error.to_string())?;
    compare_model(
        ranks,
        ("one key-value head, 251 tokens", Arc::new(config)),
        Arc::new(DummyWeights::new(7, "bfloat16")),
        &WAYS,
    )
}

fn compare_model(
    ranks: usize,
    (name, config): (&str, Arc<ModelConfig>),
    weights: Arc<dyn WeightSource>,
    ways: &[Way],
) -> Result<(), Failure> {
    let vocabulary = config.vocabulary as u32;
    let prompts: Vec<Vec<u32>> = (0..6_u32)
        .map(|prompt| {
            (0..5 + 31 * prompt).map(|place| (place * place * 7 + place * 13 + prompt * 29) % vocabulary).collect()
        })
        .collect();
    let one = greedy::generate(Run::new(&config, &weights, &prompts, true), gpu(&config)?)?;
    for (way, allreduce, fusion) in ways {
        let (factory, plan) = devices(&config, ranks, with(*allreduce, *fusion))?;
        let counters = Arc::new(CallCounters::default());
        let run = Run {
            plan: Arc::new(plan.collectives()),
            counters: Arc::clone(&counters),
            ..Run::new(&config, &weights, &prompts, false)
        };
        let several = greedy::generate(run, factory)?;
        let (equal, near) = parted(&one, &several).map_err(|failure| format!("{name}, {way}: {failure}"))?;
        let calls: Vec<String> = counters
            .snapshot()
            .iter()
            .filter(|(key, _)| key.phase == engine::types::Phase::Decode)
            .map(|(key, count)| format!("{} {} {} {count}", key.site.name(), key.algorithm, key.fusion))
            .collect();
        println!("{name}, {ranks} ranks, {way}: {equal} prompts equal to one GPU, {near} part at a near tie");
        println!("    decode: {}", calls.join("; "));
    }
    Ok(())
}

/// How many sequences are equal, and how many part where one GPU's best two were near.
fn parted(one: &[Vec<Choice>], several: &[Vec<Choice>]) -> Result<(usize, usize), Failure> {
    let (mut equal, mut near) = (0, 0);
    for (prompt, (one, several)) in one.iter().zip(several).enumerate() {
        match one.iter().zip(several).position(|(one, several)| one.0 != several.0) {
            None => equal += 1,
            Some(at) if one[at].1 < greedy::NEAR => near += 1,
            Some(at) => {
                let (token, gap) = one[at];
                return Err(format!(
                    "prompt {prompt} parts at {at}: {} for {token}, whose lead is {gap}",
                    several[at].0
                ));
            }
        }
    }
    Ok((equal, near))
}
