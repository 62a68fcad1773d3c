//! Vocabularies in GGUF files that are broken, contradict themselves or are meant to cost memory: each ends in an error
//! that names the key, within two seconds and 100 MB of the whole process. They run one after another in a process of
//! their own, so that its peak is theirs.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

#[allow(dead_code)]
#[path = "gguf/build.rs"]
mod build;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use build::{File, Value, flag, list, text, texts, uint};
use tempfile::TempDir;
use whin::ErrorKind;
use whin::checkpoint::Source;
use whin::tokenizer::Tokenizer;

const MODEL: &str = "tokenizer.ggml.model";
const CUT: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

type Keys = Vec<(&'static str, Value)>;

/// The most memory that this process has had in use, in bytes.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn numbers(kind: u32, numbers: &[i32]) -> Value {
    let as_is = |number: &i32| number.to_le_bytes();
    let as_float = |number: &i32| (*number as f32).to_le_bytes();
    let bytes: Vec<[u8; 4]> = match kind {
        build::F32 => numbers.iter().map(as_float).collect(),
        _ => numbers.iter().map(as_is).collect(),
    };
    list(kind, bytes.len() as u64, &bytes.concat())
}

fn ranked() -> Keys {
    vec![
        (MODEL, text("gpt2")),
        (CUT, text("gpt-2")),
        (TOKENS, texts(&[b"a", b"b", b"ab", b"aba"])),
        (KINDS, numbers(build::I32, &[1, 1, 1, 1])),
        (MERGES, texts(&[b"a b", b"ab a"])),
    ]
}

fn scored() -> Keys {
    vec![
        (MODEL, text("llama")),
        (TOKENS, texts(&[b"<unk>", b"a", b"b", b"ab"])),
        (KINDS, numbers(build::I32, &[2, 1, 1, 1])),
        (SCORES, numbers(build::F32, &[0, -1, -2, -3])),
    ]
}

/// The same keys with another value for one, or without it.
fn with(keys: Keys, key: &'static str, value: impl Into<Option<Value>>) -> Keys {
    let others = keys.into_iter().filter(|(other, _)| *other != key);
    others.chain(value.into().map(|value| (key, value))).collect()
}

/// Opens the file and checks that its tokenizer is refused; `parts` are in the message.
fn refused(path: &Path, rows: usize, parts: &[&str]) -> ErrorKind {
    let started = Instant::now();
    let source = Source::open(Some(path)).unwrap();
    let error = Tokenizer::from_gguf(source.metadata().unwrap(), rows).err();
    let error = error.unwrap_or_else(|| panic!("accepted, instead of an error with {parts:?}"));
    let message = error.to_string();
    assert!(started.elapsed() < Duration::from_secs(2), "{message}: took {:?}", started.elapsed());
    assert!(message.contains("m.gguf") && message.len() < 3000, "{message}");
    assert!(parts.iter().all(|part| message.contains(part)), "{message}\nlacks one of {parts:?}");
    error.kind()
}

fn written(folder: &TempDir, keys: &Keys) -> std::path::PathBuf {
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, File::new(keys, &[], &[]).bytes()).unwrap();
    path
}

