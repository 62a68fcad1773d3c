//! GGUF files that are damaged, or were written to do damage: each ends in an error that names what is wrong, soon and in
//! little memory. A process of its own, so that nothing else moves the peak.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

#[path = "gguf/build.rs"]
#[expect(dead_code, reason = "the other tests of GGUF files need all of it")]
mod build;

use std::fs;
use std::time::{Duration, Instant};

use build::{File, Value, flag, float, list, string, tensor, text, texts, uint};
use tempfile::TempDir;
use whin::checkpoint::Source;
use whin::{Error, ErrorKind};

fn open(bytes: &[u8]) -> Result<Source, Error> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, bytes).unwrap();
    Source::open(Some(&path))
}

/// What a refusal may take.
const LONGEST: Duration = Duration::from_secs(1);
/// What the whole process may hold.
#[cfg(target_os = "linux")]
const MOST_MEMORY: u64 = 100 << 20;

/// A sound file with two tensors.
fn sound() -> File {
    let tensors = [tensor("a", &[8], 0, 0), tensor("b", &[32, 2], 8, 32)];
    File::new(&[("general.architecture", text("qwen3"))], &tensors, &[0; 100])
}

fn with_key(key: &str, value: Value) -> File {
    let mut file = sound();
    file.keys.push((key.into(), value));
    file
}

fn with_tensor(name: &str, dims: &[u64], kind: u32, offset: u64) -> File {
    let mut file = sound();
    file.tensors[1] = tensor(name, dims, kind, offset);
    file
}

/// Opens the file, and wants an error of this kind with these parts in its message, soon.
fn refused(bytes: &[u8], parts: &[&str]) {
    let start = Instant::now();
    let error = open(bytes).expect_err(&format!("{parts:?} is accepted"));
    assert!(start.elapsed() < LONGEST, "{parts:?} takes {:?}", start.elapsed());
    let message = error.to_string();
    assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint, "{message}");
    assert!(message.len() < 2000, "{message}");
    for part in ["m.gguf"].iter().chain(parts) {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    #[cfg(target_os = "linux")]
    assert!(peak() < MOST_MEMORY, "{} MiB at the peak", peak() >> 20);
}

/// The most bytes of memory that this process has held.
#[cfg(target_os = "linux")]
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Counts and lengths that no file has.
const HUGE: [u64; 6] = [u64::MAX, u64::MAX - 7, 1 << 63, (1 << 63) - 1, 1 << 40, 1 << 32];

#[test]
fn the_sound_file_is_accepted() {
    open(&sound().bytes()).unwrap();
    // Padding behind the last tensor may be missing, and holes may be there.
    let mut file = sound();
    file.tensors[1].offset = 64;
    file.data = vec![0; 64 + 68];
    open(&file.bytes()).unwrap();
    for alignment in [8, 16, 64, 4096] {
        let mut file = with_key("general.alignment", uint(alignment));
        file.alignment = alignment as usize;
        file.tensors[1].offset = 32u64.next_multiple_of(u64::from(alignment));
        file.data = vec![0; file.tensors[1].offset as usize + 68];
        open(&file.bytes()).unwrap();
    }
}

#[test]
fn files_that_are_none_are_named() {
    refused(b"", &["cut off"]);
    refused(b"GG", &["cut off"]);
    refused(b"GGUF", &["cut off"]);
    refused(b"PK\x03\x04 a zip file", &["is no GGUF file", "PK\\x03\\x04"]);
    refused(b"GGML\x01\0\0\0", &["is no GGUF file"]);
    refused(b"version https://git-lfs.github.com/spec/v1\n", &["git lfs pull"]);
    refused(&File { version: 1, ..sound() }.bytes(), &["version 1 of GGUF", "convert"]);
    for version in [1u32, 2, 3] {
        let file = File { version: version.swap_bytes(), ..sound() };
        refused(&file.bytes(), &["big-endian", "gguf-convert-endian"]);
    }
    for version in [0, 4, u32::MAX] {
        refused(&File { version, ..sound() }.bytes(), &["of GGUF; 2 and 3 are read"]);
    }
}

#[test]
fn every_file_that_is_cut_off_is_refused() {
    let bytes = with_key("a.list", texts(&[b"x", b"yz"])).bytes();
    for length in 0..bytes.len() {
        refused(&bytes[..length], &[]);
    }
    open(&bytes).unwrap();
}

