//! Rules of the house that the compiler does not check. Every failure names the file and the line.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Files that belong to the project: tracked by git, or all of them where there is no git.
fn files() -> Vec<(String, String)> {
    let listed = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    let names = String::from_utf8(listed.stdout).unwrap();
    let text = |name: &str| std::fs::read_to_string(root().join(name)).ok().map(|text| (name.to_owned(), text));
    let files: Vec<_> = names.lines().filter_map(text).collect();
    assert!(files.len() > 100, "git listed {} text files", files.len());
    files
}

fn sources() -> impl Iterator<Item = (String, String)> {
    files()
        .into_iter()
        .filter(|(name, _)| [".rs", ".cu", ".cuh", ".py", ".sh"].iter().any(|ending| name.ends_with(ending)))
}

fn rust() -> impl Iterator<Item = (String, String)> {
    sources().filter(|(name, _)| name.ends_with(".rs"))
}

fn lines(name: &str, text: &str, found: impl Fn(&str) -> bool) -> Vec<String> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| found(line))
        .map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim()))
        .collect()
}

fn none(findings: Vec<String>, rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n{}", findings.join("\n"));
}

/// What each crate may name of ours, in itself and in its build, and what only in its tests: the CPU is the oracle of kernels.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("capdb", &[], &[]),
    ("capdb/tool", &["capdb"], &[]),
    ("engine", &["capdb"], &[]),
    ("engine/cpu", &["engine"], &[]),
    ("engine/gpu", &["engine"], &["engine-cpu"]),
    ("engine/server", &["engine"], &[]),
    ("cli/capdb", &["capdb", "capdb-tool"], &["archway-tests"]),
    ("cli/archway", &["capdb", "engine", "engine-cpu", "engine-gpu", "engine-server"], &["archway-tests"]),
    ("tests", &[], &["capdb", "capdb-tool", "engine", "engine-cpu", "engine-gpu", "engine-server"]),
];

/// The packages of a manifest's tables of dependencies, and whether only tests have them: of every table, of every target, also
/// under another name.
fn dependencies(manifest: &str) -> Vec<(String, bool)> {
    let (mut found, mut table) = (Vec::new(), None);
    let package = |line: &str, name: &str| {
        let renamed = line.split("package").nth(1).and_then(|rest| rest.split('"').nth(1));
        renamed.unwrap_or(name).to_owned()
    };
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            let at = header.find("dependencies");
            table = at.map(|_| header.contains("dev-dependencies"));
            // `[dependencies.NAME]`: a table of its own.
            let name = at.and_then(|at| header[at..].strip_prefix("dependencies."));
            found.extend(name.zip(table).map(|(name, tests)| (name.to_owned(), tests)));
        } else if let (Some(tests), Some(name)) = (table, line.split(['.', ' ', '=']).next()) {
            found.push((package(line, name), tests));
        }
    }
    found
}

#[test]
fn every_table_of_dependencies_is_read() {
    let manifest = "[package]\nname = \"engine\"\n[dependencies]\ncapdb.workspace = true\n\n[dev-dependencies]\n\
                    engine-cpu = { path = \"cpu\" }\n[target.'cfg(unix)'.dependencies]\nother = { package = \"engine-gpu\" }\n\
                    [build-dependencies.engine-server]\npath = \"server\"\n";
    let found = dependencies(manifest);
    for (name, tests) in [("capdb", false), ("engine-cpu", true), ("engine-gpu", false), ("engine-server", false)] {
        assert!(found.contains(&(name.to_owned(), tests)), "{name}: {found:?}");
    }
    assert!(!found.iter().any(|(name, _)| name == "name"), "{found:?}");
}

#[test]
fn crates_import_downwards_only() {
    let manifest = |folder: &str| std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let workspace = manifest("");
    let ours: Vec<&str> = workspace
        .lines()
        .filter(|line| line.contains("{ path = \""))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(ours.contains(&"engine-gpu") && ours.contains(&"capdb"), "{ours:?}");
    let members = workspace.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("");
    for member in members.split('"').skip(1).step_by(2) {
        assert!(LAYERS.iter().any(|(folder, ..)| *folder == member), "{member} has no layer");
    }
    let mut findings = Vec::new();
    for (folder, always, tests) in LAYERS {
        for (name, only_tests) in dependencies(&manifest(folder)) {
            let allowed = always.contains(&&*name) || only_tests && tests.contains(&&*name);
            if ours.contains(&&*name) && !allowed {
                findings.push(format!("{folder} must not depend on {name}"));
            }
        }
    }
    none(findings, "layers of docs/architecture.md");
}

#[test]
fn inside_the_engine_only_the_plan_knows_the_database() {
    let findings = rust().filter(|(name, _)| name.starts_with("engine/src/") && !name.starts_with("engine/src/plan/"));
    none(
        findings
            .flat_map(|(name, text)| lines(&name, &text, |line| line.contains("capdb::") || line.contains("use capdb")))
            .collect(),
        "only engine/src/plan imports capdb",
    );
}

