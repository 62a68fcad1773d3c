//! Where stdout and stderr lead nowhere, or to a full disk.

#![cfg(unix)]

use std::fs::OpenOptions;
use std::io::Read;
use std::process::Stdio;

use crate::process::{command, finish};

const ENDLESS: [&str; 6] = ["run", "Once upon a time", "--ignore-eos", "-n", "300", "--json"];

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let endless = &ENDLESS[..5];
    let mut child = command(endless).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    drop(stdout);
    let outcome = finish(child);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    // Away before anything is written.
    for args in
        [&ENDLESS[..], &["score", "The capital of France"], &["inspect"], &["devices"], &["tokenize", "a"]]
    {
        let mut child = command(args).spawn().unwrap();
        drop(child.stdout.take());
        let outcome = finish(child);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn stderr_may_lead_nowhere() {
    let mut child = command(["run", "The capital of France is"]).spawn().unwrap();
    drop(child.stderr.take());
    let outcome = finish(child);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), " Paris."));
    let mut child = command(["run", "a", "-n", "0"]).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(finish(child).code, Some(1));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure() {
    let runs = ["run", "The capital of France is"];
    for args in [
        &runs[..],
        &[runs[0], runs[1], "--json"],
        &["score", "a b"],
        &["inspect"],
        &["devices"],
        &["tokenize", "a"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let child = command(args).stdout(Stdio::from(full)).spawn().unwrap();
        finish(child).failed("io", &["cannot write to stdout", "space"]);
    }
}
