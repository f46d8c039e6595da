//! Answers as server-sent events.

mod chat;
mod completion;

pub use chat::ChatStream;
pub use completion::CompletionStream;

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

use crate::error::ApiError;
use crate::generation::{Generation, TaskEvent};

/// Bytes after which a frame is handed to the connection although more events are ready.
const FRAME: usize = 16 << 10;

/// Turns events into chunks of one endpoint's form.
pub trait ChunkWriter: Send + 'static {
    /// Writes the chunks of one event.
    fn event(&mut self, event: TaskEvent, out: &mut Frame);

    /// Writes what follows the last event.
    fn end(&mut self, out: &mut Frame);
}

/// Server-sent events, ready to go out.
#[derive(Debug, Default)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// Adds one event with a JSON body.
    pub fn json(&mut self, body: &impl Serialize) {
        let start = self.0.len();
        self.0.extend_from_slice(b"data: ");
        if let Err(error) = serde_json::to_writer(&mut self.0, body) {
            self.0.truncate(start);
            tracing::error!(%error, "an event could not be written");
            return;
        }
        self.0.extend_from_slice(b"\n\n");
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// What is left to send.
struct Source<W> {
    generation: Generation,
    writer: W,
    /// Zero: no comments.
    keep_alive: Duration,
    ended: bool,
}

impl<W: ChunkWriter> Source<W> {
    /// The next frame: a wait for one event, then all that are ready.
    async fn frame(&mut self) -> Frame {
        let mut frame = Frame::default();
        let event = match self.keep_alive {
            Duration::ZERO => Ok(self.generation.next().await),
            silence => tokio::time::timeout(silence, self.generation.next()).await,
        };
        match event {
            Err(_) => frame.text(": keep-alive\n\n"),
            Ok(event) => self.take(event, &mut frame),
        }
        while !self.ended && frame.0.len() < FRAME {
            match self.generation.ready() {
                None => break,
                event => self.take(event, &mut frame),
            }
        }
        frame
    }

    fn take(&mut self, event: Option<Result<TaskEvent, ApiError>>, frame: &mut Frame) {
        match event {
            Some(Ok(event)) => return self.writer.event(event, frame),
            Some(Err(error)) => frame.json(&error.body()),
            None => self.writer.end(frame),
        }
        frame.text("data: [DONE]\n\n");
        self.ended = true;
    }
}

/// A response that streams a job. Dropping it, as happens when the client goes away, aborts the job.
pub fn respond<W: ChunkWriter>(generation: Generation, writer: W, keep_alive: Duration) -> Response {
    let source = Source { generation, writer, keep_alive, ended: false };
    let frames = stream::unfold(source, |mut source| async move {
        if source.ended {
            return None;
        }
        let frame = source.frame().await;
        Some((Ok::<_, Infallible>(Bytes::from(frame.0)), source))
    });
    let mut response = Body::from_stream(frames).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tells nginx not to gather events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
