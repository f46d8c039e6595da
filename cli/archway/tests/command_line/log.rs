//! Who reads a server's log, or does not: the disk is full, the reader stalls or has gone.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;

use crate::archway;
use crate::server::Server;

/// A disk that is full, and a pipe that nobody reads.
fn unwritable() -> [Stdio; 2] {
    let (reader, lost) = std::io::pipe().unwrap();
    drop(reader);
    let full = File::options().write(true).open("/dev/full").unwrap();
    [full.into(), lost.into()]
}

/// A pipe that takes nothing more, and its end that could be read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while match writer.write(&[b'\n'; 4096]) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    } {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// The log of a server grows until the disk is full, and whoever reads it can go first.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    for stderr in unwritable() {
        let mut program = archway();
        program.env("RUST_LOG", "debug").stderr(stderr);
        let mut server = Server::of(program, &["--mock-engine", "--served-model-name", "m"]);
        server.ready();
        let mut answer = String::new();
        let body = r#"{"model":"m","prompt":"abc","max_tokens":3,"ignore_eos":true}"#;
        server.complete(body).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server.signal(Signal::TERM);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

/// A pager, or a program that ships the log, which takes nothing for a while.
#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut program = archway();
    program.env("RUST_LOG", "debug").stderr(writer);
    let mut server = Server::of(program, &["--mock-engine", "--served-model-name", "m"]);
    server.ready();
    let lost = |server: &Server| {
        let metrics = server.get("/metrics");
        let line = metrics.lines().find(|line| line.starts_with("archway_log_lines_lost_total")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    // The log repeats the path. In all it is more than a queue and the largest usual pipe, of 1 MiB, hold.
    let long = format!("/{}", "a".repeat(16 << 10));
    let much = |server: &Server| (0..200).for_each(|_| assert!(server.get(&long).starts_with("HTTP/1.1 404")));
    assert_eq!(lost(&server), 0);
    much(&server);
    assert!(lost(&server) > 20, "{}", lost(&server));
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    let mut answer = String::new();
    let body = r#"{"model":"m","prompt":"abc","max_tokens":3,"ignore_eos":true}"#;
    server.complete(body).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    // The reader goes on, and hears what it has missed and what happens then.
    let missed = lost(&server);
    let mut log = BufReader::new(reader).lines().map(Result::unwrap);
    let gap = log.find(|line| line.contains("lines of the log were lost")).unwrap();
    let told: u64 = gap.strip_prefix("note: ").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(told >= missed && told < missed + 20, "{told} of {missed}");
    server.get("/back-again");
    assert!(log.any(|line| line.contains("/back-again")));
    assert_eq!(lost(&server), told);

    // It stalls once more, and the server ends all the same.
    much(&server);
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(!log.any(|line| line.contains("panicked")));
}

/// A program whose log is full from the first line on.
#[test]
fn a_start_does_not_wait_for_a_reader_either() {
    let (_stalled, full) = full_pipe();
    let mut program = archway();
    program.stderr(full);
    let mut server = Server::of(program, &["--mock-engine"]);
    server.ready();
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// Nobody reads the address, now or ever, or it goes to a disk that is full: clients may know it all the same.
#[test]
fn a_server_whose_stdout_is_gone_serves() {
    let (_stalled, full) = full_pipe();
    for stdout in unwritable().into_iter().chain([full.into()]) {
        let mut program = archway();
        let program = program.args(["serve", "--mock-engine", "--log-level", "info", "--port", "0"]).stdout(stdout);
        let mut child = program.stderr(Stdio::piped()).spawn().unwrap();
        // The log says the address too. It is read on, so that it does not fill the pipe.
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = log.find(|line| line.contains("listening")).expect("the log says where it listens");
        let reading = std::thread::spawn(move || log.count());
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        let mut server = Server { child, address: address.trim_start_matches("http://").to_owned() };
        server.ready();
        server.signal(Signal::TERM);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        reading.join().unwrap();
    }
}

#[test]
fn a_wrong_wish_for_the_log_is_named() {
    let mut program = archway();
    let output = program.env("RUST_LOG", "a=b=c").args(["serve", "--mock-engine", "--port", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("RUST_LOG is `a=b=c`"), "{said}");
}
