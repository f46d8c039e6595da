//! Prompts of `archway bench eagle3`: from a file, or four questions.

use anyhow::{Context, Result};
use engine::files::read_bounded_text;
use engine::tokenizer::Framing;
use engine_server::service::Service;
use engine_server::text::Chat;
use serde_json::{Value, json};

use super::Arguments;

/// What is asked where nobody says.
const QUESTIONS: [&str; 4] = [
    "Explain how a bicycle stays upright.",
    "Write a Python function that counts the words in a text.",
    "Summarise the plot of Romeo and Juliet in five sentences.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show your steps.",
];

/// The prompts that are asked for, as they are written.
pub(super) fn entries(arguments: &Arguments) -> Result<Vec<Value>> {
    let Some(path) = &arguments.prompts else { return Ok(QUESTIONS.map(Value::from).to_vec()) };
    let name = path.display();
    let text = read_bounded_text(path).with_context(|| format!("{name} cannot be read"))?;
    serde_json::from_str(&text).with_context(|| format!("{name} is not a JSON list"))
}

/// Token ids of every prompt; texts go through the chat template.
pub(super) fn prompts(arguments: &Arguments, entries: &[Value], service: &Service) -> Result<Vec<Vec<u32>>> {
    let file = arguments.prompts.as_ref().map_or("the questions".to_owned(), |path| path.display().to_string());
    let read =
        |(index, entry): (usize, &Value)| entry_ids(service, entry).with_context(|| format!("{file}: entry {index}"));
    entries.iter().enumerate().map(read).collect()
}

fn entry_ids(service: &Service, entry: &Value) -> Result<Vec<u32>> {
    let vocabulary = u64::from(service.codec.vocabulary());
    if let Some(ids) = entry.get("ids").unwrap_or(entry).as_array() {
        let id = |id: &Value| id.as_u64().filter(|id| *id < vocabulary).map(|id| id as u32);
        return ids.iter().map(id).collect::<Option<_>>().context("it holds something else than token ids");
    }
    let text = entry.get("text").unwrap_or(entry).as_str().context("it is neither a text nor a list of token ids")?;
    encode(service, text)
}

fn encode(service: &Service, text: &str) -> Result<Vec<u32>> {
    let chat = Chat {
        messages: vec![json!({"role": "user", "content": text})],
        add_generation_prompt: true,
        ..Chat::default()
    };
    let text = service.codec.render(&chat)?;
    Ok(service.codec.encode(&text, Framing::Omitted)?)
}
