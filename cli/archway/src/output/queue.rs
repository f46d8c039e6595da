//! A queue between those who say something and a reader that may stall: whoever says something goes on at once.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{mem, thread};

/// What waits at most, in bytes: thousands of lines, and less than anybody misses.
const MOST_BYTES: usize = 1 << 20;

/// What waits behind that, of what is said once and explains the rest: the plan, errors, the words of a panic.
const MOST_INSISTED: usize = 64 << 10;

/// What may wait before a picture that only moves, such as a progress bar, is left out.
const MOST_BEFORE_PICTURES: usize = 4 << 10;

/// Text on its way to a writer that has a thread of its own. What has no room is lost, and counted. The count is written
/// in its place. Until everything before it is written all that follows is lost too, but for what is insisted on: there
/// is one gap, not many.
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
        let state = self.state();
        let goes_on = state.unsaid == 0 || state.bytes == 0;
        self.add(state, text, if goes_on { MOST_BYTES } else { 0 });
    }

    /// Whole lines that others must not push out.
    pub fn insist(&self, text: &[u8]) {
        self.add(self.state(), text, MOST_BYTES + MOST_INSISTED);
    }

    fn add(&self, mut state: MutexGuard<'_, State>, text: &[u8], most: usize) {
        if state.bytes + text.len() <= most {
            self.tell(&mut state);
            self.push(&mut state, text.to_vec(), Kind::Said);
        } else {
            self.lose(&mut state, lines(text));
        }
    }

    /// What the next picture replaces: where it would have to wait it is not needed.
    pub fn draw(&self, text: &[u8]) {
        let mut state = self.state();
        if state.bytes < MOST_BEFORE_PICTURES && !text.is_empty() {
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
        if written && state.bytes == 0 {
            self.tell(&mut state);
        }
        self.changed.notify_all();
    }

    /// Says how many lines were lost, if any.
    fn tell(&self, state: &mut State) {
        let lines = mem::take(&mut state.unsaid);
        if lines > 0 {
            let (what, were) = if lines == 1 { ("line", "was") } else { ("lines", "were") };
            let text =
                format!("note: {lines} {what} of the log {were} lost here: nobody read on, or there was no room\n");
            self.push(state, text.into_bytes(), Kind::Gap(lines));
        }
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
    use super::*;

    /// What was read: nothing is while a test has it. Full, it takes nothing.
    #[derive(Clone, Default)]
    struct Reader(Arc<Mutex<Read>>);

    #[derive(Default)]
    struct Read {
        text: String,
        full: bool,
    }

    impl Reader {
        fn now(&self) -> MutexGuard<'_, Read> {
            self.0.lock().unwrap()
        }
    }

    impl Write for Reader {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let mut read = self.now();
            if read.full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            read.text += str::from_utf8(text).unwrap();
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start() -> (Arc<Queue>, Reader) {
        let reader = Reader::default();
        (Queue::start(reader.clone()).unwrap(), reader)
    }

    fn finish(queue: &Queue) {
        queue.finish(Duration::from_secs(60));
        assert_eq!(queue.state().bytes, 0);
    }

    fn lost(queue: &Queue) -> u64 {
        queue.lost().load(Ordering::Relaxed)
    }

    /// More than there is room for. What others said in vain may not push out why.
    #[test]
    fn a_reader_that_stalls_keeps_nobody_waiting_and_is_told_what_it_missed() {
        let (queue, reader) = start();
        let stalled = reader.now();
        let line = |number: u64| format!("{number:0>99}\n");
        let held = (MOST_BYTES / 100) as u64;
        (0..held + 5).for_each(|number| queue.say(line(number).as_bytes()));
        queue.insist(b"error: the reason\n");
        queue.say(b"in vain\n");
        queue.insist(&[b'\n'; MOST_INSISTED]);
        assert_eq!(lost(&queue), 6 + MOST_INSISTED as u64);
        drop(stalled);
        finish(&queue);
        queue.say(b"goes on\n");
        finish(&queue);
        let gap = |what: &str| format!("note: {what} lost here: nobody read on, or there was no room\n");
        let said: String = (0..held).map(line).collect();
        let end = [
            &gap("5 lines of the log were"),
            "error: the reason\n",
            &gap(&format!("{} lines of the log were", 1 + MOST_INSISTED)),
            "goes on\n",
        ];
        // Both are long.
        assert!(reader.now().text == said + &end.concat());
    }

    #[test]
    fn pictures_are_left_out_and_not_counted() {
        let (queue, reader) = start();
        let stalled = reader.now();
        (0..1000).for_each(|_| queue.draw(&[b'.'; 100]));
        queue.say(b"last\n");
        drop(stalled);
        finish(&queue);
        let pictures = MOST_BEFORE_PICTURES.div_ceil(100) * 100;
        assert_eq!(reader.now().text, ".".repeat(pictures) + "last\n");
        assert_eq!(lost(&queue), 0);
    }

    #[test]
    fn its_end_is_waited_for_but_not_forever() {
        let (queue, reader) = start();
        let stalled = reader.now();
        queue.say(b"last\n");
        queue.finish(Duration::from_millis(20));
        assert!(stalled.text.is_empty() && queue.state().bytes > 0);
        drop(stalled);
        finish(&queue);
        assert_eq!(reader.now().text, "last\n");
    }

    /// A disk that was full for a while.
    #[test]
    fn what_a_writer_refuses_is_counted_and_told_in_its_place() {
        let (queue, reader) = start();
        for (said, full) in [("one\n", false), ("two\n", true), ("three\n", true), ("four\n", false)] {
            reader.now().full = full;
            queue.say(said.as_bytes());
            finish(&queue);
        }
        let gap = "note: 2 lines of the log were lost here: nobody read on, or there was no room\n";
        assert_eq!(reader.now().text, format!("one\n{gap}four\n"));
        assert_eq!(lost(&queue), 2);
    }
}
