//! One streamed completion over HTTP, timed.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use reqwest::Client;
use serde_json::{Value, json};

/// How to ask.
#[derive(Clone, Debug)]
pub struct Target {
    pub client: Client,
    pub base: String,
    pub model: String,
    pub api_key: Option<String>,
    pub output_len: u32,
    pub ignore_eos: bool,
    pub temperature: f32,
}

/// What came back, in seconds since the request was sent.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub first: f64,
    /// Between chunks that carried text.
    pub gaps: Vec<f64>,
    pub total: f64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
}

impl Target {
    /// Asks for one completion of `prompt` and reads it to its end.
    pub async fn ask(&self, prompt: &[u32]) -> Result<Answer> {
        let mut body = json!({
            "model": self.model,
            "prompt": prompt,
            "max_tokens": self.output_len,
            "temperature": self.temperature,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if self.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        let mut request = self.client.post(format!("{}/v1/completions", self.base)).json(&body);
        if let Some(key) = &self.api_key {
            request = request.bearer_auth(key);
        }
        let start = Instant::now();
        let mut response = request.send().await.context("the server cannot be reached")?;
        if !response.status().is_success() {
            let status = response.status();
            bail!("{status}: {}", response.text().await.unwrap_or_default());
        }
        let mut reader = Reader { start, last: start, pending: Vec::new(), answer: Answer::default() };
        while let Some(bytes) = response.chunk().await.context("the stream broke off")? {
            reader.take(&bytes)?;
        }
        reader.finish()
    }
}

/// Cuts server-sent events out of bytes that come in any pieces.
struct Reader {
    start: Instant,
    last: Instant,
    pending: Vec<u8>,
    answer: Answer,
}

impl Reader {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        while let Some(end) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.pending.drain(..end + 2).collect();
            let Some(data) = event.strip_prefix(b"data: ") else { continue };
            let data = data.trim_ascii();
            if data != b"[DONE]" {
                self.event(&serde_json::from_slice(data).context("an event is not JSON")?)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Value) -> Result<()> {
        if let Some(message) = event["error"]["message"].as_str() {
            bail!("the server ended the stream: {message}");
        }
        let count = |name: &str| event["usage"][name].as_u64();
        if let (Some(prompt), Some(output)) = (count("prompt_tokens"), count("completion_tokens")) {
            (self.answer.prompt_tokens, self.answer.output_tokens) = (prompt, output);
        }
        let choice = &event["choices"][0];
        if choice["text"].as_str().is_none_or(str::is_empty) {
            return Ok(());
        }
        let now = Instant::now();
        if self.answer.first == 0.0 {
            self.answer.first = (now - self.start).as_secs_f64();
        } else {
            self.answer.gaps.push((now - self.last).as_secs_f64());
        }
        self.last = now;
        Ok(())
    }

    fn finish(mut self) -> Result<Answer> {
        self.answer.total = self.start.elapsed().as_secs_f64();
        if self.answer.output_tokens == 0 {
            bail!("the server sent no token counts; it must know `stream_options.include_usage`");
        }
        if self.answer.first == 0.0 {
            // Tokens without text: the end is the best that is known.
            self.answer.first = self.answer.total;
        }
        Ok(self.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_any_pieces() {
        let text = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n: keep-alive\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n\n\
                    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
        for size in [1, 7, text.len()] {
            let now = Instant::now();
            let mut reader = Reader { start: now, last: now, pending: Vec::new(), answer: Answer::default() };
            for piece in text.as_bytes().chunks(size) {
                reader.take(piece).unwrap();
            }
            let answer = reader.finish().unwrap();
            assert_eq!((answer.prompt_tokens, answer.output_tokens, answer.gaps.len()), (3, 2, 1));
        }
    }
}
