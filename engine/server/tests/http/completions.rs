//! `/v1/completions`.

use serde_json::{Value, json};

use crate::harness::{Server, events, with};

const PATH: &str = "/v1/completions";

fn texts(answer: &Value) -> Vec<(u64, &str, &str)> {
    answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| {
            let word = |name: &str| choice[name].as_str().unwrap_or("null");
            (choice["index"].as_u64().unwrap(), word("text"), word("finish_reason"))
        })
        .collect()
}

#[tokio::test]
async fn prompts_are_text_tokens_or_lists_of_either() {
    let server = Server::start().await;
    let ask = async |prompt: Value| server.answer(PATH, &json!({"model": "mock", "prompt": prompt})).await;
    assert_eq!(texts(&ask(json!("hi")).await), [(0, "hi", "stop")]);
    assert_eq!(texts(&ask(json!([104, 105])).await), [(0, "hi", "stop")]);
    assert_eq!(texts(&ask(json!(["a", "b"])).await), [(0, "a", "stop"), (1, "b", "stop")]);
    let answer = ask(json!([[97], [98, 99]])).await;
    assert_eq!(texts(&answer), [(0, "a", "stop"), (1, "bc", "stop")]);
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][0]["logprobs"], Value::Null);
}

#[tokio::test]
async fn outputs_are_numbered_by_prompt_then_by_n() {
    let server = Server::start().await;
    let request = json!({"model": "mock", "prompt": [[97], [98]], "n": 2, "max_tokens": 1});
    let answer = server.answer(PATH, &request).await;
    let expected = [(0, "a", "length"), (1, "a", "length"), (2, "b", "length"), (3, "b", "length")];
    assert_eq!(texts(&answer), expected);
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    assert_eq!(answer["usage"]["prompt_tokens"], 2);
}

#[tokio::test]
async fn the_default_length_is_openais() {
    let server = Server::start().await;
    let answer = server.answer(PATH, &json!({"model": "mock", "prompt": "x".repeat(40)})).await;
    assert_eq!(texts(&answer), [(0, "x".repeat(15).as_str(), "length")]);
    assert_eq!(answer["usage"]["completion_tokens"], 16);
}

#[tokio::test]
async fn echo_returns_the_prompt_and_its_log_probabilities() {
    let server = Server::start().await;
    let request = json!({"model": "mock", "prompt": [104, 105], "echo": true, "logprobs": 1, "max_tokens": 1});
    let answer = server.answer(PATH, &request).await;
    assert_eq!(texts(&answer), [(0, "hih", "length")]);
    let expected = json!({
        "text_offset": [0, 1, 2],
        "token_logprobs": [null, 0.0, 0.0],
        "tokens": ["h", "i", "h"],
        "top_logprobs": [null, {"i": 0.0}, {"h": 0.0}],
    });
    assert_eq!(answer["choices"][0]["logprobs"], expected);

    let scored = server.answer(PATH, &with(request, json!({"max_tokens": 0}))).await;
    assert_eq!(texts(&scored), [(0, "hi", "length")]);
    assert_eq!(scored["choices"][0]["logprobs"]["tokens"], json!(["h", "i"]));
    assert_eq!(scored["usage"]["completion_tokens"], 0);
}

#[tokio::test]
async fn a_stream_carries_the_same_answer() {
    let server = Server::start().await;
    let request = json!({
        "model": "mock", "prompt": [[104, 105], [97]], "echo": true, "logprobs": 0, "stream": true,
        "stream_options": {"include_usage": true},
    });
    let text = server.post(PATH, &request).send().await.unwrap().text().await.unwrap();
    let chunks = events(&text);
    let (usage, chunks) = chunks.split_last().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(6)));
    let mut whole = [String::new(), String::new()];
    let mut offsets = [Vec::new(), Vec::new()];
    for chunk in chunks {
        let choice = &chunk["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        whole[index].push_str(choice["text"].as_str().unwrap());
        if let Some(list) = choice["logprobs"]["text_offset"].as_array() {
            offsets[index].extend(list.iter().map(|offset| offset.as_u64().unwrap()));
        }
    }
    assert_eq!(whole, ["hihi", "aa"]);
    assert_eq!(offsets, [vec![0, 1, 2, 3], vec![0, 1]]);
}
