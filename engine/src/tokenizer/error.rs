//! Why a tokenizer or a chat template cannot be used.

/// A tokenizer that cannot be read, or a text that it cannot encode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct TokenizerError {
    /// The file.
    pub path: String,
    pub message: String,
}

/// Runs code of the tokenizer library, which indexes and unwraps freely: a damaged `tokenizer.json` or an unlucky text
/// must become an error of ours, not the end of a thread.
pub(super) fn guard<T>(
    path: &str,
    what: &str,
    run: impl FnOnce() -> tokenizers::Result<T>,
) -> Result<T, TokenizerError> {
    let fail = |message: String| TokenizerError { path: path.to_owned(), message: format!("{what}: {message}") };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| fail(error.to_string())),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(fail(format!("the tokenizer library panicked: {text}")))
        }
    }
}
