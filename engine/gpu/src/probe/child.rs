//! Questions that may hang or kill who asks them are asked by a child, with a deadline.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at a child.
const PAUSE: Duration = Duration::from_millis(10);
/// What a child that ended may still have to say.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A child that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("the probe could not be started: {0}")]
    Start(String),
    #[error("the probe gave no answer within {:.0} s", .0.as_secs_f64())]
    Deadline(Duration),
    #[error("the probe was ended by signal {0}")]
    Signal(i32),
    #[error("the probe failed with exit code {code}: {said}")]
    Failed { code: i32, said: String },
}

/// Runs a command, which inherits the environment, and gives what it printed. Errors: it did not start, ran into the
/// deadline (and was killed), died by a signal, or failed.
pub fn ask(command: &mut Command, deadline: Duration) -> Result<String, NoAnswer> {
    let begin = Instant::now();
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| NoAnswer::Start(error.to_string()))?;
    let (output, errors) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let Some(status) = wait(&mut child, begin + deadline) else {
        // A child that hangs in the driver may outlive its killing; nobody waits for it.
        let _ = child.kill();
        let _ = wait(&mut child, Instant::now() + LAST_WORDS);
        return Err(NoAnswer::Deadline(deadline));
    };
    let words = |from: &Receiver<String>| from.recv_timeout(LAST_WORDS).unwrap_or_default();
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(words(&output)),
        (_, Some(signal)) => Err(NoAnswer::Signal(signal)),
        (code, None) => {
            let said = words(&errors);
            let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
            Err(NoAnswer::Failed { code: code.unwrap_or(-1), said })
        }
    }
}

/// Reads a stream to its end on a thread of its own, so that a child never waits for a full pipe.
fn listen(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is still worth having.
            let _ = stream.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// None at the deadline.
fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= until {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Result<String, NoAnswer> {
        ask(Command::new("sh").args(["-c", script]), deadline)
    }

    #[test]
    fn an_answer_is_what_was_printed() {
        assert_eq!(shell("echo yes; echo talk >&2", Duration::from_secs(10)), Ok("yes\n".to_owned()));
        // More than a pipe holds.
        let long = shell("head -c 300000 /dev/zero | tr '\\0' x", Duration::from_secs(10)).expect("an answer");
        assert_eq!(long.len(), 300_000);
    }

    #[test]
    fn a_hang_is_an_answer_and_leaves_no_child() {
        let begin = Instant::now();
        let deadline = Duration::from_millis(200);
        assert_eq!(shell("exec sleep 100", deadline), Err(NoAnswer::Deadline(deadline)));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_signal_and_a_failure_are_told_apart() {
        let long = Duration::from_secs(10);
        assert_eq!(shell("kill -SEGV $$", long), Err(NoAnswer::Signal(11)));
        let failed = shell("echo first >&2; echo the reason >&2; exit 3", long);
        assert_eq!(failed, Err(NoAnswer::Failed { code: 3, said: "the reason".to_owned() }));
        let missing = ask(&mut Command::new("/nowhere/at/all"), long);
        assert!(matches!(missing, Err(NoAnswer::Start(_))), "{missing:?}");
    }

    #[test]
    fn the_environment_is_inherited() {
        let path = std::env::var("PATH").expect("a path");
        assert_eq!(shell("printf %s \"$PATH\"", Duration::from_secs(10)), Ok(path));
    }
}
