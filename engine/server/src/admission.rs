//! How many sequences are inside the server, and who may still come in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

use crate::error::ApiError;

/// 400 for a request of more sequences than could ever be inside.
pub fn require_room(sequences: usize, most: usize) -> Result<(), ApiError> {
    if sequences <= most {
        return Ok(());
    }
    let message = format!(
        "the request asks for {sequences} outputs (prompts times `n`), more than the {most} sequences that this server \
         holds at once; split it"
    );
    Err(ApiError::invalid("n", message).with_code("too_many_outputs"))
}

/// Counts the sequences that run or wait.
#[derive(Debug, Default)]
pub struct Admission {
    inside: AtomicUsize,
    refused: AtomicU64,
    emptied: Notify,
    closed: watch::Sender<bool>,
}

/// Room for some sequences, given back when dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    sequences: usize,
}

impl Admission {
    /// Takes room for `sequences` if no more than `most` are inside afterwards.
    pub fn enter(self: &Arc<Self>, sequences: usize, most: usize) -> Result<Permit, ApiError> {
        require_room(sequences, most)?;
        let fits = |inside: usize| inside.checked_add(sequences).filter(|&inside| inside <= most);
        match self.inside.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Permit { admission: Arc::clone(self), sequences }),
            Err(inside) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(ApiError::queue_full(format!("{inside} of {most} sequences run or wait already; try again later")))
            }
        }
    }

    /// Tells everything that is inside to give up.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Sequences that run or wait.
    pub fn inside(&self) -> usize {
        self.inside.load(Ordering::Acquire)
    }

    /// Requests that were refused because there was no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns when no sequence is inside.
    pub async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.inside() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Permit {
    /// Whether what is inside is to give up.
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.admission.closed.subscribe()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.admission.inside.fetch_sub(self.sequences, Ordering::AcqRel) == self.sequences {
            self.admission.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[tokio::test]
    async fn room_is_taken_given_back_and_waited_for() {
        let admission = Arc::new(Admission::default());
        let first = admission.enter(2, 3).unwrap();
        assert_eq!(admission.enter(2, 3).unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(admission.enter(4, 3).unwrap_err().status, StatusCode::BAD_REQUEST);
        assert_eq!(admission.refused(), 1);
        let second = admission.enter(1, 3).unwrap();
        assert_eq!(admission.inside(), 3);
        let waiter = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.empty().await }
        });
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(second);
        waiter.await.unwrap();
        assert_eq!(admission.inside(), 0);
    }
}
