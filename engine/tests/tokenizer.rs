//! Tokenizers of GGUF files and of `tokenizer.json`.

mod support;

use std::path::Path;
use std::sync::Arc;

use engine::runner::{TextPipeline, TokenizerText};
use engine::tokenizer::{Framing, Special, Tokenizer, TokenizerSettings};
use engine::types::{Request, RequestId, SamplingParams};
use engine::weights::{GgufWeights, read_file};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::gguf::{Meta, Writer};

fn fixture() -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny-llama.gguf");
    let weights = GgufWeights::open(&path, read_file).unwrap_or_else(|error| panic!("{error}"));
    Tokenizer::from_gguf(&weights).unwrap_or_else(|error| panic!("{error}")).expect("has a tokenizer")
}

fn from_writer(writer: &Writer) -> Result<Option<Tokenizer>, String> {
    let folder = tempfile::tempdir().expect("can make a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, writer.bytes()).expect("can write");
    let weights = GgufWeights::open(&path, read_file).unwrap_or_else(|error| panic!("{error}"));
    Tokenizer::from_gguf(&weights).map_err(|error| error.to_string())
}

fn from_json(json: &Value, settings: &TokenizerSettings) -> Result<Tokenizer, String> {
    Tokenizer::from_json("tokenizer.json", json.to_string().as_bytes(), settings).map_err(|error| error.to_string())
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, Framing::Added).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn merges_and_special_tokens_of_a_gguf_file() {
    let tokenizer = fixture();
    let [hello, world] = ["hello", "Ġworld"].map(|token| tokenizer.id_of(token).expect("is a token"));
    assert_eq!(encode(&tokenizer, "<|im_start|>hello world<|im_end|>"), [1, hello, world, 2]);
    assert_eq!((tokenizer.bos_token(), tokenizer.eos_token(), tokenizer.vocabulary_size()), (Some(1), Some(2), 269));
    assert_eq!(tokenizer.decode(&[1, hello, world, 2], Special::Kept), "<|im_start|>hello world<|im_end|>");
    assert_eq!(tokenizer.decode(&[1, hello, world, 2], Special::Skipped), "hello world");
    assert_eq!((tokenizer.token_bytes(world), tokenizer.token_bytes(9999)), (&b" world"[..], &b""[..]));
    assert!(tokenizer.is_special(2) && !tokenizer.is_special(hello));
    // Digits stand alone, as "smollm" cuts text.
    assert_eq!(encode(&tokenizer, "12").len(), 2);
}

proptest! {
    #[test]
    fn any_text_survives_and_any_split_decodes_the_same(text in any::<String>(), ids in prop::collection::vec(0_u32..300, 0..40)) {
        let tokenizer = fixture();
        let encoded = encode(&tokenizer, &text);
        prop_assert_eq!(tokenizer.decode(&encoded, Special::Kept), text);
        for special in [Special::Kept, Special::Skipped] {
            // The definition: all bytes together, wrong ones replaced.
            let bytes = ids.iter().filter(|id| special == Special::Kept || !tokenizer.is_special(**id));
            let bytes: Vec<u8> = bytes.flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
            let (mut decoder, mut streamed) = (tokenizer.stream(special), String::new());
            ids.iter().for_each(|id| decoder.push(*id, &mut streamed));
            decoder.finish(&mut streamed);
            prop_assert_eq!(&streamed, &String::from_utf8_lossy(&bytes));
            prop_assert_eq!(&streamed, &tokenizer.decode(&ids, special));
        }
    }
}

#[test]
fn an_incomplete_character_is_held_back() {
    let tokenizer = fixture();
    let ids = encode(&tokenizer, "é🙂");
    assert_eq!(ids.len(), 6);
    let (mut decoder, mut pieces) = (tokenizer.stream(Special::Skipped), Vec::new());
    for id in &ids {
        let mut piece = String::new();
        decoder.push(*id, &mut piece);
        pieces.push(piece);
    }
    assert_eq!(pieces, ["", "é", "", "", "", "🙂"]);
    let (mut cut, mut text) = (tokenizer.stream(Special::Skipped), String::new());
    cut.push(ids[2], &mut text);
    cut.finish(&mut text);
    assert_eq!(text, "\u{FFFD}");
}

/// A SentencePiece file with scores in the order of the tokens.
fn sentence_piece(further: &[(&str, Meta)]) -> Writer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let pieces = ["▁t", "he", "▁the", "▁", "t", "h", "e", "re", "r", "▁there", "▁▁", "[INST]"];
    tokens.extend(pieces.map(str::to_owned));
    let kinds = (0..tokens.len()).map(|id| match id {
        0 => 2,
        1 | 2 => 3,
        3..259 => 6,
        _ if id + 1 == tokens.len() => 4,
        _ => 1,
    });
    let mut writer = Writer::new();
    writer.meta("tokenizer.ggml.model", Meta::Text("llama"));
    writer.meta("tokenizer.ggml.token_type", Meta::I32s(kinds.collect()));
    writer.meta("tokenizer.ggml.scores", Meta::F32s((0..tokens.len()).map(|id| 259.0 - id as f32).collect()));
    writer.meta("tokenizer.ggml.tokens", Meta::Texts(tokens));
    for (key, value) in further {
        writer.meta(&format!("tokenizer.ggml.{key}"), value.clone());
    }
    writer
}

