//! The corpus of the fuzzers, and seeded changes of each input: whatever stands in the files of a checkpoint, there is
//! an error or a result, soon, and in little memory.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Changes of each input of the corpus.
const CHANGES: u64 = 200;

/// What one input may take. All have a few kilobytes.
const LONGEST: Duration = Duration::from_secs(1);

/// What the whole process may hold at once: the targets run side by side.
#[cfg(target_os = "linux")]
const MOST_MEMORY: u64 = 512 << 20;

fn inputs(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "{} holds {} inputs", folder.display(), paths.len());
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Runs the target `name` on all its inputs and their changes.
fn replay(name: &str) {
    // Panics of the `tokenizers` crate and of those below it are caught, and need not be told.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        set_hook(Box::new(|panic| {
            if !panic.location().is_some_and(|at| at.file().contains("/registry/src/")) {
                eprintln!("{panic}");
            }
        }));
    });
    let (_, target) = *targets::TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    for (path, bytes) in inputs(name) {
        check(target, &bytes, &path.display().to_string());
        let of_path = path.file_name().unwrap().as_encoded_bytes();
        for change in 0..CHANGES {
            let seed = xxhash_rust::xxh3::xxh3_64_with_seed(of_path, change);
            check(
                target,
                &mutate::mutate(name, &bytes, seed),
                &format!("{} with seed {seed}", path.display()),
            );
        }
    }
    #[cfg(target_os = "linux")]
    assert!(peak() < MOST_MEMORY, "{name}: {} MiB at the peak", peak() >> 20);
}

/// Runs `target` on `bytes`. A slow run is tried again, since the machine may have been busy with something else.
fn check(target: targets::Target, bytes: &[u8], what: &str) {
    let run = || {
        let start = Instant::now();
        catch_unwind(AssertUnwindSafe(|| target(bytes)))
            .unwrap_or_else(|_| panic!("a panic escapes: {what}"));
        start.elapsed()
    };
    let is_quick = (0..3).any(|_| run() < LONGEST);
    assert!(is_quick, "takes more than {LONGEST:?}: {what}");
}

/// The most bytes of memory that this process has held.
#[cfg(target_os = "linux")]
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn headers_of_safetensors() {
    replay("header");
}

#[test]
fn gguf_files() {
    replay("gguf");
}

#[test]
fn indices() {
    replay("index");
}

#[test]
fn configs() {
    replay("config");
}

#[test]
fn end_tokens() {
    replay("generation");
}

#[test]
fn chat_templates() {
    replay("template");
}

#[test]
fn answers() {
    replay("answer");
}

#[test]
fn load_caches() {
    replay("cache");
}

#[test]
fn tokenizers() {
    replay("tokenizer");
}

/// Sound files get all the way through, so that damage to them reaches every check.
#[test]
fn sound_inputs_are_accepted() {
    for (name, seeds) in [
        (
            "answer",
            &[
                "hermes",
                "coder",
                "llama",
                "mistral",
                "mistral-args",
                "kimi",
                "command",
                "nemotron",
                "glm",
                "granite",
                "pythonic",
                "deepseek",
                "deepseek-v31",
                "harmony",
            ][..],
        ),
        ("cache", &["sound"][..]),
        ("config", &["base", "largest", "llama3", "longrope", "nested-ropes", "windows", "yarn", "fp8"]),
        ("config", &["local-and-global", "some-turn", "adjacent", "text-part", "text-part-flat"]),
        ("generation", &["ids", "listed", "looked-up"]),
        ("gguf", &["tiny", "tiny-blocks", "tiny-split", "tiny-yarn", "tiny-baked", "tiny-lists"]),
        ("header", &["tiny", "tiny-f32-bare", "tiny-blocks", "tiny-rows", "tiny-one", "tiny-head"]),
        ("index", &["sound", "one-file"]),
        ("template", &["chatml", "every-part", "qwen-like", "loops"]),
        ("tokenizer", &["bert", "bpe-decoder", "llama", "qwen", "t5", "words"]),
    ] {
        let (_, target) = *targets::TARGETS.iter().find(|(known, _)| *known == name).unwrap();
        let inputs = inputs(name);
        let accepted: Vec<_> =
            inputs.iter().filter(|(_, bytes)| target(bytes)).map(|(path, _)| path).collect();
        for seed in seeds {
            let file = format!("seed-{seed}");
            assert!(accepted.iter().any(|path| path.ends_with(&file)), "{name}: {file} is refused");
        }
        assert!(accepted.len() < inputs.len(), "{name}: nothing is refused");
    }
}

#[test]
fn changes_are_changes_and_the_same_each_time() {
    for (name, _) in targets::TARGETS {
        let inputs = inputs(name);
        let changed = |seed: u64| inputs.iter().map(move |(_, bytes)| mutate::mutate(name, bytes, seed));
        assert!(changed(1).eq(changed(1)), "{name}");
        let differing = changed(1).zip(&inputs).filter(|(changed, (_, bytes))| changed != bytes).count();
        assert!(differing > inputs.len() / 2, "{name}: {differing} of {} differ", inputs.len());
    }
}
