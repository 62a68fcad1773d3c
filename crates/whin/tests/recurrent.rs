//! Models with recurrent layers through the engine's public door: their states have owners one after the other.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::path::{Path, PathBuf};

use whin::{CacheMode, Checkpoint, Device, Engine, Needs, Options, Prompt, Request, Weights};

/// Of the fixtures, one for each stage with a state.
const MODELS: [&str; 3] = ["lfm2", "qwen3-next", "qwen3-5-text-types"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn options() -> Options {
    Options { threads: Some(2), cache: CacheMode::Off, ..Options::default() }
}

/// A prompt of so many tokens, another for each seed.
fn prompt(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| (seed * 7 + i * (i + seed)) % 48).collect()
}

fn request(seed: u32, count: u32, new: usize) -> Request {
    Request {
        max_new_tokens: Some(new),
        ignore_eos: true,
        logprobs: Some(5),
        ..Request::ids(prompt(seed, count))
    }
}

/// More texts than run in one step, of all lengths, which begin and end while others are under way.
fn requests() -> Vec<Request> {
    (0..12).map(|i| request(i, [3, 90, 1, 17, 64, 40][i as usize % 6], 5 + 9 * (i as usize % 4))).collect()
}

#[test]
fn neighbours_chunks_and_former_owners_change_nothing() {
    for name in MODELS {
        let mut right = None;
        for (device, threads, prefill_chunk) in
            [(Device::Auto, 1, 512), (Device::Auto, 2, 7), (Device::Auto, 3, 64), (Device::Auto, 2, 3)]
        {
            let options = Options { device, threads: Some(threads), prefill_chunk, ..options() };
            let engine = Engine::load(Some(&fixture(name)), &options).unwrap();
            let ask = |request: &Request| engine.generate(request).unwrap();
            let answer = |request: &Request| {
                let completion = ask(request).finish().unwrap();
                (completion.token_ids, completion.logprobs)
            };
            // Each alone, in the state that the one before has left.
            let alone: Vec<_> = requests().iter().map(answer).collect();
            assert_eq!(
                *right.get_or_insert_with(|| alone.clone()),
                alone,
                "{name}: chunks of {prefill_chunk}"
            );
            for _ in 0..2 {
                let together: Vec<_> = requests().iter().map(ask).collect();
                // One is let go in the middle of its work.
                drop(ask(&request(99, 90, 100)));
                for (generation, alone) in together.into_iter().zip(&alone) {
                    let completion = generation.finish().unwrap();
                    assert!((completion.token_ids, completion.logprobs) == *alone, "{name}: {prefill_chunk}");
                }
            }
        }
    }
}

#[test]
fn scores_are_those_of_the_reference() {
    for name in MODELS {
        let text = Prompt::Ids(prompt(5, 150));
        let score = |device| {
            let options = Options { device, weights: Weights::F32, threads: None, ..options() };
            let engine = Engine::load(Some(&fixture(name)), &options).unwrap();
            engine.score(&text).unwrap().logprobs
        };
        let (cpu, reference) = (score(Device::Auto), score(Device::Reference));
        assert_eq!(cpu.len(), 149);
        for (index, (cpu, reference)) in cpu.iter().zip(&reference).enumerate() {
            assert!((cpu - reference).abs() < 0.05, "{name}: token {index}: {cpu}, {reference}");
        }
    }
}

#[test]
fn packed_weights_give_the_bits_of_the_files() {
    for name in MODELS {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(fixture(name)).unwrap().map(|entry| entry.unwrap()) {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        let mut answers = Vec::new();
        for cache in [CacheMode::Off, CacheMode::Auto, CacheMode::Auto] {
            let engine = Engine::load(Some(folder.path()), &Options { cache, ..options() }).unwrap();
            let completion = engine.generate(&request(1, 70, 20)).unwrap().finish().unwrap();
            engine.wait_for_cache();
            answers.push((completion.token_ids, completion.logprobs));
            assert_eq!(engine.is_from_cache(), answers.len() == 3, "{name}");
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
    }
}

#[test]
fn states_are_counted() {
    let needs = |name: &str| {
        let checkpoint = Checkpoint::open(Some(&fixture(name))).unwrap();
        Needs::new(checkpoint.spec(), &options())
    };
    // Two convolutions of three taps over 24 channels, one layer of attention with two heads of six numbers in bf16.
    let lfm2 = needs("lfm2");
    assert_eq!((lfm2.state, lfm2.position), (2 * 2 * 24 * 4, 2 * 6 * 2 * 2));
    assert_eq!(lfm2.cache(65) - lfm2.cache(1), 64 * lfm2.position);
    assert_eq!(lfm2.cache(0), lfm2.state);
    // Three layers: four taps over 2 · 16 + 48 channels, and four matrices of 8 by 12.
    assert_eq!(needs("qwen3-next").state, 3 * (3 * 80 + 4 * 8 * 12) * 4);
    assert_eq!(needs("base").state, 0);
}
