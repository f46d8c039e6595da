//! The binary from outside: what it prints, where, and how it ends.

mod log;
mod night;
mod scripts;
mod server;
mod templates;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use server::Server;

fn archway() -> Command {
    Command::new(env!("CARGO_BIN_EXE_archway"))
}

/// Exit code, stdout, stderr.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = archway().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_wrong_flag_fails_at_once_and_says_what_is_meant() {
    let start = Instant::now();
    let (code, out, err) = run(&["serve", "model", "--max-model-length", "5"]);
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("--max-model-len"), "{err}");

    let (code, _, err) = run(&["serve", "model", "--enable-lora"]);
    assert_eq!(code, 2);
    assert_eq!(err, "error: --enable-lora is not supported: adapters are not served\n");

    let (code, _, err) = run(&["serve", "model", "--port", "many"]);
    assert_eq!(code, 2);
    assert!(err.contains("--port"), "{err}");
}

#[test]
fn a_missing_path_is_named_and_its_cause_is_said_once() {
    for command in [["plan", "nowhere"], ["serve", "nowhere"], ["serve", "nowhere/config.json"]] {
        let (code, out, err) = run(&command);
        assert_eq!((code, out.as_str()), (2, ""), "{command:?}: {err}");
        assert!(err.contains("nowhere") && err.matches("os error").count() <= 1, "{command:?}: {err}");
    }
}

#[test]
fn an_unknown_gpu_is_named_once_with_those_that_are_known() {
    let shape = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shapes/llama-3.1-8b.json");
    let (code, out, err) = run(&["plan", shape, "--gpu", "h2000"]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("h200, ") && err.matches("there is no record `h2000`").count() == 1, "{err}");
}

#[test]
fn a_draft_head_in_place_of_a_model_is_told_where_it_belongs() {
    let head = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/eagle3-smollm2");
    let (code, _, err) = run(&["serve", head, "--device", "cpu"]);
    assert!(code == 2 && err.contains("--speculative-draft-model-path"), "{code}: {err}");
}

#[test]
fn settings_are_shown_with_who_set_them() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "tp-size: 2\nport: 9000").unwrap();
    let path = &file.path().to_str().unwrap().to_owned();
    let line = ["config", "show", "--json", "--config", path, "--port", "9001", "--disable-custom-all-reduce"];
    let (code, out, err) = run(&line);
    assert_eq!((code, err.as_str()), (0, "note: --disable-custom-all-reduce is --allreduce=nccl here\n"));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["tensor-parallel-size"]["origin"], format!("{path}:1"));
    assert_eq!((&report["port"]["value"], &report["port"]["origin"]), (&9001.into(), &"flag".into()));
    assert_eq!(report["allreduce"]["value"], "nccl");

    writeln!(file, "prot: 1").unwrap();
    let (code, out, err) = run(&["config", "show", "--config", path]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(err, format!("error: {path}:3: unknown key `prot`; did you mean `port`?\n"));
}

/// Where there is no GPU, every library is named with where it was looked for, and that is not a finding.
#[test]
fn doctor_describes_the_machine_and_ends_with_a_verdict() {
    let (code, out, err) = run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let list = |key: &str| report[key].as_array().unwrap_or_else(|| panic!("{key} in {out}")).clone();
    assert_eq!(list("libraries").len(), 4);
    assert_eq!(code, i32::from(!list("findings").is_empty()), "{out}");
    if list("devices").is_empty() {
        assert_eq!(report["chosen"], "CPU");
        assert!(report["problem"].as_str().is_some_and(|problem| !problem.is_empty()), "{out}");
    } else {
        assert_eq!(list("devices").len(), list("gpus").len());
    }
    let (again, text, _) = run(&["doctor"]);
    assert_eq!(again, code);
    for library in list("libraries") {
        let Some(missing) = library["missing"].as_str() else { continue };
        assert!(missing.contains("looked for") && missing.contains(".so"), "{missing}");
        assert_eq!(text.matches(missing).count(), 1, "{text}");
    }
    assert!(text.contains("Libraries") && text.contains("Chosen by --device auto"), "{text}");
}

