//! Ctrl-C.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{command, finish};

const ENDLESS: [&str; 5] = ["run", "Once upon a time", "--ignore-eos", "--threads", "1"];

fn press(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn the_text_so_far_is_kept() {
    let mut child = command(ENDLESS).spawn().unwrap();
    let mut start = [0; 20];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut start).unwrap();
    press(&child);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let outcome = finish(child);
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(outcome.stderr.contains(" · cancelled · "), "{outcome:?}");
}

#[test]
fn json_is_printed_all_the_same() {
    // When generation has begun cannot be seen from outside; a press during the load ends the program at once.
    let mut wait = Duration::from_millis(500);
    let outcome = loop {
        let child = command(ENDLESS.iter().chain(&["--json"])).spawn().unwrap();
        thread::sleep(wait);
        press(&child);
        let outcome = finish(child);
        assert_eq!(outcome.code, Some(130), "{outcome:?}");
        if !outcome.stdout.is_empty() {
            break outcome;
        }
        assert_eq!(outcome.stderr, "");
        wait *= 2;
    };
    let result = outcome.json();
    assert_eq!(result["finish_reason"], "cancelled");
    assert!(result["token_ids"].as_array().unwrap().len() >= result["n_prompt"].as_u64().unwrap() as usize);
    assert!(result["generated_text"].is_string());
}

#[test]
fn a_second_press_ends_at_once() {
    // One step over so many rows keeps the reference busy for longer than this test waits.
    let prompt = "Once upon a time there was a little girl who had a red ball. ".repeat(200);
    let child = command(["run", &prompt, "--device", "reference", "-n", "1"]).spawn().unwrap();
    thread::sleep(Duration::from_millis(1500));
    press(&child);
    thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    // It has ended already where the load took longer than the first press.
    let _ =
        Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    let outcome = finish(child);
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (Some(130), "", ""));
}

#[test]
fn a_press_during_the_load_leaves_no_answer() {
    for wait in [0, 20, 60] {
        // Without an end of its own: on a busy machine the press may come late.
        let child = command(["run", "Once", "--ignore-eos", "--device", "cpu:scalar", "--threads", "1"])
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(wait));
        press(&child);
        let started = Instant::now();
        let outcome = finish(child);
        assert!(started.elapsed() < Duration::from_secs(2));
        // Before the handler is in place, the signal itself ends the program.
        assert!(outcome.code.is_none_or(|code| code == 130), "{outcome:?}");
    }
}

#[test]
fn a_press_stops_an_answer_and_not_the_conversation() {
    // Without tokens that end an answer.
    let endless = ["chat", "--logit-bias=6137=-100", "--logit-bias=6135=-100", "--threads", "1"];
    let mut child = command(endless).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        lines.write_all(b"Tell me a story.\n").unwrap();
        stdout.read_exact(&mut [0; 20]).unwrap();
        press(&child);
        assert!(notes.any(|note| note.unwrap() == "[stopped]"));
        // What is left of the answer is in the pipe by now.
        lines.write_all(b"/system\n").unwrap();
        assert!(notes.any(|note| note.unwrap() == "[no system message]"));
        read_what_is_there(&mut stdout);
    }
    lines.write_all(b"/exit\n").unwrap();
    assert_eq!(finish(child).code, Some(0));
}

/// Empties a pipe that ends with the end of a line.
fn read_what_is_there(pipe: &mut impl Read) {
    let mut bytes = [0; 1 << 16];
    loop {
        let count = pipe.read(&mut bytes).unwrap();
        if count < bytes.len() {
            return assert_eq!(bytes[count - 1], b'\n');
        }
    }
}
