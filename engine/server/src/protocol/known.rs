//! Request fields that other servers know and this one does not honour: which are harmless, and which values of the
//! others ask for nothing that this server does not do anyway. All remaining values are refused by name.

use serde_json::Value;

use crate::error::ApiError;
use crate::similar;

use super::object::Extras;

/// The kinds of object in which a field may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Chat,
    Completion,
    /// Both of the above.
    Either,
    Message,
    StreamOptions,
}

/// What may be said under a name.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// Any value of this JSON type: the answer does not depend on it.
    Any(Kind),
    /// These values, a JSON list.
    Only(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Flag,
    Map,
}

/// One field of the list.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub place: Place,
    pub name: &'static str,
    pub allowed: Allowed,
    /// Ends the sentence "`name` is not supported: …".
    why: &'static str,
}

const fn any(name: &'static str, kind: Kind) -> Known {
    Known { place: Place::Either, name, allowed: Allowed::Any(kind), why: "the value has the wrong type" }
}

const fn only(place: Place, name: &'static str, values: &'static str, why: &'static str) -> Known {
    Known { place, name, allowed: Allowed::Only(values), why }
}

const TOOLS: &str = "this server does not call tools";
const CONSTRAINED: &str = "this server does not constrain the output to a grammar or schema";
const TEXT: &str = "this server reads and writes text only";
const BEAMS: &str = "this server samples; it does not search beams";

