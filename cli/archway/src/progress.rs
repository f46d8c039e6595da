//! Progress bars on stderr, where that is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
    }
    bar
}
