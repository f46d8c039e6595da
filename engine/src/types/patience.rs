//! Waiting no longer than some time in which this process runs.

use std::time::{Duration, Instant};

/// The longest wait between two looks at the clock.
const SLICE: Duration = Duration::from_millis(100);

/// How long somebody still waits for others of this process. Time in which the process is stopped (by a terminal's Ctrl-Z, a
/// paused container, a frozen virtual machine) does not count: whoever is waited for is stopped too, and has not stalled.
/// A wait is cut into slices, and none counts for more than it was meant to take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    left: Duration,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { left: limit }
    }

    /// Calls `wait` with the longest time that it may wait, again and again, until it gives a value; none when the patience
    /// has run out.
    pub fn wait<T>(&mut self, mut wait: impl FnMut(Duration) -> Option<T>) -> Option<T> {
        loop {
            let (slice, begin) = (self.left.min(SLICE), Instant::now());
            if let Some(value) = wait(slice) {
                return Some(value);
            }
            self.left = self.left.saturating_sub(begin.elapsed().min(SLICE));
            if self.left.is_zero() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn a_slice_that_took_long_counts_for_no_more_than_a_slice() {
        let mut patience = Patience::new(SLICE * 3);
        let mut slices = Vec::new();
        let found = patience.wait(|slice| {
            slices.push(slice);
            // As if the process had been stopped.
            sleep(SLICE * 4);
            None::<()>
        });
        assert_eq!((found, slices), (None, vec![SLICE; 3]));
        assert_eq!(patience.wait(|slice| slice.is_zero().then_some(7)), Some(7), "there is one more look");
    }

    #[test]
    fn waiting_ends_in_time_or_with_what_came() {
        let begin = Instant::now();
        let mut looks = 0;
        let found = Patience::new(SLICE * 2).wait(|slice| {
            looks += 1;
            sleep(slice);
            None::<()>
        });
        assert!(found.is_none() && looks >= 2 && begin.elapsed() >= SLICE * 2);
        assert_eq!(Patience::new(Duration::ZERO).wait(|_| None::<()>), None);
        assert_eq!(Patience::new(SLICE).wait(|_| Some(1)), Some(1));
    }
}