/// Modules of the engine, lowest first: each imports those before it and those of its own line. `plan` stands aside.
const ENGINE_ORDER: &[&[&str]] = &[
    &["types"],
    &["files", "sampler"],
    &["weights"],
    &["tokenizer"],
    &["model", "backend", "collective"],
    &["load"],
    &["cache"],
    &["scheduler", "spec"],
    &["executor"],
    &["mock"],
    &["runner"],
];

/// Whether the engine's module `of` may import its module `other`.
fn may_import(of: &str, other: &str) -> bool {
    let level = |module: &str| ENGINE_ORDER.iter().position(|line| line.contains(&module));
    match (of, other) {
        ("plan", _) => ["types", "model", "backend", "collective", "spec"].contains(&other),
        (_, "plan") => of == "files",
        _ => level(of).zip(level(other)).is_some_and(|(of, other)| other <= of),
    }
}

/// The modules of the engine that a file of it names, with the lines: as `crate::other`, in `crate::{one, other}`, or by as
/// many `super::` as lead out of its own.
fn named_modules(name: &str, text: &str) -> Vec<(usize, String)> {
    let path = name.trim_start_matches("engine/src/").trim_end_matches(".rs").trim_end_matches("/mod");
    let out = "super::".repeat(path.split('/').count());
    let code: Vec<&str> =
        text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line }).collect();
    let code = code.join("\n").replace(&out, "crate::");
    let mut named = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        let start = at + word.len();
        let firsts = first_names(&code[start..]);
        named.extend(
            firsts.into_iter().map(|(offset, other)| (code[..start + offset].matches('\n').count() + 1, other)),
        );
    }
    named
}

/// What stands behind `crate::`: one name, or the first one of each path in a group. Each with its place.
fn first_names(rest: &str) -> Vec<(usize, String)> {
    let (mut names, mut depth, mut begins) = (Vec::new(), 0, true);
    let mut at = 0;
    for part in rest.split_inclusive(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        let name = part.trim_end_matches(|letter: char| !letter.is_alphanumeric() && letter != '_');
        if begins && !name.is_empty() {
            names.push((at, name.to_owned()));
            begins = false;
        }
        match part[name.len()..].chars().next() {
            Some('{') => depth += 1,
            Some('}') => depth -= 1,
            Some(',') => begins |= depth == 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        at += part.len();
    }
    names
}

#[test]
fn every_form_of_an_import_is_read() {
    let text = "use crate::cache::Page;\nuse crate::{\n    plan,\n    spec::{tree, draft::Draft},\n    types::{self, Rank}, load,\n};\n\
                // use crate::runner;\nfn of(page: super::super::weights::Weight) -> super::tests { crate::mock::Mock }\n";
    let found = named_modules("engine/src/model/layers.rs", text);
    let expected = ["cache", "plan", "spec", "types", "load", "weights", "mock"].map(str::to_owned);
    assert_eq!(found.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4, 5, 5, 8, 8]);
}

#[test]
fn modules_of_the_engine_import_downwards_only() {
    assert!(may_import("runner", "executor") && !may_import("executor", "runner") && !may_import("weights", "load"));
    let mut findings = Vec::new();
    let inside = |name: &str| name.starts_with("engine/src/") && !name.contains("test") && !name.ends_with("/lib.rs");
    for (name, text) in rust().filter(|(name, _)| inside(name)) {
        let module = name.split('/').nth(2).unwrap().trim_end_matches(".rs");
        // Tests at the end of a file may use what stands above it.
        let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let named = named_modules(&name, shipped).into_iter();
        let above = named.filter(|(_, other)| other != module && !may_import(module, other));
        findings.extend(above.map(|(line, other)| format!("{name}:{line}: imports {other}")));
    }
    none(findings, "the order of modules in engine/src/lib.rs");
}

#[test]
fn the_scheduler_and_the_cache_see_integers_only() {
    let forbidden = ["backend", "collective", "model", "weights", "executor", "plan"];
    let inside = rust().filter(|(name, _)| {
        let inside = ["engine/src/scheduler/", "engine/src/cache/"].iter().any(|folder| name.starts_with(folder));
        inside && !name.contains("/tests/")
    });
    let findings = inside.flat_map(|(name, text)| {
        let named = named_modules(&name, &text).into_iter().filter(|(_, other)| forbidden.contains(&&**other));
        named.map(|(line, other)| format!("{name}:{line}: imports {other}")).collect::<Vec<_>>()
    });
    none(findings.collect(), "scheduler and cache import types alone");
}

#[test]
fn models_see_traits_never_an_implementation() {
    let inside = rust().filter(|(name, _)| name.starts_with("engine/src/") || name.starts_with("engine/server/"));
    let findings = inside.flat_map(|(name, text)| {
        lines(&name, &text, |line| line.contains("engine_cpu::") || line.contains("engine_gpu::"))
    });
    none(findings.collect(), "only the command line and tests name a backend");
}