#[test]
fn counts_and_lengths_beyond_the_file() {
    for huge in HUGE {
        refused(&File { tensor_count: Some(huge), ..sound() }.bytes(), &["announces", "tensors"]);
        refused(&File { key_count: Some(huge), ..sound() }.bytes(), &["announces", "keys"]);
        let announced = |length: u64| length.to_le_bytes().to_vec();
        refused(&with_key("a.text", Value(build::TEXT, announced(huge))).bytes(), &["a.text"]);
        for kind in [build::U8, build::F32, build::U64, build::TEXT, build::FLAG] {
            refused(&with_key("a.list", list(kind, huge, &[0; 16])).bytes(), &["a.list", "list"]);
        }
        let item = [announced(huge), vec![0; 100]].concat();
        refused(&with_key("a.list", list(build::TEXT, 2, &item)).bytes(), &["a.list"]);
        refused(&with_tensor("b", &[huge, huge], 0, 32).bytes(), &["\"b\"", "overflows"]);
        refused(&with_tensor("b", &[huge & !31], 0, 32).bytes(), &["\"b\""]);
        refused(&with_tensor("b", &[32], 0, huge & !31).bytes(), &["\"b\"", "places tensor"]);
        refused(&with_tensor("b", &[32, 1 << 27, 1 << 27], 8, 32).bytes(), &["\"b\""]);
        let mut bytes = File { keys: Vec::new(), ..sound() }.bytes();
        bytes[24..32].copy_from_slice(&huge.to_le_bytes());
        refused(&bytes, &["name of"]);
    }
    for count in [3, 1000, 200_000] {
        refused(&File { tensor_count: Some(count), ..sound() }.bytes(), &[]);
        refused(&File { key_count: Some(count), ..sound() }.bytes(), &[]);
    }
}

#[test]
fn alignments_that_are_none() {
    for alignment in [0, 1, 2, 3, 4, 7, 24, 33, 1 << 31, u32::MAX] {
        refused(
            &with_key("general.alignment", uint(alignment)).bytes(),
            &["general.alignment", "power of two"],
        );
    }
    for value in [text("32"), flag(1), float(32.0), list(build::U32, 1, &[32, 0, 0, 0])] {
        refused(&with_key("general.alignment", value).bytes(), &["general.alignment"]);
    }
    refused(
        &with_key("general.alignment", Value(build::I64, (-32i64).to_le_bytes().into())).bytes(),
        &["-32"],
    );
    // Places that suit one alignment may not suit another.
    let mut file = with_key("general.alignment", uint(64));
    file.alignment = 64;
    refused(&file.bytes(), &["\"b\"", "no multiple of 64"]);
}

#[test]
fn values_of_unknown_types_and_lists_of_lists() {
    for kind in [13, 14, 255, u32::MAX] {
        refused(&with_key("a.odd", Value(kind, vec![0; 8])).bytes(), &["unknown type", "a.odd"]);
        refused(&with_key("a.odd", list(kind, 1, &[0; 8])).bytes(), &["unknown type", "a.odd"]);
    }
    let mut nested = list(build::U8, 1, &[0]).1;
    for _ in 0..20_000 {
        nested = list(build::LIST, 1, &nested).1;
        nested.truncate(200_000);
    }
    refused(&with_key("a.deep", Value(build::LIST, nested)).bytes(), &["list of lists", "a.deep"]);
}

#[test]
fn names_that_stand_twice_or_are_no_text() {
    let mut file = with_key("a.key", uint(1));
    file.keys.push((b"a.key".to_vec(), uint(1)));
    refused(&file.bytes(), &["\"a.key\" twice"]);
    refused(&with_tensor("a", &[8], 0, 32).bytes(), &["\"a\" twice"]);
    let mut file = sound();
    file.keys.push((b"\xff".to_vec(), uint(1)));
    refused(&file.bytes(), &["no UTF-8"]);
    let mut file = sound();
    file.tensors[1].name = b"\xff".to_vec();
    refused(&file.bytes(), &["no UTF-8"]);
    file.tensors[1].name = vec![b'b'; 5000];
    refused(&file.bytes(), &["name of 5000 bytes"]);
    refused(&with_key(&"k".repeat(70_000), uint(1)).bytes(), &["70000 bytes"]);
    refused(&with_key(&"k".repeat(60_000), Value(99, Vec::new())).bytes(), &["unknown type", "kkk…"]);
}

