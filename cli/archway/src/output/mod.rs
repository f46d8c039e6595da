//! stdout: data; stderr: talk. Nothing that controls a terminal, and no panic when a reader has gone or the disk is full.
//!
//! Who writes waits for who reads, as everywhere. Only a server does not: [`queue_talk`] puts a queue before its stderr.

mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{panic, process, thread};

use engine::plan::printable;
use queue::Queue;

/// How long a program that ends waits for a reader of its last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Before a server's stderr.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// The standard macro panics where stdout cannot be written.
macro_rules! println {
    ($($text:tt)*) => { $crate::output::data(::std::format_args!($($text)*), "\n") };
}

/// The same, without an end of the line.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::data(::std::format_args!($($text)*), "") };
}

/// The standard macro panics where stderr cannot be written.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::talk(::std::format_args!($($text)*)) };
}

/// Writes a line of talk; where it cannot be written, there is nobody to tell, and the work goes on.
pub fn talk(text: Arguments<'_>) {
    let line = format!("{}\n", printable(&text.to_string()));
    match QUEUE.get() {
        // The log may fill the queue, and this may be the reason.
        Some(queue) => queue.insist(line.as_bytes()),
        // At once, so that lines of several threads stay whole.
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Where the log goes: stderr, or the queue before it. What is written at once stays together.
pub struct Talk;

impl Write for Talk {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) => {
                queue.say(text);
                Ok(text.len())
            }
            None => io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From now on nothing that is said waits for who reads it, the words of a panic included. Returns the number of lines
/// that were lost, which grows. Errors: the system gives no thread.
pub fn queue_talk() -> io::Result<Arc<AtomicU64>> {
    let queue = Queue::start(io::stderr())?;
    let lost = queue.lost();
    let _first_wins = QUEUE.set(queue);
    panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        // Empty, unless `RUST_BACKTRACE` asks for it.
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| format!("\n{backtrace}"));
        talk(format_args!(
            "thread `{}` {panic}{}",
            thread.name().unwrap_or("unnamed"),
            backtrace.unwrap_or_default().trim_end()
        ));
        finish();
    }));
    Ok(lost)
}

/// Where a picture goes that the next one replaces; none where stderr waits for its reader.
pub fn draw(picture: &str) {
    if let Some(queue) = QUEUE.get() {
        queue.draw(picture.as_bytes());
    }
}

/// Whether [`queue_talk`] was called.
pub fn is_queued() -> bool {
    QUEUE.get().is_some()
}

/// Gives a reader a moment to take what was said last. For the end of the program.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.finish(LAST_WORDS);
    }
}

/// Writes a line of data that the work does not depend on. Errors: those of stdout.
pub fn offer(text: Arguments<'_>) -> io::Result<()> {
    write(text, "\n")
}

fn write(text: Arguments<'_>, end: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    write!(stdout, "{}{end}", printable(&text.to_string()))?;
    stdout.flush()
}

/// Writes data. A reader that has gone wants no more, so the program ends; anything else is an error, exit code 2.
pub fn data(text: Arguments<'_>, end: &str) {
    if let Err(error) = write(text, end) {
        if error.kind() == ErrorKind::BrokenPipe {
            process::exit(0);
        }
        let _ = writeln!(io::stderr(), "error: cannot write to stdout: {error}");
        process::exit(2);
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    /// The queue and the words of a panic are those of a whole process, so the test is one of its own.
    #[test]
    fn a_panic_is_said_through_the_queue() {
        const OWN: &str = "ARCHWAY_TEST_OF_A_PANIC";
        if env::var_os(OWN).is_some() {
            queue_talk().unwrap();
            let rank =
                thread::Builder::new().name("rank 1".to_owned()).spawn(|| panic!("no \x1b[2J and\nmore")).unwrap();
            assert!(rank.join().is_err());
            // Neither the harness nor the system writes anything more: all that is read went through the queue.
            process::exit(7);
        }
        let mut own = Command::new(env::current_exe().unwrap());
        own.args(["--exact", "output::tests::a_panic_is_said_through_the_queue"]);
        let output = own.env(OWN, "1").env_remove("RUST_BACKTRACE").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let whole = said.starts_with("thread `rank 1` panicked at cli/archway/src/output/mod.rs:")
            && said.ends_with(":\nno \\u001b[2J and\nmore\n");
        assert!(output.status.code() == Some(7) && whole, "{said}");
    }
}
