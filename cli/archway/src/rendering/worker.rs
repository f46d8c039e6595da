//! The process that renders.

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::{process, thread};

use anyhow::{Context, Result};
use engine::tokenizer::{ChatInput, ChatTemplate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use serde_json::Value;

use super::{Compiled, Conversation, MOST_MEMORY, MOST_STACK, MOST_TIME, Rendered, TOO_SLOW};

/// Takes a template from `input`, compiles it, and answers conversations until the input ends.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> Result<()> {
    bound_memory()?;
    let watch = Watch::start()?;
    let Some(source) = line(&mut input)? else { return Ok(()) };
    let source = serde_json::from_str(&source).context("the first line is not a template")?;
    let (answer, template): (Compiled, _) = match watch.over(|| ChatTemplate::new(source))? {
        Ok(template) => (Ok(()), Some(template)),
        Err(error) => (Err(error), None),
    };
    tell(&mut output, &answer)?;
    let Some(template) = template else { return Ok(()) };
    while let Some(text) = line(&mut input)? {
        let answer = watch.over(|| render(&template, &text))??;
        tell(&mut output, &answer)?;
    }
    Ok(())
}

fn render(template: &ChatTemplate, text: &str) -> Result<Rendered> {
    let conversation: Conversation = serde_json::from_str(text).context("the line is not a conversation")?;
    let input = ChatInput {
        messages: &Value::Array(conversation.messages.into_owned()),
        tools: None,
        add_generation_prompt: conversation.add_generation_prompt,
        variables: &conversation.variables,
    };
    Ok(template.render(&input))
}

fn tell(output: &mut impl Write, answer: &impl Serialize) -> Result<()> {
    output.write_all(&[&*serde_json::to_vec(answer)?, b"\n"].concat())?;
    Ok(output.flush()?)
}

/// The next line; none at the end.
fn line(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = String::new();
    let length = input.read_line(&mut line).context("the input cannot be read")?;
    Ok((length > 0).then_some(line))
}

/// Ends the process where something takes too long: nothing else ends an operation that goes on forever.
struct Watch(Sender<()>);

impl Watch {
    fn start() -> Result<Self> {
        let (watch, started) = channel();
        thread::Builder::new().spawn(move || end_in_time(&started)).context("no watch can be started")?;
        Ok(Self(watch))
    }

    fn over<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.0.send(()).context("the watch has ended")?;
        let result = work();
        self.0.send(()).context("the watch has ended")?;
        Ok(result)
    }
}

fn end_in_time(started: &Receiver<()>) {
    while started.recv().is_ok() {
        if started.recv_timeout(MOST_TIME) == Err(RecvTimeoutError::Timeout) {
            process::exit(TOO_SLOW);
        }
    }
}

/// Lowers address space and stack, where they are not lower yet, and keeps no image of a process that died.
fn bound_memory() -> Result<()> {
    for (resource, most) in [(Resource::As, MOST_MEMORY), (Resource::Stack, MOST_STACK), (Resource::Core, 0)] {
        let now = getrlimit(resource);
        let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit { current: least(now.current), maximum: least(now.maximum) };
        setrlimit(resource, limit).context("the process cannot be bounded")?;
    }
    Ok(())
}
