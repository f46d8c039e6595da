//! Log-probabilities from the engine's ids to the words of the API.

use engine::types::{TokenLogprobs, TokenOutput};
use indexmap::IndexMap;

use crate::protocol::logprobs::{
    ChatAlternative, ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, PromptLogprobs, PromptTokenLogprob,
};
use crate::text::Codec;

/// JSON has no infinity: a token that cannot be gets this, as in vLLM.
const LEAST: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    if logprob.is_nan() { LEAST } else { logprob.max(LEAST) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Log-probabilities of some tokens of a chat answer.
pub fn chat(tokens: &[TokenOutput], codec: &dyn Codec) -> ChatLogprobs {
    let content = tokens
        .iter()
        .filter_map(|token| token.logprobs.as_ref().map(|logprobs| (token.id, logprobs)))
        .map(|(id, logprobs)| {
            let bytes = codec.token_bytes(id);
            let top_logprobs = logprobs.top.iter().map(|&(id, logprob)| chat_alternative(id, logprob, codec)).collect();
            ChatTokenLogprob { token: text(&bytes), logprob: finite(logprobs.logprob), bytes, top_logprobs }
        })
        .collect();
    ChatLogprobs { content, refusal: () }
}

fn chat_alternative(id: u32, logprob: f32, codec: &dyn Codec) -> ChatAlternative {
    let bytes = codec.token_bytes(id);
    ChatAlternative { token: text(&bytes), logprob: finite(logprob), bytes }
}

/// Builds the lists of a text completion token by token.
#[derive(Debug, Default)]
pub struct CompletionList {
    list: CompletionLogprobs,
    /// Characters before the next token.
    offset: u64,
}

impl CompletionList {
    /// A list whose first token stands `offset` characters into the answer.
    pub fn at(offset: u64) -> Self {
        Self { list: CompletionLogprobs::default(), offset }
    }

    /// Adds a token; `logprobs` is none for the first token of a prompt.
    pub fn push(&mut self, id: u32, logprobs: Option<&TokenLogprobs>, codec: &dyn Codec) {
        let token = text(&codec.token_bytes(id));
        self.list.text_offset.push(self.offset);
        self.offset += token.chars().count() as u64;
        self.list.token_logprobs.push(logprobs.map(|logprobs| finite(logprobs.logprob)));
        self.list.top_logprobs.push(logprobs.map(|logprobs| completion_alternatives(id, &token, logprobs, codec)));
        self.list.tokens.push(token);
    }

    pub fn outputs(&mut self, tokens: &[TokenOutput], codec: &dyn Codec) {
        for token in tokens {
            self.push(token.id, token.logprobs.as_ref(), codec);
        }
    }

    /// Adds the tokens of a prompt.
    pub fn prompt(&mut self, prompt: &[u32], logprobs: &[Option<TokenLogprobs>], codec: &dyn Codec) {
        for (index, &id) in prompt.iter().enumerate() {
            self.push(id, logprobs.get(index).and_then(Option::as_ref), codec);
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn finish(self) -> CompletionLogprobs {
        self.list
    }
}

/// The best tokens, and the chosen one where it is not among them.
fn completion_alternatives(id: u32, token: &str, logprobs: &TokenLogprobs, codec: &dyn Codec) -> IndexMap<String, f32> {
    let mut map = IndexMap::with_capacity(logprobs.top.len() + 1);
    for &(other, logprob) in &logprobs.top {
        // Two tokens may look alike as text; the likelier one keeps the name.
        map.entry(text(&codec.token_bytes(other))).or_insert(finite(logprob));
    }
    if !logprobs.top.iter().any(|&(other, _)| other == id) {
        map.entry(token.to_owned()).or_insert(finite(logprobs.logprob));
    }
    map
}

/// Log-probabilities of a prompt in vLLM's form.
pub fn prompt(prompt: &[u32], logprobs: &[Option<TokenLogprobs>], codec: &dyn Codec) -> PromptLogprobs {
    let position = |(index, &id): (usize, &u32)| {
        let logprobs = logprobs.get(index)?.as_ref()?;
        let mut map: IndexMap<u32, PromptTokenLogprob> = logprobs
            .top
            .iter()
            .enumerate()
            .map(|(place, &(other, logprob))| (other, entry(other, logprob, place as u32 + 1, codec)))
            .collect();
        map.entry(id).or_insert_with(|| entry(id, logprobs.logprob, logprobs.rank, codec));
        Some(map)
    };
    prompt.iter().enumerate().map(position).collect()
}

fn entry(id: u32, logprob: f32, rank: u32, codec: &dyn Codec) -> PromptTokenLogprob {
    PromptTokenLogprob { logprob: finite(logprob), rank, decoded_token: text(&codec.token_bytes(id)) }
}
