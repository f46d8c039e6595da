//! How many requests had which answer.

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Methods that have a count of their own: what a client may call its method has no bound.
static METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::HEAD, Method::OPTIONS, Method::PUT, Method::PATCH, Method::DELETE];

/// `status` is the code's class, as on vLLM's dashboards.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    handler: String,
    method: &'static str,
    status: &'static str,
    code: u16,
}

/// Counts answers from the server's start on. A stream counts when it begins.
#[derive(Clone, Debug, Default)]
pub struct Answers(Family<Labels, Counter>);

impl Answers {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("http_requests", "Answers, by route, method and status", self.0.clone());
    }

    /// `route` is the pattern that matched; none for a path that there is not.
    pub fn count(&self, route: Option<&str>, method: &Method, status: StatusCode) {
        let method = METHODS.iter().find(|known| *known == method).map_or("other", Method::as_str);
        let code = status.as_u16();
        let class = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"].get(usize::from(code / 100)).unwrap_or(&"other");
        let labels = Labels { handler: route.unwrap_or("none").to_owned(), method, status: class, code };
        self.0.get_or_create(&labels).inc();
    }
}
