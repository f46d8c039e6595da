//! What the process may do with memory that others map.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Limits of this process and of its container. None: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// File descriptors: a handle of shared memory is one.
    pub open_files: Option<u64>,
    /// Bytes of memory that may be pinned; none also where there is no limit.
    pub locked_memory: Option<u64>,
    /// Bytes of /dev/shm, which processes of one NCCL group meet in.
    pub shared_memory: Option<u64>,
    /// Fabric handles need a channel of the IMEX service.
    pub fabric_channels: bool,
}

impl Limits {
    /// Of this process.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let channels = Path::new("/dev/nvidia-caps-imex-channels");
        let any = fs::read_dir(channels).is_ok_and(|mut entries| entries.next().is_some());
        Self { fabric_channels: any, ..Self::parse(&text("/proc/self/limits"), &text("/proc/mounts")) }
    }

    fn parse(limits: &str, mounts: &str) -> Self {
        let soft = |name: &str| {
            limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        };
        Self {
            open_files: soft("Max open files"),
            locked_memory: soft("Max locked memory"),
            shared_memory: shared_memory(mounts),
            fabric_channels: false,
        }
    }

    /// What stands in the way, with what to do. `gpus` of one process, whose ranks are threads.
    pub fn findings(&self, gpus: usize) -> Vec<String> {
        // Each rank has windows, events and sockets; NCCL alone opens some tens for a pair.
        let needed = 256 + 64 * gpus as u64 * gpus as u64;
        let few = self.open_files.filter(|files| *files < needed);
        let finding = |files| {
            format!(
                "{files} open files are allowed, and {gpus} GPUs may need {needed}; raise it with `ulimit -n`, in a container \
                 with --ulimit nofile"
            )
        };
        few.map(finding).into_iter().collect()
    }
}

/// From the options of the mount: `size=65536k`.
fn shared_memory(mounts: &str) -> Option<u64> {
    let line = mounts.lines().find(|line| line.split_whitespace().nth(1) == Some("/dev/shm"))?;
    let size = line.split_whitespace().nth(3)?.split(',').find_map(|option| option.strip_prefix("size="))?;
    let digits = size.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let shift = match &size[digits.len()..] {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn limits_are_read_from_what_the_kernel_prints() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              8388608              bytes     \n\
                      Max open files            1024                 524288               files     \n";
        let mounts = "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k,inode64 0 0\n";
        let found = Limits::parse(limits, mounts);
        assert_eq!(
            (found.open_files, found.locked_memory, found.shared_memory),
            (Some(1024), Some(8 << 20), Some(64 << 20))
        );
        let findings = found.findings(8);
        assert!(findings.iter().any(|finding| finding.contains("1024 open files")), "{findings:?}");
        assert_eq!(found.findings(2), Vec::<String>::new());
        assert_eq!(Limits::parse("Max locked memory unlimited unlimited bytes", ""), Limits::default());
    }

    #[test]
    fn this_process_has_a_limit_of_files() {
        assert!(Limits::read().open_files.is_some_and(|files| files > 0));
    }
}
