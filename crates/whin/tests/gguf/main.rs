//! GGUF files: what is in them is found, and what they ask for that cannot be is told.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

mod build;
mod config;
mod models;
mod split;
mod types;

use std::fs;

use build::{File, flag, float, list, text, texts, uint};
use tempfile::TempDir;
use whin::checkpoint::Source;
use whin::{Error, ErrorKind};

fn open(bytes: &[u8]) -> Result<Source, Error> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, bytes).unwrap();
    Source::open(Some(&path))
}

#[test]
fn values_of_every_type_are_found() {
    let keys = [
        ("a.text", text("ü")),
        ("a.number", float(0.1)),
        ("a.count", uint(7)),
        ("a.flag", flag(1)),
        ("a.list", texts(&[b"x", b"", b"\xff"])),
        ("a.numbers", list(build::F32, 2, &[0, 0, 128, 63, 0, 0, 0, 64])),
        ("a.integers", list(build::I32, 2, &[255, 255, 255, 255, 5, 0, 0, 0])),
        ("a.small", build::Value(build::U8, vec![9])),
        ("a.negative", build::Value(build::I64, (-3i64).to_le_bytes().to_vec())),
        ("a.flags", list(build::FLAG, 2, &[1, 0])),
        ("a.huge", list(build::U64, 1, &[255; 8])),
    ];
    for version in [2, 3] {
        let source = open(&File { version, ..File::new(&keys, &[], &[]) }.bytes()).unwrap();
        let found = source.metadata().unwrap();
        assert_eq!(found.text("a.text").unwrap(), Some("ü"));
        assert_eq!(found.number("a.number").unwrap(), Some(0.1));
        assert_eq!(
            (found.integer("a.count").unwrap(), found.number("a.count").unwrap()),
            (Some(7), Some(7.0))
        );
        assert_eq!(found.integer("a.small").unwrap(), Some(9));
        assert_eq!(found.flag("a.flag").unwrap(), Some(true));
        let list = found.texts("a.list").unwrap().unwrap();
        assert_eq!((list.len(), list.collect::<Vec<_>>()), (3, vec![&b"x"[..], b"", b"\xff"]));
        assert_eq!(found.numbers("a.numbers").unwrap().unwrap().collect::<Vec<_>>(), [1.0, 2.0]);
        assert_eq!(found.numbers("a.integers").unwrap().unwrap().collect::<Vec<_>>(), [-1.0, 5.0]);
        assert_eq!(found.integers("a.integers").unwrap().unwrap().collect::<Vec<_>>(), [-1, 5]);
        assert_eq!(found.flags("a.flags").unwrap().unwrap().collect::<Vec<_>>(), [true, false]);
        assert_eq!(found.keys().count(), keys.len());
        assert!(found.contains("a.list") && found.is_list("a.list") && !found.is_list("a.text"));
        assert!(!found.contains("b") && found.text("b").unwrap().is_none());
        assert!(found.texts("b").unwrap().is_none() && found.integers("b").unwrap().is_none());
        for error in [
            found.text("a.count").unwrap_err(),
            found.integer("a.negative").unwrap_err(),
            found.integer("a.number").unwrap_err(),
            found.flag("a.count").unwrap_err(),
            found.number("a.text").unwrap_err(),
            found.texts("a.numbers").err().unwrap(),
            found.integers("a.huge").err().unwrap(),
            found.integers("a.numbers").err().unwrap(),
            found.numbers("a.flag").err().unwrap(),
            found.text("a.list").unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
            let message = error.to_string();
            assert!(
                message.contains("m.gguf") && message.contains("\"a.") && message.contains("accepted: "),
                "{message}"
            );
        }
    }
}

#[test]
fn real_files() {
    for path in std::env::var("GGUF_FILES").unwrap_or_default().split_whitespace() {
        let source = Source::open(Some(path.as_ref())).unwrap();
        let found = source.metadata().unwrap();
        for key in found.keys() {
            println!("{key}: {}", found.found(key));
        }
    }
}
