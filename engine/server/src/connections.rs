//! Accepting connections and serving each, with an end to every wait for a client.

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::app::App;
use crate::routes::router;

/// Serves every connection until it is told that what ran has ended; then until the open ones have closed. Dropping it
/// drops them.
pub async fn connections(listener: TcpListener, app: Arc<App>, drained: Arc<Notify>) {
    let (patience, most) = (app.settings.patience, app.settings.connections);
    let mut http = Builder::new(TokioExecutor::new()).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(patience);
    let service = TowerToHyperService::new(router(app));
    let (closing, mut open, mut crowd) = (watch::Sender::new(false), JoinSet::new(), Crowd::default());
    {
        let mut next = pin!(accept(&listener));
        loop {
            tokio::select! {
                stream = next.as_mut(), if open.len() < most => {
                    next.set(accept(&listener));
                    tame(&stream, patience);
                    open.spawn(connection(http.clone(), stream, service.clone(), closing.subscribe()));
                    crowd.tell(open.len(), most);
                }
                Some(_) = open.join_next() => {}
                () = drained.notified() => break,
            }
        }
    }
    drop(listener);
    closing.send_replace(true);
    while open.join_next().await.is_some() {}
}

/// Tells the operator, seldom, that clients wait for a connection.
#[derive(Default)]
struct Crowd(Option<Instant>);

impl Crowd {
    const SILENCE: Duration = Duration::from_secs(60);

    fn tell(&mut self, open: usize, most: usize) {
        if open < most || self.0.is_some_and(|told| told.elapsed() < Self::SILENCE) {
            return;
        }
        self.0 = Some(Instant::now());
        tracing::warn!(open, "as many connections are open as may be; further ones wait (`ulimit -n` allows more)");
    }
}

/// The next connection. Where the process has no room for one more, it waits for one to close.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted; trying again in a second");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Short answers leave at once, and a client that does not take what is sent is cut off: until then its request holds its
/// place in the queue.
fn tame(stream: &TcpStream, patience: Duration) {
    let mut done = stream.set_nodelay(true);
    if cfg!(target_os = "linux") {
        done = done.and_then(|()| socket2::SockRef::from(stream).set_tcp_user_timeout(Some(patience)));
    }
    if let Err(error) = done {
        tracing::debug!(%error, "options of a connection could not be set");
    }
}

/// One connection, to its end; told to close, to the end of the request that runs.
async fn connection(
    http: Builder<TokioExecutor>,
    stream: TcpStream,
    service: TowerToHyperService<Router>,
    closing: watch::Receiver<bool>,
) {
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn told(mut closing: watch::Receiver<bool>) {
    let _now_or_gone = closing.wait_for(|closing| *closing).await.is_ok();
}
