//! Engines that stay loaded.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

mod copies;

use std::fs;
use std::path::PathBuf;
use std::thread;

use whin::{CacheMode, Engine, Engines, ErrorKind, Options, Request, Weights};

const PROMPT: &str = "The capital of France is";

fn options() -> Options {
    Options { threads: Some(1), cache: CacheMode::Off, ..Options::default() }
}

fn answers(engine: &Engine) {
    let request = Request { max_new_tokens: Some(3), ..Request::text(PROMPT) };
    let completion = engine.generate(&request).unwrap().finish().unwrap();
    assert_eq!(completion.generated_text.as_deref(), Some(" Paris."));
}

#[test]
fn callers_who_ask_at_once_share_one() {
    let engines = Engines::new(4);
    let all: Vec<Engine> = thread::scope(|scope| {
        let ask = || engines.get(None, &options()).unwrap();
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(all.iter().all(|engine| engine.shares_weights_with(&all[0])));
    assert_eq!(engines.count(), 1);
    answers(&all[7]);
    let other = engines.get(None, &Options { weights: Weights::Bf16, ..options() }).unwrap();
    assert!(!other.shares_weights_with(&all[0]), "other options, other weights");
    assert_eq!(engines.count(), 2);
    engines.clear();
    assert_eq!(engines.count(), 0);
    answers(&other);
    assert!(!engines.get(None, &options()).unwrap().shares_weights_with(&all[0]));
}

#[test]
fn the_least_recently_used_goes_first() {
    let (a, b, c) = (copies::seedling(), copies::seedling(), copies::seedling());
    let engines = Engines::new(2);
    let get = |folder: &tempfile::TempDir| engines.get(Some(folder.path()), &options()).unwrap();
    let first = [get(&a), get(&b)];
    assert!(get(&a).shares_weights_with(&first[0]));
    get(&c);
    assert_eq!(engines.count(), 2);
    assert!(get(&a).shares_weights_with(&first[0]), "a was used after b");
    assert!(!get(&b).shares_weights_with(&first[1]), "b had to go for c");
    first.iter().for_each(answers);
}

#[test]
fn requests_go_on_when_their_engine_is_let_go() {
    let engines = Engines::new(1);
    let request =
        Request { max_new_tokens: Some(200), ignore_eos: true, ..Request::text("Once upon a time") };
    let whole = engines.get(None, &options()).unwrap().generate(&request).unwrap().finish().unwrap();
    let mut running = engines.get(None, &options()).unwrap().generate(&request).unwrap();
    running.next().unwrap().unwrap();
    let other = copies::seedling();
    answers(&engines.get(Some(other.path()), &options()).unwrap());
    assert_eq!(engines.count(), 1);
    assert_eq!(running.finish().unwrap().token_ids, whole.token_ids);
}

#[test]
fn failures_are_not_kept_and_cost_nobody_a_place() {
    let engines = Engines::new(1);
    let good = engines.get(None, &options()).unwrap();
    let absent = engines.get(Some("/nowhere".as_ref()), &options()).err().unwrap();
    assert_eq!(absent.kind(), ErrorKind::CheckpointNotFound);
    assert!(engines.get(None, &options()).unwrap().shares_weights_with(&good));

    let folder = copies::seedling();
    let shard: PathBuf = folder.path().join("model-00002-of-00002.safetensors");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    for _ in 0..2 {
        let broken = engines.get(Some(folder.path()), &options()).err().unwrap();
        assert_eq!(broken.kind(), ErrorKind::InvalidCheckpoint);
    }
    fs::write(&shard, &bytes).unwrap();
    answers(&engines.get(Some(folder.path()), &options()).unwrap());
    assert_eq!(engines.count(), 1);
}

#[test]
fn a_checkpoint_that_has_changed_is_loaded_anew() {
    let folder = copies::seedling();
    let engines = Engines::new(3);
    let get = || engines.get(Some(folder.path()), &options()).unwrap();
    let old = get();
    assert!(get().shares_weights_with(&old));
    // By another way to the same folder, and however its weights are found.
    let detour = folder.path().join("..").join(folder.path().file_name().unwrap());
    let other = Options { cache: CacheMode::Auto, ..options() };
    assert!(engines.get(Some(&detour), &other).unwrap().shares_weights_with(&old));
    let config = folder.path().join("config.json");
    let text = fs::read_to_string(&config).unwrap().replace("4096", "2048");
    fs::write(&config, text).unwrap();
    let new = get();
    assert!(!new.shares_weights_with(&old));
    assert_eq!((old.window(), new.window()), (4096, 2048));
    assert!(get().shares_weights_with(&new));
    assert_eq!(engines.count(), 1);
    answers(&old);
}
