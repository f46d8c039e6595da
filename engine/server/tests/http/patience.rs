//! Clients that let the server wait: each is cut off, and what it held is free again.

use std::time::{Duration, Instant};

use engine_server::mock::MockSizes;
use engine_server::settings::Settings;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Server, chat, with};

const PATIENCE: Duration = Duration::from_millis(400);

async fn impatient() -> Server {
    let sizes = MockSizes { context: 1 << 20, ..MockSizes::default() };
    Server::with(Settings { patience: PATIENCE, ..Settings::default() }, sizes).await
}

/// What comes after `text` was sent, to the end of the connection.
async fn answer(server: &Server, text: &str) -> String {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    read.expect("the server ends the connection").unwrap();
    assert!(begin.elapsed() >= PATIENCE / 2, "{:?}", begin.elapsed());
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn half_a_request_is_not_waited_for() {
    let server = impatient().await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    assert_eq!(answer(&server, "").await, "");
    assert_eq!(answer(&server, head).await, "");
    let slow = answer(&server, &format!("{head}content-length: 100\r\n\r\n{{\"model\":")).await;
    assert!(slow.starts_with("HTTP/1.1 408 ") && slow.contains("incomplete_body"), "{slow}");
    let slow = answer(&server, &format!("{head}transfer-encoding: chunked\r\n\r\n1\r\n{{\r\n")).await;
    assert!(slow.starts_with("HTTP/1.1 408 "), "{slow}");
}

/// More is sent than the system's buffers hold, and nobody reads it.
#[tokio::test]
async fn an_answer_that_nobody_reads_gives_its_place_back() {
    let server = impatient().await;
    let more = json!({"stream": true, "ignore_eos": true, "max_tokens": 200_000, "n": 2});
    let body = with(chat("a"), more).to_string();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    let begin = Instant::now();
    while server.app.admission.inside() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::timeout(Duration::from_secs(60), server.idle()).await.expect("the place is free again");
    assert!(begin.elapsed() >= PATIENCE, "{:?}", begin.elapsed());
    // The client is cut off, so what it reads now ends in the middle.
    let mut rest = Vec::new();
    let _reset = stream.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"), "the whole answer fitted into {} bytes", rest.len());
}

/// A server that has no room for one more connection keeps its other files, and takes the next client when one has gone.
#[tokio::test]
async fn more_connections_than_may_be_open_wait() {
    let settings = Settings { connections: 2, patience: PATIENCE * 50, ..Settings::default() };
    let server = Server::with(settings, MockSizes::default()).await;
    let ask = async |stream: &mut TcpStream, limit| {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut begin = [0; 15];
        let read = tokio::time::timeout(limit, stream.read_exact(&mut begin)).await;
        read.is_ok_and(|read| read.is_ok() && begin == *b"HTTP/1.1 200 OK")
    };
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let [first, second, third] = &mut clients[..] else { unreachable!("three clients") };
    assert!(ask(first, PATIENCE * 20).await && ask(second, PATIENCE * 20).await);
    assert!(!ask(third, PATIENCE).await, "a third connection is served");
    clients.remove(0);
    let [_second, third] = &mut clients[..] else { unreachable!("two clients are left") };
    let mut begin = [0; 15];
    let read = tokio::time::timeout(PATIENCE * 20, third.read_exact(&mut begin)).await;
    read.expect("its turn comes").unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
}
