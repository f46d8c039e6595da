//! SmolLM2-135M-Instruct in Q4_1, the model of `archway demo`, against what llama.cpp says and what its dequantised
//! weights say in float64 (`tests/golden/smollm2`). Needs the model, so it stands behind a feature:
//!
//!     archway demo && cargo test --workspace --features engine-cpu/real-model --test models smollm2

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::executor::{RanksConfig, Speculation};
use engine::load::{Model, OpenOptions, open_model};
use engine::spec::{DraftShape, PaceReport, open_head};
use engine::tokenizer::{ChatInput, ChatTemplate, Framing};
use engine::types::SamplingParams;
use engine_cpu::{kernels::Precision, map_file};
use safetensors::SafeTensors;
use serde_json::{Map, Value, json};

use crate::support::{Chunk, Output, Rig, Served, Settings, config, generate, ranks, start};

/// Share of positions at which the most likely token must be llama.cpp's.
const EQUAL: f64 = 0.96;
/// Elsewhere the two best must be this close: llama.cpp rounds activations to eight bits, and so does `Fast`.
const CLOSE: f32 = 0.4;
/// Largest difference of a logit in `Exact` from float64.
const TOLERANCE: f32 = 1e-3;

fn model() -> Model {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache"))).expect("a home folder");
    let path = cache.join("archway/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(path.is_file(), "{} is not there; `archway demo` fetches it", path.display());
    open_model(&path, &OpenOptions { open: map_file, ..OpenOptions::default() }).expect("the model opens")
}

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/smollm2").join(file)
}

/// What llama.cpp said after a prompt.
struct Recorded {
    text: String,
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    /// Between its best two logits, at each greedy token.
    gaps: Vec<f32>,
}

impl Recorded {
    fn all() -> Vec<Self> {
        let text = std::fs::read_to_string(golden("llama_cpp.json")).expect("llama_cpp.json");
        let file: Value = serde_json::from_str(&text).expect("JSON");
        file["prompts"].as_array().expect("a list").iter().map(Self::new).collect()
    }

    fn new(entry: &Value) -> Self {
        let numbers = |name: &str| entry[name].as_array().expect("a list").iter().map(|value| value.as_f64().unwrap());
        let tokens = |name: &str| numbers(name).map(|number| number as u32).collect();
        let gaps = numbers("gaps").map(|number| number as f32).collect();
        let text = entry["text"].as_str().expect("a text").to_owned();
        Self { text, prompt: tokens("tokens"), greedy: tokens("greedy"), gaps }
    }

    /// Prompt and greedy tokens.
    fn tokens(&self) -> Vec<u32> {
        [&self.prompt[..], &self.greedy[..]].concat()
    }
}

fn rig(model: &Model, precision: Precision) -> Rig {
    Rig::open(&model.config, &*model.source, 16, precision)
}

/// Logits `[tokens, vocabulary]`, in chunks of what one step of the rig takes.
fn logits(rig: &mut Rig, tokens: &[u32]) -> Vec<f32> {
    let chunks = tokens.chunks(100).zip((0..).step_by(100));
    chunks.flat_map(|(chunk, start)| rig.step(&[Chunk::plain(0, start, chunk)])).collect()
}

/// The most likely token, and how far the next one is.
fn best(logits: &[f32]) -> (u32, f32) {
    let (mut best, mut second) = (0, f32::NEG_INFINITY);
    for (index, logit) in logits.iter().enumerate().skip(1) {
        if *logit > logits[best] {
            (best, second) = (index, logits[best]);
        } else {
            second = second.max(*logit);
        }
    }
    (best as u32, logits[best] - second)
}

/// Teacher-forced along llama.cpp's tokens.
fn assert_near_llama_cpp(precision: Precision) {
    let (model, recorded) = (model(), Recorded::all());
    let mut rig = rig(&model, precision);
    let (mut positions, mut misses) = (0, Vec::new());
    for Recorded { text, prompt, greedy, gaps } in &recorded {
        let tokens = [&prompt[..], &greedy[..greedy.len() - 1]].concat();
        let logits = logits(&mut rig, &tokens);
        let rows = logits.chunks(model.config.vocabulary).skip(prompt.len() - 1);
        for (at, (row, (expected, gap))) in rows.zip(greedy.iter().zip(gaps)).enumerate() {
            let (token, own_gap) = best(row);
            positions += 1;
            if token != *expected {
                misses.push(format!("{text:?}, token {at}: gaps of {gap} there and {own_gap} here"));
                assert!(gap.max(own_gap) < CLOSE, "{}", misses.last().expect("just pushed"));
            }
        }
    }
    assert_eq!(positions, 20 * 64);
    println!("{precision:?}: {} of {positions} positions differ\n{}", misses.len(), misses.join("\n"));
    assert!(misses.len() as f64 <= (1.0 - EQUAL) * f64::from(positions), "{} differ", misses.len());
}

