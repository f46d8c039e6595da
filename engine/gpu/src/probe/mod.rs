//! Facts that only the machine knows: how GPUs are joined, whether bytes really get from one to the other, what the
//! container allows.
//!
//! A driver's word never proves peer access. The attempt is made by a child with a deadline, because on a machine whose
//! PCIe switches redirect peer traffic it hangs, dies, or delivers other bytes than were sent.

mod child;
mod container;
mod exercise;
mod nvml;
mod pairs;

use std::process::Command;
use std::time::Duration;

use cudarc::driver::result;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use serde::Serialize;

use crate::doctor::ask as attribute;
use crate::library::{Library, require};

pub use child::{NoAnswer, ask};
pub use container::Limits;
pub use exercise::exercise;
pub use pairs::{Link, Pair, links, pairs, topology};

/// How long the child may take: opening eight GPUs and starting NCCL takes some seconds.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// What the attempt gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum PeerProbe {
    Ok,
    /// A wrong answer, a signal or a hang.
    Failed {
        why: String,
    },
}

/// What the driver says a GPU's memory can be shared by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Handles {
    pub file_descriptors: bool,
    pub fabric: bool,
    /// The attribute alone: whether multicast works only an attempt proves.
    pub multicast: bool,
}

impl PeerProbe {
    /// Runs `command`, which must try `exercise` on the GPUs and exit 0 only if all of it arrived.
    pub fn run(command: &mut Command, deadline: Duration) -> Self {
        match ask(command, deadline) {
            Ok(_) => Self::Ok,
            Err(why) => Self::Failed { why: why.to_string() },
        }
    }

    /// The finding of a failed probe, with the usual cause.
    pub fn finding(&self) -> Option<String> {
        let Self::Failed { why } = self else { return None };
        Some(format!(
            "p2p_probe_failed: {why}; the usual cause is PCIe access control (ACS) or an IOMMU that redirects peer traffic: turn \
             ACS off on the bridges above the GPUs or boot with iommu=pt; until then --allreduce nccl with NCCL_P2P_DISABLE=1 \
             works"
        ))
    }
}

/// Of device `ordinal`; nothing where the driver does not answer.
pub fn handles(ordinal: usize) -> Handles {
    let driver = require(Library::Driver).ok();
    let device = driver.and_then(|_| result::device::get(i32::try_from(ordinal).ok()?).ok());
    let has = |wanted| device.and_then(|device| attribute(device, wanted)).is_some_and(|value| value != 0);
    Handles {
        file_descriptors: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        fabric: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
        multicast: has(Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_or_a_signal_is_a_finding_with_its_usual_cause() {
        let run = |script: &str| PeerProbe::run(Command::new("sh").args(["-c", script]), Duration::from_millis(300));
        assert_eq!(run("exit 0").finding(), None);
        for (script, part) in [
            ("exec sleep 60", "no answer within"),
            ("kill -BUS $$", "signal 7"),
            ("echo '9 of 10 bytes did not arrive' >&2; exit 1", "9 of 10 bytes"),
        ] {
            let finding = run(script).finding().expect("a finding");
            assert!(finding.starts_with("p2p_probe_failed: "), "{finding}");
            assert!(finding.contains(part) && finding.contains("ACS") && finding.contains("IOMMU"), "{finding}");
        }
    }
}
