//! Chat messages as the template gets them.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::protocol::content::{ChatMessage, Content, ContentPart};
use crate::protocol::known::{self, Place};
use crate::protocol::object::{Fields, Object};
use crate::text::Chat;

/// Checks a conversation and brings it into the template's form.
pub fn conversation(
    messages: &[Object<ChatMessage>],
    add_generation_prompt: Option<bool>,
    variables: Option<Map<String, Value>>,
    ignored: &mut Vec<String>,
) -> Result<Chat, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` is empty; give at least one message"));
    }
    let variables = variables.unwrap_or_default();
    require_own_variables(&variables)?;
    let messages = messages
        .iter()
        .enumerate()
        .map(|(index, turn)| message(turn, &format!("messages[{index}]"), ignored))
        .collect::<Result<_, _>>()?;
    Ok(Chat { messages, add_generation_prompt: add_generation_prompt.unwrap_or(true), variables })
}

/// 400 for variables in the place of what the request says itself: they would go to the template unchecked.
fn require_own_variables(variables: &Map<String, Value>) -> Result<(), ApiError> {
    let path = |name: &str| format!("chat_template_kwargs.{name}");
    if variables.contains_key("messages") {
        let message = "`chat_template_kwargs.messages` would replace `messages`; give the conversation there alone";
        return Err(ApiError::invalid(path("messages"), message));
    }
    if variables.contains_key("tools") {
        let message = "`chat_template_kwargs.tools` is not supported: this server does not call tools";
        return Err(ApiError::unsupported(path("tools"), message));
    }
    Ok(())
}

fn message(message: &Object<ChatMessage>, path: &str, ignored: &mut Vec<String>) -> Result<Value, ApiError> {
    let role = role(message.role.as_deref(), &format!("{path}.role"))?;
    known::check(&message.extras, Place::Message, &format!("{path}."), ChatMessage::names, ignored)?;
    let content = match &message.content {
        None => return Err(ApiError::missing(&format!("{path}.content"))),
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Parts(parts)) => join(parts, &format!("{path}.content"), ignored)?,
    };
    let mut value = json!({"role": role, "content": content});
    if let Some(name) = &message.name {
        value["name"] = json!(name);
    }
    Ok(value)
}

fn role<'a>(role: Option<&'a str>, path: &str) -> Result<&'a str, ApiError> {
    match role {
        None => Err(ApiError::missing(path)),
        // OpenAI's newer word for the same turn; templates know the older one.
        Some("developer") => Ok("system"),
        Some(role @ ("system" | "user" | "assistant")) => Ok(role),
        Some(role @ ("tool" | "function")) => {
            Err(ApiError::unsupported(path, format!("`{path}` is `{role}`: this server does not call tools")))
        }
        Some(role) => {
            let message = format!("`{path}` is `{role}`; it must be system, developer, user or assistant");
            Err(ApiError::invalid(path, message))
        }
    }
}

/// Joins text parts by line breaks, as vLLM does for templates that take text.
fn join(parts: &[Object<ContentPart>], path: &str, ignored: &mut Vec<String>) -> Result<String, ApiError> {
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        texts.push(part_text(part, &format!("{path}[{index}]"), ignored)?);
    }
    Ok(texts.join("\n"))
}

fn part_text<'a>(part: &'a Object<ContentPart>, path: &str, ignored: &mut Vec<String>) -> Result<&'a str, ApiError> {
    match part.kind.as_deref() {
        None => return Err(ApiError::missing(&format!("{path}.type"))),
        Some("text") => {}
        Some(kind) => {
            let field = if part.extras.other.iter().any(|(name, _)| name == kind) { kind } else { "type" };
            let message = format!("`{path}` is of type `{kind}`: this server reads text only");
            return Err(ApiError::unsupported(format!("{path}.{field}"), message));
        }
    }
    ignored.extend(part.extras.nulls.iter().map(|name| format!("{path}.{name}")));
    if let Some((name, _)) = part.extras.other.first() {
        let message = format!("unknown field `{path}.{name}`; a text part has `type` and `text`");
        return Err(ApiError::invalid(format!("{path}.{name}"), message).with_code("unknown_parameter"));
    }
    part.text.as_deref().ok_or_else(|| ApiError::missing(&format!("{path}.text")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(messages: Value) -> Result<(Vec<Value>, Vec<String>), ApiError> {
        let messages: Vec<Object<ChatMessage>> = serde_json::from_value(messages).unwrap();
        let mut ignored = Vec::new();
        conversation(&messages, None, None, &mut ignored).map(|chat| (chat.messages, ignored))
    }

    #[test]
    fn text_and_parts_mean_the_same() {
        let (messages, ignored) = read(json!([
            {"role": "developer", "content": "a", "name": null},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
            {"role": "assistant", "content": {"type": "text", "text": "d"}, "refusal": null, "annotations": []},
        ]))
        .unwrap();
        assert_eq!(
            messages,
            [
                json!({"role": "system", "content": "a"}),
                json!({"role": "user", "content": "b\nc"}),
                json!({"role": "assistant", "content": "d"}),
            ]
        );
        assert_eq!(ignored, ["messages[0].name", "messages[2].refusal", "messages[2].annotations"]);
    }

    #[test]
    fn variables_of_the_template_replace_no_message() {
        let messages: Vec<Object<ChatMessage>> =
            serde_json::from_value(json!([{"role": "user", "content": "a"}])).unwrap();
        let with = |variables: Value| {
            let variables = serde_json::from_value(variables).unwrap();
            conversation(&messages, None, Some(variables), &mut Vec::new()).map_err(|error| error.param.unwrap())
        };
        assert_eq!(with(json!({"messages": []})).unwrap_err(), "chat_template_kwargs.messages");
        assert_eq!(with(json!({"tools": [{}]})).unwrap_err(), "chat_template_kwargs.tools");
        assert!(with(json!({"enable_thinking": false, "bos_token": "<s>"})).is_ok());
    }

    #[test]
    fn what_is_not_text_is_refused_by_name() {
        let param = |messages: Value| read(messages).unwrap_err().param.unwrap();
        let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
        assert_eq!(param(image), "messages[0].content[0].image_url");
        assert_eq!(param(json!([{"role": "user", "content": [{"type": "x"}]}])), "messages[0].content[0].type");
        assert_eq!(param(json!([{"role": "tool", "content": "a"}])), "messages[0].role");
        assert_eq!(param(json!([{"role": "user"}])), "messages[0].content");
        assert_eq!(param(json!([{"role": "user", "content": "a", "tool_calls": [1]}])), "messages[0].tool_calls");
        assert_eq!(param(json!([{"role": "user", "content": "a", "nmae": 1}])), "messages[0].nmae");
        assert_eq!(param(json!([])), "messages");
    }
}
