//! One process that renders, as the server sees it.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};

use engine::tokenizer::{TemplateError, TemplateSource};
use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Compiled, Conversation, MOST_MEMORY, MOST_TIME, Rendered, TOO_SLOW};
use crate::program;

/// Why there is no text.
pub enum Failure {
    /// The template says so, or is none.
    Template(TemplateError),
    /// The template went over a bound; continues the sentence "the chat template ...".
    Bound(String),
    /// The process was not given, or taken away, by no fault of the template's.
    Lost(String),
}

/// A process with a compiled template.
pub struct Process {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process and waits until it has compiled the template.
    pub fn start(source: &TemplateSource) -> Result<Self, Failure> {
        let unstarted = |error: io::Error| Failure::Lost(format!("no process for the chat template: {error}"));
        let mut process = Self::spawn().map_err(unstarted)?;
        match process.ask::<Compiled>(source) {
            Ok(Ok(())) => Ok(process),
            Ok(Err(error)) => {
                process.end().map_err(unstarted)?;
                Err(Failure::Template(error))
            }
            Err(error) => Err(process.died(&error)),
        }
    }

    fn spawn() -> io::Result<Self> {
        let mut child = program::again()?
            .arg("render-chats")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // An interrupt at the terminal is the server's, which answers what it has begun.
            .process_group(0)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        Ok(Self { child, input: BufWriter::new(input), output: BufReader::new(output) })
    }

    /// Itself, unless it ended while it had nothing to do.
    pub fn alive(mut self) -> Option<Self> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    /// Errors: the process died, which [`Self::died`] explains.
    pub fn render(&mut self, conversation: &Conversation) -> io::Result<Rendered> {
        self.ask(conversation)
    }

    fn ask<T: DeserializeOwned>(&mut self, line: &impl Serialize) -> io::Result<T> {
        serde_json::to_writer(&mut self.input, line)?;
        self.input.write_all(b"\n")?;
        self.input.flush()?;
        let mut answer = String::new();
        match self.output.read_line(&mut answer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(serde_json::from_str(&answer)?),
        }
    }

    /// Why a process gave no answer. Waits for its end, which its own watch brings at the latest.
    pub fn died(self, error: &io::Error) -> Failure {
        let lost =
            |why: &dyn Display| Failure::Lost(format!("the process for the chat template is gone: {why}, {error}"));
        let status = match self.end() {
            Ok(status) => status,
            Err(error) => return lost(&error),
        };
        match (status.code(), status.signal()) {
            (Some(TOO_SLOW), _) => Failure::Bound(format!("takes longer than {} s", MOST_TIME.as_secs())),
            // Its own bounds abort it; who kills it from outside wants its memory for something else.
            (None, Some(signal)) if signal != Signal::KILL.as_raw() => {
                Failure::Bound(format!("takes more than {} GiB of memory or nests too deeply", MOST_MEMORY >> 30))
            }
            _ => lost(&status),
        }
    }

    /// Tells it that there is nothing more, and waits for its end.
    pub fn end(mut self) -> io::Result<ExitStatus> {
        drop((self.input, self.output));
        self.child.wait()
    }
}
