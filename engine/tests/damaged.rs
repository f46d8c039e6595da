//! 200,000 damaged files: none may panic, hang or take memory that the file does not justify.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::json;
use support::damage::{Random, binary, json as damage_json};
use support::gguf::{Meta, Writer};
use support::probe;

/// Address space for the whole test. Inputs have a few KiB, so an allocation after a lying count does not fit.
const ADDRESS_SPACE: u64 = 1 << 30;

/// What the last panic said; the usual report with its backtrace would take most of the time.
static PANIC: LazyLock<Mutex<String>> = LazyLock::new(Mutex::default);

/// A kind of input: seeds, how to damage them and how to read them.
struct Kind {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    inputs: usize,
    damage: fn(&[u8], &mut Random) -> Vec<u8>,
    read: fn(&[u8]) -> bool,
}

#[test]
fn no_damage_is_fatal() {
    limit_memory();
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut text) = PANIC.lock() {
            *text = info.to_string();
        }
    }));
    let (kinds, started) = (kinds(), Instant::now());
    let reports: Vec<Result<String, String>> = kinds.iter().map(run).collect();
    let _ = std::panic::take_hook();
    println!("{reports:#?} in {:?}", started.elapsed());
    assert!(reports.iter().all(Result::is_ok), "{reports:#?}");
    assert_eq!(kinds.iter().map(|kind| kind.inputs).sum::<usize>(), 200_000);
}

/// Reads whole and damaged seeds. Damage must be felt, and not always be fatal to the file: otherwise it tests little.
fn run(kind: &Kind) -> Result<String, String> {
    let Kind { name, seeds, inputs, damage, read } = kind;
    let panicked = || PANIC.lock().map(|text| text.clone()).unwrap_or_default();
    let read = |input: &[u8]| catch_unwind(AssertUnwindSafe(|| read(input)));
    if !seeds.iter().all(|seed| read(seed).unwrap_or(false)) {
        return Err(format!("{name}: a seed is refused; last panic: {}", panicked()));
    }
    let (mut random, mut accepted) = (Random(20_251_129), 0);
    for number in 0..*inputs {
        let input = damage(&seeds[number % seeds.len()], &mut random);
        match read(&input) {
            Ok(well) => accepted += usize::from(well),
            Err(_) => return Err(format!("{name} input {number}: {}: {}", panicked(), kept(&input))),
        }
    }
    let report = format!("{name}: {accepted} of {inputs} damaged inputs are still readable");
    if accepted > inputs / 50 && accepted < *inputs { Ok(report) } else { Err(report) }
}

/// Writes an input to a file for closer study and says where.
fn kept(input: &[u8]) -> String {
    let path = std::env::temp_dir().join("archway-damaged-input");
    match std::fs::write(&path, input) {
        Ok(()) => format!("the input is kept as {}", path.display()),
        Err(error) => format!("the input cannot be kept: {error}"),
    }
}

fn kinds() -> Vec<Kind> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let config = |name| std::fs::read(folder.join(name)).expect("fixture exists");
    let configs =
        ["llama-3.1-8b.json", "deepseek-v3-tiny.json", "kimi-k2.5.json", "qwen3-moe-tiny.json", "gpt-oss-120b.json"];
    vec![
        Kind {
            name: "gguf",
            seeds: vec![gguf("llama"), gguf("qwen3moe")],
            inputs: 80_000,
            damage: binary,
            read: |input| probe::gguf(input, false),
        },
        Kind {
            name: "gguf tokenizer",
            seeds: vec![sentence_piece()],
            inputs: 15_000,
            damage: binary,
            read: |input| probe::gguf(input, true),
        },
        Kind {
            name: "safetensors",
            seeds: vec![safetensors()],
            inputs: 50_000,
            damage: header,
            read: probe::safetensors,
        },
        Kind {
            name: "config.json",
            seeds: configs.map(config).to_vec(),
            inputs: 40_000,
            damage: damage_json,
            read: probe::config,
        },
        Kind {
            name: "tokenizer.json",
            seeds: vec![tokenizer()],
            inputs: 15_000,
            damage: damage_json,
            read: probe::tokenizer,
        },
    ]
}

/// A small model of every part that the reader knows.
fn gguf(architecture: &'static str) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.meta("general.architecture", Meta::Text(architecture));
    for (key, value) in [
        ("block_count", 1),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
        ("context_length", 64),
        ("expert_count", if architecture == "llama" { 0 } else { 2 }),
        ("expert_used_count", 1),
    ] {
        writer.meta(&format!("{architecture}.{key}"), Meta::U32(value));
    }
    writer.meta("tokenizer.ggml.tokens", Meta::Texts(vec!["a".to_owned(), "b".to_owned()]));
    writer.meta("tokenizer.ggml.eos_token_id", Meta::U32(1));
    writer.tensor("token_embd.weight", &[32, 2], 8, &[1; 68]);
    writer.tensor("blk.0.attn_q.weight", &[32, 4], 3, &[2; 80]);
    writer.tensor("blk.0.attn_k.weight", &[4, 4], 0, &[3; 64]);
    writer.tensor("blk.0.ffn_up_exps.weight", &[32, 1, 2], 2, &[4; 36]);
    writer.tensor("rope_freqs.weight", &[8], 0, &1.0_f32.to_le_bytes().repeat(8));
    writer.bytes()
}

fn sentence_piece() -> Vec<u8> {
    let tokens = ["<unk>", "<s>", "</s>", "<0x61>", "▁", "a", "b", "▁a", "ab"];
    let mut writer = Writer::new();
    writer.meta("general.architecture", Meta::Text("llama"));
    writer.meta("tokenizer.ggml.model", Meta::Text("llama"));
    writer.meta("tokenizer.ggml.token_type", Meta::I32s(vec![2, 3, 3, 6, 1, 1, 1, 1, 4]));
    writer.meta("tokenizer.ggml.scores", Meta::F32s((0..tokens.len()).map(|id| -(id as f32)).collect()));
    writer.meta("tokenizer.ggml.tokens", Meta::Texts(tokens.map(str::to_owned).to_vec()));
    writer.meta("tokenizer.ggml.bos_token_id", Meta::U32(1));
    writer.bytes()
}

fn safetensors() -> Vec<u8> {
    let views = [("a", Dtype::F32, vec![2, 3], 24), ("b", Dtype::BF16, vec![4], 8), ("c", Dtype::I64, vec![], 8)];
    let data = [0; 24];
    let views = views.map(|(name, dtype, shape, size)| {
        (name, TensorView::new(dtype, shape, &data[..size]).expect("fixture is consistent"))
    });
    serialize(views, None).expect("can be serialised")
}

/// Damages the header's text and corrects its length, or damages any bytes.
fn header(seed: &[u8], random: &mut Random) -> Vec<u8> {
    if random.below(3) == 0 {
        return binary(seed, random);
    }
    let length = u64::from_le_bytes(std::array::from_fn(|index| seed[index])) as usize;
    let text = damage_json(&seed[8..8 + length], random);
    [&(text.len() as u64).to_le_bytes()[..], &text, &seed[8 + length..]].concat()
}

fn tokenizer() -> Vec<u8> {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": true, "normalized": false, "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<u>", "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": {"<u>": 0, "a": 1, "b": 2, "▁": 3, "ab": 4, "▁a": 5}, "merges": [["a", "b"], ["▁", "a"]]},
    })
    .to_string()
    .into_bytes()
}

/// Lowers this process's limit; an allocation beyond it ends the test.
fn limit_memory() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(ADDRESS_SPACE), maximum }).expect("a limit can be lowered");
}