#[test]
fn a_server_listens_drains_and_ends_well() {
    let mut server = Server::start(&["--mock-interval", "20", "--served-model-name", "m"]);
    server.ready();
    let info = server.get("/server_info");
    assert!(info.contains(r#""mock-interval":{"value":20,"origin":"flag"}"#), "{info}");

    let mut stream = server.complete(r#"{"model":"m","prompt":"abcdefghij","max_tokens":200,"ignore_eos":true}"#);
    std::thread::sleep(Duration::from_millis(100));
    server.signal(Signal::TERM);
    server.draining();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#""completion_tokens":200"#), "{answer}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// Two ranks of eight layers: a prompt, then seven steps of one token.
#[test]
fn an_answer_says_which_collectives_ran_for_it() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/tests/config/llama-tiny.json");
    let server =
        Server::run(&[model, "--device", "cpu", "--load-format", "dummy", "-tp", "2", "--max-model-len", "64"]);
    server.ready();
    let body = r#"{"model":"llama-tiny","prompt":[1,2,3,4],"max_tokens":8,"ignore_eos":true,"archway_usage":true}"#;
    for _ in 0..2 {
        let mut answer = String::new();
        server.complete(body).read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
        let collectives = answer["usage"]["archway"]["collectives"].as_array().unwrap();
        let calls = |site: &str, phase: &str| {
            let same = |row: &&serde_json::Value| row["site"] == site && row["phase"] == phase;
            collectives.iter().filter(same).map(|row| row["calls"].as_u64().unwrap()).sum::<u64>()
        };
        let found = [("mlp_output", "prefill"), ("mlp_output", "decode"), ("embedding", "decode")];
        assert_eq!(found.map(|(site, phase)| calls(site, phase)), [8, 56, 7], "{collectives:?}");
        assert!(collectives.iter().all(|row| row["algorithm"] == "shared_memory"), "{collectives:?}");
    }
}

/// A cache that holds less than a context: the plan says so, and nobody is promised more.
#[test]
fn a_small_cache_is_the_longest_context() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/tests/config/llama-tiny.json");
    let small = ["--device", "cpu", "--load-format", "dummy", "--max-total-tokens", "64"];
    let (code, out, err) = run(&[&["plan", model], &small[..]].concat());
    let said = "a prompt with its answer may have 64 tokens, fewer than the context of 512";
    assert!(code == 0 && out.contains(said) && out.contains("raise --max-total-tokens"), "{out}{err}");
    let (_, out, _) = run(&["plan", model, "--max-model-len", "64", "--max-total-tokens", "64"]);
    assert!(!out.contains("warning"), "{out}");

    let server = Server::run(&[&[model], &small[..]].concat());
    server.ready();
    assert!(server.get("/v1/models").contains(r#""max_model_len":64"#));
    for (most, status) in [(60, "200"), (61, "400")] {
        let body = format!(r#"{{"model":"llama-tiny","prompt":[1,2,3,4],"max_tokens":{most},"ignore_eos":true}}"#);
        let mut answer = String::new();
        server.complete(&body).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

/// A shell's limit is below the places of the queue.
#[test]
fn a_server_takes_more_connections_than_a_shell_gives_files() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_archway")]);
    let server = Server::of(shell, &["--mock-engine", "--served-model-name", "m"]);
    server.ready();
    // Each keeps its place for a minute.
    let kept: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(&server.address).unwrap()).collect();
    let start = Instant::now();
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    assert!(start.elapsed() < Duration::from_secs(10), "{} connections are open", kept.len());
}

#[test]
fn a_port_in_use_is_an_error_before_anything_loads() {
    let server = Server::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    let (code, _, err) = run(&["serve", "--mock-engine", "--port", port]);
    assert_eq!(code, 2);
    assert!(err.contains(&format!("cannot listen on 127.0.0.1:{port}; choose another --port or --host")), "{err}");
}

#[test]
fn benchmarks_of_the_mock_count_what_was_asked() {
    let (code, out, _) =
        run(&["bench", "throughput", "--mock-engine", "--num-prompts", "5", "--output-len", "3", "--json"]);
    assert_eq!(code, 0);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["runs"][0]["prompt_tokens"], &report["runs"][0]["output_tokens"]), (&640.into(), &15.into()));

    let (code, out, _) = run(&["bench", "latency", "--mock-engine", "--runs", "2"]);
    assert_eq!(code, 0);
    assert!(out.contains("run 1:") && out.contains("run 2:") && out.contains("Median latency (s):"), "{out}");

    let server = Server::start(&["--mock-interval", "1"]);
    server.ready();
    let url = format!("http://{}", server.address);
    let line = ["bench", "serve", "--base-url", &url, "--num-prompts", "4", "--random-output-len", "5", "--json"];
    let (code, out, err) = run(&line);
    assert_eq!(code, 0, "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let run = &report["runs"][0];
    assert_eq!((&run["completed"], &run["failed"]), (&4.into(), &0.into()));
    assert_eq!((&run["total_input_tokens"], &run["total_output_tokens"]), (&512.into(), &20.into()));
    assert!(run["ttft"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_demo_streams_to_stdout_and_talks_to_stderr() {
    let (code, out, err) = run(&["demo", "--mock-engine", "hello"]);
    assert_eq!(code, 0);
    assert_eq!(out, "user: hello\nassistant: \n");
    assert!(err.contains("> hello") && err.contains("prompt: 23 tokens"), "{err}");
}

/// A reader that has gone ends the program quietly, a full disk with an error.
#[test]
fn stdout_that_cannot_be_written_is_no_panic() {
    let shape = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shapes/llama-3.1-8b.json");
    for line in [
        &["plan", shape, "--gpu", "h200"][..],
        &["plan", shape, "--gpu", "h200", "--json"],
        &["doctor"],
        &["config", "show"],
        &["demo", "--mock-engine", "hello"],
        &["bench", "throughput", "--mock-engine", "--num-prompts", "1", "--output-len", "2"],
    ] {
        let to = |stdout: Stdio| archway().args(line).stdout(stdout).stderr(Stdio::piped()).output().unwrap();
        let output = to(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
        assert!(said.contains("cannot write to stdout"), "{line:?}: {said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = to(writer.into());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(0) && !said.contains("error"), "{line:?}: {said}");
    }
}

#[test]
fn an_argument_that_is_no_utf_8_is_named() {
    use std::os::unix::ffi::OsStrExt;

    let name = std::ffi::OsStr::from_bytes(b"bad\xffname");
    let output = archway().arg("plan").arg(name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("is not UTF-8"), "{said}");
}

/// What the README shows behind `$ archway plan …`, and what the same command says.
#[test]
fn the_readme_shows_a_plan_as_it_is_printed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, rest) = readme.split_once("$ archway plan ").expect("the README plans a model");
    let (command, rest) = rest.split_once('\n').unwrap();
    let shown = rest.split("```").nth(2).and_then(|block| block.strip_prefix("text\n")).expect("what it says follows");
    let output = archway().current_dir(root).arg("plan").args(command.split(' ')).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), shown);
    assert_eq!(output.status.code(), Some(2), "it shows a refusal");
}

/// Otherwise every request would be refused for a field that it does not have.
#[test]
fn defaults_that_no_request_could_be_sampled_with_end_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let shape = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/tests/config/llama-tiny.json");
    std::fs::copy(shape, folder.path().join("config.json")).unwrap();
    std::fs::write(folder.path().join("generation_config.json"), r#"{"temperature": -5}"#).unwrap();
    let folder = folder.path().to_str().unwrap();
    let (code, _, err) = run(&["serve", folder, "--load-format", "dummy", "--device", "cpu", "--port", "0"]);
    assert!(
        code == 2 && err.contains("generation_config.json") && err.contains("`temperature` is -5"),
        "{code}: {err}"
    );
}

/// Numbers that no machine has: an error that says what they may be, whatever set them, and no panic.
#[test]
fn numbers_out_of_bounds_are_refused_by_name() {
    let tiny = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/tests/config/llama-tiny.json");
    let shape = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shapes/llama-3.1-8b.json");
    let huge = u64::MAX.to_string();
    let (steps, many) = (u32::MAX.to_string(), "100000000");
    for (line, said) in [
        (vec!["plan", shape, "--gpu", "gb200", "--count", "72"], "heads_not_divisible"),
        (vec!["plan", shape, "--gpu", "h200", "--count", &steps], "--count"),
        (vec!["plan", shape, "--gpu", "h200", "--max-num-batched-tokens", many], "--max-num-batched-tokens"),
        (vec!["serve", tiny, "--load-format", "dummy", "--max-num-batched-tokens", &huge], "--max-num-batched-tokens"),
        (vec!["serve", tiny, "--load-format", "dummy", "--step-timeout", &huge], "--step-timeout"),
        (vec!["serve", tiny, "--load-format", "dummy", "--step-timeout", "0"], "--step-timeout"),
        (vec!["serve", tiny, "--load-format", "dummy", "--threads", "100000"], "--threads"),
        (vec!["serve", tiny, "--load-format", "dummy", "--http-threads", "100000"], "--http-threads"),
        (vec!["serve", tiny, "--load-format", "dummy", "--gpu-memory-utilization", "nan"], "0.01 to 1"),
        (vec!["plan", shape, "--gpu", "h200", "--speculative", "eagle3", "--speculative-num-steps", &steps], "1 to 32"),
        (vec!["plan", shape, "--gpu", "h200", "--speculative", "eagle3", "--draft-hidden", &huge], "--draft-hidden"),
        (vec!["plan", shape, "--gpu", "h200", "--speculative", "eagle3", "--draft-size", &huge], "--draft-size"),
        (vec!["bench", "latency", "--model", tiny, "--load-format", "dummy", "--input-len", &huge], "--input-len"),
    ] {
        let (code, _, err) = run(&line);
        assert_eq!(code, 2, "{line:?}: {err}");
        assert!(err.contains(said) && !err.contains("panicked"), "{line:?}: {err}");
    }
}

#[test]
fn what_is_no_tuning_is_not_written_over() {
    let figures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/tests/data/tuning/two-h200.json");
    let folder = tempfile::tempdir().unwrap();
    let (notes, site) = (folder.path().join("notes.txt"), folder.path().join("site.yaml"));
    std::fs::write(&notes, "not to be lost").unwrap();
    let (code, _, err) = run(&["tune", "--from", figures, "--out", notes.to_str().unwrap()]);
    assert_eq!((code, std::fs::read_to_string(&notes).unwrap().as_str()), (2, "not to be lost"), "{err}");
    assert!(err.contains("not a tuning"), "{err}");
    for _ in 0..2 {
        let (code, _, err) = run(&["tune", "--from", figures, "--out", site.to_str().unwrap()]);
        assert_eq!(code, 0, "{err}");
    }
}
