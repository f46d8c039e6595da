//! The process that renders, as the server sees it.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use engine::tokenizer::TemplateSource;
use engine_server::text::Chat;
use serde::Serialize;

use super::{Answer, Conversation, MOST_MEMORY, MOST_TIME, TOO_SLOW};

const UNSTARTED: &str = "the process for chat templates cannot be started";

/// Renders conversations in a process of its own, which is started again after it has died.
pub struct TemplateChild {
    source: TemplateSource,
    running: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl TemplateChild {
    /// Starts the process. Errors: it cannot be started.
    pub fn start(source: TemplateSource) -> Result<Self> {
        let running = Running::start(&source).context(UNSTARTED)?;
        Ok(Self { source, running: Mutex::new(Some(running)) })
    }

    /// The text of a conversation. Waits for those before it. Errors: the template's own, or the process went over its
    /// bounds.
    pub fn render(&self, chat: &Chat) -> Answer {
        let mut place = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = match place.take().and_then(Running::alive) {
            Some(running) => running,
            None => Running::start(&self.source).map_err(|error| format!("{UNSTARTED}: {error}"))?,
        };
        let conversation = Conversation {
            messages: Cow::Borrowed(&chat.messages),
            add_generation_prompt: chat.add_generation_prompt,
            variables: Cow::Borrowed(&chat.variables),
        };
        match running.ask(&conversation) {
            Ok(answer) => {
                *place = Some(running);
                answer
            }
            Err(error) => Err(self.describe(running.end(), &error)),
        }
    }

    /// Why a process gave no answer.
    fn describe(&self, ended: io::Result<ExitStatus>, error: &io::Error) -> String {
        let path = &self.source.path;
        let what = match ended {
            Ok(status) if status.code() == Some(TOO_SLOW) => format!("takes longer than {} s", MOST_TIME.as_secs()),
            Ok(status) if status.code().is_none() => {
                format!("takes more than {} GiB of memory or nests too deeply ({status})", MOST_MEMORY >> 30)
            }
            Ok(status) => format!("gave no answer ({error}; {status})"),
            Err(status) => format!("gave no answer ({error}; {status})"),
        };
        format!(
            "{path}: the chat template {what} for this conversation; send less, or mend the template or set another with \
             --chat-template"
        )
    }
}

impl Running {
    fn start(source: &TemplateSource) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
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
        let mut running = Self { child, input: BufWriter::new(input), output: BufReader::new(output) };
        running.tell(source)?;
        Ok(running)
    }

    /// Itself, unless it ended while it had nothing to do.
    fn alive(mut self) -> Option<Self> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    fn tell(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.input, line)?;
        self.input.write_all(b"\n")?;
        self.input.flush()
    }

    fn ask(&mut self, conversation: &Conversation) -> io::Result<Answer> {
        self.tell(conversation)?;
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }

    /// Ends the process, where it has not ended.
    fn end(mut self) -> io::Result<ExitStatus> {
        // It has closed its end or answered nonsense; in the first case it is ending by itself, and the status says how.
        drop((self.input, self.output));
        self.child.wait()
    }
}
