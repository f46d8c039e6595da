use capdb::blocks::evidence;
use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::record::EvidenceKind;
use capdb::yaml::Node;

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "source-kind",
    about: "Evidence cites a source that can carry it: `measured` a measurement or a report, `documented` no judgement; upstream limits name their kernel.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    // The `record` of a case is made up, its evidence too.
    if subject.kind == FileKind::Cases {
        return;
    }
    let (mut found, own) = (Vec::new(), subject.own_sources());
    evidence(subject.root, &mut found);
    for node in found {
        let word = |key: &str| node.get(key).and_then(Node::text).unwrap_or_default();
        let Ok(kind) = word("kind").parse::<EvidenceKind>() else { continue };
        let shared = &subject.tree.index().sources.sources;
        let Some(source) = own.get(word("source")).or_else(|| shared.get(word("source"))) else { continue };
        if !source.kind.carries(kind) {
            let message = format!("a source of kind `{}` cannot make a value `{kind}`", source.kind);
            let span = node.get("kind").map_or(node.span.clone(), |kind| kind.span.clone());
            problems.push(subject.error(LINT.name, span, message).hint(advice(kind)));
        }
    }
    if subject.tree.single(FileKind::Sources).is_some() {
        kernels(subject, problems);
    }
}

const fn advice(kind: EvidenceKind) -> &'static str {
    match kind {
        EvidenceKind::Measured => {
            "cite the run: a source of kind `measurement` with GPU, driver and date; a figure in a project's table is `upstream`"
        }
        EvidenceKind::Upstream => "cite the project's file, or the pull request",
        _ => "cite the document or the query; our own judgement is `guessed`",
    }
}

/// A limit that another project found holds for the kernel that it was found with.
fn kernels(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    let limits = subject
        .blocks()
        .into_iter()
        .filter(|block| block.pointer.starts_with("/allreduce/") || block.pointer.starts_with("/fusions/"));
    for block in limits {
        let mut found = Vec::new();
        evidence(block.node, &mut found);
        for node in found {
            let upstream = node.get("kind").and_then(Node::text) == Some("upstream");
            if upstream && node.get("kernel").is_none() {
                let span = node.get("kind").map_or(node.span.clone(), |kind| kind.span.clone());
                problems.push(
                    subject
                        .error(LINT.name, span, "upstream evidence does not name its kernel")
                        .hint("add `kernel: …`: a limit holds for the kernel that it was measured with or written for"),
                );
            }
        }
    }
}