/// Every known field. Sources: OpenAI's API reference, and the request types of vLLM 0.33 and SGLang 0.5.23.
pub const KNOWN: &[Known] = &[
    any("user", Kind::Text),
    any("metadata", Kind::Map),
    any("service_tier", Kind::Text),
    any("prompt_cache_key", Kind::Text),
    any("prompt_cache_retention", Kind::Text),
    any("safety_identifier", Kind::Text),
    any("request_id", Kind::Text),
    any("rid", Kind::Text),
    any("parallel_tool_calls", Kind::Flag),
    any("include_reasoning", Kind::Flag),
    any("separate_reasoning", Kind::Flag),
    any("stream_reasoning", Kind::Flag),
    only(Place::Chat, "store", "[false]", "answers are not stored"),
    only(Place::Chat, "tools", "[[]]", TOOLS),
    only(Place::Chat, "tool_choice", r#"["none","auto"]"#, TOOLS),
    only(Place::Chat, "functions", "[[]]", TOOLS),
    only(Place::Chat, "function_call", r#"["none","auto"]"#, TOOLS),
    only(Place::Chat, "modalities", r#"[["text"]]"#, TEXT),
    only(Place::Chat, "audio", "[]", TEXT),
    only(Place::Chat, "prediction", "[]", "predicted outputs are not used"),
    only(Place::Chat, "reasoning_effort", r#"["none"]"#, "this server has no reasoning budget"),
    only(Place::Chat, "reasoning", "[]", "this server has no reasoning budget"),
    only(Place::Chat, "verbosity", r#"["medium"]"#, "say it in the prompt"),
    only(Place::Chat, "web_search_options", "[]", "this server does not search the web"),
    only(Place::Chat, "echo", "[false]", "only text completions can echo their prompt"),
    only(Place::Chat, "chat_template", "[]", "the template is set when the server starts"),
    only(Place::Chat, "continue_final_message", "[false]", "every prompt ends with a whole turn"),
    only(Place::Chat, "documents", "[[]]", "give the documents in the messages"),
    only(Place::Chat, "mm_processor_kwargs", "[{}]", TEXT),
    only(Place::Completion, "best_of", "[1]", "use `n` and choose among the answers"),
    only(Place::Completion, "suffix", r#"[""]"#, "this server does not fill in the middle"),
    only(Place::Either, "response_format", r#"[{"type":"text"}]"#, CONSTRAINED),
    only(Place::Either, "structured_outputs", "[]", CONSTRAINED),
    only(Place::Either, "guided_json", "[]", CONSTRAINED),
    only(Place::Either, "guided_regex", "[]", CONSTRAINED),
    only(Place::Either, "guided_choice", "[]", CONSTRAINED),
    only(Place::Either, "guided_grammar", "[]", CONSTRAINED),
    only(Place::Either, "json_schema", "[]", CONSTRAINED),
    only(Place::Either, "regex", "[]", CONSTRAINED),
    only(Place::Either, "ebnf", "[]", CONSTRAINED),
    only(Place::Either, "structural_tag", "[]", CONSTRAINED),
    only(Place::Either, "use_beam_search", "[false]", BEAMS),
    only(Place::Either, "length_penalty", "[1]", BEAMS),
    only(Place::Either, "early_stopping", "[false]", BEAMS),
    only(Place::Either, "skip_special_tokens", "[true]", "special tokens are never part of the text"),
    only(Place::Either, "spaces_between_special_tokens", "[true]", "special tokens are never part of the text"),
    only(Place::Either, "allowed_token_ids", "[]", "use `logit_bias`"),
    only(Place::Either, "bad_words", "[[]]", "use `logit_bias`"),
    only(Place::Either, "logits_processors", "[[]]", "this server runs no code of its clients"),
    only(Place::Either, "custom_logit_processor", "[]", "this server runs no code of its clients"),
    only(Place::Either, "truncate_prompt_tokens", "[-1]", "shorten the prompt before sending it"),
    only(Place::Either, "return_tokens_as_token_ids", "[false]", "tokens are reported as text and bytes"),
    only(Place::Either, "return_hidden_states", "[false]", "only tokens leave the engine"),
    only(Place::Either, "return_token_ids", "[false]", "tokens are reported as text and bytes"),
    only(Place::Either, "stop_regex", "[[]]", "use `stop`"),
    only(Place::Either, "no_stop_trim", "[false]", "use `include_stop_str_in_output`"),
    only(Place::Either, "lora_path", "[]", "this server does not load adapters"),
    only(Place::Either, "kv_transfer_params", "[]", "prefill and decode run in the same server"),
    only(Place::Either, "vllm_xargs", "[{}]", "this server has no extensions"),
    only(Place::Message, "refusal", "[]", "give the text as `content`"),
    only(Place::Message, "annotations", "[[]]", TEXT),
    only(Place::Message, "audio", "[]", TEXT),
    only(Place::Message, "tool_calls", "[[]]", TOOLS),
    only(Place::Message, "tool_call_id", "[]", TOOLS),
    only(Place::Message, "function_call", "[]", TOOLS),
    only(Place::Message, "reasoning", "[]", "give the text as `content`"),
    only(Place::Message, "reasoning_content", "[]", "give the text as `content`"),
    Known { place: Place::StreamOptions, ..any("include_obfuscation", Kind::Flag) },
];

impl Known {
    pub fn applies_to(&self, place: Place) -> bool {
        self.place == place || (self.place == Place::Either && matches!(place, Place::Chat | Place::Completion))
    }

    /// The values of `Allowed::Only`.
    pub fn values(&self) -> Vec<Value> {
        match self.allowed {
            Allowed::Any(_) => Vec::new(),
            Allowed::Only(list) => serde_json::from_str(list).unwrap_or_default(),
        }
    }

    fn allows(&self, value: &Value) -> bool {
        match self.allowed {
            Allowed::Any(Kind::Text) => value.is_string(),
            Allowed::Any(Kind::Flag) => value.is_boolean(),
            Allowed::Any(Kind::Map) => value.is_object(),
            Allowed::Only(_) => self.values().iter().any(|allowed| same(allowed, value)),
        }
    }

    fn refusal(&self, path: &str) -> ApiError {
        let values = self.values();
        let allowed = match (self.allowed, values.as_slice()) {
            (Allowed::Any(Kind::Text), _) => "; it must be a string".to_owned(),
            (Allowed::Any(Kind::Flag), _) => "; it must be true or false".to_owned(),
            (Allowed::Any(Kind::Map), _) => "; it must be an object".to_owned(),
            (_, []) => "; leave it out".to_owned(),
            (_, values) => {
                let list: Vec<String> = values.iter().map(Value::to_string).collect();
                format!("; leave it out or give {}", list.join(" or "))
            }
        };
        let message = format!("`{path}` is not supported: {}{allowed}", self.why);
        match self.allowed {
            Allowed::Any(_) => ApiError::invalid(path, message),
            Allowed::Only(_) => ApiError::unsupported(path, message),
        }
    }
}

/// Equal as JSON, where 1 and 1.0 are the same number.
fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

/// Judges what an object held beside its honoured fields. `prefix` is the object's path, empty or ending with a dot;
/// names that do no harm go to `ignored`.
pub fn check(
    extras: &Extras,
    place: Place,
    prefix: &str,
    honoured: fn() -> Vec<&'static str>,
    ignored: &mut Vec<String>,
) -> Result<(), ApiError> {
    ignored.extend(extras.nulls.iter().map(|name| format!("{prefix}{name}")));
    for (name, value) in &extras.other {
        let path = format!("{prefix}{name}");
        let Some(known) = KNOWN.iter().find(|known| known.name == name && known.applies_to(place)) else {
            return Err(unknown(&path, name, place, honoured()));
        };
        if !known.allows(value) {
            return Err(known.refusal(&path));
        }
        ignored.push(path);
    }
    Ok(())
}

fn unknown(path: &str, name: &str, place: Place, mut names: Vec<&'static str>) -> ApiError {
    names.extend(KNOWN.iter().filter(|known| known.applies_to(place)).map(|known| known.name));
    let hint = match (place, name, similar::nearest(name, names)) {
        (Place::Chat, "prompt", _) => "; give `messages` here, or send it to /v1/completions".to_owned(),
        (Place::Completion, "messages", _) => "; give `prompt` here, or send them to /v1/chat/completions".to_owned(),
        (_, _, Some(near)) => format!("; did you mean `{near}`?"),
        (_, _, None) => "; see /openapi.json for the fields that this server knows".to_owned(),
    };
    ApiError::invalid(path, format!("unknown field `{path}`{hint}")).with_code("unknown_parameter")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(place: Place, name: &str, value: Value) -> Result<Vec<String>, ApiError> {
        let extras = Extras { nulls: Vec::new(), other: vec![(name.to_owned(), value)] };
        let mut ignored = Vec::new();
        check(&extras, place, "", || vec!["temperature"], &mut ignored).map(|()| ignored)
    }

    #[test]
    fn every_list_of_values_is_json() {
        for known in KNOWN {
            if let Allowed::Only(list) = known.allowed {
                assert!(serde_json::from_str::<Vec<Value>>(list).is_ok(), "{}: {list}", known.name);
            }
        }
    }

    #[test]
    fn harmless_fields_are_named_and_others_refused() {
        assert_eq!(judge(Place::Chat, "user", "me".into()).unwrap(), ["user"]);
        assert_eq!(judge(Place::Chat, "store", false.into()).unwrap(), ["store"]);
        assert_eq!(judge(Place::Completion, "best_of", serde_json::json!(1.0)).unwrap(), ["best_of"]);
        let refused = judge(Place::Chat, "store", true.into()).unwrap_err();
        assert_eq!((refused.param.as_deref(), refused.code), (Some("store"), Some("unsupported_parameter")));
        assert_eq!(judge(Place::Chat, "user", 1.into()).unwrap_err().code, Some("invalid_value"));
        assert!(judge(Place::Completion, "tools", serde_json::json!([])).is_err());
    }

    #[test]
    fn a_field_of_the_other_route_is_told_where_it_belongs() {
        let refused = |place, name| judge(place, name, "hi".into()).unwrap_err().message;
        assert!(refused(Place::Chat, "prompt").ends_with("send it to /v1/completions"));
        assert!(refused(Place::Completion, "messages").ends_with("send them to /v1/chat/completions"));
    }

    #[test]
    fn an_unknown_field_gets_the_nearest_name() {
        let refused = judge(Place::Chat, "temprature", 1.into()).unwrap_err();
        assert_eq!(refused.message, "unknown field `temprature`; did you mean `temperature`?");
        assert_eq!(refused.code, Some("unknown_parameter"));
        assert!(judge(Place::Chat, "xyzzy", 1.into()).unwrap_err().message.contains("/openapi.json"));
    }
}
