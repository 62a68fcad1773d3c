//! Files that were split into parts.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use whin::checkpoint::{Source, Tensors};
use whin::{Error, ErrorKind};

use super::build::{File, Value, tensor, text, uint};

/// The parts of a file with three tensors, by the name of each.
fn parts() -> Vec<(String, File)> {
    let one = |no: u32, name: &str, value: f32| {
        let mut file = File::new(
            &[("split.no", uint(no)), ("split.count", uint(3)), ("split.tensors.count", uint(3))],
            &[tensor(name, &[1], 0, 0)],
            &value.to_le_bytes(),
        );
        if no == 0 {
            file.keys.push((b"general.architecture".to_vec(), text("qwen3")));
        }
        (format!("m-{:05}-of-00003.gguf", no + 1), file)
    };
    vec![one(0, "a", 1.0), one(1, "b", 2.0), one(2, "c", 3.0)]
}

fn open(parts: &[(String, File)]) -> (TempDir, Result<Source, Error>) {
    let folder = TempDir::new().unwrap();
    for (name, file) in parts {
        fs::write(folder.path().join(name), file.bytes()).unwrap();
    }
    let source = Source::open(Some(&folder.path().join(&parts[0].0)));
    (folder, source)
}

fn refused(parts: &[(String, File)], expected: &[&str]) {
    let error = open(parts).1.unwrap_err();
    let message = error.to_string();
    assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint, "{message}");
    expected.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
}

#[test]
fn all_parts_are_read() {
    let (folder, source) = open(&parts());
    let source = source.unwrap();
    assert_eq!(source.list().unwrap().len(), 3);
    assert_eq!(source.metadata().unwrap().text("general.architecture").unwrap(), Some("qwen3"));
    assert_eq!(source.path().unwrap(), folder.path().join("m-00001-of-00003.gguf"));
    let mut tensors = Tensors::open(&source).unwrap();
    assert_eq!(tensors.files().len(), 3);
    for (name, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
        assert_eq!(tensors.claim(name, &[1]).unwrap().view().to_vec(), [value]);
    }
    tensors.finish(|_| false).unwrap();
    // What lies beside them is no part of the checkpoint.
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    assert!(source.read("tokenizer.json").unwrap().is_none());
    assert!(source.read("m-00002-of-00003.gguf").unwrap().is_some());
}

#[test]
fn parts_that_are_missing_are_all_named() {
    refused(&parts()[..1], &["missing", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"]);
    let mut many = parts()[..1].to_vec();
    many[0].0 = "m-00001-of-09000.gguf".to_owned();
    many[0].1.keys[1].1 = uint(9000);
    refused(&many, &["m-00002-of-09000.gguf", "and 8979 more"]);
}

#[test]
fn only_the_first_part_can_be_named() {
    let mut reversed = parts();
    reversed.reverse();
    refused(&reversed, &["is part 3 of 3", "m-00001-of-00003.gguf"]);
    let mut renamed = parts();
    renamed[0].0 = "first.gguf".to_owned();
    refused(&renamed, &["first of 3 parts", "-00001-of-00003.gguf"]);
    let mut last = parts()[2..].to_vec();
    last[0].0 = "last.gguf".to_owned();
    refused(&last, &["is part 3 of 3", "NAME-00001-of-00003.gguf"]);
}

#[test]
fn parts_that_do_not_fit_are_named() {
    for (key, value) in [("split.no", uint(2)), ("split.count", uint(4)), ("split.tensors.count", uint(4))] {
        let mut parts = parts();
        parts[1].1.keys.iter_mut().find(|(known, _)| known == key.as_bytes()).unwrap().1 = value;
        refused(&parts, &["m-00002-of-00003.gguf", key]);
    }
    let mut more = parts();
    more.iter_mut().for_each(|(_, file)| file.keys[2].1 = uint(7));
    refused(&more, &["hold 7 tensors", "they hold 3"]);
    let mut twice = parts();
    twice[2].1.tensors[0].name = b"a".to_vec();
    refused(&twice, &["\"a\" stands in m-00001-of-00003.gguf and in m-00003-of-00003.gguf"]);
    let mut broken = parts();
    broken[1].1.data.clear();
    refused(&broken, &["m-00002-of-00003.gguf", "cut off"]);
    for count in [10_001, u64::MAX] {
        let mut parts = parts();
        parts[0].1.keys[1].1 = Value(super::build::U64, count.to_le_bytes().to_vec());
        refused(&parts, &["split.count", "at most 10000"]);
    }
}

#[test]
fn one_part_is_a_whole_file() {
    let mut one = parts()[..1].to_vec();
    one[0].1.keys[1].1 = uint(1);
    one[0].1.keys[2].1 = uint(1);
    open(&one).1.unwrap();
}

#[test]
fn files_are_known_by_their_first_bytes_too() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("0a1b2c");
    fs::write(&path, File::new(&[("general.architecture", text("qwen3"))], &[], &[]).bytes()).unwrap();
    assert!(Source::open(Some(&path)).unwrap().metadata().is_some());
    fs::write(&path, b"GGML").unwrap();
    let error = Source::open(Some(&path)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CheckpointNotFound);
    assert!(error.to_string().contains("none in the GGUF format"), "{error}");
    let error = Source::open(Some(Path::new("absent.gguf"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CheckpointNotFound, "{error}");
    // A folder of such files has no config, and one of them is named.
    fs::write(folder.path().join("m-Q8_0.gguf"), b"").unwrap();
    let error = Source::open(Some(folder.path())).unwrap_err();
    assert!(
        error.to_string().contains("name one of its GGUF files") && error.to_string().contains("m-Q8_0.gguf")
    );
}
