//! Text to tokens, and the room that a prompt leaves.

use std::sync::Arc;

use engine::tokenizer::Framing;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::error::ApiError;
use crate::service::Service;
use crate::text::{Chat, Codec, CodecError, RENDERED_AT_ONCE};

/// Text of this many bytes or more is tokenised away from the threads that serve connections.
const LONG_TEXT: usize = 16 << 10;

/// Bytes of text that are read for each token of the context: a token has four on average. Tokenising takes a second and
/// 170 MB for a megabyte.
const BYTES_PER_TOKEN: usize = 16;
/// Bytes of text that are read in any context.
const LEAST_TEXT: usize = 64 << 10;
/// Long texts that are worked on at once; the others wait.
static LONG_TEXTS: Semaphore = Semaphore::const_new(4);

/// The others wait.
static CONVERSATIONS: Semaphore = Semaphore::const_new(RENDERED_AT_ONCE);

/// What the field `add_special_tokens` asks for.
pub fn framing(add_special_tokens: Option<bool>, usual: Framing) -> Framing {
    match add_special_tokens {
        Some(true) => Framing::Added,
        Some(false) => Framing::Omitted,
        None => usual,
    }
}

/// Token ids of a text, errors under the name `param`. Errors: also a text that is much longer than the context.
pub async fn encode(service: &Service, text: String, framing: Framing, param: &str) -> Result<Vec<u32>, ApiError> {
    require_length(text.len(), service, param)?;
    let result = apart(service, text.len(), move |codec| codec.encode(&text, framing)).await;
    result.map_err(|error| refusal(error, param, |message| format!("`{param}`: {message}")))
}

/// The text of a conversation, errors under the name `messages`. Errors: also messages that are much longer than the
/// context.
pub async fn render(service: &Service, chat: Chat) -> Result<String, ApiError> {
    // Every message takes tokens of its own.
    let messages = chat.messages.iter().map(|message| BYTES_PER_TOKEN + weight(message));
    let length = messages.chain(chat.variables.values().map(weight)).sum();
    require_length(length, service, "messages")?;
    let result = in_turn(service, &CONVERSATIONS, move |codec| codec.render(&chat)).await;
    result.map_err(|error| {
        refusal(error, "messages", |message| format!("the chat template cannot take these messages: {message}"))
    })
}

/// 400 for what the client can fix, 503 for what it cannot.
fn refusal(error: CodecError, param: &str, words: impl FnOnce(String) -> String) -> ApiError {
    match error {
        CodecError::Input(message) => ApiError::invalid(param, words(message)),
        CodecError::Server(message) => ApiError::unavailable("text_unavailable", message),
    }
}

/// Bytes of text in a value, and one for everything else.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => 1 + list.iter().map(weight).sum::<usize>(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        _ => 1,
    }
}

/// Works on a text of `length` bytes; on a long one away from the threads that serve connections.
async fn apart<T: Send + 'static>(
    service: &Service,
    length: usize,
    work: impl FnOnce(&dyn Codec) -> Result<T, CodecError> + Send + 'static,
) -> Result<T, CodecError> {
    if length < LONG_TEXT {
        return work(&*service.codec);
    }
    in_turn(service, &LONG_TEXTS, work).await
}

/// Works away from the threads that serve connections, when one of `turns` is free. The turn is the work's own: it lasts
/// as long, also where the client has gone meanwhile and nobody waits for what comes out.
async fn in_turn<T: Send + 'static>(
    service: &Service,
    turns: &'static Semaphore,
    work: impl FnOnce(&dyn Codec) -> Result<T, CodecError> + Send + 'static,
) -> Result<T, CodecError> {
    let codec = Arc::clone(&service.codec);
    let turn = turns.acquire().await.map_err(|error| CodecError::Server(error.to_string()))?;
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work(&*codec)
    });
    let done = done.await;
    done.unwrap_or_else(|error| Err(CodecError::Server(format!("the text cannot be worked on: {error}"))))
}

fn require_length(length: usize, service: &Service, param: &str) -> Result<(), ApiError> {
    let context = service.model.context;
    let most = (context as usize).saturating_mul(BYTES_PER_TOKEN).max(LEAST_TEXT);
    if length <= most {
        return Ok(());
    }
    let message = format!(
        "`{param}` has {length} bytes of text; this server reads at most {most}, for its context of {context} tokens; \
         shorten it"
    );
    Err(ApiError::invalid(param, message).with_code("context_length_exceeded"))
}

/// 400 for a token id outside of the vocabulary.
pub fn require_vocabulary(param: &str, token: u32, vocabulary: u32) -> Result<(), ApiError> {
    if token < vocabulary {
        return Ok(());
    }
    let message = format!("`{param}`: token id {token} is not below the vocabulary's size {vocabulary}");
    Err(ApiError::invalid(param, message))
}

/// How many output tokens a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The field that said so, and what.
    pub asked: Option<(&'static str, u32)>,
    /// Otherwise this many, or as many as there is room for.
    pub default: Option<u32>,
}

