//! `/v1/chat/completions`.

use serde_json::{Value, json};

use crate::harness::{Server, chat, events, ok, with};

const PATH: &str = "/v1/chat/completions";

/// What the mock says to `chat("hi")`: its prompt.
const ECHO: &str = "user: hi\nassistant: ";

#[tokio::test]
async fn an_answer_has_openais_form() {
    let server = Server::start().await;
    let answer = server.answer(PATH, &chat("hi")).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "mock");
    let choices = json!([{
        "index": 0,
        "message": {"role": "assistant", "content": ECHO, "refusal": null, "annotations": []},
        "logprobs": null,
        "finish_reason": "stop",
    }]);
    assert_eq!(answer["choices"], choices);
    let usage = json!({
        "prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40,
        "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!(answer["usage"], usage);
    assert_eq!(answer.get("prompt_logprobs"), None);
}

#[tokio::test]
async fn a_stream_carries_the_same_answer_and_its_usage() {
    let server = Server::start().await;
    let request = with(chat("hé"), json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2}));
    let response = server.post(PATH, &request).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let chunks = events(&response.text().await.unwrap());
    let (usage, chunks) = chunks.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 42);
    let mut texts = [String::new(), String::new()];
    let mut reasons = [Value::Null, Value::Null];
    for chunk in chunks {
        assert_eq!((&chunk["object"], &chunk["usage"]), (&json!("chat.completion.chunk"), &Value::Null));
        let choice = &chunk["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        if texts[index].is_empty() && choice["delta"]["role"] == "assistant" {
            assert_eq!(choice["delta"], json!({"role": "assistant", "content": "", "refusal": null}));
        }
        texts[index].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        reasons[index] = choice["finish_reason"].clone();
    }
    assert_eq!(texts, ["user: hé\nassistant: ", "user: hé\nassistant: "]);
    assert_eq!(reasons, ["stop", "stop"]);
}

#[tokio::test]
async fn usage_comes_with_every_chunk_on_request_and_never_unasked() {
    let server = Server::start().await;
    let options = json!({"stream": true, "stream_options": {"continuous_usage_stats": true}});
    let text = server.post(PATH, &with(chat("hi"), options)).send().await.unwrap().text().await.unwrap();
    assert!(events(&text).iter().all(|chunk| chunk["usage"]["prompt_tokens"] == 20));
    let text =
        server.post(PATH, &with(chat("hi"), json!({"stream": true}))).send().await.unwrap().text().await.unwrap();
    assert!(events(&text).iter().all(|chunk| chunk.get("usage").is_none() && !chunk["choices"][0].is_null()));
}

#[tokio::test]
async fn parts_log_probabilities_and_limits_are_honoured() {
    let server = Server::start().await;
    let request = json!({
        "model": "alias",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "max_completion_tokens": 3, "max_tokens": 2, "logprobs": true, "top_logprobs": 1, "prompt_logprobs": 0,
        "ignore_eos": true, "temperature": 0, "seed": -7, "top_k": -1, "logit_bias": {"5": 1.5}, "stop": ["zzz"],
    });
    let answer = server.answer(PATH, &request).await;
    let choice = &answer["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("use"), &json!("length")));
    let first = json!({
        "token": "u", "logprob": 0.0, "bytes": [117],
        "top_logprobs": [{"token": "u", "logprob": 0.0, "bytes": [117]}],
    });
    assert_eq!(choice["logprobs"]["content"].as_array().unwrap().len(), 3);
    assert_eq!(choice["logprobs"]["content"][0], first);
    assert_eq!(choice["logprobs"]["refusal"], Value::Null);
    assert_eq!(answer["prompt_logprobs"][0], Value::Null);
    assert_eq!(answer["prompt_logprobs"][1], json!({"115": {"logprob": 0.0, "rank": 1, "decoded_token": "s"}}));
}

#[tokio::test]
async fn what_has_no_effect_is_named_in_a_header() {
    let server = Server::start().await;
    let extra = json!({
        "user": "me", "metadata": {"a": "b"}, "store": false, "service_tier": "auto", "prompt_cache_key": "k",
        "safety_identifier": "s", "tools": null, "seed": null, "tool_choice": "none", "stream_options": null,
    });
    let response = server.post(PATH, &with(chat("hi"), extra)).send().await.unwrap();
    let named = response.headers()["archway-ignored"].to_str().unwrap().to_owned();
    let mut named: Vec<&str> = named.split(", ").collect();
    named.sort_unstable();
    let expected = [
        "metadata",
        "prompt_cache_key",
        "safety_identifier",
        "seed",
        "service_tier",
        "store",
        "stream_options",
        "tool_choice",
        "tools",
        "user",
    ];
    assert_eq!(named, expected);
    ok(response).await;
    let response = server.post(PATH, &chat("hi")).send().await.unwrap();
    assert!(response.headers().get("archway-ignored").is_none());
}

/// vllm-router 0.1.17 and sglang-router 0.3.2 write these into every request that they pass on.
#[tokio::test]
async fn what_routers_add_is_understood() {
    let server = Server::start().await;
    let added = json!({
        "stream": false, "logprobs": false, "no_stop_trim": false, "ignore_eos": false,
        "continue_final_message": false, "skip_special_tokens": true, "separate_reasoning": true,
        "stream_reasoning": true, "return_hidden_states": false, "include_reasoning": true,
    });
    let answer = server.answer(PATH, &with(chat("hi"), added)).await;
    assert_eq!(answer["choices"][0]["message"]["content"], ECHO);
}

#[tokio::test]
async fn what_ran_is_reported_where_it_is_asked_for() {
    let server = Server::start().await;
    let answer = |more: Value| server.post(PATH, &with(chat("hé"), more)).send();
    let plain: Value = answer(json!({})).await.unwrap().json().await.unwrap();
    assert_eq!(plain["usage"].get("archway"), None);
    let asked: Value = answer(json!({"archway_usage": true})).await.unwrap().json().await.unwrap();
    // The mock engine has one rank and so nothing to sum.
    assert_eq!(asked["usage"]["archway"], json!({"collectives": []}));
    let stream = answer(json!({"archway_usage": true, "stream": true})).await.unwrap().text().await.unwrap();
    let chunks = events(&stream);
    assert_eq!(chunks.last().unwrap()["usage"]["archway"], json!({"collectives": []}));
    let wrong = answer(json!({"archway_usage": "yes"})).await.unwrap();
    assert_eq!(wrong.status(), 400);
}
