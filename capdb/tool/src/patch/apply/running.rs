//! Processes that use an installation. Python closes a source once it is imported, so an open file is the weaker sign; mapped
//! native modules of the same folder are the stronger one. What could not be looked at is said.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use capdb::record::PatchProject;
use serde::Serialize;

/// Most bytes that are read of one file below /proc.
const MAX_BYTES: u64 = 32 << 20;

/// A process that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    pub pid: u32,
    pub command: String,
    pub why: String,
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Look {
    /// `None` where the system has no /proc: then nothing is known.
    pub looked_at: Option<usize>,
    /// Processes whose open files or mappings may not be read: usually those of other users.
    pub unreadable: usize,
    pub users: Vec<User>,
    /// Processes that run the project from another folder, as it seems.
    pub elsewhere: Vec<User>,
}

/// One process, as far as it can be read.
struct Process {
    pid: u32,
    command: String,
    /// It is Python and names the project, or has renamed itself after it.
    runs_it: bool,
    open: Option<Vec<PathBuf>>,
    mapped: Option<Vec<PathBuf>>,
    cwd: Option<PathBuf>,
}

/// Looks at every process below `proc` but this one.
pub fn look(proc: &Path, root: &Path, project: PatchProject, files: &[PathBuf]) -> Look {
    let Ok(entries) = fs::read_dir(proc) else { return Look::default() };
    let own = std::process::id();
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut look = Look { looked_at: Some(0), ..Look::default() };
    for process in ids.filter(|pid| *pid != own).filter_map(|pid| read(proc, pid, root, project, files)) {
        *look.looked_at.get_or_insert(0) += 1;
        if process.open.is_none() || process.mapped.is_none() {
            look.unreadable += 1;
        }
        let user = |why: String| User { pid: process.pid, command: process.command.clone(), why };
        if let Some(why) = uses(&process, root, project) {
            look.users.push(user(why));
        } else if process.runs_it {
            look.elsewhere.push(user(format!("has nothing below {} mapped", root.display())));
        }
    }
    look
}

/// Why a process is taken to use this installation.
fn uses(process: &Process, root: &Path, project: PatchProject) -> Option<String> {
    if let Some(file) = process.open.iter().flatten().next() {
        return Some(format!("has {} open", file.display()));
    }
    let package = root.join(project.word());
    let mapped = process.mapped.iter().flatten();
    if let Some(file) = mapped.clone().find(|file| file.starts_with(&package)) {
        return Some(format!("has {} mapped", file.display()));
    }
    if !process.runs_it {
        return None;
    }
    if let Some(file) = mapped.clone().next() {
        return Some(format!("runs {project} and has {} mapped", file.display()));
    }
    if process.cwd.as_ref().is_some_and(|folder| folder.starts_with(root)) {
        return Some(format!("runs {project} inside of {}", root.display()));
    }
    process.mapped.is_none().then(|| format!("runs {project}, and what it has mapped may not be read"))
}

fn read(proc: &Path, pid: u32, root: &Path, project: PatchProject, files: &[PathBuf]) -> Option<Process> {
    let folder = proc.join(pid.to_string());
    // None where it is gone in between.
    let words = bounded(&folder.join("cmdline"))?;
    let mut words: Vec<String> = words.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let exe = fs::read_link(folder.join("exe")).ok();
    if words.is_empty() {
        // A program that is just being started, or that has wiped its command, has a file; a thread of the kernel has
        // neither.
        words.push(exe.as_ref()?.display().to_string());
    }
    let program = words.first()?;
    let python = [Some(Path::new(program)), exe.as_deref()].into_iter().flatten().any(is_python);
    let titled = program.to_ascii_lowercase().starts_with(&format!("{project}::"));
    let open = fs::read_dir(folder.join("fd")).ok().map(|entries| {
        let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        links.filter(|path| files.contains(path)).collect()
    });
    Some(Process {
        pid,
        command: words.join(" ").chars().take(160).collect(),
        runs_it: titled || (python && words.iter().any(|word| names(word, project))),
        open,
        mapped: bounded(&folder.join("maps")).map(|text| mapped_below(&text, root)),
        cwd: fs::read_link(folder.join("cwd")).ok(),
    })
}

