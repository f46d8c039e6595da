//! From figures that were kept to a tuning, and from the tuning to a plan.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn archway(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_archway"));
    command.current_dir(root()).args(arguments).output().unwrap()
}

/// The file and the folder that it lies in.
fn tuned() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("site.yaml").display().to_string();
    let output = archway(&["tune", "--from", "engine/tests/data/tuning/two-h200.json", "--out", &out]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), out);
    (folder, out)
}

fn plan(more: &[&str]) -> (Option<i32>, serde_json::Value) {
    let mut arguments = vec!["plan", "models/shapes/llama-3.1-8b.json", "--gpu", "h200", "--count", "2"];
    arguments.extend(["--topology", "nvswitch", "--multicast", "false", "--json"]);
    arguments.extend(more);
    let output = archway(&arguments);
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), document)
}

#[test]
fn a_tuning_is_planned_with_and_a_foreign_one_is_named() {
    let (_folder, file) = tuned();
    let (code, document) = plan(&["--tuning", &file, "--driver", "580.159.04", "--strict"]);
    assert_eq!(code, Some(0), "{document}");
    assert_eq!(document["tuning"]["differences"], serde_json::json!([]));
    assert_eq!(document["tuning"]["file"], serde_json::json!(file));
    let (code, document) = plan(&["--tuning", &file, "--driver", "590.1", "--strict"]);
    assert_eq!(code, Some(2));
    assert!(document["refusals"].to_string().contains("tuning_mismatch: "), "{document}");
    let (code, document) = plan(&["--tuning", &file, "--driver", "590.1"]);
    assert_eq!(code, Some(0));
    assert!(document["warnings"].to_string().contains("driver 580.159.04 there and 590.1 here"), "{document}");
    let (_, document) = plan(&["--tuning", "none"]);
    assert_eq!(document["tuning"], serde_json::Value::Null);
}

#[test]
fn what_cannot_be_concluded_from_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json").display().to_string();
    std::fs::write(&file, "{}").unwrap();
    let said = |arguments: &[&str]| {
        let output = archway(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&["tune", "--from", &file]).contains("holds no figures"));
    assert!(said(&["tune", "--from", "/nowhere"]).contains("/nowhere"));
    let missing = said(&["plan", "models/shapes/llama-3.1-8b.json", "--gpu", "h200", "--tuning", "/nowhere/site.yaml"]);
    assert!(missing.contains("/nowhere/site.yaml") && missing.contains("--tuning none"), "{missing}");
}

#[test]
fn figures_and_what_is_no_file_are_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("figures.json").display().to_string();
    let data = root().join("engine/tests/data/tuning/two-h200.json");
    std::fs::copy(&data, &figures).unwrap();
    let said = |out: &str| {
        let output = archway(&["tune", "--from", &figures, "--out", out]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&figures).contains("--from names the same file"), "{}", said(&figures));
    assert!(said("/dev/null").contains("not a regular file"), "{}", said("/dev/null"));
    assert!(said(&folder.path().display().to_string()).contains("not a regular file"));
    assert_eq!(std::fs::read(&figures).unwrap(), std::fs::read(data).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A fingerprint that says nothing fits nothing, and neither does another product's.
#[test]
fn a_fingerprint_without_facts_is_a_difference() {
    let (folder, file) = tuned();
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once("fingerprint:\n").unwrap();
    let (_, after) = rest.split_once("sources:\n").unwrap();
    let path = folder.path().join("other.yaml").display().to_string();
    let said = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let (code, document) = plan(&["--tuning", &path, "--driver", "580.159.04", "--strict"]);
        assert_eq!(code, Some(2), "{document}");
        document["refusals"].to_string()
    };
    let silent = said(&format!("{before}sources:\n{after}"));
    assert!(silent.contains("gpu unknown there and") && silent.contains("driver unknown there"), "{silent}");
    let foreign = said(&text.replacen("NVIDIA H200", "NVIDIA B200", 1));
    assert!(foreign.contains("gpu NVIDIA B200 there and"), "{foreign}");
}

/// What never ends is not read to its end, wherever a file may be named.
#[test]
fn files_that_never_end_are_errors() {
    let shape = "models/shapes/llama-3.1-8b.json";
    let (zero, gpu) = ("/dev/zero", ["plan", shape, "--gpu", "h200"]);
    for arguments in [
        vec!["tune", "--from", zero],
        vec!["plan", shape, "--config", zero],
        [&gpu[..], &["--tuning", zero]].concat(),
        vec!["plan", shape, "--kernels", zero],
        vec!["plan", shape, "--tuning", zero],
    ] {
        let output = archway(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(zero), "{arguments:?}: {said}");
    }
}

#[test]
fn wishes_about_gpus_are_named_where_the_cpu_serves() {
    let (_folder, file) = tuned();
    let on_cpu = |more: &[&str]| {
        let model = "engine/tests/config/llama-tiny.json";
        let output =
            archway(&[&["plan", model, "--json", "--tuning", &file, "--allreduce", "one_shot"], more].concat());
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), document)
    };
    let (code, document) = on_cpu(&[]);
    let warnings = document["warnings"].to_string();
    assert_eq!(code, Some(0), "{document}");
    assert!(warnings.contains("--allreduce one_shot is about GPUs") && warnings.contains("--tuning "), "{warnings}");
    let (code, document) = on_cpu(&["--strict"]);
    assert_eq!(code, Some(2), "{document}");
    assert!(document["refusals"].to_string().contains("--allreduce one_shot is about GPUs"), "{document}");
    for (flag, value) in [("--topology", "nvswitch"), ("--multicast", "true"), ("--driver", "590.1"), ("--nodes", "2")]
    {
        let output = archway(&["plan", "engine/tests/config/llama-tiny.json", flag, value]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flag}: {said}");
        assert!(said.contains("--gpu"), "{flag}: {said}");
    }
}

#[test]
fn heads_that_no_kernel_takes_are_named_in_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let shape = std::fs::read_to_string(root().join("models/shapes/llama-3.1-8b.json")).unwrap();
    let mut shape: serde_json::Value = serde_json::from_str(&shape).unwrap();
    for (head, servable) in [(128, true), (80, true), (192, false), (256, false)] {
        shape["head_dim"] = head.into();
        std::fs::write(&file, shape.to_string()).unwrap();
        let output = archway(&["plan", &file.display().to_string(), "--gpu", "h200", "--json"]);
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(plan["model"]["servable"], servable, "{head}: {plan}");
        let named = plan["warnings"].to_string().contains(&format!("up to 128 dimensions, and these have {head}"));
        assert_eq!(named, !servable, "{head}: {plan}");
    }
}
