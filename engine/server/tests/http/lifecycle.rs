//! Loading, failing, and stopping without losing an answer.

use std::time::{Duration, Instant};

use engine_server::backend::Backend;
use engine_server::mock::{self, MockSizes};
use engine_server::settings::Settings;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Server, chat, error, events, with};

const CHAT: &str = "/v1/chat/completions";

async fn health(server: &Server) -> (StatusCode, Value) {
    let response = server.get("/health").send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

#[tokio::test]
async fn a_loading_server_says_so_until_it_is_ready() {
    let server = Server::loading(Settings::default()).await;
    let (status, body) = health(&server).await;
    assert_eq!((status, &body["status"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("loading")));
    let response = server.post(CHAT, &chat("a")).send().await.unwrap();
    assert_eq!(response.headers()["retry-after"], "1");
    let (status, refused) = error(response).await;
    assert_eq!((status, &refused["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("model_loading")));
    assert_eq!(server.get("/metrics").send().await.unwrap().text().await.unwrap(), "");

    let (service, _engine) = mock::service(vec!["mock".to_owned()], MockSizes::default());
    server.app.ready(service);
    assert_eq!(health(&server).await, (StatusCode::OK, json!({"status": "ok", "reason": null})));
    server.answer(CHAT, &chat("a")).await;
}

#[tokio::test]
async fn a_failed_load_keeps_its_reason() {
    let server = Server::loading(Settings::default()).await;
    server.app.failed("weights.gguf: it ends early".to_owned());
    let expected = json!({"status": "failed", "reason": "weights.gguf: it ends early"});
    assert_eq!(health(&server).await, (StatusCode::SERVICE_UNAVAILABLE, expected));
}

#[tokio::test]
async fn a_failed_engine_ends_requests_and_health() {
    let server = Server::paced(5).await;
    let endless = with(chat("a"), json!({"ignore_eos": true}));
    let stream = with(endless.clone(), json!({"stream": true}));
    let whole = tokio::spawn(server.post(CHAT, &endless).send());
    let mut response = server.post(CHAT, &stream).send().await.unwrap();
    let mut text = String::from_utf8(response.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    while server.engine.stats().running < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.engine.fail("rank 1 stalled");
    let (status, refused) = error(whole.await.unwrap().unwrap()).await;
    assert_eq!((status, &refused["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("engine_failed")));
    assert!(refused["message"].as_str().unwrap().contains("rank 1 stalled"));
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let last = events(&text).pop().unwrap();
    assert!(last["error"]["message"].as_str().unwrap().contains("rank 1 stalled"), "{last}");
    let expected = json!({"status": "failed", "reason": "rank 1 stalled"});
    assert_eq!(health(&server).await, (StatusCode::SERVICE_UNAVAILABLE, expected));
    server.idle().await;
    // The program that ends says it too.
    server.stop.notify_one();
    let Server { task, app, .. } = server;
    tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    assert_eq!(app.failure().as_deref(), Some("rank 1 stalled"));
}

#[tokio::test]
async fn draining_finishes_what_runs_and_refuses_the_rest() {
    let server = Server::paced(5).await;
    let long = with(chat("a"), json!({"ignore_eos": true, "max_tokens": 60}));
    let running = tokio::spawn(server.post(CHAT, &long).send());
    while server.engine.stats().running == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop.notify_one();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (status, body) = health(&server).await;
    assert_eq!((status, &body["status"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("draining")));
    assert_eq!(server.refusal(CHAT, &chat("a")).await.1["code"], "shutting_down");
    let answer: Value = running.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 60);
    tokio::time::timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_second_order_and_the_timeout_end_the_draining() {
    for second in [true, false] {
        let timeout = if second { Duration::from_secs(60) } else { Duration::from_millis(100) };
        let sizes = MockSizes { interval: Duration::from_millis(5), ..MockSizes::default() };
        let server = Server::with(Settings { shutdown_timeout: timeout, ..Settings::default() }, sizes).await;
        let endless = with(chat("a"), json!({"ignore_eos": true}));
        let stream = server.post(CHAT, &with(endless.clone(), json!({"stream": true}))).send().await.unwrap();
        let whole = tokio::spawn(server.post(CHAT, &endless).send());
        while server.engine.stats().running < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let begun = Instant::now();
        server.stop.notify_one();
        tokio::time::sleep(Duration::from_millis(20)).await;
        if second {
            server.hurry.notify_one();
        }
        let Server { task, app, engine, .. } = server;
        // Waiting clients are told, and no connection is kept.
        let (status, refused) = error(whole.await.unwrap().unwrap()).await;
        assert_eq!((status, &refused["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("aborted")));
        let last = events(&stream.text().await.unwrap()).pop().unwrap();
        assert_eq!(last["error"]["code"], "aborted", "{last}");
        tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
        assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
        for _ in 0..100 {
            if app.admission.inside() + engine.stats().running as usize == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((app.admission.inside(), engine.stats().running), (0, 0));
    }
}

#[tokio::test]
async fn silence_is_broken_by_comments_unless_none_are_wanted() {
    for (keep_alive, wanted) in [(Duration::from_millis(10), true), (Duration::ZERO, false)] {
        let sizes = MockSizes { interval: Duration::from_millis(60), ..MockSizes::default() };
        let server = Server::with(Settings { keep_alive, ..Settings::default() }, sizes).await;
        let stream = with(chat("a"), json!({"ignore_eos": true, "stream": true, "max_tokens": 3}));
        let text = server.post(CHAT, &stream).send().await.unwrap().text().await.unwrap();
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let comments = text.matches(": keep-alive").count();
        assert!((comments > 0) == wanted && comments < 100, "{keep_alive:?}: {comments}");
    }
}
