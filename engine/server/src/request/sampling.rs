//! Sampling fields, checked against their ranges.

use engine::load::GenerationDefaults;
use engine::types::SamplingParams;

use crate::error::ApiError;
use crate::ids;
use crate::protocol::common::{CommonFields, StreamOptions};
use crate::protocol::known::{self, Place};
use crate::protocol::object::Fields;
use crate::service::Service;
use crate::settings::Limits;

use super::StreamReport;

/// Longest salt in bytes: a digest of anything fits.
const LONGEST_SALT: usize = 1024;

/// A number between two bounds.
struct Range {
    least: f32,
    most: f32,
    /// The lower bound itself is allowed.
    inclusive: bool,
}

impl Range {
    const fn new(least: f32, most: f32) -> Self {
        Self { least, most, inclusive: true }
    }

    const fn above(least: f32, most: f32) -> Self {
        Self { least, most, inclusive: false }
    }

    fn check(&self, param: &str, value: Option<f32>, default: f32) -> Result<f32, ApiError> {
        let value = value.unwrap_or(default);
        let low = if self.inclusive { value >= self.least } else { value > self.least };
        if low && value <= self.most {
            return Ok(value);
        }
        let bound = if self.inclusive { "from" } else { "above" };
        let message = format!("`{param}` is {value}; it must be {bound} {} up to {}", self.least, self.most);
        Err(ApiError::invalid(param, message))
    }
}

const TEMPERATURE: Range = Range::new(0.0, 100.0);
const TOP_P: Range = Range::above(0.0, 1.0);
const MIN_P: Range = Range::new(0.0, 1.0);
const REPETITION_PENALTY: Range = Range::above(0.0, 100.0);

/// Errors: defaults of a checkpoint with which every request would be refused that does not say better.
pub fn check_defaults(model: &GenerationDefaults) -> Result<(), ApiError> {
    TEMPERATURE.check("temperature", model.temperature, 1.0)?;
    TOP_P.check("top_p", model.top_p, 1.0)?;
    MIN_P.check("min_p", model.min_p, 0.0)?;
    REPETITION_PENALTY.check("repetition_penalty", model.repetition_penalty, 1.0)?;
    if model.max_tokens == Some(0) {
        return Err(ApiError::invalid("max_new_tokens", "`max_new_tokens` is 0; it must be at least 1"));
    }
    Ok(())
}

/// The sampling parameters of a request, but for `max_tokens` and `logprobs`, which depend on the endpoint.
pub fn params(fields: &CommonFields, limits: &Limits, service: &Service) -> Result<SamplingParams, ApiError> {
    let (vocabulary, model) = (service.codec.vocabulary(), &service.defaults);
    let penalty = fields.repetition_penalty.or(model.repetition_penalty);
    let params = SamplingParams {
        temperature: TEMPERATURE.check("temperature", fields.temperature.or(model.temperature), 1.0)?,
        top_k: fields.top_k.map_or(Ok(model.top_k.unwrap_or(0)), top_k)?,
        top_p: TOP_P.check("top_p", fields.top_p.or(model.top_p), 1.0)?,
        min_p: MIN_P.check("min_p", fields.min_p.or(model.min_p), 0.0)?,
        seed: fields.seed.map_or_else(ids::draw, i64::cast_unsigned),
        repetition_penalty: REPETITION_PENALTY.check("repetition_penalty", penalty, 1.0)?,
        presence_penalty: Range::new(-2.0, 2.0).check("presence_penalty", fields.presence_penalty, 0.0)?,
        frequency_penalty: Range::new(-2.0, 2.0).check("frequency_penalty", fields.frequency_penalty, 0.0)?,
        logit_bias: logit_bias(fields, vocabulary)?,
        stop: stop(fields, limits)?,
        include_stop: fields.include_stop_str_in_output.unwrap_or(false),
        stop_token_ids: stop_token_ids(fields, limits, vocabulary)?,
        ignore_eos: fields.ignore_eos.unwrap_or(false),
        min_tokens: fields.min_tokens.unwrap_or(0),
        max_tokens: 0,
        n: outputs(fields.n, limits)?,
        logprobs: None,
        prompt_logprobs: prompt_logprobs(fields, limits)?,
    };
    Ok(params)
}

fn top_k(value: i32) -> Result<u32, ApiError> {
    match value {
        -1 => Ok(0),
        value => u32::try_from(value).map_err(|_| {
            ApiError::invalid("top_k", format!("`top_k` is {value}; it must be -1 or 0 for all tokens, or positive"))
        }),
    }
}

