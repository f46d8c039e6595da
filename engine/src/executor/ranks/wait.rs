//! Waiting for a message: looking for it a little while first.

use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use crate::types::Patience;

/// Looks for a message for up to `spin`; none if it did not come. Errors: it cannot come any more.
fn look<T>(messages: &Receiver<T>, spin: Duration) -> Result<Option<T>, RecvError> {
    if spin.is_zero() {
        return Ok(None);
    }
    let until = Instant::now() + spin;
    loop {
        match messages.try_recv() {
            Ok(message) => return Ok(Some(message)),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) if Instant::now() >= until => return Ok(None),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
}

/// The next message, whenever it comes.
pub(super) fn receive<T>(messages: &Receiver<T>, spin: Duration) -> Result<T, RecvError> {
    look(messages, spin)?.map_or_else(|| messages.recv(), Ok)
}

/// The next message, if it comes before the patience runs out.
pub(super) fn receive_patiently<T>(
    messages: &Receiver<T>,
    spin: Duration,
    patience: &mut Patience,
) -> Result<T, RecvTimeoutError> {
    // Looked for at the start alone: what has not come by then takes longer.
    let mut spin = spin;
    let received = patience.wait(|slice| {
        let looking = std::mem::take(&mut spin).min(slice);
        match look(messages, looking) {
            Ok(Some(message)) => Some(Ok(message)),
            Ok(None) => match messages.recv_timeout(slice - looking) {
                Err(RecvTimeoutError::Timeout) => None,
                received => Some(received),
            },
            Err(RecvError) => Some(Err(RecvTimeoutError::Disconnected)),
        }
    });
    received.unwrap_or(Err(RecvTimeoutError::Timeout))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{receive, receive_patiently};
    use crate::types::Patience;

    #[test]
    fn messages_come_with_and_without_looking() {
        for spin in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(5)] {
            let (sender, messages) = channel();
            let sending = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                sender.send(7).expect("somebody waits");
            });
            assert_eq!(receive(&messages, spin), Ok(7));
            sending.join().expect("sent");
            assert!(receive(&messages, spin).is_err(), "nobody can send any more");
        }
    }

    #[test]
    fn waiting_ends_in_time() {
        for spin in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(5)] {
            let (_sender, messages) = channel::<()>();
            let start = Instant::now();
            let mut patience = Patience::new(Duration::from_millis(30));
            assert_eq!(receive_patiently(&messages, spin, &mut patience), Err(RecvTimeoutError::Timeout));
            assert!(start.elapsed() >= Duration::from_millis(30) && start.elapsed() < Duration::from_secs(4));
        }
    }
}
