//! A whole checkpoint from files.

use std::path::Path;

use engine::load::{LoadFormat, Model, OpenOptions, open_model};
use engine::tokenizer::{ChatInput, ChatTemplate, Framing, Special};
use serde_json::{Map, json};
use tempfile::TempDir;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn open(path: &Path, options: &OpenOptions) -> Model {
    open_model(path, options).unwrap_or_else(|error| panic!("{error}"))
}

fn chat(model: &Model) -> String {
    let (messages, variables) = (json!([{"role": "user", "content": "hello"}]), Map::new());
    let input = ChatInput { messages: &messages, tools: None, add_generation_prompt: true, variables: &variables };
    let source = model.chat_template.clone().expect("has a template");
    ChatTemplate::new(source)
        .unwrap_or_else(|error| panic!("{error}"))
        .render(&input)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A folder with a configuration, a tokenizer and these further files; weights are random.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("can make a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("can write");
    write("config.json", &std::fs::read_to_string(fixture("config/llama-tiny.json")).expect("fixture exists"));
    write("tokenizer.json", &json!({
        "added_tokens": [{"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    }).to_string());
    files.iter().for_each(|(name, text)| write(name, text));
    folder
}

fn dummy() -> OpenOptions {
    OpenOptions { format: LoadFormat::Dummy, ..OpenOptions::default() }
}

#[test]
fn a_gguf_file_is_a_whole_model() {
    let model = open(&fixture("data/tiny-llama.gguf"), &OpenOptions::default());
    let tokenizer = model.tokenizer.as_ref().expect("has a tokenizer");
    let text = chat(&model);
    assert_eq!(text, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    let ids = tokenizer.encode(&text, Framing::Omitted).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((ids[0], tokenizer.decode(&ids, Special::Kept)), (1, text));
    assert!(model.source.tensor("model.norm.weight", &[32]).is_ok());
    let random = open(&fixture("data/tiny-llama.gguf"), &dummy());
    assert!(random.source.names().is_empty() && random.tokenizer.is_some());
}

#[test]
fn a_folder_brings_tokenizer_template_and_defaults() {
    let settings = r#"{"eos_token": "</s>", "chat_template": "{{ messages[0].content }}{{ eos_token }}"}"#;
    let generation = r#"{"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true, "eos_token_id": [2, 7]}"#;
    let model = folder(&[("tokenizer_config.json", settings), ("generation_config.json", generation)]);
    let model = open(model.path(), &dummy());
    assert_eq!(chat(&model), "hello</s>");
    assert_eq!(
        (model.generation.temperature, model.generation.top_k, model.generation.top_p),
        (Some(0.6), Some(20), Some(0.95))
    );
    assert_eq!(model.config.eos_tokens, [2, 7]);
    assert_eq!(model.tokenizer.and_then(|tokenizer| tokenizer.eos_token()), Some(2));
}

#[test]
fn templates_outrank_each_other() {
    let settings = ("tokenizer_config.json", r#"{"chat_template": "settings"}"#);
    let own = ("chat_template.json", r#"{"chat_template": "json"}"#);
    let file = ("chat_template.jinja", "file");
    assert_eq!(chat(&open(folder(&[own]).path(), &dummy())), "json");
    assert_eq!(chat(&open(folder(&[own, settings]).path(), &dummy())), "settings");
    let all = folder(&[own, settings, file]);
    assert_eq!(chat(&open(all.path(), &dummy())), "file");
    let inline = OpenOptions { chat_template: Some("{{ 'inline' }}".to_owned()), ..dummy() };
    assert_eq!(chat(&open(all.path(), &inline)), "inline");
    let path = all.path().join("chat_template.jinja").display().to_string();
    assert_eq!(chat(&open(folder(&[]).path(), &OpenOptions { chat_template: Some(path), ..dummy() })), "file");
    assert!(open(folder(&[]).path(), &dummy()).chat_template.is_none());
}

#[test]
fn errors_name_the_file() {
    let error = |files: &[(&str, &str)], options: OpenOptions| {
        open_model(folder(files).path(), &options).err().expect("must be refused").to_string()
    };
    let gone = OpenOptions { chat_template: Some("gone.jinja".to_owned()), ..dummy() };
    assert_eq!(error(&[], gone), "--chat-template: `gone.jinja` is neither a file nor the text of a template");
    let cases = [
        (("tokenizer.json", "{}"), "tokenizer.json: is not a usable tokenizer: "),
        (("tokenizer_config.json", "{"), "tokenizer_config.json: is not valid JSON: "),
        (("generation_config.json", r#"{"top_k": -1}"#), "generation_config.json: key `top_k` is -1, but must be"),
        (("chat_template.json", "{}"), "chat_template.json: key `chat_template` must be a string"),
        (("config.json", "{}"), "config.json: key `model_type` is missing"),
    ];
    for (file, message) in cases {
        let error = error(&[file], dummy());
        assert!(error.contains(message), "{error}");
    }
    let error = error(&[], OpenOptions::default());
    assert!(error.contains("has no weights: expected `model.safetensors`"), "{error}");
}