fn outputs(value: Option<u32>, limits: &Limits) -> Result<u32, ApiError> {
    let n = value.unwrap_or(1);
    if (1..=limits.outputs).contains(&n) {
        return Ok(n);
    }
    Err(ApiError::invalid("n", format!("`n` is {n}; it must be from 1 up to {}", limits.outputs)))
}

fn logit_bias(fields: &CommonFields, vocabulary: u32) -> Result<Vec<(u32, f32)>, ApiError> {
    let Some(bias) = &fields.logit_bias else { return Ok(Vec::new()) };
    let entry = |(name, &value): (&String, &f32)| {
        let param = format!("logit_bias.{name}");
        // One spelling of each id, so that none has two values.
        let plain = name == "0" || !name.starts_with(['0', '+']);
        let token = plain.then(|| name.parse().ok()).flatten().ok_or_else(|| {
            ApiError::invalid(&param, format!("`{param}`: `{name}` is not a token id; give ids as whole numbers"))
        })?;
        super::require_vocabulary(&param, token, vocabulary)?;
        Ok((token, Range::new(-100.0, 100.0).check(&param, Some(value), 0.0)?))
    };
    bias.iter().map(entry).collect()
}

fn stop(fields: &CommonFields, limits: &Limits) -> Result<Vec<String>, ApiError> {
    let stop = fields.stop.clone().map_or_else(Vec::new, |stop| stop.into_vec());
    at_most("stop", stop.len(), limits.stops)?;
    if let Some(index) = stop.iter().position(|stop| stop.len() > limits.stop_bytes) {
        let (length, most) = (stop[index].len(), limits.stop_bytes);
        let message = format!("`stop[{index}]` has {length} bytes; this server takes at most {most}");
        return Err(ApiError::invalid(format!("stop[{index}]"), message));
    }
    if stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "`stop` holds an empty string, which would end every answer at once"));
    }
    Ok(stop)
}

fn stop_token_ids(fields: &CommonFields, limits: &Limits, vocabulary: u32) -> Result<Vec<u32>, ApiError> {
    let tokens = fields.stop_token_ids.clone().unwrap_or_default();
    at_most("stop_token_ids", tokens.len(), limits.stops)?;
    for (index, &token) in tokens.iter().enumerate() {
        super::require_vocabulary(&format!("stop_token_ids[{index}]"), token, vocabulary)?;
    }
    Ok(tokens)
}

fn at_most(param: &str, count: usize, most: usize) -> Result<(), ApiError> {
    if count <= most {
        return Ok(());
    }
    Err(ApiError::invalid(param, format!("`{param}` holds {count} entries; this server takes at most {most}")))
}

fn prompt_logprobs(fields: &CommonFields, limits: &Limits) -> Result<Option<u32>, ApiError> {
    let Some(count) = fields.prompt_logprobs.filter(|&count| count != -1) else { return Ok(None) };
    let count = alternatives("prompt_logprobs", i64::from(count), limits)?;
    if fields.stream == Some(true) {
        let message = "`prompt_logprobs` cannot be streamed; leave out `stream`";
        return Err(ApiError::unsupported("prompt_logprobs", message));
    }
    Ok(Some(count))
}

/// A number of alternatives in log-probabilities.
pub fn alternatives(param: &str, count: i64, limits: &Limits) -> Result<u32, ApiError> {
    match u32::try_from(count) {
        Ok(count) if count <= limits.alternatives => Ok(count),
        _ => {
            let message = format!("`{param}` is {count}; it must be from 0 up to {}", limits.alternatives);
            Err(ApiError::invalid(param, message))
        }
    }
}

/// Whether and how to stream.
pub fn stream(fields: &CommonFields, ignored: &mut Vec<String>) -> Result<Option<StreamReport>, ApiError> {
    let options = fields.stream_options.as_ref();
    if let Some(options) = options {
        known::check(&options.extras, Place::StreamOptions, "stream_options.", StreamOptions::names, ignored)?;
    }
    match (fields.stream.unwrap_or(false), options) {
        (true, options) => Ok(Some(StreamReport::new(options, fields.archway_usage.unwrap_or(false)))),
        (false, None) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::invalid("stream_options", "`stream_options` is only for requests with `stream: true`"))
        }
    }
}

/// The place in the queue.
pub fn priority(fields: &CommonFields, limits: &Limits) -> Result<i32, ApiError> {
    match fields.priority.unwrap_or(0) {
        priority if priority == 0 || limits.priorities => Ok(priority),
        _ => Err(ApiError::unsupported("priority", "`priority` has no effect: this server takes requests in order")),
    }
}