#[test]
fn tensors_that_overlap_or_lie_elsewhere() {
    refused(&with_tensor("b", &[8], 0, 0).bytes(), &["\"b\"", "overlaps"]);
    refused(&with_tensor("b", &[8], 0, 8).bytes(), &["\"b\"", "no multiple of 32"]);
    refused(&with_tensor("b", &[8], 0, 96).bytes(), &["\"b\"", "cut off"]);
    refused(&with_tensor("b", &[8], 0, 1 << 20).bytes(), &["\"b\"", "of its data, which has 100"]);
    let mut file = sound();
    file.tensors[0].dims = vec![16];
    refused(&file.bytes(), &["\"b\"", "overlaps", "ends at 64"]);
    file.data.clear();
    refused(&file.bytes(), &["cut off"]);
}

/// Whatever lies beside the tensors would be hashed with them.
#[test]
fn bytes_beside_the_tensors() {
    for (len, fits) in [(0, true), (4096, true), (64 << 10, true), (65 << 10, false), (8 << 20, false)] {
        let bytes = [sound().bytes(), vec![0; len]].concat();
        match fits {
            true => drop(open(&bytes).unwrap()),
            false => refused(&bytes, &["behind its last tensor"]),
        }
    }
    let mut file = sound();
    file.tensors[1].offset = 1 << 20;
    file.data.resize((1 << 20) + 100, 0);
    refused(&file.bytes(), &["bytes of nothing before tensor \"b\""]);
}

#[test]
fn shapes_that_no_tensor_has() {
    for rank in [5, 64, u32::MAX] {
        let mut bytes = sound().bytes();
        let at = bytes.windows(9).position(|window| window == string("b").as_slice()).unwrap() + 9;
        bytes[at..at + 4].copy_from_slice(&rank.to_le_bytes());
        refused(&bytes, &["\"b\"", "dimensions; the format allows 4"]);
    }
    refused(&with_tensor("b", &[33], 8, 32).bytes(), &["\"b\"", "blocks of 32 numbers", "33"]);
    refused(&with_tensor("b", &[32, 8], 12, 32).bytes(), &["\"b\"", "blocks of 256 numbers", "32"]);
    refused(&with_tensor("b", &[], 8, 32).bytes(), &["\"b\"", "blocks of 32 numbers"]);
    // Without numbers there is nothing to lie anywhere.
    for dims in [[0, 1 << 40], [1 << 40, 0], [1 << 62, 0]] {
        open(&with_tensor("b", &dims, 0, 32).bytes()).unwrap();
    }
}

#[test]
fn types_that_are_unknown_or_gone_are_named() {
    for (kind, name) in [(4, "Q4_2"), (31, "Q4_0_4_4"), (36, "IQ4_NL_4_4")] {
        refused(&with_tensor("b", &[32], kind, 32).bytes(), &["\"b\"", name, "no longer part of GGUF"]);
    }
    for kind in [42, 1000, u32::MAX] {
        refused(&with_tensor("b", &[32], kind, 32).bytes(), &["\"b\"", "unknown type"]);
    }
}

#[test]
fn types_that_cannot_be_computed_with_are_refused_when_they_are_claimed() {
    let names = [
        (9, "Q8_1", 32),
        (15, "Q8_K", 256),
        (16, "IQ2_XXS", 256),
        (17, "IQ2_XS", 256),
        (18, "IQ3_XXS", 256),
        (19, "IQ1_S", 256),
        (21, "IQ3_S", 256),
        (22, "IQ2_S", 256),
        (23, "IQ4_XS", 256),
        (25, "I16", 1),
        (26, "I32", 1),
        (27, "I64", 1),
        (29, "IQ1_M", 256),
        (34, "TQ1_0", 256),
        (35, "TQ2_0", 256),
        (40, "NVFP4", 64),
        (41, "Q1_0", 128),
    ];
    for (kind, name, block) in names {
        let mut file = with_tensor("b", &[block], kind, 32);
        file.data = vec![0; 400];
        let source = open(&file.bytes()).unwrap();
        let mut tensors = whin::checkpoint::Tensors::open(&source).unwrap();
        assert!(tensors.claim("b", &[block as usize]).is_none(), "{name}");
        assert!(tensors.claim("a", &[8]).is_some());
        let error = tensors.finish(|_| false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedArchitecture, "{error}");
        let message = error.to_string();
        assert!(message.contains(&format!("stored as {name}")) && message.contains("Q8_0"), "{message}");
    }
}
