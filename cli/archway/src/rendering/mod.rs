//! Chat templates in processes of their own.
//!
//! A template is a program that came with a checkpoint. The engine counts its steps, but lists that share their items can
//! be compared or printed forever in one of them, values that nest without end overflow a stack when they go, and an
//! expression of ten thousands of operators overflows one when it is compiled. In a process with bounds of its own none of
//! them takes the server along.

mod pool;
mod process;
mod worker;

pub use pool::TemplatePool;
pub use worker::serve;

use std::borrow::Cow;
use std::time::Duration;

use engine::tokenizer::TemplateError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Address space of a process: several times what the most steps of a template can take.
const MOST_MEMORY: u64 = 2 << 30;

/// Its stack, which ends what nests on it before the memory does.
const MOST_STACK: u64 = 8 << 20;

/// Time to compile a template, and of one conversation.
const MOST_TIME: Duration = Duration::from_secs(10);

/// Exit code of a process that ran out of time.
const TOO_SLOW: i32 = 3;

/// What a process answers to its first line, a [`engine::tokenizer::TemplateSource`]: the template is compiled, or why not.
type Compiled = Result<(), TemplateError>;

/// What it reads then, one a line.
#[derive(Serialize, Deserialize)]
struct Conversation<'a> {
    messages: Cow<'a, [Value]>,
    add_generation_prompt: bool,
    variables: Cow<'a, Map<String, Value>>,
}

/// What it answers to each, one a line: the text, or why there is none.
type Rendered = Result<String, TemplateError>;
