use std::sync::{Condvar, Mutex, PoisonError};

/// A rank left the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another rank gave up")]
pub struct GaveUp;

/// A barrier for the ranks' threads that a rank can break when it gives up.
pub struct Together {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    generation: u64,
    broken: bool,
    /// What rank 0 said last.
    said: bool,
}

impl Together {
    pub fn new(ranks: usize) -> Self {
        Self { ranks, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns when every rank has come. Errors: a rank gave up.
    pub fn wait(&self) -> Result<(), GaveUp> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.broken {
            return Err(GaveUp);
        }
        let generation = state.generation;
        state.waiting += 1;
        if state.waiting == self.ranks {
            state.waiting = 0;
            state.generation += 1;
            self.changed.notify_all();
        }
        while state.generation == generation && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.generation == generation { Err(GaveUp) } else { Ok(()) }
    }

    /// What rank 0 says, on every rank.
    pub fn agree(&self, rank: usize, say: bool) -> Result<bool, GaveUp> {
        if rank == 0 {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).said = say;
        }
        self.wait()?;
        let said = self.state.lock().unwrap_or_else(PoisonError::into_inner).said;
        // Everyone has heard before rank 0 says something else.
        self.wait()?;
        Ok(said)
    }

    /// Nobody waits from now on.
    pub fn give_up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::Together;

    #[test]
    fn ranks_go_on_together_and_a_broken_barrier_lets_everyone_go() {
        let (together, passed) = (Together::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for rank in 0..3 {
                let (together, passed) = (&together, &passed);
                scope.spawn(move || {
                    for round in 1..=50 {
                        together.wait().expect("nobody gave up");
                        passed.fetch_add(1, Ordering::SeqCst);
                        together.wait().expect("nobody gave up");
                        assert_eq!(passed.load(Ordering::SeqCst), 3 * round);
                        together.wait().expect("nobody gave up");
                    }
                    if rank == 2 {
                        together.give_up();
                    } else {
                        together.wait().expect_err("rank 2 gave up");
                    }
                });
            }
        });
    }
}
