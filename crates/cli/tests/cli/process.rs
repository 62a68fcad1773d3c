//! Starts the binary, waits for it and checks what every run must keep to.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No run of these tests takes nearly so long: one that does hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// What a run left behind.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A command line of the binary.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whin"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary with nothing on stdin.
pub fn whin<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Outcome {
    finish(command(args).spawn().unwrap())
}

/// Runs the binary with `input` on stdin.
pub fn whin_reading<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Outcome {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end without reading everything.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let outcome = finish(child);
    writer.join().unwrap();
    outcome
}

/// Runs the binary, which must succeed, and reads its JSON.
#[track_caller]
pub fn json<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Value {
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    whin(args.chain([OsStr::new("--json").to_owned()])).succeeded().json()
}

/// Runs the binary, which must fail with this code and name all `parts`.
#[track_caller]
pub fn refused<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, code: &str, parts: &[&str]) {
    whin(args).failed(code, parts);
}

/// Runs the binary, which must find its usage wrong and name all `parts`.
#[track_caller]
pub fn misused<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, parts: &[&str]) {
    let outcome = whin(args);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert_eq!(outcome.stdout, "");
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} is not in: {}", outcome.stderr);
    }
}

/// Waits for the end, but not for ever.
pub fn finish(mut child: Child) -> Outcome {
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("still running after {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(2));
    };
    let text = |reader: Option<JoinHandle<Vec<u8>>>| {
        String::from_utf8(reader.map_or(Vec::new(), |reader| reader.join().unwrap())).unwrap()
    };
    let outcome = Outcome { code: status.code(), stdout: text(stdout), stderr: text(stderr) };
    assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
    outcome
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

impl Outcome {
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(!self.stderr.contains("error"), "{self:?}");
        self
    }

    /// A failure says so on stderr only: what went wrong under its code, naming all `parts`.
    #[track_caller]
    pub fn failed(&self, code: &str, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let start = format!("error[{code}]: ");
        assert!(self.stderr.lines().any(|line| line.starts_with(&start)), "no {start:?} in {self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in: {}", self.stderr);
        }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        assert!(self.stdout.ends_with("}\n") && self.stdout.lines().count() == 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}
