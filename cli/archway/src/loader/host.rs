//! What there is to know of this machine's processor.

use std::fs;
use std::path::{Component, Path};
use std::thread::available_parallelism;

use engine::plan::HostCpu;
use rustix::process::{Resource, getrlimit};

/// Assumed where the system does not say how much memory there is.
const ASSUMED_MEMORY: u64 = 4 << 30;

/// Address space that a thread may reserve: its part of the C library's heap, and its stack.
const THREAD_SPACE: u64 = (64 + 8) << 20;

/// Where control groups (version 2) are.
const GROUPS: &str = "/sys/fs/cgroup";

/// This machine. `threads`: how many the user wants to use, if not all.
pub fn cpu(threads: Option<u32>) -> HostCpu {
    let all = available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or(all, |threads| threads as usize);
    let name = name().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    HostCpu { name, threads, memory: memory(threads) }
}

fn name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// Bytes that are free for this process: of the machine, of its control groups, and of its address space where that is
/// bounded (`ulimit -v`). Of that a half, without what the threads reserve: mapped files take from it too.
fn memory(threads: usize) -> u64 {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let machine = kilobytes(&read("/proc/meminfo"), "MemAvailable:");
    let group = group(Path::new(GROUPS), &read("/proc/self/cgroup"));
    let space = getrlimit(Resource::As).current.map(|limit| {
        let mapped = kilobytes(&read("/proc/self/status"), "VmSize:");
        limit.saturating_sub(mapped.unwrap_or(0) + threads as u64 * THREAD_SPACE) / 2
    });
    [machine, group, space].into_iter().flatten().min().unwrap_or(ASSUMED_MEMORY)
}

/// A line `NAME N kB` of a file about memory, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The least that is free in a process's control group and those around it. `own` is its `/proc/PID/cgroup`; a container sees
/// its own group as the root.
fn group(root: &Path, own: &str) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    // A process of another namespace has a path that leads out of what is seen here.
    let seen = Path::new(path).components().all(|part| part != Component::ParentDir);
    let path = if seen { path.trim_start_matches('/') } else { "" };
    let folder = root.join(path);
    let groups = folder.ancestors().take_while(|folder| folder.starts_with(root));
    groups.filter_map(free_in).min()
}

/// What a group may still take. Files that were read count as its memory, but make room for what needs it.
fn free_in(folder: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    let bound = bytes(&read("memory.max")?)?;
    let taken = read("memory.current").and_then(|text| bytes(&text)).unwrap_or(0);
    let stat = read("memory.stat").unwrap_or_default();
    let files =
        ["inactive_file ", "active_file "].map(|name| stat.lines().find_map(|line| bytes(line.strip_prefix(name)?)));
    let files: u64 = files.into_iter().flatten().sum();
    Some(bound.saturating_sub(taken.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        assert_eq!(kilobytes("MemTotal:  9 kB\nMemAvailable:    8 kB\n", "MemAvailable:"), Some(8192));
        assert_eq!(kilobytes("MemTotal:  9 kB\n", "MemAvailable:"), None);
    }

    /// A service's own bound, and that of the slice that it is in.
    #[test]
    fn the_tightest_group_around_a_process_bounds_it() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("system.slice/archway.service");
        fs::create_dir_all(&service).unwrap();
        fs::write(root.path().join("system.slice/memory.max"), "8000\n").unwrap();
        let own = "0::/system.slice/archway.service\n";
        assert_eq!(group(root.path(), own), Some(8000));
        for (bound, found) in [("max\n", 8000), ("9000\n", 8000), ("7000\n", 7000)] {
            fs::write(service.join("memory.max"), bound).unwrap();
            assert_eq!(group(root.path(), own), Some(found), "{bound}");
        }
        // Neighbours in the slice have taken memory; what is only kept of files does not count.
        let slice = root.path().join("system.slice");
        fs::write(slice.join("memory.current"), "6000\n").unwrap();
        assert_eq!(group(root.path(), own), Some(2000));
        fs::write(slice.join("memory.stat"), "anon 2500\ninactive_file 1500\nactive_file 2000\n").unwrap();
        assert_eq!(group(root.path(), own), Some(5500));
        assert_eq!(group(root.path(), "0::/\n"), None);
        fs::write(root.path().join("memory.max"), "5000\n").unwrap();
        for own in ["0::/\n", "0::/../../other\n", "1:memory:/a\n", ""] {
            assert_eq!(group(root.path(), own), Some(5000), "{own}");
        }
    }
}
