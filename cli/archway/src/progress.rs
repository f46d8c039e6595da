//! Progress bars on stderr, where that is a terminal.

use std::io::{self, IsTerminal};
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::output;

/// A bar over `length` steps of something.
pub fn bar(length: u64, what: &str) -> ProgressBar {
    let bar = hidden_unless_terminal(ProgressBar::new(length));
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed} (eta {eta})");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

/// A bar over `length` bytes.
pub fn bytes(length: u64, what: &str) -> ProgressBar {
    let bar = hidden_unless_terminal(ProgressBar::new(length));
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

/// A sign of life for work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = hidden_unless_terminal(ProgressBar::new_spinner());
    bar.set_message(what.to_owned());
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    bar
}

fn hidden_unless_terminal(bar: ProgressBar) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    } else if output::is_queued() {
        bar.set_draw_target(ProgressDrawTarget::term_like_with_hz(Box::<Queued>::default(), REDRAWS));
    }
    bar
}

/// Draws a second at most, as where a bar goes to stderr itself.
const REDRAWS: u8 = 20;

/// The terminal behind a server's queue: one that takes nothing more (Ctrl-S, a connection that stalls) does not hold up
/// what the bar is about. Holds what is drawn until it is a whole picture.
#[derive(Debug, Default)]
struct Queued(Mutex<String>);

impl Queued {
    fn add(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    /// A command of a terminal that takes a count, for which 0 would mean 1.
    fn go(&self, count: usize, letter: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.add(&format!("\x1b[{count}{letter}")) }
    }
}

impl TermLike for Queued {
    fn width(&self) -> u16 {
        Term::stderr().size().1
    }

    fn height(&self) -> u16 {
        Term::stderr().size().0
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.go(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.go(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.go(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.go(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(text)?;
        self.add("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let picture = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        output::draw(&picture);
        Ok(())
    }
}
