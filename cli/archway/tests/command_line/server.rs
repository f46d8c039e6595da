//! A server that a test starts.

use std::fs::{self, DirEntry};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::archway;

/// A server, killed when dropped.
pub struct Server {
    pub child: Child,
    pub address: String,
}

impl Server {
    /// With the mock engine.
    pub fn start(more: &[&str]) -> Self {
        Self::run(&[&["--mock-engine"], more].concat())
    }

    pub fn run(arguments: &[&str]) -> Self {
        Self::of(archway(), arguments)
    }

    pub fn of(mut program: Command, arguments: &[&str]) -> Self {
        let mut child = program
            .args(["serve", "--port", "0", "--log-level", "warn"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().to_owned();
        Self { child, address }
    }

    /// A connection on which an answer that does not come is an error.
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// A request without a body; the whole response.
    pub fn get(&self, path: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// A completion request, sent.
    pub fn complete(&self, body: &str) -> TcpStream {
        self.post("/v1/completions", body)
    }

    pub fn post(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    pub fn ready(&self) {
        for _ in 0..500 {
            if self.get("/health").starts_with("HTTP/1.1 200") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not get ready");
    }

    /// Waits until the server says that it lets its last answers end.
    pub fn draining(&self) {
        let said = (0..200).any(|_| {
            let draining = self.get("/health").contains(r#""status":"draining""#);
            if !draining {
                std::thread::sleep(Duration::from_millis(10));
            }
            draining
        });
        assert!(said, "the server does not drain");
    }

    /// The processes that the server has started.
    pub fn children(&self) -> Vec<Pid> {
        let parent = self.child.id().to_string();
        let child = |process: DirEntry| {
            let number = process.file_name().to_str()?.parse().ok()?;
            let about = fs::read_to_string(process.path().join("stat")).ok()?;
            // Behind the name in brackets: the state, and the parent.
            let of = about.rsplit_once(") ")?.1.split(' ').nth(1)?;
            (of == parent).then(|| Pid::from_raw(number))?
        };
        fs::read_dir("/proc").unwrap().filter_map(|process| child(process.ok()?)).collect()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