/// The salt of the prefix cache.
pub fn cache_salt(fields: &CommonFields) -> Result<Option<std::sync::Arc<str>>, ApiError> {
    match fields.cache_salt.as_deref() {
        Some("") => Err(ApiError::invalid("cache_salt", "`cache_salt` is empty; leave it out or give a text")),
        Some(salt) if salt.len() > LONGEST_SALT => {
            let message = format!("`cache_salt` has {} bytes; give at most {LONGEST_SALT}", salt.len());
            Err(ApiError::invalid("cache_salt", message))
        }
        salt => Ok(salt.map(Into::into)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{self, MockSizes};

    /// A service whose vocabulary has 512 tokens.
    fn service() -> Service {
        mock::service(vec!["mock".to_owned()], MockSizes::default()).0
    }

    fn refuse(change: impl FnOnce(&mut CommonFields)) -> Option<String> {
        let mut fields = CommonFields::default();
        change(&mut fields);
        params(&fields, &Limits::default(), &service()).err().and_then(|error| error.param)
    }

    #[test]
    fn ranges_are_held() {
        assert_eq!(refuse(|_| ()), None);
        assert_eq!(refuse(|fields| fields.temperature = Some(-0.1)).as_deref(), Some("temperature"));
        assert_eq!(refuse(|fields| fields.temperature = Some(f32::INFINITY)).as_deref(), Some("temperature"));
        assert_eq!(refuse(|fields| fields.top_p = Some(0.0)).as_deref(), Some("top_p"));
        assert_eq!(refuse(|fields| fields.top_p = Some(1.0)), None);
        assert_eq!(refuse(|fields| fields.top_k = Some(-2)).as_deref(), Some("top_k"));
        assert_eq!(refuse(|fields| fields.n = Some(0)).as_deref(), Some("n"));
        assert_eq!(
            refuse(|fields| fields.logit_bias = Some([("512".to_owned(), 0.0)].into())).as_deref(),
            Some("logit_bias.512")
        );
        for name in ["a", "01", "+1", ""] {
            let refused = refuse(|fields| fields.logit_bias = Some([(name.to_owned(), 0.0)].into()));
            assert_eq!(refused, Some(format!("logit_bias.{name}")));
        }
        assert_eq!(
            refuse(|fields| fields.logit_bias = Some([("1".to_owned(), 101.0)].into())).as_deref(),
            Some("logit_bias.1")
        );
        assert_eq!(refuse(|fields| fields.stop_token_ids = Some(vec![1, 512])).as_deref(), Some("stop_token_ids[1]"));
        assert_eq!(refuse(|fields| fields.prompt_logprobs = Some(21)).as_deref(), Some("prompt_logprobs"));
    }

    #[test]
    fn neutral_words_of_other_servers_are_understood() {
        let fields = CommonFields { top_k: Some(-1), prompt_logprobs: Some(-1), seed: Some(-1), ..Default::default() };
        let params = params(&fields, &Limits::default(), &service()).unwrap();
        assert_eq!((params.top_k, params.prompt_logprobs, params.seed), (0, None, u64::MAX));
    }

    #[test]
    fn defaults_of_a_checkpoint_are_held_to_the_bounds_of_requests() {
        let none = GenerationDefaults::default();
        assert!(check_defaults(&none).is_ok());
        for (wrong, key) in [
            (GenerationDefaults { temperature: Some(-5.0), ..none.clone() }, "temperature"),
            (GenerationDefaults { top_p: Some(0.0), ..none.clone() }, "top_p"),
            (GenerationDefaults { min_p: Some(1.5), ..none.clone() }, "min_p"),
            (GenerationDefaults { repetition_penalty: Some(0.0), ..none.clone() }, "repetition_penalty"),
            (GenerationDefaults { max_tokens: Some(0), ..none.clone() }, "max_new_tokens"),
        ] {
            assert_eq!(check_defaults(&wrong).unwrap_err().param.as_deref(), Some(key));
        }
    }

    #[test]
    fn the_models_defaults_give_way_to_the_request() {
        let mut service = service();
        service.defaults = GenerationDefaults { temperature: Some(0.6), top_k: Some(20), ..Default::default() };
        let fields = CommonFields { top_k: Some(0), ..Default::default() };
        let params = params(&fields, &Limits::default(), &service).unwrap();
        assert_eq!((params.temperature, params.top_k, params.top_p), (0.6, 0, 1.0));
    }
}