#[test]
fn unsafe_stands_in_two_crates_and_says_why_it_is_sound() {
    let mut findings = Vec::new();
    for (name, text) in rust().filter(|(name, _)| !name.starts_with("tests/")) {
        let word = |line: &str| {
            !line.trim_start().starts_with("//") && (line.contains("unsafe {") || line.contains("unsafe impl"))
        };
        let places = lines(&name, &text, word);
        if !name.starts_with("engine/cpu/") && !name.starts_with("engine/gpu/") {
            findings.extend(places);
            continue;
        }
        let all: Vec<&str> = text.lines().collect();
        for (at, line) in all.iter().enumerate().filter(|(_, line)| word(line)) {
            if !all[at.saturating_sub(6)..=at].iter().any(|line| line.contains("SAFETY:")) {
                findings.push(format!("{name}:{}: no SAFETY line above: {}", at + 1, line.trim()));
            }
        }
    }
    none(findings, "unsafe only in engine/cpu and engine/gpu, each with a SAFETY line");
}

/// Whether a line of code puts an architecture's number on either side of a comparison, or asks a kernel's compiler for it.
fn compares_capability(line: &str) -> bool {
    const NUMBERS: [&str; 4] = ["major", "capability", "sm_version", "CUDA_ARCH"];
    let code = line.split("//").next().unwrap_or("");
    let is_number = |word: Option<&str>| {
        let word = word.unwrap_or("").trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = word.rsplit(['.', ':']).next().unwrap_or("");
        NUMBERS.iter().any(|number| name.ends_with(number))
    };
    let beside = |operator: &str| {
        code.match_indices(operator).any(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + operator.len()..]);
            is_number(before.split_whitespace().last()) || is_number(after.split_whitespace().next())
        })
    };
    code.contains("__CUDA_ARCH__") || [" < ", " > ", " <= ", " >= "].iter().any(|operator| beside(operator))
}

#[test]
fn capability_is_never_a_comparison_of_numbers() {
    for line in [
        "if major >= 10 {",
        "10 <= gpu.compute_capability",
        "(record.capability) > least",
        "#if __CUDA_ARCH__ == 900",
        "return arch.sm_version() < 90;",
    ] {
        assert!(compares_capability(line), "{line}");
    }
    for line in ["// major >= 10", "let capability: Vec<u32> = vec![];", "majority > 3", "if rows < most {"] {
        assert!(!compares_capability(line), "{line}");
    }
    // A schema's major version, and the condition in somebody else's source that is read there.
    let others = ["capdb/src/load.rs", "capdb/tool/src/patch/behaviour.rs"];
    let code = sources().filter(|(name, _)| {
        !name.starts_with("tests/tests/tidy")
            && !name.ends_with(".py")
            && !name.contains("/tests/")
            && !others.contains(&name.as_str())
    });
    none(
        code.flat_map(|(name, text)| lines(&name, &text, compares_capability)).collect(),
        "capability is membership in a resolved record",
    );
}

#[test]
fn files_stay_small() {
    let long = sources().map(|(name, text)| (name, text.lines().count())).filter(|(_, count)| *count > 500);
    none(
        long.map(|(name, count)| format!("{name} has {count} lines")).collect(),
        "at most 500 lines a file; split by noun",
    );
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = ["todo!(", "unimplemented!(", "#[ignore", "dbg!("];
    let code = rust().filter(|(name, _)| !name.starts_with("tests/tests/tidy"));
    none(
        code.flat_map(|(name, text)| lines(&name, &text, |line| marks.iter().any(|mark| line.contains(mark))))
            .collect(),
        "no stubs, no ignored tests",
    );
}

#[test]
fn every_crate_takes_lints_and_versions_from_the_workspace() {
    let mut findings = Vec::new();
    for (name, text) in files()
        .into_iter()
        .filter(|(name, _)| name.ends_with("Cargo.toml") && name != "Cargo.toml" && !name.contains("/fuzz/"))
    {
        // The backends spell their lints out, because they alone may use `unsafe`.
        let backend = name == "engine/cpu/Cargo.toml" || name == "engine/gpu/Cargo.toml";
        if !text.contains("[lints]\nworkspace = true") && !backend {
            findings.push(format!("{name}: no `[lints] workspace = true`"));
        }
        let dependencies =
            text.split("dependencies]").skip(1).flat_map(|part| part.split("\n[").next().unwrap_or("").lines());
        findings.extend(
            dependencies
                .filter(|line| line.contains("= \"") || line.contains("version ="))
                .map(|line| format!("{name}: {line}")),
        );
    }
    none(findings, "one table of pinned dependencies");
}

#[test]
fn the_project_speaks_of_itself_only() {
    let home = root()
        .parent()
        .map(|parent| format!("{}/", parent.display()))
        .filter(|home| home.len() > 2)
        .unwrap_or_default();
    let findings = files()
        .into_iter()
        .filter(|(name, _)| !name.ends_with(".lock") && !home.is_empty())
        .flat_map(|(name, text)| lines(&name, &text, |line| line.contains(&home)));
    none(findings.collect(), "no path of one machine");
}