fn open(writer: &Writer) -> Tokenizer {
    from_writer(writer).unwrap_or_else(|error| panic!("{error}")).expect("has a tokenizer")
}

#[test]
fn sentence_piece_joins_by_score_and_falls_back_to_bytes() {
    let tokenizer = open(&sentence_piece(&[]));
    let id = |token: &str| tokenizer.id_of(token).unwrap_or_else(|| panic!("{token} is not a token"));
    // "▁t" + "he" become "▁the" before "re" can join; "▁the" + "re" is not a cut that scores, "▁there" is.
    assert_eq!(encode(&tokenizer, "there"), [1, id("▁there")]);
    assert_eq!(encode(&tokenizer, "the the"), [1, id("▁the"), id("▁the")]);
    assert_eq!(encode(&tokenizer, "é"), [1, id("▁"), 3 + 0xc3, 3 + 0xa9]);
    assert_eq!(encode(&tokenizer, "[INST] the"), [1, id("[INST]"), id("▁"), id("▁the")]);
    assert_eq!(tokenizer.decode(&encode(&tokenizer, "the é  the"), Special::Skipped), "the é  the");
    let (mut stream, mut text) = (tokenizer.stream(Special::Skipped), String::new());
    stream.push(id("▁the"), &mut text);
    assert_eq!(text, " the", "a stream continues a prompt, so its first space stays");
}

#[test]
fn flags_of_the_file_are_followed() {
    let tokenizer = open(&sentence_piece(&[
        ("add_bos_token", Meta::Flag(false)),
        ("add_eos_token", Meta::Flag(true)),
        ("add_space_prefix", Meta::Flag(false)),
    ]));
    let id = |token: &str| tokenizer.id_of(token).unwrap_or_else(|| panic!("{token} is not a token"));
    assert_eq!(encode(&tokenizer, "the"), [id("t"), id("he"), 2]);
    assert_eq!(
        tokenizer.encode("the", Framing::Omitted).map_err(|error| error.to_string()),
        Ok(vec![id("t"), id("he")])
    );
    let tokenizer = open(&sentence_piece(&[]));
    assert_eq!(encode(&tokenizer, "<s>the"), encode(&tokenizer, "the"), "no second beginning of sequence");
}

/// A byte-level file with few tokens.
fn byte_level(pre: &'static str, merges: &[&str]) -> Writer {
    let mut writer = Writer::new();
    writer.meta("tokenizer.ggml.model", Meta::Text("gpt2"));
    writer.meta("tokenizer.ggml.pre", Meta::Text(pre));
    let tokens = ["<s>", "a", "b", "c", "ab", "abc", "1", "2", "12", "Ġ", "bc"];
    writer.meta("tokenizer.ggml.tokens", Meta::Texts(tokens.map(str::to_owned).to_vec()));
    writer.meta("tokenizer.ggml.merges", Meta::Texts(merges.iter().map(|merge| (*merge).to_owned()).collect()));
    writer.meta("tokenizer.ggml.bos_token_id", Meta::U32(0));
    writer
}

#[test]
fn pre_tokenizers_cut_numbers_their_way() {
    let count = |pre| encode(&open(&byte_level(pre, &["1 2"])), "1212").len();
    assert_eq!((count("smollm"), count("qwen2"), count("gpt-2")), (4, 4, 2));
    // Three digits at most, and a beginning of sequence by default.
    assert_eq!(count("llama-bpe"), 1 + 3);
}

#[test]
fn qwen_composes_characters() {
    let tokenizer = open(&byte_level("qwen2", &[]));
    // Without the composed form's bytes in this vocabulary nothing is left; the letter alone would be.
    assert_eq!((encode(&tokenizer, "a\u{301}"), encode(&tokenizer, "a")), (vec![], vec![1]));
    assert_eq!(encode(&open(&byte_level("gpt-2", &[])), "a\u{301}"), [1]);
}

