//! `/tokenize` and `/detokenize`.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::harness::Server;

#[tokio::test]
async fn text_goes_to_tokens_and_back() {
    let server = Server::start().await;
    let answer = server.answer("/tokenize", &json!({"model": "mock", "prompt": "hé"})).await;
    let expected = json!({"count": 4, "max_model_len": 8192, "tokens": [256, 104, 195, 169], "token_strs": null});
    assert_eq!(answer, expected);
    let plain = json!({"prompt": "h ", "add_special_tokens": false, "return_token_strs": true});
    let answer = server.answer("/tokenize", &plain).await;
    assert_eq!((&answer["tokens"], &answer["token_strs"]), (&json!([104, 32]), &json!(["h", "<32>"])));
    let answer = server.answer("/detokenize", &json!({"tokens": [256, 104, 195, 169]})).await;
    assert_eq!(answer, json!({"prompt": "hé"}));
}

#[tokio::test]
async fn messages_go_through_the_template() {
    let server = Server::start().await;
    let messages = json!([{"role": "user", "content": "a"}]);
    let answer = server.answer("/tokenize", &json!({"messages": messages})).await;
    assert_eq!(answer["count"], "user: a\nassistant: ".len());
    let answer = server.answer("/tokenize", &json!({"messages": messages, "add_generation_prompt": false})).await;
    assert_eq!(answer["count"], "user: a\n".len());
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let server = Server::start().await;
    let cases: [(&str, Value, &str); 6] = [
        ("/tokenize", json!({}), "prompt"),
        ("/tokenize", json!({"prompt": "a", "messages": []}), "prompt"),
        ("/tokenize", json!({"promt": "a"}), "promt"),
        ("/tokenize", json!({"messages": []}), "messages"),
        ("/detokenize", json!({}), "tokens"),
        ("/detokenize", json!({"tokens": [1, 512]}), "tokens[1]"),
    ];
    for (path, body, param) in cases {
        let (status, error) = server.refusal(path, &body).await;
        assert_eq!((status, &error["param"]), (StatusCode::BAD_REQUEST, &json!(param)), "{body}");
    }
    let (status, _) = server.refusal("/detokenize", &json!({"tokens": [1], "model": "x"})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}
