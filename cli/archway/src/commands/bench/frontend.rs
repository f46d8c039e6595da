//! `archway bench frontend`: how many small requests a server's HTTP side answers.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::bounds::{COUNTS, LENGTHS, SECONDS, within};
use super::report;
use crate::numbers::Summary;

/// Send the same small completion over kept connections, one at a time on each, and count the answers.
///
/// Meant for a server with --mock-engine: 16 token ids in, 1 token out. Writes and reads bytes without a client
/// library, so that the generator costs less than the server.
#[derive(Args)]
pub struct Arguments {
    /// Address of the server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    address: String,
    /// Model to ask for.
    #[arg(long, value_name = "NAME", default_value = "mock")]
    model: String,
    /// Connections.
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    connections: usize,
    /// Seconds to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds before that.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,
    /// Prompt length in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    input_len: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    requests: usize,
    seconds: f64,
    requests_per_second: f64,
    /// In milliseconds.
    latency: Summary,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    within("connections", arguments.connections, &COUNTS)?;
    within("input-len", arguments.input_len, &LENGTHS)?;
    within("duration", arguments.duration, &SECONDS)?;
    within("warmup", arguments.warmup, &SECONDS)?;
    ensure!(arguments.duration > 0.0, "--duration must be above 0");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(storm(arguments))?;
    if arguments.json {
        report::json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    report::title("Front End", '=');
    report::count("Answered requests", report.requests as u64);
    report::row("Duration (s)", report.seconds);
    report::row("Request throughput (req/s)", report.requests_per_second);
    report::distribution("Latency", "latency", &report.latency);
    Ok(ExitCode::SUCCESS)
}

async fn storm(arguments: &Arguments) -> Result<Report> {
    let request = request(arguments);
    let start = Instant::now() + Duration::from_secs_f64(arguments.warmup);
    let end = start + Duration::from_secs_f64(arguments.duration);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..arguments.connections {
        let (address, request) = (arguments.address.clone(), request.clone());
        tasks.spawn(async move { connection(&address, &request, start, end).await });
    }
    let mut latencies = Vec::new();
    while let Some(result) = tasks.join_next().await {
        latencies.extend(result.context("a connection's task failed")??);
    }
    let seconds = arguments.duration;
    Ok(Report {
        requests: latencies.len(),
        seconds,
        requests_per_second: latencies.len() as f64 / seconds,
        latency: Summary::of(&latencies),
    })
}

fn request(arguments: &Arguments) -> Vec<u8> {
    let prompt: Vec<usize> = (1..=arguments.input_len).map(|index| index % 256).collect();
    let body = serde_json::json!({"model": arguments.model, "prompt": prompt, "max_tokens": 1}).to_string();
    let address = &arguments.address;
    let length = body.len();
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Asks again and again; the latencies in milliseconds of what was answered between `start` and `end`.
async fn connection(address: &str, request: &[u8], start: Instant, end: Instant) -> Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("{address} cannot be reached"))?;
    stream.set_nodelay(true)?;
    let (mut buffer, mut latencies) = (Vec::with_capacity(4096), Vec::new());
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(latencies);
        }
        stream.write_all(request).await?;
        read_answer(&mut stream, &mut buffer).await?;
        let now = Instant::now();
        if sent >= start && now <= end {
            latencies.push((now - sent).as_secs_f64() * 1e3);
        }
    }
}

/// Reads one response with a content length; anything but 200 is an error.
async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = std::str::from_utf8(&buffer[..head]).context("the response's head is not text")?;
        let length = content_length(text).context("the response has no content length")?;
        if buffer.len() < head + 4 + length {
            continue;
        }
        if !text.starts_with("HTTP/1.1 200") {
            bail!("{}", String::from_utf8_lossy(buffer));
        }
        return Ok(());
    }
}

fn content_length(head: &str) -> Option<usize> {
    let line = head.lines().find(|line| line.len() > 15 && line[..15].eq_ignore_ascii_case("content-length:"))?;
    line[15..].trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::content_length;

    #[test]
    fn the_length_is_found_whatever_its_case() {
        assert_eq!(content_length("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nx: y"), Some(12));
        assert_eq!(content_length("HTTP/1.1 200 OK\r\ncontent-length:7"), Some(7));
        assert_eq!(content_length("HTTP/1.1 200 OK\r\nx: y"), None);
    }
}
