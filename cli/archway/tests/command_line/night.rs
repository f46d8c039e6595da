//! What goes wrong while nobody looks: the terminal is gone, limits are tight, a copy has not ended.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::server::Server;
use crate::{archway, run};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/tests/config/llama-tiny.json");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/qwen2-tiny");

/// The program, started by a shell that has said something first.
fn after(said: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{said}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_archway")]);
    shell
}

/// Whether this process was started by `nohup`, which the programs that it starts inherit.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() & 1 != 0
}

#[test]
fn a_closed_terminal_lets_answers_end_and_nohup_is_heeded() {
    let arguments = ["--mock-engine", "--mock-interval", "20", "--served-model-name", "m"];
    let body = r#"{"model":"m","prompt":"abc","max_tokens":200,"ignore_eos":true}"#;
    let kinds: &[bool] = if ignores_hangups() { &[true] } else { &[false, true] };
    for &ignored in kinds {
        let program = if ignored { after("trap '' HUP") } else { archway() };
        let mut server = Server::of(program, &arguments);
        server.ready();
        let mut stream = server.complete(body);
        sleep(Duration::from_millis(100));
        server.signal(Signal::HUP);
        if ignored {
            sleep(Duration::from_millis(50));
            assert!(server.get("/health").contains(r#""status":"ok""#));
        } else {
            server.draining();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(r#""completion_tokens":200"#), "{answer}");
        if ignored {
            server.signal(Signal::INT);
        }
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

/// Ctrl-Z, a paused container: time in which nothing runs is nobody's fault.
#[test]
fn a_server_that_was_stopped_for_longer_than_a_step_may_take_goes_on() {
    let arguments = ["--device", "cpu", "--load-format", "dummy", "-tp", "2", "--step-timeout", "3"];
    let server = Server::run(&[&[TINY], &arguments[..]].concat());
    server.ready();
    let body = r#"{"model":"llama-tiny","prompt":[1,2,3,4],"max_tokens":400,"n":64,"ignore_eos":true,"stream":true}"#;
    let mut stream = server.complete(body);
    // It is in the middle of its answer.
    let mut begin = [0; 4096];
    stream.read_exact(&mut begin).unwrap();
    server.signal(Signal::STOP);
    sleep(Duration::from_secs(4));
    server.signal(Signal::CONT);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("data: [DONE]") && !rest.contains("\"error\""),
        "{}",
        &rest[rest.len().saturating_sub(500)..]
    );
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_model_that_is_not_all_there_is_refused_before_anybody_is_told_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        fs::copy(Path::new(GOLDEN).join(name), folder.path().join(name)).unwrap();
    };
    copy("config.json");
    let path = folder.path().to_str().unwrap();
    let refused = |named: &str| {
        let (code, out, err) = run(&["serve", path, "--device", "cpu", "--port", "0"]);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(named) && !err.contains("panicked"), "{named}: {err}");
    };
    refused("has no weights");
    copy("model.safetensors");
    let weights = File::options().write(true).open(folder.path().join("model.safetensors")).unwrap();
    weights.set_len(weights.metadata().unwrap().len() / 2).unwrap();
    refused("model.safetensors");
    weights.set_len(0).unwrap();
    refused("model.safetensors");
    copy("model.safetensors");
    fs::write(folder.path().join("tokenizer.json"), "{\"version\": \"1.0\",").unwrap();
    refused("tokenizer.json");
}

#[test]
fn limits_too_tight_for_a_server_are_named() {
    let output = after("ulimit -n 40").args(["serve", "--mock-engine", "--port", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the limit of open files is 40"), "{said}");
    // A plan counts on no more memory than may be mapped.
    let plan = |said: &str| {
        let output = after(said).args(["plan", TINY, "--threads", "2", "--json"]).output().unwrap();
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        plan["memory"]["device"].as_u64().unwrap()
    };
    let bounded = plan("ulimit -v 900000");
    assert!(bounded < 450_000 << 10 && bounded > 50_000 << 10, "{bounded}");
    Server::of(after("ulimit -v 900000"), &[TINY, "--device", "cpu", "--threads", "2", "--load-format", "dummy"])
        .ready();
}
