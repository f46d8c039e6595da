//! What is refused, and how.

use engine_server::mock::MockSizes;
use engine_server::settings::{Limits, Settings};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Server, chat, error, with};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn a_refused_field_is_named() {
    let server = Server::start().await;
    let cases = [
        (json!({"tools": [{"type": "function"}]}), "tools", "unsupported_parameter"),
        (json!({"response_format": {"type": "json_object"}}), "response_format", "unsupported_parameter"),
        (json!({"store": true}), "store", "unsupported_parameter"),
        (json!({"temprature": 1}), "temprature", "unknown_parameter"),
        (json!({"stream": true, "stream_options": {"x": 1}}), "stream_options.x", "unknown_parameter"),
        (json!({"stream_options": {}}), "stream_options", "invalid_value"),
        (json!({"temperature": "hot"}), "temperature", "invalid_value"),
        (json!({"temperature": 101}), "temperature", "invalid_value"),
        (json!({"top_logprobs": 2}), "top_logprobs", "invalid_value"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs", "invalid_value"),
        (json!({"n": 0}), "n", "invalid_value"),
        (json!({"max_tokens": 0}), "max_tokens", "invalid_value"),
        (json!({"max_tokens": 100_000}), "max_tokens", "context_length_exceeded"),
        (json!({"min_tokens": 5, "max_tokens": 4}), "min_tokens", "invalid_value"),
        (json!({"stop": ["a", ""]}), "stop", "invalid_value"),
        (json!({"stop": ["a", "x".repeat(1025)]}), "stop[1]", "invalid_value"),
        (json!({"cache_salt": "x".repeat(1025)}), "cache_salt", "invalid_value"),
        (json!({"stop_token_ids": [512]}), "stop_token_ids[0]", "invalid_value"),
        (json!({"stream": true, "prompt_logprobs": 1}), "prompt_logprobs", "unsupported_parameter"),
        (json!({"messages": []}), "messages", "invalid_value"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content", "missing_required_parameter"),
        (json!({"messages": [{"role": "king", "content": ""}]}), "messages[0].role", "invalid_value"),
        (json!({"messages": [{"role": "user", "content": "x".repeat(9000)}]}), "messages", "context_length_exceeded"),
    ];
    for (more, param, code) in cases {
        let (status, error) = server.refusal(CHAT, &with(chat("hi"), more)).await;
        assert_eq!((status, &error["param"], &error["code"]), (StatusCode::BAD_REQUEST, &json!(param), &json!(code)));
        assert!(error["message"].as_str().unwrap().contains(param), "{error}");
    }
}

#[tokio::test]
async fn required_fields_and_models_are_checked() {
    let server = Server::start().await;
    let (status, error) = server.refusal(CHAT, &json!({"messages": [{"role": "user", "content": "a"}]})).await;
    assert_eq!((status, &error["param"]), (StatusCode::BAD_REQUEST, &json!("model")));
    let (status, error) = server.refusal(COMPLETIONS, &json!({"model": "mock"})).await;
    assert_eq!((status, &error["param"]), (StatusCode::BAD_REQUEST, &json!("prompt")));
    let (status, error) = server.refusal(COMPLETIONS, &json!({"model": "none", "prompt": "a"})).await;
    assert_eq!((status, &error["code"]), (StatusCode::NOT_FOUND, &json!("model_not_found")));
    for (prompt, param) in [(json!([]), "prompt"), (json!([[]]), "prompt"), (json!([[1], [512]]), "prompt[1][0]")] {
        let (status, error) = server.refusal(COMPLETIONS, &json!({"model": "mock", "prompt": prompt})).await;
        assert_eq!((status, &error["param"]), (StatusCode::BAD_REQUEST, &json!(param)));
    }
}

#[tokio::test]
async fn bodies_of_any_shape_get_an_answer() {
    let server = Server::start().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let mut bodies: Vec<Vec<u8>> = ["", "{", "null", "[]", "1e999", "\"a\"", "{\"model\":1}", "{\"n\":1e40}", "{} {}"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
    bodies.push(format!("{{\"model\":\"mock\",\"metadata\":{deep}}}").into_bytes());
    bodies.push(deep.into_bytes());
    bodies.push(vec![0xFF, 0xFE, 0x00]);
    for path in [CHAT, COMPLETIONS, "/tokenize", "/detokenize"] {
        for body in &bodies {
            let (status, _) = error(server.post_bytes(path, body.clone()).send().await.unwrap()).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {}", String::from_utf8_lossy(body));
        }
    }
}

/// Each is answered at once and in few words, whatever its length.
#[tokio::test]
async fn floods_are_refused_before_they_cost_anything() {
    let server = Server::start().await;
    let (long, text) = ("x".repeat(8 << 20), "a ".repeat(4 << 20));
    let many: serde_json::Map<String, Value> = (0..200_000).map(|index| (format!("f{index}"), json!(1))).collect();
    let message = json!({"role": "user", "content": "a"});
    let begin = std::time::Instant::now();
    for (path, more) in [
        (CHAT, json!({"model": long})),
        (CHAT, json!({ (long.as_str()): 1 })),
        (CHAT, Value::Object(many)),
        (CHAT, json!({"temperature": long})),
        (CHAT, json!({"messages": [{"role": long, "content": ""}]})),
        (CHAT, json!({"messages": [{"role": "user", "content": text}]})),
        (CHAT, json!({"messages": vec![message; 100_000]})),
        (CHAT, json!({"logit_bias": {"9".repeat(1 << 20): 1}})),
        (CHAT, json!({"stop": [long]})),
        (COMPLETIONS, json!({"prompt": text})),
        (COMPLETIONS, json!({"prompt": vec!["a"; 100_000]})),
        (COMPLETIONS, json!({"prompt": vec!["a"; 100], "n": 128})),
        (COMPLETIONS, json!({"prompt": vec![5; 2000], "n": 128, "prompt_logprobs": 20})),
        (COMPLETIONS, json!({"prompt": vec![5; 2000], "n": 128, "echo": true, "logprobs": 20})),
        ("/tokenize", json!({"prompt": text})),
        ("/tokenize", json!({ (long.as_str()): 1 })),
    ] {
        let start = if path == CHAT { chat("hi") } else { json!({"model": "mock"}) };
        let response = server.post(path, &with(start, more)).send().await.unwrap();
        let status = response.status().as_u16();
        let length = response.bytes().await.unwrap().len();
        assert!((400..500).contains(&status) && length < 8000, "{path}: {status} in {length} bytes");
    }
    // Much less alone; the test's own making of these bodies takes most of it.
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn paths_methods_and_media_types_are_checked() {
    let server = Server::start().await;
    let (status, body) = error(server.get("/v1/chat/completion").send().await.unwrap()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body["message"].as_str().unwrap().ends_with("did you mean /v1/chat/completions?"));
    let response = server.get(CHAT).send().await.unwrap();
    assert_eq!(response.headers()["allow"], "POST");
    assert_eq!(error(response).await.0, StatusCode::METHOD_NOT_ALLOWED);
    let (status, body) = error(server.get("/v1/models/%ff").send().await.unwrap()).await;
    assert_eq!((status, &body["param"]), (StatusCode::BAD_REQUEST, &json!("model")));
    let packed = server.post(CHAT, &chat("a")).header("content-encoding", "gzip");
    let (status, body) = error(packed.send().await.unwrap()).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNSUPPORTED_MEDIA_TYPE, &json!("unsupported_media_type")));
    let request = server.client.post(format!("http://{}{CHAT}", server.address())).body("{}");
    let (status, body) = error(request.send().await.unwrap()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(body["message"].as_str().unwrap().starts_with("the header Content-Type is missing"), "{body}");
}

#[tokio::test]
async fn bodies_and_queues_are_bounded() {
    let limits = Limits { body_bytes: 300, queued: 1, ..Limits::default() };
    let sizes = MockSizes { interval: std::time::Duration::from_millis(5), slots: 1, context: 100_000 };
    let server = Server::with(Settings { limits, ..Settings::default() }, sizes).await;
    let (status, _) = server.refusal(CHAT, &chat(&"x".repeat(300))).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let chunks = futures_util::stream::iter((0..10).map(|_| Ok::<_, std::io::Error>(vec![b' '; 100])));
    let request = server.client.post(format!("http://{}{CHAT}", server.address()));
    let request = request.header("content-type", "application/json").body(reqwest::Body::wrap_stream(chunks));
    assert_eq!(error(request.send().await.unwrap()).await.0, StatusCode::PAYLOAD_TOO_LARGE);

    let (status, refused) = server.refusal(CHAT, &with(chat("a"), json!({"n": 3}))).await;
    assert_eq!((status, &refused["code"]), (StatusCode::BAD_REQUEST, &json!("too_many_outputs")));
    let endless = with(chat("a"), json!({"n": 2, "stream": true, "ignore_eos": true}));
    let running = server.post(CHAT, &endless).send().await.unwrap();
    let response = server.post(CHAT, &chat("a")).send().await.unwrap();
    assert_eq!(response.headers()["retry-after"], "1");
    let (status, refused) = error(response).await;
    assert_eq!((status, &refused["type"]), (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limit_error")));
    drop(running);
    server.idle().await;
    let answer: Value = server.answer(CHAT, &chat("a")).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}