fn is_python(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("python") || name.starts_with("pypy")
}

/// `sglang.launch_server`, `/venv/bin/vllm`, `sglang`: a module or a program of the project.
fn names(word: &str, project: PatchProject) -> bool {
    let last = word.rsplit('/').next().unwrap_or(word);
    last.strip_prefix(project.word()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Files below a folder among the lines of /proc/PID/maps: five columns, then the path.
fn mapped_below(maps: &str, root: &Path) -> Vec<PathBuf> {
    let path = |line: &str| {
        let start = line.find('/')?;
        let path = line[start..].strip_suffix(" (deleted)").unwrap_or(&line[start..]);
        Path::new(path).starts_with(root).then(|| PathBuf::from(path))
    };
    maps.lines().filter_map(path).collect()
}

fn bounded(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like /proc.
    struct Proc(tempfile::TempDir);

    impl Proc {
        fn process(&self, pid: u32, command: &[&str], maps: Option<&str>) -> PathBuf {
            let folder = self.0.path().join(pid.to_string());
            fs::create_dir_all(folder.join("fd")).unwrap();
            fs::write(folder.join("cmdline"), command.join("\0")).unwrap();
            if let Some(maps) = maps {
                fs::write(folder.join("maps"), maps).unwrap();
            }
            folder
        }

        fn look(&self) -> Look {
            look(self.0.path(), Path::new("/site"), PatchProject::Sglang, &[PathBuf::from("/site/sglang/a.py")])
        }
    }

    #[test]
    fn tells_users_from_bystanders() {
        let proc = Proc(tempfile::tempdir().unwrap());
        let line = |path: &str| format!("7f00-7f01 r-xp 00000000 00:1b 42                         {path}\n");
        proc.process(1000001, &["bash", "-c", "capdb patch apply --project sglang"], Some(&line("/usr/bin/bash")));
        proc.process(1000002, &["python3", "-m", "sglang.launch_server"], Some(&line("/other/torch/lib.so")));
        proc.process(1000003, &["python3", "train.py"], Some(&line("/site/torch/lib/libtorch.so")));
        assert_eq!((proc.look().users, proc.look().looked_at), (Vec::new(), Some(3)));
        assert_eq!(proc.look().elsewhere.iter().map(|user| user.pid).collect::<Vec<_>>(), [1000002]);

        proc.process(1000004, &["python3", "-m", "sglang.launch_server"], Some(&line("/site/torch/lib/libtorch.so")));
        proc.process(1000005, &["sglang::scheduler_TP0"], None);
        proc.process(1000006, &["python3", "job.py"], Some(&line("/site/sglang/_kernels.abi3.so (deleted)")));
        let editor = proc.process(1000007, &["vim", "a.py"], Some(""));
        std::os::unix::fs::symlink("/site/sglang/a.py", editor.join("fd/3")).unwrap();
        let look = proc.look();
        let mut pids: Vec<u32> = look.users.iter().map(|user| user.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [1000004, 1000005, 1000006, 1000007], "{look:?}");
        assert_eq!(look.unreadable, 1);
    }

    /// A starting program has no command yet, and one may wipe its own; threads of the kernel have no file either.
    #[test]
    fn a_process_without_a_command_is_looked_at() {
        let proc = Proc(tempfile::tempdir().unwrap());
        proc.process(1000001, &[], Some(""));
        assert_eq!(proc.look().looked_at, Some(0));
        let silent = proc.process(1000002, &[], Some(""));
        std::os::unix::fs::symlink("/usr/bin/sleep", silent.join("exe")).unwrap();
        std::os::unix::fs::symlink("/site/sglang/a.py", silent.join("fd/0")).unwrap();
        let users = proc.look().users;
        assert_eq!(
            users.iter().map(|user| (user.pid, user.command.as_str())).collect::<Vec<_>>(),
            [(1000002, "/usr/bin/sleep")]
        );
    }

    #[test]
    fn says_where_there_is_nothing_to_look_at() {
        let none = look(Path::new("/nowhere/at/all"), Path::new("/site"), PatchProject::Vllm, &[]);
        assert_eq!(none, Look::default());
    }
}
