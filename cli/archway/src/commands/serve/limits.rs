//! What the system gives a process, looked at before anything needs it.

use std::sync::{Mutex, PoisonError};
use std::{io, thread};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that a server asks for at most.
const MOST_FILES: u64 = 1 << 16;
/// Open files without which no server starts.
const LEAST_FILES: u64 = 64;
/// Open files that connections leave to the rest: one in so many, and no fewer than so many. Models, devices, pipes to
/// processes that render.
const KEPT_SHARE: u64 = 8;
const LEAST_KEPT: u64 = 32;

/// Lets the process have as many open files as it may, up to [`MOST_FILES`]: a connection is one, and shells begin with
/// 1024, fewer than the queue has places. Returns how many connections may be open at once. Errors: too few for a server.
pub fn connections() -> Result<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(MOST_FILES, |maximum| maximum.min(MOST_FILES));
    let Some(now) = current.filter(|current| *current < wanted) else {
        return connections_of(current.unwrap_or(MOST_FILES));
    };
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => connections_of(wanted),
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays as it is: {now}");
            connections_of(now)
        }
    }
}

fn connections_of(files: u64) -> Result<usize> {
    ensure!(
        files >= LEAST_FILES,
        "the limit of open files is {files}, and a server needs {LEAST_FILES} at least; raise it (`ulimit -n`)"
    );
    let kept = (files / KEPT_SHARE).max(LEAST_KEPT);
    Ok(usize::try_from(files - kept).unwrap_or(usize::MAX))
}

/// Errors: the system gives no `count` threads. A runtime that does not get its first thread panics, and one that lacks
/// others keeps its callers waiting.
pub fn ensure_threads(count: usize) -> Result<()> {
    let gate = Mutex::new(());
    let started: io::Result<()> = thread::scope(|scope| {
        // They stand side by side until all have started, or one has not.
        let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        let start = |_| {
            thread::Builder::new().spawn_scoped(scope, || drop(gate.lock().unwrap_or_else(PoisonError::into_inner)))
        };
        let threads: io::Result<Vec<_>> = (0..count).map(start).collect();
        drop(closed);
        // A scope does not wait until the system has the threads back.
        threads?.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread panicked")))
    });
    started.with_context(|| {
        format!(
            "the server's {count} threads cannot start; allow more processes (`ulimit -u`), or lower --http-threads"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_rest() {
        assert_eq!((connections_of(64).unwrap(), connections_of(1 << 16).unwrap()), (32, 57344));
        let said = connections_of(63).unwrap_err().to_string();
        assert!(said.contains("63") && said.contains("ulimit -n"), "{said}");
    }

    #[test]
    fn threads_are_asked_for_and_given_back() {
        ensure_threads(8).unwrap();
    }
}
