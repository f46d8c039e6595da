//! What there is to know of this machine's processor.

use std::fs;
use std::thread::available_parallelism;

use engine::plan::HostCpu;

/// Assumed where the system does not say how much memory there is.
const ASSUMED_MEMORY: u64 = 4 << 30;

/// This machine. `threads`: how many the user wants to use, if not all.
pub fn cpu(threads: Option<u32>) -> HostCpu {
    let all = available_parallelism().map_or(1, usize::from);
    HostCpu {
        name: name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        threads: threads.map_or(all, |threads| threads as usize),
        memory: memory(),
    }
}

fn name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// Bytes that are free for this process: of the machine, and of its control group.
fn memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min().unwrap_or(ASSUMED_MEMORY)
}

/// `MemAvailable` of a `/proc/meminfo`, in bytes.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::available;

    #[test]
    fn available_memory_is_read_in_bytes() {
        assert_eq!(available("MemTotal:  9 kB\nMemAvailable:    8 kB\n"), Some(8192));
        assert_eq!(available("MemTotal:  9 kB\n"), None);
    }
}
