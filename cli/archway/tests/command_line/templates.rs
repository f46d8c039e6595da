//! Chat templates that do harm: when they are compiled, and when they render.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::run;
use crate::server::Server;

const SHAPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/tests/config/llama-tiny.json");

/// What no count of steps ends: lists that share their items, compared; values that nest as deep as the steps
/// reach; one long text joined again and again.
const HOSTILE: &str = "{% set ns = namespace(x=['a'], y=['a']) %}{% set what = messages[0].content %}\
    {% if what == 'compare' %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}\
    {% set ns.y = [ns.y, ns.y] %}{% endfor %}{% endif %}\
    {% if what == 'compare' %}{{ ns.x == ns.y }}{% endif %}\
    {% if what == 'nest' %}{% for i in range(99999) %}{% for j in range(9) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}\
    {% endif %}{% if what == 'join' %}{% set x = 'a' * 9999999 %}{{ ([x] * 9999) | join | length }}{% endif %}\
    {% if what == 'double' %}{% for i in range(60) %}{% set ns.y = ns.x %}{% set ns.x = ns.x ~ ns.y %}{% endfor %}{% endif %}";

/// A folder with this file.
fn with(name: &str, text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::write(&file, text).unwrap();
    (folder, file)
}

/// A server of random weights with the hostile template, run from this file.
fn hostile(program: &Path) -> (TempDir, Server) {
    let (folder, file) = with("hostile.jinja", HOSTILE);
    let template = file.to_str().unwrap();
    let arguments =
        ["--load-format", "dummy", "--device", "cpu", "--served-model-name", "m", "--chat-template", template];
    let server = Server::of(Command::new(program), &[&[SHAPE], &arguments[..]].concat());
    server.ready();
    (folder, server)
}

/// The answer to a conversation, or to its rendering: this model has no tokenizer to go on with.
fn ask(server: &Server, what: &str) -> String {
    let body = format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "{what}"}}]}}"#);
    let mut answer = String::new();
    server.post("/v1/chat/completions", &body).read_to_string(&mut answer).unwrap();
    answer
}

const RENDERED: &str = "the model was loaded without a tokenizer";

#[test]
fn a_template_takes_no_server_along() {
    let (_folder, server) = hostile(Path::new(env!("CARGO_BIN_EXE_archway")));
    for (what, bound) in [
        ("compare", "longer than 10 s"),
        ("nest", "more than 2 GiB of memory or nests too deeply"),
        ("join", "more than 2 GiB of memory or nests too deeply"),
        ("double", "more than 10000000 steps"),
    ] {
        let answer = ask(&server, what);
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(bound), "{what}: {answer}");
        // Whose file it is tells a client nothing, and is nobody else's business.
        assert!(answer.contains("send less") && !answer.contains("hostile.jinja"), "{what}: {answer}");
        let answer = ask(&server, "hello");
        assert!(answer.contains(RENDERED), "{what}: {answer}");
    }
}

#[test]
fn a_slow_conversation_keeps_no_other_waiting() {
    let (_folder, server) = hostile(Path::new(env!("CARGO_BIN_EXE_archway")));
    std::thread::scope(|scope| {
        let slow = [(); 3].map(|()| scope.spawn(|| ask(&server, "compare")));
        std::thread::sleep(Duration::from_millis(500));
        let start = Instant::now();
        for _ in 0..20 {
            assert!(ask(&server, "hello").contains(RENDERED));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        for slow in slow {
            assert!(slow.join().unwrap().contains("longer than 10 s"));
        }
    });
}

/// As the system does where memory is short.
#[test]
fn a_process_that_is_killed_is_no_fault_of_the_conversation() {
    let (_folder, server) = hostile(Path::new(env!("CARGO_BIN_EXE_archway")));
    let killed = std::thread::scope(|scope| {
        let slow = scope.spawn(|| ask(&server, "compare"));
        std::thread::sleep(Duration::from_millis(500));
        let children = server.children();
        assert!(!children.is_empty());
        children.into_iter().for_each(|child| kill_process(child, Signal::KILL).unwrap());
        slow.join().unwrap()
    });
    assert!(killed.starts_with("HTTP/1.1 503") && killed.contains("try again"), "{killed}");
    assert!(ask(&server, "hello").contains(RENDERED));
}

/// The server renders by processes of the program that it is, whatever has become of the file.
#[test]
fn a_server_whose_program_was_replaced_goes_on() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("archway");
    fs::hard_link(env!("CARGO_BIN_EXE_archway"), &program).unwrap();
    let (_folder, server) = hostile(&program);
    fs::remove_file(&program).unwrap();
    fs::write(&program, "another").unwrap();
    // The first process ends here, and another takes its place.
    assert!(ask(&server, "nest").contains("nests too deeply"));
    let answer = ask(&server, "hello");
    assert!(answer.contains(RENDERED), "{answer}");
}

#[test]
fn a_template_that_cannot_be_compiled_ends_the_start() {
    let deep = format!("{{{{ 1{} }}}}", " + 1".repeat(100_000));
    let lists = format!("{{{{ {}{} }}}}", "[".repeat(100_000), "]".repeat(100_000));
    let branches = format!("{}{}", "{% if x %}".repeat(50_000), "{% endif %}".repeat(50_000));
    for (text, said) in [
        (&*deep, "nests too deeply"),
        (&lists, "recursion limits"),
        (&branches, "recursion limits"),
        ("line\n{% if %}", "syntax error"),
        ("line\n{{ x", "(line 2)"),
    ] {
        let (folder, file) = with("chat_template.jinja", text);
        fs::copy(SHAPE, folder.path().join("config.json")).unwrap();
        let (template, folder) = (file.to_str().unwrap(), folder.path().to_str().unwrap());
        for line in [
            &["plan", SHAPE, "--chat-template", template][..],
            &["serve", SHAPE, "--load-format", "dummy", "--device", "cpu", "--port", "0", "--chat-template", template],
            &["serve", folder, "--load-format", "dummy", "--device", "cpu", "--port", "0"],
        ] {
            let (code, _, err) = run(line);
            assert_eq!(code, 2, "{line:?}: {err}");
            assert!(err.contains(template) && err.contains(said), "{line:?}: {}", &err[..err.len().min(500)]);
        }
    }
}
