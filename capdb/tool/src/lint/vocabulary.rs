use capdb::decide::Reason;
use capdb::load::{FileKind, Loaded};
use capdb::problem::Problem;
use capdb::record::{AlgorithmId, Dtype, EvidenceKind, FusionId, Support, Topology};
use capdb::yaml::{Entry, Node};

use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "vocabulary",
    about: "The closed lists of vocab.yaml are those that the program decides on.",
    check: Check::Tree(check),
};

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let Some((loaded, root)) = tree.single(FileKind::Vocab) else { return };
    for (group, code) in [
        ("topologies", Topology::ALL.iter().map(|word| word.word()).collect()),
        ("algorithms", AlgorithmId::ALL.iter().map(|word| word.word()).collect()),
        ("dtypes", Dtype::ALL.iter().map(|word| word.word()).collect()),
        ("evidence", EvidenceKind::ALL.iter().map(|word| word.word()).collect()),
        ("support", Support::ALL.iter().map(|word| word.word()).collect()),
        ("fusions", FusionId::ALL.iter().map(|word| word.word()).collect()),
        ("reasons", Reason::ALL.iter().map(|word| word.word()).collect::<Vec<_>>()),
    ] {
        let entries = root.get(group).map(Node::entries).unwrap_or_default();
        for entry in entries.iter().filter(|entry| !code.contains(&entry.key.as_str())) {
            let message = format!("the program does not know the word `{}` of {group}", entry.key);
            problems.push(
                Problem::error(LINT.name, &loaded.file.path, entry.key_span.clone(), message)
                    .hint("a word of a closed list needs code that decides on it; remove it, or add both"),
            );
        }
        if group == "reasons" {
            classes(loaded, entries, problems);
        }
        let missing: Vec<&str> =
            code.into_iter().filter(|word| !entries.iter().any(|entry| entry.key == *word)).collect();
        if !missing.is_empty() {
            let span = root.key_span(&format!("/{group}")).unwrap_or(0..0);
            let message = format!("{group} lacks the meaning of {}", missing.join(", "));
            problems.push(
                Problem::error(LINT.name, &loaded.file.path, span, message)
                    .hint("the program decides on these words, so people must be able to read what they mean"),
            );
        }
    }
}

/// A reason has the class that the program gives it.
fn classes(loaded: &Loaded, entries: &[Entry], problems: &mut Vec<Problem>) {
    for entry in entries {
        let Some(reason) = Reason::ALL.iter().find(|reason| reason.word() == entry.key) else { continue };
        let Some(node) = entry.value.get("class").filter(|node| node.text() != Some(reason.class().word())) else {
            continue;
        };
        let message = format!("`{}` is of class {}", entry.key, reason.class());
        problems.push(
            Problem::error(LINT.name, &loaded.file.path, node.span.clone(), message)
                .hint("the class decides verdicts, so the program holds it; write the same here")
                .fix(reason.class().word()),
        );
    }
}
