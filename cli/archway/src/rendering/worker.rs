//! The process that renders.

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::{process, thread};

use anyhow::{Context, Result};
use engine::tokenizer::{ChatInput, ChatTemplate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use super::{Answer, Conversation, MOST_MEMORY, MOST_TIME, TOO_SLOW};

/// Takes a template from `input` and answers conversations until the input ends.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> Result<()> {
    bound_memory()?;
    let Some(source) = line(&mut input)? else { return Ok(()) };
    let template = ChatTemplate::new(serde_json::from_str(&source).context("the first line is no template")?)?;
    // The watch is started for each conversation and stopped after it.
    let (watch, started) = channel();
    thread::Builder::new().spawn(move || end_in_time(&started)).context("no watch can be started")?;
    while let Some(text) = line(&mut input)? {
        watch.send(()).context("the watch has ended")?;
        let answer = render(&template, &text);
        watch.send(()).context("the watch has ended")?;
        output.write_all(&[&*serde_json::to_vec(&answer)?, b"\n"].concat())?;
        output.flush()?;
    }
    Ok(())
}

fn render(template: &ChatTemplate, text: &str) -> Answer {
    let conversation: Conversation =
        serde_json::from_str(text).map_err(|error| format!("the line is no conversation: {error}"))?;
    let input = ChatInput {
        messages: &Value::Array(conversation.messages.into_owned()),
        tools: None,
        add_generation_prompt: conversation.add_generation_prompt,
        variables: &conversation.variables,
    };
    template.render(&input).map_err(|error| error.to_string())
}

/// The next line; none at the end.
fn line(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = String::new();
    let length = input.read_line(&mut line).context("the input cannot be read")?;
    Ok((length > 0).then_some(line))
}

/// Ends the process where a conversation takes too long: nothing else ends an operation that goes on for ever.
fn end_in_time(started: &Receiver<()>) {
    while started.recv().is_ok() {
        if started.recv_timeout(MOST_TIME) == Err(RecvTimeoutError::Timeout) {
            process::exit(TOO_SLOW);
        }
    }
}

/// Lowers the address space, where it is not lower yet, and keeps no image of a process that died.
fn bound_memory() -> Result<()> {
    for (resource, most) in [(Resource::As, MOST_MEMORY), (Resource::Core, 0)] {
        let now = getrlimit(resource);
        let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit { current: least(now.current), maximum: least(now.maximum) };
        setrlimit(resource, limit).context("the process cannot be bounded")?;
    }
    Ok(())
}
