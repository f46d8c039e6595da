//! stdout: data; stderr: talk. Nothing that controls a terminal, and no panic when a reader has gone or the disk is full.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process;

use engine::plan::printable;

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
    let _ = writeln!(io::stderr().lock(), "{}", printable(&text.to_string()));
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