#[test]
fn llama_takes_whole_words_first() {
    // By the merges "abc" is "a" + "bc" and no more; as a word it is a token.
    let merges = ["b c", "a b"];
    let tokenizer = open(&byte_level("llama-bpe", &merges));
    assert_eq!(encode(&tokenizer, "abc"), [0, tokenizer.id_of("abc").expect("is a token")]);
    let tokenizer = open(&byte_level("qwen2", &merges));
    assert_eq!(encode(&tokenizer, "abc").len(), 2);
}

#[test]
fn wrong_tokenizers_in_gguf_files_are_said() {
    let mut other = Writer::new();
    other.meta("tokenizer.ggml.model", Meta::Text("rwkv"));
    other.meta("tokenizer.ggml.tokens", Meta::Texts(vec!["a".to_owned()]));
    let mut bare = Writer::new();
    bare.meta("tokenizer.ggml.model", Meta::Text("gpt2"));
    let mut kinds = byte_level("qwen2", &[]);
    kinds.meta("tokenizer.ggml.token_type", Meta::I32s(vec![1]));
    let mut eos = byte_level("qwen2", &[]);
    eos.meta("tokenizer.ggml.eos_token_id", Meta::U32(11));
    let cases = [
        (other, "metadata key `tokenizer.ggml.model` is \"rwkv\"; gpt2 and llama are known"),
        (bare, "metadata key `tokenizer.ggml.tokens` is missing"),
        (kinds, "metadata key `tokenizer.ggml.token_type` has 1 entries, but `tokenizer.ggml.tokens` has 11"),
        (eos, "metadata key `tokenizer.ggml.eos_token_id` is 11, but there are 11 tokens"),
        (byte_level("new", &[]), "metadata key `tokenizer.ggml.pre` is \"new\"; known are default, gpt-2"),
        (
            byte_level("qwen2", &["a b", "b 2"]),
            "metadata key `tokenizer.ggml.merges`[1] is \"b 2\", which does not join",
        ),
        (byte_level("qwen2", &["ab"]), "metadata key `tokenizer.ggml.merges`[0] is \"ab\", which does not join"),
    ];
    for (writer, message) in cases {
        let error = from_writer(&writer).err().expect("must be refused");
        assert!(error.contains("model.gguf: ") && error.contains(message), "{error}");
    }
    assert!(matches!(from_writer(&Writer::new()), Ok(None)));
}

/// A `tokenizer.json` of the same small byte-level vocabulary.
fn small_json() -> Value {
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [
            {"id": 5, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 6, "content": "<tool>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false},
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ã": 4}, "merges": [["a", "b"]]},
    })
}

#[test]
fn a_tokenizer_json_is_read() {
    let settings = TokenizerSettings { eos_token: Some("<|end|>".to_owned()), ..TokenizerSettings::default() };
    let tokenizer = from_json(&small_json(), &settings).unwrap_or_else(|error| panic!("{error}"));
    let ids = encode(&tokenizer, "ab ab<tool><|end|>");
    assert_eq!(ids, [2, 3, 2, 6, 5], "the file's truncation to two tokens is for training");
    assert_eq!((tokenizer.decode(&ids, Special::Skipped).as_str(), tokenizer.vocabulary_size()), ("ab ab<tool>", 7));
    assert_eq!((tokenizer.eos_token(), tokenizer.bos_token()), (Some(5), None));
    let settings = TokenizerSettings { bos_token: Some("a".to_owned()), bos_added: true, ..settings };
    let tokenizer = from_json(&small_json(), &settings).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((encode(&tokenizer, "b"), encode(&tokenizer, "a")), (vec![0, 1], vec![0]));
}

#[test]
fn sentence_piece_decoders_are_understood() {
    let with_decoder = |decoder: Value| {
        let mut json = small_json();
        json["decoder"] = decoder;
        json["model"]["vocab"] = json!({"▁a": 0, "b": 1, "▁": 2, "<0xC3>": 3, "<0xA9>": 4});
        json["model"]["merges"] = json!([]);
        from_json(&json, &TokenizerSettings::default())
    };
    let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let chain = |steps: Value| json!({"type": "Sequence", "decoders": steps});
    let llama = with_decoder(chain(json!([replace, {"type": "ByteFallback"}, {"type": "Fuse"}, strip])));
    assert_eq!(llama.map(|tokenizer| tokenizer.decode(&[0, 1, 0, 3, 4], Special::Skipped)), Ok("ab aé".to_owned()));
    let gemma = with_decoder(chain(json!([replace, {"type": "ByteFallback"}, {"type": "Fuse"}])));
    assert_eq!(gemma.map(|tokenizer| tokenizer.decode(&[0, 1], Special::Skipped)), Ok(" ab".to_owned()));
    let metaspace =
        with_decoder(json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}));
    assert_eq!(metaspace.map(|tokenizer| tokenizer.decode(&[0, 2, 1], Special::Skipped)), Ok("a b".to_owned()));
    let error = with_decoder(json!({"type": "WordPiece", "prefix": "##", "cleanup": true})).err();
    assert_eq!(
        error.as_deref(),
        Some(
            "tokenizer.json: key `decoder` has the step WordPiece, which is not understood; ByteLevel, Metaspace and SentencePiece's Replace are"
        )
    );
    assert!(with_decoder(Value::Null).is_err_and(|error| error.contains("key `decoder` is missing")));
}

