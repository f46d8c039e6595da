//! The last check of a request before it enters the queue: nothing behind it can be made to fail by a request.

use super::{EngineConfig, StartError, SubmitError};
use crate::cache::PAGE_SIZE;
use crate::executor::Capacity;
use crate::types::{Request, SamplingParams};

pub(super) fn validate(request: &Request, capacity: &Capacity, config: &EngineConfig) -> Result<(), SubmitError> {
    prompt(&request.prompt, capacity)?;
    counts(&request.params, config)?;
    numbers(&request.params)
}

/// Longest sequence that context and pages both allow.
pub(super) fn usable_context(capacity: &Capacity) -> u32 {
    capacity.context.min(capacity.pages.saturating_mul(capacity.page_size))
}

/// Whether any request at all could run.
pub(super) fn validate_capacity(capacity: &Capacity) -> Result<(), StartError> {
    let refuse = |message: String| Err(StartError::Capacity(message));
    if capacity.page_size as usize != PAGE_SIZE {
        return refuse(format!("its pages hold {} positions, the scheduler's {PAGE_SIZE}", capacity.page_size));
    }
    for (name, value) in [("slots", capacity.slots), ("rows", capacity.rows), ("vocabulary", capacity.vocabulary)] {
        if value == 0 {
            return refuse(format!("{name} is 0"));
        }
    }
    match usable_context(capacity) {
        0 | 1 => refuse(format!("{} pages and a context of {} leave no room", capacity.pages, capacity.context)),
        _ => Ok(()),
    }
}

fn invalid(parameter: &'static str, message: String) -> Result<(), SubmitError> {
    Err(SubmitError::Invalid { parameter, message })
}

fn prompt(prompt: &[u32], capacity: &Capacity) -> Result<(), SubmitError> {
    let context = usable_context(capacity);
    if prompt.is_empty() {
        return invalid("prompt", "is empty; give at least one token".into());
    }
    if prompt.len() >= context as usize {
        let length = prompt.len();
        return invalid(
            "prompt",
            format!(
                "has {length} tokens, but the context of {context} tokens must hold at least one more for the output; shorten it"
            ),
        );
    }
    match prompt.iter().position(|token| *token >= capacity.vocabulary) {
        Some(at) => invalid(
            "prompt",
            format!(
                "holds {} at index {at}, but the vocabulary ends at {}",
                prompt[at],
                capacity.vocabulary.saturating_sub(1)
            ),
        ),
        None => Ok(()),
    }
}

fn counts(params: &SamplingParams, config: &EngineConfig) -> Result<(), SubmitError> {
    if params.n == 0 || params.n > config.max_choices {
        return invalid("n", format!("is {}; give 1 to {}", params.n, config.max_choices));
    }
    if params.max_tokens == 0 {
        return invalid("max_tokens", "is 0; give at least 1".into());
    }
    Ok(())
}

fn numbers(params: &SamplingParams) -> Result<(), SubmitError> {
    let checks = [
        ("temperature", params.temperature, params.temperature >= 0.0, "at least 0"),
        ("top_p", params.top_p, params.top_p > 0.0 && params.top_p <= 1.0, "above 0 and at most 1"),
        ("min_p", params.min_p, (0.0..=1.0).contains(&params.min_p), "from 0 to 1"),
        ("repetition_penalty", params.repetition_penalty, params.repetition_penalty > 0.0, "above 0"),
        ("presence_penalty", params.presence_penalty, true, "any finite number"),
        ("frequency_penalty", params.frequency_penalty, true, "any finite number"),
    ];
    for (parameter, value, in_range, range) in checks {
        if !value.is_finite() || !in_range {
            return invalid(parameter, format!("is {value}; give {range}"));
        }
    }
    match params.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
        Some((token, bias)) => invalid("logit_bias", format!("of token {token} is {bias}; give a finite number")),
        None => Ok(()),
    }
}