/// Small files: keys, and what the message says.
fn broken() -> Vec<(Keys, Vec<&'static str>)> {
    let b = |key, value, parts: &[&'static str]| (with(ranked(), key, value), parts.to_vec());
    let s = |key, value, parts: &[&'static str]| (with(scored(), key, value), parts.to_vec());
    vec![
        (Vec::new(), vec![MODEL, "missing"]),
        b(MODEL, Some(uint(1)), &[MODEL, "text"]),
        b(TOKENS, None, &[TOKENS, "missing"]),
        b(TOKENS, Some(text("a")), &[TOKENS]),
        b(TOKENS, Some(texts(&[b"a", b"b", b"ab"])), &["3 tokens", "embeddings for 4"]),
        b(TOKENS, Some(texts(&[b"a", b"b", b"\xff\xfe", b"aba"])), &["UTF-8", "tokens[2]"]),
        b(TOKENS, Some(texts(&[b"a", b"b", b"a", b"ab"])), &["tokens 0 and 2", "\"a\""]),
        b(TOKENS, Some(texts(&[b"", b"", b"", b""])), &[MERGES, "\"a b\""]),
        b(KINDS, Some(numbers(build::I32, &[1, 1])), &[KINDS, "4 tokens", "2 values"]),
        b(KINDS, Some(numbers(build::I32, &[1, 1, 9, 1])), &["token_type[2] 9"]),
        b(KINDS, Some(numbers(build::I32, &[1, 1, -1, 1])), &["token_type[2] -1"]),
        b(KINDS, Some(numbers(build::F32, &[1, 1, 1, 1])), &[KINDS]),
        b(CUT, None, &[CUT, "missing"]),
        b(MERGES, None, &[MERGES, "missing"]),
        b(MERGES, Some(texts(&[b"a b", b"x a"])), &["merges[1]", "\"x a\"", "no token"]),
        // The parts are there, and what they make is not; a merge that needs itself is one of these.
        b(MERGES, Some(texts(&[b"a b", b"b a"])), &["merges[1]", "\"b a\"", "no token"]),
        b(MERGES, Some(texts(&[b"ab ab"])), &["merges[0]", "\"ab ab\"", "no token"]),
        b(MERGES, Some(texts(&[b"ab"])), &["merges[0]", "\"ab\"", "pair"]),
        b(MERGES, Some(texts(&[b""])), &["merges[0]", "pair"]),
        b(MERGES, Some(texts(&[b" ab"])), &["merges[0]", "pair"]),
        b(MERGES, Some(texts(&[b"a b", b"a b"])), &["merges[1]", "twice"]),
        b(MERGES, Some(texts(&[b"a \xff"])), &["merges[0]", "UTF-8"]),
        b(MERGES, Some(texts(&["é".repeat(50_000).as_bytes()])), &["merges[0]", "pair"]),
        s(SCORES, None, &[SCORES, "missing"]),
        s(SCORES, Some(numbers(build::F32, &[0, -1, -2])), &[SCORES, "4 tokens", "3 values"]),
        s(SCORES, Some(text("x")), &[SCORES]),
        s(SCORES, Some(list(build::F32, 4, &[255; 16])), &["scores[0]", "no number"]),
        s(KINDS, Some(numbers(build::I32, &[1, 1, 1, 1])), &["cannot spell", "<0x00>"]),
        s("tokenizer.ggml.add_space_prefix", Some(flag(7)), &["add_space_prefix"]),
    ]
}

fn unsupported() -> Vec<(Keys, Vec<&'static str>)> {
    let b = |key, value, parts: &[&'static str]| (with(ranked(), key, value), parts.to_vec());
    vec![
        b(MODEL, text("t5"), &["\"t5\"", "gpt2, llama and gemma4"]),
        b(MODEL, text("bert"), &["\"bert\""]),
        b(MODEL, text("rwkv"), &["\"rwkv\""]),
        b(MODEL, text("plamo2"), &["\"plamo2\""]),
        b(MODEL, text("x".repeat(1 << 20)), &["…"]),
        b(CUT, text("of my own"), &["\"of my own\"", "qwen2", "llama-bpe", CUT]),
        (
            with(scored(), "tokenizer.ggml.remove_extra_whitespaces", flag(1)),
            vec!["remove_extra_whitespaces"],
        ),
    ]
}

/// Writes a file with lists that would take long to build in memory: (key, type, count, items).
type Items<'a> = Box<dyn Iterator<Item = Vec<u8>> + 'a>;

fn stream(folder: &TempDir, keys: &Keys, lists: Vec<(&str, u32, u64, Items<'_>)>) -> std::path::PathBuf {
    let path = folder.path().join("m.gguf");
    let mut file = BufWriter::new(std::fs::File::create(&path).unwrap());
    let count = (keys.len() + lists.len()) as u64;
    let mut head = [&b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0"[..], &count.to_le_bytes()].concat();
    for (key, Value(kind, value)) in keys {
        head.extend(build::string(key));
        head.extend(kind.to_le_bytes());
        head.extend(value);
    }
    file.write_all(&head).unwrap();
    for (key, kind, count, items) in lists {
        file.write_all(&build::string(key)).unwrap();
        file.write_all(&[build::LIST.to_le_bytes(), kind.to_le_bytes()].concat()).unwrap();
        file.write_all(&count.to_le_bytes()).unwrap();
        items.for_each(|item| file.write_all(&item).unwrap());
    }
    file.into_inner().unwrap();
    path
}

/// Files of many megabytes, broken at their very ends or past what is read.
fn large(folder: &TempDir) {
    let named =
        |count: u64| -> Items<'static> { Box::new((0..count).map(|id| build::string(format!("t{id}")))) };
    let base = |model: &str| -> Keys { vec![(MODEL, text(model)), (CUT, text("gpt-2"))] };
    let most = 7_u64 << 16;

    let path = stream(folder, &base("gpt2"), vec![(TOKENS, build::TEXT, most + 1, named(most + 1))]);
    refused(&path, most as usize + 1, &["458753 tokens", "at most 458752"]);

    let twice = named(most - 1).chain([build::string("t7")]);
    let path = stream(folder, &base("gpt2"), vec![(TOKENS, build::TEXT, most, Box::new(twice))]);
    refused(&path, most as usize, &["tokens 7 and 458751"]);

    let merges = (0..500_000).map(|_| build::string("t1 t2"));
    let lists: Vec<(&str, u32, u64, Items<'_>)> =
        vec![(TOKENS, build::TEXT, most, named(most)), (MERGES, build::TEXT, 500_000, Box::new(merges))];
    refused(&stream(folder, &base("gpt2"), lists), most as usize, &["merges[0]", "no token"]);

    // Each merge is a sound one, but the last.
    let words = 300_000_u64;
    let letters = ["a", "b"].map(build::string).into_iter();
    let tokens = letters.chain((2..words).map(|length| build::string(word(length))));
    let sound = (2..words).map(|length| {
        let whole = word(length);
        let (first, last) = whole.split_at(whole.len() - 1);
        build::string(format!("{first} {last}"))
    });
    let merges = sound.chain([build::string("b b")]);
    let lists: Vec<(&str, u32, u64, Items<'_>)> = vec![
        (TOKENS, build::TEXT, words, Box::new(tokens)),
        (MERGES, build::TEXT, words - 1, Box::new(merges)),
    ];
    refused(&stream(folder, &base("gpt2"), lists), words as usize, &["\"b b\""]);

    let merges = (0..(1_u64 << 21) + 1).map(|_| build::string("a b"));
    let lists: Vec<(&str, u32, u64, Items<'_>)> = vec![
        (TOKENS, build::TEXT, 3, Box::new(["a", "b", "ab"].map(build::string).into_iter())),
        (MERGES, build::TEXT, (1 << 21) + 1, Box::new(merges)),
    ];
    refused(&stream(folder, &base("gpt2"), lists), 3, &["2097153 merges"]);

    let long = [build::string("x".repeat(1 << 20)), build::string("b")].into_iter();
    let path = stream(folder, &base("llama"), vec![(TOKENS, build::TEXT, 2, Box::new(long))]);
    refused(&path, 2, &["too long", "tokens[0]"]);

    let long = (0..300_u32).map(|id| build::string(format!("{id}{}", "x".repeat(60_000))));
    let path = stream(folder, &base("llama"), vec![(TOKENS, build::TEXT, 300, Box::new(long))]);
    refused(&path, 300, &["too long"]);

    let control = (0..100_u32).map(|id| build::string(format!("{id}{}", "x".repeat(60_000))));
    let kinds = (0..100).map(|_| 3_i32.to_le_bytes().to_vec());
    let lists: Vec<(&str, u32, u64, Items<'_>)> =
        vec![(TOKENS, build::TEXT, 100, Box::new(control)), (KINDS, build::I32, 100, Box::new(kinds))];
    refused(&stream(folder, &base("gpt2"), lists), 100, &["control", "4194304"]);
}

/// The number in letters, so that all but its last letter is the number of half of it.
fn word(number: u64) -> String {
    format!("{number:b}").replace('0', "a").replace('1', "b")
}

#[test]
fn broken_vocabularies_are_errors_soon_and_in_little_memory() {
    let folder = TempDir::new().unwrap();
    for (keys, parts) in broken() {
        assert_eq!(refused(&written(&folder, &keys), 4, &parts), ErrorKind::InvalidCheckpoint, "{parts:?}");
    }
    for (keys, parts) in unsupported() {
        let kind = refused(&written(&folder, &keys), 4, &parts);
        assert_eq!(kind, ErrorKind::UnsupportedArchitecture, "{parts:?}");
    }
    for keys in [ranked(), scored()] {
        let source = Source::open(Some(&written(&folder, &keys))).unwrap();
        Tokenizer::from_gguf(source.metadata().unwrap(), 4).unwrap();
    }
    large(&folder);
    if let Some(peak) = peak() {
        eprintln!("peak {} MiB", peak >> 20);
        assert!(peak < 100 << 20, "{} MiB at the peak", peak >> 20);
    }
}