#[test]
fn a_wrong_tokenizer_json_is_said() {
    let mut merges = small_json();
    merges["model"]["merges"] = json!([["a", "Ġ"]]);
    let mut ids = small_json();
    ids["model"]["vocab"]["b"] = json!(4_000_000_000_u32);
    // A letter becomes a terabyte; a text is taken twice.
    let mut growing = small_json();
    let ten = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"});
    growing["normalizer"] = json!({"type": "Sequence", "normalizers": vec![ten; 12]});
    let mut twice = small_json();
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    twice["post_processor"] = json!({
        "type": "TemplateProcessing", "single": [text, text], "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {},
    });
    for (json, message) in [
        (merges, "is not a usable tokenizer: "),
        (ids, "has token id 4000000000, but only"),
        (growing, "key `normalizer` makes a text up to 1000000000000 times as long"),
        (twice, "key `post_processor` takes a text 2 times"),
        (json!([]), "is not a usable tokenizer: "),
    ] {
        let error = from_json(&json, &TokenizerSettings::default()).err().expect("must be refused");
        assert!(error.starts_with("tokenizer.json: ") && error.contains(message), "{error}");
    }
}

#[test]
fn a_token_that_has_two_ids_is_refused() {
    let json = small_json().to_string();
    let twice = json.replacen(r#""vocab":{"#, r#""vocab":{"b":3,"#, 1);
    assert_ne!(json, twice);
    let error = Tokenizer::from_json("tokenizer.json", twice.as_bytes(), &TokenizerSettings::default()).err();
    let said = error.map(|error| error.to_string());
    assert!(said.as_ref().is_some_and(|said| said.contains("key `b` appears twice")), "{said:?}");
}

#[test]
fn settings_are_read_in_every_spelling() {
    let text = json!({
        "bos_token": {"content": "<s>", "special": true},
        "eos_token": "</s>",
        "add_bos_token": true,
        "chat_template": [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "y"}],
    });
    let settings = TokenizerSettings::parse("t", &text.to_string()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((settings.bos_token.as_deref(), settings.eos_token.as_deref()), (Some("<s>"), Some("</s>")));
    assert!(settings.bos_added);
    assert_eq!(settings.chat_templates.len(), 2);
    for (text, message) in [
        ("[]", "must hold a JSON object"),
        (r#"{"eos_token": 2}"#, "key `eos_token` must be a string"),
        (r#"{"chat_template": 2}"#, "key `chat_template` must be"),
        (r#"{"eos_token": "a", "eos_token": "b"}"#, "key `eos_token` appears twice"),
    ] {
        let error =
            TokenizerSettings::parse("folder/tokenizer_config.json", text).expect_err("must be refused").to_string();
        assert!(error.starts_with("folder/tokenizer_config.json: ") && error.contains(message), "{error}");
    }
}

#[test]
fn an_output_ends_at_a_stop_string_across_tokens() {
    let tokenizer = Arc::new(fixture());
    let ids = encode(&tokenizer, "hello é!<|im_end|>world");
    let decoder = |stop: &str, include_stop: bool| {
        let params = SamplingParams { stop: vec![stop.to_owned()], include_stop, ..SamplingParams::default() };
        let (prompt, params) = (Arc::from([1]), Arc::new(params));
        TokenizerText(tokenizer.clone()).decoder(&Request {
            id: RequestId(1),
            prompt,
            params,
            priority: 0,
            cache_salt: None,
        })
    };
    for (stop, include_stop, expected) in
        [("é!wor", false, "hello "), ("é!wor", true, "hello é!wor"), ("ld?", false, "hello é!world")]
    {
        let (mut decoder, mut text) = (decoder(stop, include_stop), String::new());
        let stopped = ids.iter().any(|id| decoder.push(*id, &mut text));
        if !stopped {
            decoder.finish(&mut text);
        }
        assert_eq!((stopped, text.as_str()), (stop != "ld?", expected));
    }
}
