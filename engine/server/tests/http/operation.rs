//! Keys, request ids, metrics and what the server tells of itself.

use engine_server::mock::MockSizes;
use engine_server::settings::Settings;
use reqwest::StatusCode;
use serde_json::json;

use crate::harness::{Server, chat, error, ok};

#[tokio::test]
async fn keys_open_everything_but_probes() {
    let keys = vec!["one".to_owned(), "two".to_owned()];
    let settings = Settings { api_keys: keys, ..Settings::default() };
    let server = Server::with(settings, MockSizes::default()).await;
    for path in ["/health", "/metrics"] {
        assert_eq!(server.get(path).send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
    for path in ["/v1/models", "/plan", "/server_info", "/version", "/openapi.json", "/nothing"] {
        let response = server.get(path).send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        let (status, body) = error(response).await;
        assert_eq!((status, &body["code"]), (StatusCode::UNAUTHORIZED, &json!("invalid_api_key")), "{path}");
    }
    let send = async |key: &str| server.post("/v1/chat/completions", &chat("a")).bearer_auth(key).send().await.unwrap();
    assert_eq!(send("three").await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(send("one").await.status(), StatusCode::OK);
    assert_eq!(send("two").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let server = Server::start().await;
    let response = server.get("/version").header("x-request-id", "mine-1").send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "mine-1");
    let response = server.get("/nothing").send().await.unwrap();
    assert!(response.headers()["x-request-id"].to_str().unwrap().starts_with("req-"));
}

/// What an operator looks at first: which answers the clients get.
#[tokio::test]
async fn answers_are_counted_by_route_and_status() {
    let server = Server::start().await;
    ok(server.post("/v1/chat/completions", &chat("a")).send().await.unwrap()).await;
    for body in [json!({"model": "mock"}), json!({"model": "mock", "messages": []})] {
        assert_eq!(server.post("/v1/chat/completions", &body).send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    }
    for path in ["/nothing", "/nothing/else", "/v1/models/a/b", "/v1/models/c"] {
        assert_eq!(server.get(path).send().await.unwrap().status(), StatusCode::NOT_FOUND, "{path}");
    }
    let text = server.get("/metrics").send().await.unwrap().text().await.unwrap();
    let count = |handler: &str, method: &str, code: u16| {
        let labels = format!(r#"handler="{handler}",method="{method}",status="{}xx",code="{code}""#, code / 100);
        let line = text.lines().find(|line| line.starts_with("http_requests_total{") && line.contains(&labels));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    };
    assert_eq!((count("/v1/chat/completions", "POST", 200), count("/v1/chat/completions", "POST", 400)), (1, 2));
    // However many paths a client thinks of, they are few lines.
    assert_eq!((count("none", "GET", 404), count("/v1/models/{*model}", "GET", 404)), (2, 2), "{text}");
}

#[tokio::test]
async fn metrics_follow_the_requests() {
    let server = Server::start().await;
    server.answer("/v1/completions", &json!({"model": "mock", "prompt": [1, 2, 3], "max_tokens": 2, "n": 2})).await;
    let response = server.get("/metrics").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    for line in [
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"mock\"} 3",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"mock\"} 4",
        "vllm:request_success_total{engine=\"0\",model_name=\"mock\",finished_reason=\"length\"} 2",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"mock\"} 2",
        "vllm:num_requests_running{engine=\"0\",model_name=\"mock\"} 0",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"mock\"} 0",
        "vllm:prompt_tokens_by_source_total{engine=\"0\",model_name=\"mock\",source=\"local_compute\"} 3",
        "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"mock\",reason=\"capacity\"} 0",
        "vllm:admission_rejections_total{engine=\"0\",model_name=\"mock\",reason=\"max_num_queued_reqs\"} 0",
        "# TYPE vllm:num_preemptions_total counter",
        "# TYPE archway_engine_steps_total counter",
        "# TYPE archway_engine_steps_ahead_total counter",
        "archway_log_lines_lost_total{engine=\"0\",model_name=\"mock\"} 0",
    ] {
        let found = text.lines().any(|found| found == line || found.starts_with(&format!("{line}.")));
        assert!(found, "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn models_are_listed_by_every_name() {
    let server = Server::start().await;
    let list = ok(server.get("/v1/models").send().await.unwrap()).await;
    assert_eq!(list["object"], "list");
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["mock", "alias"]);
    let one = ok(server.get("/v1/models/alias").send().await.unwrap()).await;
    assert_eq!((&one["max_model_len"], &one["owned_by"]), (&json!(8192), &json!("archway")));
    assert_eq!(error(server.get("/v1/models/a%2Fb").send().await.unwrap()).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn routers_find_what_they_ask_for() {
    let server = Server::start().await;
    for path in ["/server_info", "/get_server_info"] {
        let info = ok(server.get(path).send().await.unwrap()).await;
        assert_eq!((&info["tp_size"], &info["context_length"]), (&json!(1), &json!(8192)), "{path}");
        assert_eq!((&info["max_total_tokens"], &info["settings"]), (&json!(256 * 8192), &json!({})), "{path}");
    }
    let info = ok(server.get("/model_info").send().await.unwrap()).await;
    assert_eq!((&info["model_path"], &info["vocabulary"]), (&json!("mock"), &json!(512)));
    let loads = ok(server.get("/v1/loads?include=core").send().await.unwrap()).await;
    assert_eq!(loads["loads"][0]["num_running_reqs"], 0);
    assert_eq!(ok(server.get("/plan").send().await.unwrap()).await["backend"], "mock");
    let document = ok(server.get("/openapi.json").send().await.unwrap()).await;
    assert!(document["paths"]["/v1/chat/completions"]["post"].is_object());
}