#[test]
fn fast_products_say_what_llama_cpp_says() {
    assert_near_llama_cpp(Precision::Fast);
}

#[test]
fn exact_products_say_what_llama_cpp_says() {
    assert_near_llama_cpp(Precision::Exact);
}

#[test]
fn exact_logits_are_those_of_the_dequantised_weights() {
    let (model, recorded) = (model(), Recorded::all());
    let bytes = std::fs::read(golden("reference.safetensors")).expect("reference.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let words = |name: String| file.tensor(&name).expect("a tensor").data().as_chunks::<4>().0;
    let floats = |name: String| words(name).iter().map(|word| f32::from_le_bytes(*word));
    let mut rig = rig(&model, Precision::Exact);
    let mut worst = 0_f32;
    for (index, recorded) in recorded[..file.len() / 3].iter().enumerate() {
        let logits = logits(&mut rig, &recorded.tokens());
        let rows: Vec<&[f32]> = logits.chunks(model.config.vocabulary).collect();
        let ids = words(format!("p{index}.ids"));
        let each = ids.len() / rows.len();
        for (at, (id, expected)) in ids.iter().zip(floats(format!("p{index}.logits"))).enumerate() {
            worst = worst.max((rows[at / each][u32::from_le_bytes(*id) as usize] - expected).abs());
        }
        for (row, expected) in rows.iter().zip(floats(format!("p{index}.normaliser"))) {
            let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            worst = worst.max((sum.ln() - f64::from(expected)).abs() as f32);
        }
    }
    println!("largest difference: {worst}");
    assert!(file.len() >= 12 && worst <= TOLERANCE, "{} tensors, largest difference {worst}", file.len());
}

#[test]
fn three_ranks_say_what_one_says() {
    let Model { config, source, .. } = model();
    let config = Arc::new(config);
    let prompts: Vec<Vec<u32>> = Recorded::all().into_iter().map(|recorded| recorded.prompt).take(4).collect();
    let answers = [1, 3].map(|world_size| {
        let mut executor = start(ranks(world_size), &config, &source, &Arc::default()).expect("the ranks start");
        let results = generate(&mut executor, &prompts, &Settings::greedy(16, 48));
        results.into_iter().map(|result| result.tokens).collect::<Vec<_>>()
    });
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].iter().all(|tokens| tokens.len() == 48));
}

#[test]
fn a_chat_becomes_the_tokens_that_llama_cpp_makes_of_it() {
    let model = model();
    let (source, tokenizer) = (model.chat_template.expect("a template"), model.tokenizer.expect("a tokenizer"));
    let template = ChatTemplate::new(source).expect("it compiles");
    for recorded in Recorded::all() {
        let (messages, variables) = (json!([{"role": "user", "content": recorded.text}]), Map::new());
        let input = ChatInput { messages: &messages, tools: None, add_generation_prompt: true, variables: &variables };
        let text = template.render(&input).expect("the template renders");
        assert_eq!(tokenizer.encode(&text, Framing::Omitted).expect("the text encodes"), recorded.prompt, "{text}");
    }
}

/// Greedy answers to ten prompts with the head of `models/`, which is told to read the target at `taps`.
fn speculate(taps: Option<&[usize]>) -> (Vec<Output>, PaceReport) {
    let Model { config: model, source, .. } = model();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/eagle3-smollm2");
    let head = open_head(&folder, &model, taps, map_file).expect("the head fits the model");
    let speculation = Some(Speculation { head: Arc::new(head), shape: DraftShape::chain(4) });
    let own = config(&Arc::new(model), &source, &Arc::default());
    let mut served = Served::over(1, RanksConfig { speculation, ..own });
    let params = SamplingParams { temperature: 0.0, max_tokens: 64, ..SamplingParams::default() };
    let requests = Recorded::all().into_iter().take(10);
    let requests: Vec<_> = requests.map(|recorded| (recorded.prompt, params.clone())).collect();
    let outputs = served.answer(&requests);
    served.stats();
    (outputs, served.engine.speculation().expect("it speculates"))
}

/// The head of the tiny model hardly depends on its taps; this one does.
#[test]
fn wrong_taps_change_no_answer_and_are_named() {
    let ((answers, right), (same, wrong)) = (speculate(None), speculate(Some(&[0, 1, 2])));
    assert!(answers == same, "speculation changes no token, whatever the head says");
    let tokens = [&right, &wrong].map(|report| report.tokens_per_verify.expect("it verified"));
    assert!(tokens[0] > 2.0 && tokens[1] < 1.2, "tokens per verify: {tokens:?}");
    assert_eq!(right.warning, None);
    let warning = wrong.warning.expect("a warning");
    assert!(warning.contains("wrong taps") && warning.contains("--eagle3-taps"), "{warning}");
}
