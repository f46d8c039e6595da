//! What was done, for people and for programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::decide::{Step, Verdict};
use super::plan::Plan;
use super::running::{Look, User};
use crate::patch::edit::checksum;

/// After writing, or after a dry run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub written: bool,
    pub processes: Look,
    /// Stale files that were removed.
    pub bytecode: Vec<PathBuf>,
    pub receipt: Option<PathBuf>,
    /// Why a dry run would not have been followed by a write.
    pub refused: Option<String>,
}

/// After a revert.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Below site-packages.
    pub restored: Vec<String>,
    /// Files that had their original text already, as after an interrupted apply.
    pub untouched: Vec<String>,
    pub processes: Look,
    pub bytecode: Vec<PathBuf>,
}

impl Plan {
    /// One block for each place, then what became of the whole.
    pub fn to_text(&self, outcome: &Outcome) -> String {
        let mut out = format!("{} {} on {}\n", self.project, self.version, self.gpu);
        for step in &self.steps {
            step.write(&mut out);
        }
        out.push('\n');
        for edit in &self.files {
            let verb = if outcome.written { "edited" } else { "not written" };
            let _ = writeln!(out, "{verb:<12} {}", edit.path);
        }
        if self.files.is_empty() {
            out.push_str("nothing was written\n");
        }
        removed(&mut out, &outcome.bytecode);
        if let Some(path) = &outcome.receipt {
            let _ = writeln!(out, "{:<12} {}; `capdb patch revert` restores it", "record", path.display());
        }
        if let Some(why) = &outcome.refused {
            let _ = writeln!(out, "{:<12} {why}", "would refuse");
        }
        if !self.files.is_empty() {
            looked(&mut out, &outcome.processes);
        }
        out
    }

    pub fn to_json(&self, outcome: &Outcome) -> Value {
        let file = |edit: &crate::patch::edit::FileEdit| {
            json!({
                "path": edit.path,
                "records": edit.records,
                "sha256_before": checksum(edit.before.as_bytes()),
                "sha256_after": checksum(edit.after.as_bytes()),
                "diff": edit.diff(),
            })
        };
        json!({
            "project": self.project,
            "version": self.version,
            "gpu": self.gpu,
            "steps": self.steps,
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "written": outcome.written,
            "refused": outcome.refused,
            "removed": shown(&outcome.bytecode),
            "record": outcome.receipt.as_ref().map(|path| path.display().to_string()),
            "processes": outcome.processes,
        })
    }
}

impl Step {
    fn write(&self, out: &mut String) {
        let verdict = match self.verdict {
            Verdict::Edit => "edit",
            Verdict::NothingToDo => "nothing to do",
            Verdict::LeftAlone if self.reasons.is_empty() => return,
            Verdict::LeftAlone => "left alone",
            Verdict::Refused => "refused",
            Verdict::CannotTell => "cannot tell",
        };
        let _ = writeln!(out, "\n{}  [{}]", self.feature, self.id);
        if let Some(adds) = &self.adds {
            let _ = writeln!(out, "  {:<15} {adds}  ({})", "adds", self.at);
            if !self.also_for.is_empty() {
                let others = self.also_for.join(", ");
                let _ =
                    writeln!(out, "  {:<15} {others}: the place tells architectures by their major alone", "also for");
            }
        }
        for (index, reason) in self.reasons.iter().enumerate() {
            let label = if index == 0 { verdict } else { "" };
            let place = reason.at.as_ref().map(|at| format!("  ({at})")).unwrap_or_default();
            let _ = writeln!(out, "  {label:<15} {}{place}", reason.why);
        }
    }
}

impl Restored {
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for path in &self.restored {
            let _ = writeln!(out, "{:<12} {path}", "restored");
        }
        for path in &self.untouched {
            let _ = writeln!(out, "{:<12} {path} had its original text", "untouched");
        }
        removed(&mut out, &self.bytecode);
        looked(&mut out, &self.processes);
        out
    }

    pub fn to_json(&self) -> Value {
        json!({
            "restored": self.restored,
            "untouched": self.untouched,
            "removed": shown(&self.bytecode),
            "processes": self.processes,
        })
    }
}

fn shown(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

fn removed(out: &mut String, paths: &[PathBuf]) {
    for path in paths {
        let name = path.file_name().map(Path::new).unwrap_or(path);
        let _ = writeln!(out, "{:<12} {}", "removed", name.display());
    }
}

/// Which processes were looked at. What may not be read is not passed over in silence.
fn looked(out: &mut String, look: &Look) {
    let text = match (look.looked_at, look.unreadable) {
        (None, _) => "not looked at: this system has no /proc; make sure that no server runs".to_owned(),
        (Some(all), 0) => format!("{all} looked at, none uses these files"),
        (Some(all), hidden) => format!(
            "{all} looked at, none that could be read uses these files; {hidden} belong to others and show only their command"
        ),
    };
    let _ = writeln!(out, "{:<12} {text}", "processes");
    for User { pid, command, why } in &look.elsewhere {
        let _ = writeln!(out, "{:<12} {pid} ({command}) {why}: taken for another installation", "");
    }
}
