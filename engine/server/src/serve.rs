//! Listening, and stopping without losing an answer.

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::app::App;
use crate::connections::connections;

/// Serves until `stop` completes and what runs then has ended, or has been aborted after the shutdown timeout. While
/// it drains, the server still answers: `/health` with 503, and new requests with 503. `hurry` ends the draining.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    stop: impl Future<Output = ()> + Send + 'static,
    hurry: impl Future<Output = ()> + Send + 'static,
) {
    let drained = Arc::new(Notify::new());
    tokio::select! {
        () = connections(listener, Arc::clone(&app), Arc::clone(&drained)) => {}
        () = drain(app, stop, hurry, drained) => {}
    }
}

/// Waits for the order to stop, then for the last sequence, which is told to give up where that takes too long, then a moment
/// for what is said last to go out and for idle connections to close. Its end drops the server with whatever still hangs.
async fn drain(app: Arc<App>, stop: impl Future<Output = ()>, hurry: impl Future<Output = ()>, drained: Arc<Notify>) {
    const CLOSE: std::time::Duration = std::time::Duration::from_secs(2);
    stop.await;
    app.drain();
    tracing::info!(running = app.admission.inside(), "draining");
    tokio::select! {
        () = app.admission.empty() => {}
        () = tokio::time::sleep(app.settings.shutdown_timeout) => {
            tracing::warn!(running = app.admission.inside(), "the shutdown timeout has passed; aborting what runs");
        }
        () = hurry => tracing::warn!(running = app.admission.inside(), "told again to stop; aborting what runs"),
    }
    app.admission.close();
    drained.notify_one();
    tokio::time::sleep(CLOSE).await;
}
