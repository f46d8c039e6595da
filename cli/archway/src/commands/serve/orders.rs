//! Orders to stop.

use std::fs;
use std::future::{Future, pending};

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The first SIGTERM, SIGINT or SIGHUP stops, the second hurries. SIGHUP comes when a terminal is closed; where whoever
/// started this program has it ignored, as `nohup` does, it stays so.
pub fn signals(stop: oneshot::Sender<()>, hurry: oneshot::Sender<()>) -> Result<impl Future<Output = ()>> {
    let mut terminate = Order::new(SignalKind::terminate(), "SIGTERM")?;
    let mut interrupt = Order::new(SignalKind::interrupt(), "SIGINT")?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut hangup = match ignores(&status, SignalKind::hangup()) {
        Some(false) => Some(Order::new(SignalKind::hangup(), "SIGHUP")?),
        // Where the system does not say, it ends the program, or is ignored, as it was.
        Some(true) | None => None,
    };
    Ok(async move {
        for order in [stop, hurry] {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.given().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = terminate.given() => {}
                () = interrupt.given() => {}
                () = hung_up => {}
            }
            let _told = order.send(());
        }
    })
}

/// A signal that is an order.
struct Order {
    signal: Signal,
    name: &'static str,
}

impl Order {
    fn new(kind: SignalKind, name: &'static str) -> Result<Self> {
        let signal = signal(kind).with_context(|| format!("{name} cannot be handled"))?;
        Ok(Self { signal, name })
    }

    async fn given(&mut self) {
        self.signal.recv().await;
        tracing::info!("told to stop by {}", self.name);
    }
}

/// Whether a process ignores a signal, by the `SigIgn` of its `/proc/PID/status`; none where that does not say.
fn ignores(status: &str, kind: SignalKind) -> Option<bool> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let ignored = u64::from_str_radix(line.trim(), 16).ok()?;
    let number = u32::try_from(kind.as_raw_value()).ok()?;
    // Signals are numbered from 1.
    Some(ignored >> number.checked_sub(1)? & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits_from_the_first_one_on() {
        let status = "Name:\tarchway\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!(ignores(status, SignalKind::hangup()), Some(true));
        assert_eq!(ignores(status, SignalKind::pipe()), Some(true));
        assert_eq!(ignores(status, SignalKind::terminate()), Some(false));
        assert_eq!(ignores("Name:\tarchway\n", SignalKind::hangup()), None);
    }
}
