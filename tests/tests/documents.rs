//! Documents lead where they say: every link, and every path of this repository that a document names.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Paths of the project's Markdown files, and their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let listed = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "*.md"])
        .current_dir(root())
        .output()
        .expect("git lists the documents");
    let names = String::from_utf8(listed.stdout).unwrap();
    let read = |name: &str| Some((PathBuf::from(name), std::fs::read_to_string(root().join(name)).ok()?));
    let documents: Vec<_> = names.lines().filter_map(read).collect();
    assert!(documents.len() > 20, "git listed {} documents", documents.len());
    documents
}

/// The targets of inline links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchor of a heading, as renderers of Markdown make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    headings.map(anchor).any(|anchor| anchor == wanted)
}

/// Why a link of `document` leads nowhere.
fn broken(document: &Path, text: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.is_empty() {
        return None;
    }
    let (path, place) = link.split_once('#').unwrap_or((link, ""));
    let target = root().join(document.parent().unwrap_or(Path::new("")).join(path));
    if !path.is_empty() && !target.exists() {
        return Some(format!("there is no {path}"));
    }
    let text = if path.is_empty() { text.to_owned() } else { std::fs::read_to_string(target).unwrap_or_default() };
    (!place.is_empty() && !has_anchor(&text, place)).then(|| format!("{path} has no heading #{place}"))
}

#[test]
fn links_lead_to_files_and_headings() {
    let page = "# A page\n## Engine on a GPU\n";
    assert!(has_anchor(page, "engine-on-a-gpu") && !has_anchor(page, "engine"));
    assert!(broken(Path::new("README.md"), page, "docs/nothing.md").is_some());
    assert!(broken(Path::new("README.md"), page, "#nothing").is_some());
    let mut findings = Vec::new();
    for (document, text) in documents() {
        let failed = links(&text).filter_map(|link| broken(&document, &text, link));
        findings.extend(failed.map(|why| format!("{}: {why}", document.display())));
    }
    assert!(findings.is_empty(), "links that lead nowhere:\n{}", findings.join("\n"));
}

/// Words in backticks that are paths below a folder of the repository.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
    quoted.filter(plain).filter(|word| {
        let top = word.split('/').next().unwrap_or_default();
        word.contains('/') && ["capdb", "cli", "docs", "engine", "models", "schemas", "tests"].contains(&top)
    })
}

#[test]
fn paths_that_documents_name_are_there() {
    assert_eq!(paths("see `docs/x.md`, `a b` and `engine::plan`").collect::<Vec<_>>(), ["docs/x.md"]);
    let mut findings = Vec::new();
    for (document, text) in documents() {
        // A kernel's page names files of the GPU crate, too.
        let there = |path: &str| root().join(path).exists() || root().join("engine/gpu").join(path).exists();
        let missing = paths(&text).filter(|path| !there(path));
        findings.extend(missing.map(|path| format!("{}: there is no {path}", document.display())));
    }
    assert!(findings.is_empty(), "paths that lead nowhere:\n{}", findings.join("\n"));
}