/// Output tokens for a prompt of `length` tokens in a context of `context`.
pub fn budget(param: &str, length: usize, context: u32, wish: Wish) -> Result<u32, ApiError> {
    if length == 0 {
        return Err(ApiError::invalid(param, format!("`{param}` has no tokens")));
    }
    let room = u32::try_from(length).ok().and_then(|length| context.checked_sub(length)).unwrap_or(0);
    if room == 0 {
        let message = format!(
            "`{param}` has {length} tokens, which leaves no room for an answer: this model's context is {context} tokens"
        );
        return Err(ApiError::invalid(param, message).with_code("context_length_exceeded"));
    }
    match wish.asked {
        None => Ok(wish.default.map_or(room, |default| default.min(room))),
        Some((_, asked)) if asked <= room => Ok(asked),
        Some((field, asked)) => {
            let message = format!(
                "the prompt's tokens ({length}) and those that `{field}` asks for ({asked}) are more than this model's \
                 context of {context} tokens; ask for {room} or fewer"
            );
            Err(ApiError::invalid(field, message).with_code("context_length_exceeded"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{self, MockSizes};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn of(length: usize, asked: Option<u32>, default: Option<u32>) -> Result<u32, Option<&'static str>> {
        let wish = Wish { asked: asked.map(|asked| ("max_tokens", asked)), default };
        budget("prompt", length, 10, wish).map_err(|error| error.code)
    }

    #[tokio::test]
    async fn text_that_no_context_holds_is_not_tokenised() {
        let service = mock::service(vec!["mock".to_owned()], MockSizes { context: 8192, ..MockSizes::default() }).0;
        let most = 8192 * BYTES_PER_TOKEN;
        let encode =
            async |length: usize| super::encode(&service, "a".repeat(length), Framing::Omitted, "prompt").await;
        assert_eq!(encode(most).await.unwrap().len(), most);
        let refused = encode(most + 1).await.unwrap_err();
        assert_eq!((refused.param.as_deref(), refused.code), (Some("prompt"), Some("context_length_exceeded")));
        let chat = |messages: usize, length: usize| {
            let message = serde_json::json!({"role": "user", "content": "a".repeat(length)});
            Chat { messages: vec![message; messages], ..Chat::default() }
        };
        assert!(render(&service, chat(1, most - 100)).await.is_ok());
        let mut long = chat(1, 1);
        long.variables.insert("list".to_owned(), serde_json::json!(vec![1; most]));
        for long in [chat(1, most), chat(8193, 0), long] {
            let refused = render(&service, long).await.unwrap_err();
            assert_eq!((refused.param.as_deref(), refused.code), (Some("messages"), Some("context_length_exceeded")));
        }
    }

    /// Renders slowly, and counts how many it renders at once.
    #[derive(Default)]
    struct Slow {
        running: AtomicUsize,
        most: AtomicUsize,
    }

    impl Codec for Slow {
        fn encode(&self, _: &str, _: Framing) -> Result<Vec<u32>, CodecError> {
            Ok(vec![1])
        }

        fn decode(&self, _: &[u32]) -> Result<String, String> {
            Ok(String::new())
        }

        fn token_bytes(&self, _: u32) -> Vec<u8> {
            Vec::new()
        }

        fn token_name(&self, _: u32) -> String {
            String::new()
        }

        fn render(&self, _: &Chat) -> Result<String, CodecError> {
            self.most.fetch_max(1 + self.running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(100));
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(String::new())
        }

        fn vocabulary(&self) -> u32 {
            2
        }
    }

    #[tokio::test]
    async fn clients_that_hang_up_give_no_turn_away() {
        let slow = Arc::new(Slow::default());
        let mut service = mock::service(vec!["mock".to_owned()], MockSizes::default()).0;
        service.codec = Arc::clone(&slow) as _;
        for _ in 0..40 {
            let gone = tokio::time::timeout(Duration::from_millis(5), render(&service, Chat::default())).await;
            assert!(gone.is_err(), "it takes longer");
        }
        render(&service, Chat::default()).await.unwrap();
        let most = slow.most.load(Ordering::SeqCst);
        assert!(most <= RENDERED_AT_ONCE, "{most} at once");
    }

    #[test]
    fn a_fault_of_the_server_is_not_told_to_the_client_as_its_own() {
        let of = |error: CodecError| {
            let refused = refusal(error, "messages", |message| format!("cannot take: {message}"));
            (refused.status.as_u16(), refused.param, refused.message)
        };
        let input = of(CodecError::Input("too deep".to_owned()));
        assert_eq!(input, (400, Some("messages".to_owned()), "cannot take: too deep".to_owned()));
        assert_eq!(of(CodecError::Server("killed".to_owned())), (503, None, "killed".to_owned()));
    }

    #[test]
    fn the_context_bounds_prompt_and_answer() {
        assert_eq!(of(4, None, None), Ok(6));
        assert_eq!(of(4, None, Some(16)), Ok(6));
        assert_eq!(of(4, None, Some(2)), Ok(2));
        assert_eq!(of(4, Some(6), None), Ok(6));
        assert_eq!(of(4, Some(7), None), Err(Some("context_length_exceeded")));
        assert_eq!(of(10, None, None), Err(Some("context_length_exceeded")));
        assert_eq!(of(usize::MAX, None, None), Err(Some("context_length_exceeded")));
        assert_eq!(of(0, None, None), Err(Some("invalid_value")));
    }
}
