//! A queue between those who say something and a reader that may stall: whoever says something goes on at once.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What waits at most, in bytes: thousands of lines, and less than anybody misses.
const MOST_BYTES: usize = 1 << 20;

/// What may wait before a picture that only moves, such as a progress bar, is left out.
const MOST_BEFORE_PICTURES: usize = 4 << 10;

/// Text on its way to a writer that has a thread of its own. What has no room is lost, and counted. The count is written
/// in its place, once everything before it is, and until then all that follows is lost too: there is one gap, not many.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    lost: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    /// The first one stays until it is written.
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// Lines that were lost since it was last said.
    unsaid: u64,
}

struct Entry {
    text: Vec<u8>,
    kind: Kind,
}

enum Kind {
    Said,
    Picture,
    /// Says that so many lines were lost.
    Gap(u64),
}

impl Queue {
    /// Errors: the system gives no thread.
    pub fn start(to: impl Write + Send + 'static) -> io::Result<Arc<Self>> {
        let lost = Arc::new(AtomicU64::new(0));
        let queue = Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), lost });
        let own = Arc::clone(&queue);
        thread::Builder::new().name("log".to_owned()).spawn(move || own.write(to))?;
        Ok(queue)
    }

    /// Whole lines.
    pub fn say(&self, text: &[u8]) {
        let mut state = self.state();
        let goes_on = state.unsaid == 0 || state.bytes == 0;
        if goes_on && state.bytes + text.len() <= MOST_BYTES {
            self.push(&mut state, text.to_vec(), Kind::Said);
        } else {
            self.lose(&mut state, lines(text));
        }
    }

    /// What the next picture replaces: where it would have to wait it is not needed.
    pub fn draw(&self, text: &[u8]) {
        let mut state = self.state();
        if state.bytes < MOST_BEFORE_PICTURES {
            self.push(&mut state, text.to_vec(), Kind::Picture);
        }
    }

    /// Waits until everything is written, but not longer than `most`.
    pub fn finish(&self, most: Duration) {
        let waits = |state: &mut State| state.bytes > 0;
        drop(self.changed.wait_timeout_while(self.state(), most, waits));
    }

    /// Lines that were lost until now.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    fn write(&self, mut to: impl Write) {
        loop {
            let entry = self.next();
            let written = to.write_all(&entry.text).and_then(|()| to.flush()).is_ok();
            self.wrote(&entry, written);
        }
    }

    fn next(&self) -> Arc<Entry> {
        let mut state = self.state();
        loop {
            if let Some(entry) = state.entries.front() {
                return Arc::clone(entry);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wrote(&self, entry: &Entry, written: bool) {
        let mut state = self.state();
        state.entries.pop_front();
        state.bytes -= entry.text.len();
        match entry.kind {
            Kind::Said if !written => self.lose(&mut state, lines(&entry.text)),
            // Counted already, but still not said.
            Kind::Gap(lines) if !written => state.unsaid += lines,
            _ => {}
        }
        // After a failure the next line is the next trial.
        if written && state.bytes == 0 && state.unsaid > 0 {
            let lines = std::mem::take(&mut state.unsaid);
            let (what, were) = if lines == 1 { ("line", "was") } else { ("lines", "were") };
            let text =
                format!("note: {lines} {what} of the log {were} lost here: nobody read on, or there was no room\n");
            self.push(&mut state, text.into_bytes(), Kind::Gap(lines));
        }
        self.changed.notify_all();
    }

    fn push(&self, state: &mut State, text: Vec<u8>, kind: Kind) {
        state.bytes += text.len();
        state.entries.push_back(Arc::new(Entry { text, kind }));
        self.changed.notify_all();
    }

    fn lose(&self, state: &mut State, lines: u64) {
        state.unsaid += lines;
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, PipeReader};
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn piped() -> (Arc<Queue>, BufReader<PipeReader>) {
        let (reader, writer) = io::pipe().unwrap();
        (Queue::start(writer).unwrap(), BufReader::new(reader))
    }

    fn line(from: &mut impl BufRead) -> String {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// A pipe that nobody reads takes what it has room for, the queue what it has; the rest is told in its place.
    #[test]
    fn a_reader_that_stalls_keeps_nobody_waiting_and_is_told_what_it_missed() {
        let (queue, mut reader) = piped();
        let said = (0..40_000).map(|number| format!("{number:0>99}\n"));
        said.for_each(|text| queue.say(text.as_bytes()));
        let lost = queue.lost().load(Ordering::Relaxed);
        assert!(lost > 20_000 && lost < 30_000, "{lost}");
        for number in 0..40_000 - lost {
            assert_eq!(line(&mut reader), format!("{number:0>99}"));
        }
        let gap = line(&mut reader);
        assert!(gap.starts_with(&format!("note: {lost} lines of the log were lost here")), "{gap}");
        queue.say(b"goes on\n");
        assert_eq!(line(&mut reader), "goes on");
        assert_eq!(queue.lost().load(Ordering::Relaxed), lost);
    }

    #[test]
    fn pictures_are_left_out_and_not_counted() {
        let (queue, mut reader) = piped();
        queue.draw(b"first\n");
        assert_eq!(line(&mut reader), "first");
        (0..40_000).for_each(|_| queue.draw(&[b'.'; 100]));
        queue.say(b"\nlast\n");
        let pictures = line(&mut reader).len();
        assert!(pictures > 0 && pictures < 1_000_000, "{pictures}");
        assert_eq!((line(&mut reader).as_str(), queue.lost().load(Ordering::Relaxed)), ("last", 0));
    }

    #[test]
    fn its_end_is_waited_for_but_not_forever() {
        let (queue, reader) = piped();
        (0..2000).for_each(|_| queue.say(&[b'\n'; 100]));
        queue.finish(Duration::from_millis(20));
        assert!(queue.state().bytes > 0);
        let reading = thread::spawn(|| reader.lines().take(200_000).count());
        queue.finish(Duration::from_secs(60));
        assert_eq!((queue.state().bytes, reading.join().unwrap()), (0, 200_000));
    }

    /// A disk that was full for a while.
    #[test]
    fn what_a_writer_refuses_is_counted_and_told_later() {
        struct Disk(Arc<AtomicBool>, Arc<Mutex<Vec<u8>>>);
        impl Write for Disk {
            fn write(&mut self, text: &[u8]) -> io::Result<usize> {
                if self.0.load(Ordering::Acquire) {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.1.lock().unwrap().write(text)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (full, text) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let queue = Queue::start(Disk(Arc::clone(&full), Arc::clone(&text))).unwrap();
        for said in ["one\n", "two\n", "three\n"] {
            queue.say(said.as_bytes());
            queue.finish(Duration::from_secs(60));
            full.store(said == "one\n", Ordering::Release);
        }
        let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
        let gap = text.strip_prefix("three\nnote: 2 lines of the log were lost here");
        assert!(gap.is_some() && queue.lost().load(Ordering::Relaxed) == 2, "{text}");
    }
}
