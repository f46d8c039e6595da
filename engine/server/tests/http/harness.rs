//! A server on a free port, and a client for it.

use std::sync::Arc;
use std::time::Duration;

use engine_server::app::App;
use engine_server::backend::Backend;
use engine_server::mock::{self, MockEngine, MockSizes};
use engine_server::settings::Settings;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub struct Server {
    pub app: Arc<App>,
    pub engine: Arc<MockEngine>,
    pub client: Client,
    pub stop: Arc<Notify>,
    pub hurry: Arc<Notify>,
    pub task: JoinHandle<()>,
    base: String,
}

impl Server {
    /// A ready server that answers at once.
    pub async fn start() -> Self {
        Self::with(Settings::default(), MockSizes::default()).await
    }

    /// A ready server that makes a token every `millis` milliseconds.
    pub async fn paced(millis: u64) -> Self {
        let sizes = MockSizes { interval: Duration::from_millis(millis), ..MockSizes::default() };
        Self::with(Settings::default(), sizes).await
    }

    pub async fn with(settings: Settings, sizes: MockSizes) -> Self {
        let (service, engine) = mock::service(vec!["mock".to_owned(), "alias".to_owned()], sizes);
        let server = Self::listen(settings, engine).await;
        server.app.ready(service);
        server
    }

    /// A server whose model has not loaded.
    pub async fn loading(settings: Settings) -> Self {
        let (_service, engine) = mock::service(vec!["mock".to_owned()], MockSizes::default());
        Self::listen(settings, engine).await
    }

    async fn listen(settings: Settings, engine: Arc<MockEngine>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let app = App::new(settings);
        let (stop, hurry) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let task = tokio::spawn({
            let (app, stop, hurry) = (Arc::clone(&app), Arc::clone(&stop), Arc::clone(&hurry));
            async move {
                let wait = |notify: Arc<Notify>| async move { notify.notified().await };
                engine_server::serve(listener, app, wait(stop), wait(hurry)).await;
            }
        });
        Self { app, engine, client: Client::new(), stop, hurry, task, base }
    }

    pub fn address(&self) -> &str {
        self.base.strip_prefix("http://").unwrap()
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.base))
    }

    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.base)).json(body)
    }

    /// Sends raw bytes as JSON.
    pub fn post_bytes(&self, path: &str, body: Vec<u8>) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.base)).header("content-type", "application/json").body(body)
    }

    /// A successful answer's JSON.
    pub async fn answer(&self, path: &str, body: &Value) -> Value {
        ok(self.post(path, body).send().await.unwrap()).await
    }

    /// The status and the error object of a refused request.
    pub async fn refusal(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        error(self.post(path, body).send().await.unwrap()).await
    }

    /// Waits until no sequence is in the server or the engine; fails after five seconds.
    pub async fn idle(&self) {
        for _ in 0..500 {
            let stats = self.engine.stats();
            if self.app.admission.inside() == 0 && stats.running + stats.waiting == 0 {
                assert_eq!(stats.pages_used, 0);
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("still busy: {} inside, {:?}", self.app.admission.inside(), self.engine.stats());
    }
}

pub async fn ok(response: Response) -> Value {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Status and error object; checks that the body has OpenAI's form.
pub async fn error(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(!status.is_success(), "{text}");
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}"));
    let error = body["error"].clone();
    let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["message", "type", "param", "code"], "{text}");
    assert!(!error["message"].as_str().unwrap().is_empty());
    (status, error)
}

/// The JSON events of a stream; checks that `[DONE]` is the last one.
pub fn events(text: &str) -> Vec<Value> {
    let mut data: Vec<&str> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{text}");
    data.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// A chat request with one user message.
pub fn chat(text: &str) -> Value {
    json!({"model": "mock", "messages": [{"role": "user", "content": text}]})
}

/// `base` with the fields of `more`.
pub fn with(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}
