//! A thousand rude clients leave nothing behind.

use std::time::Duration;

use engine_server::mock::MockSizes;
use engine_server::settings::Settings;
use futures_util::{StreamExt, stream};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Server, chat, ok, with};

const CHAT: &str = "/v1/chat/completions";
const CLIENTS: u64 = 1000;

/// A number below `below` that depends on `seed` alone, so that a failure can be repeated.
fn pick(seed: u64, below: u64) -> u64 {
    let mut value = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (value ^ (value >> 27)) % below
}

fn request(client: u64, more: Value) -> Value {
    with(chat(&format!("client {client}")), with(json!({"n": 1 + pick(client, 3)}), more))
}

/// Hangs up before the answer.
async fn disconnect(server: &Server, client: u64) {
    let body = request(client, json!({"ignore_eos": true}));
    let wait = Duration::from_millis(pick(client + 1, 60));
    let _gone = tokio::time::timeout(wait, server.post(CHAT, &body).send()).await;
}

/// Reads a part of a stream and hangs up.
async fn abort(server: &Server, client: u64) {
    let body = request(client, json!({"ignore_eos": true, "stream": true}));
    let mut response = server.post(CHAT, &body).send().await.unwrap();
    for _ in 0..pick(client + 2, 4) {
        let _some = response.chunk().await;
    }
}

async fn bad_body(server: &Server, client: u64) {
    let mut body = request(client, json!({})).to_string().into_bytes();
    let place = pick(client + 3, body.len() as u64) as usize;
    body[place] = pick(client + 4, 256) as u8;
    body.truncate(place.max(1) + pick(client + 5, 80) as usize);
    let response = server.post_bytes(CHAT, body).send().await.unwrap();
    assert!(response.status().as_u16() < 500, "{}", response.text().await.unwrap());
}

/// Sends half a request and waits, or nothing at all.
async fn half_request(server: &Server, client: u64) {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let text = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\
                content-type: application/json\r\n\r\n{\"model\":";
    let length = pick(client + 6, text.len() as u64 + 1) as usize;
    stream.write_all(&text.as_bytes()[..length]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(pick(client + 7, 50))).await;
}

/// Reads a stream slowly, a few bytes at a time, to its end.
async fn slow_reader(server: &Server, client: u64) {
    let body = request(client, json!({"stream": true})).to_string();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut text, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => break,
            length => text.extend_from_slice(&buffer[..length]),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(String::from_utf8_lossy(&text).contains("[DONE]"));
}

async fn polite(server: &Server, client: u64) {
    let answer = ok(server.post(CHAT, &request(client, json!({}))).send().await.unwrap()).await;
    let expected = format!("user: client {client}\nassistant: ");
    assert_eq!(answer["choices"].as_array().unwrap().len() as u64, 1 + pick(client, 3));
    assert_eq!(answer["choices"][0]["message"]["content"], expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_rude_clients_leave_nothing_behind() {
    let sizes = MockSizes { interval: Duration::from_millis(1), slots: 64, ..MockSizes::default() };
    let server = Server::with(Settings::default(), sizes).await;
    let probe = with(chat("the same as before"), json!({"logprobs": true}));
    let before = server.answer(CHAT, &probe).await;
    stream::iter(0..CLIENTS)
        .for_each_concurrent(48, |client| {
            let server = &server;
            async move {
                match pick(client + 8, 6) {
                    0 => disconnect(server, client).await,
                    1 => abort(server, client).await,
                    2 => bad_body(server, client).await,
                    3 => half_request(server, client).await,
                    4 => slow_reader(server, client).await,
                    _ => polite(server, client).await,
                }
            }
        })
        .await;
    server.idle().await;
    assert_eq!(server.get("/health").send().await.unwrap().status(), StatusCode::OK);
    let after = server.answer(CHAT, &probe).await;
    assert_eq!((&before["choices"], &before["usage"]), (&after["choices"], &after["usage"]));
}
