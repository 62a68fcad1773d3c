//! A model in a GGUF file is the same as in safetensors files, and its load cache is its own.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;
use whin::{CacheMode, Checkpoint, Engine, Options, Prompt, Weights, cache};

use super::build::{File, Tensor, float, text, texts, uint};

const IDS: [u32; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

/// Names of tensors, behind `model.layers.N.` in one and `blk.N.` in the other.
const NAMES: [(&str, &str); 11] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/base")
}

fn renamed(name: &str) -> String {
    let Some((layer, rest)) = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) else {
        let whole =
            [("model.embed_tokens.weight", "token_embd.weight"), ("model.norm.weight", "output_norm.weight")];
        return whole.iter().find(|(known, _)| *known == name).unwrap().1.to_owned();
    };
    let (_, own) = NAMES.iter().find(|(known, _)| *known == rest).unwrap();
    format!("blk.{layer}.{own}")
}

/// The tiny checkpoint as a GGUF file.
fn file() -> File {
    let config: Value = serde_json::from_slice(&fs::read(fixture().join("config.json")).unwrap()).unwrap();
    let number = |key: &str| uint(config[key].as_u64().unwrap() as u32);
    let tokens: Vec<String> = (0..96).map(|index| format!("t{index}")).collect();
    let tokens: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
    let keys = [
        ("general.architecture", text("qwen3")),
        ("qwen3.block_count", number("num_hidden_layers")),
        ("qwen3.context_length", number("max_position_embeddings")),
        ("qwen3.embedding_length", number("hidden_size")),
        ("qwen3.feed_forward_length", number("intermediate_size")),
        ("qwen3.attention.head_count", number("num_attention_heads")),
        ("qwen3.attention.head_count_kv", number("num_key_value_heads")),
        ("qwen3.attention.key_length", number("head_dim")),
        ("qwen3.attention.value_length", number("head_dim")),
        ("qwen3.attention.layer_norm_rms_epsilon", float(1e-6)),
        ("tokenizer.ggml.tokens", texts(&tokens)),
    ];
    let mut file = File::new(&keys, &[], &[]);
    let bytes = fs::read(fixture().join("model.safetensors")).unwrap();
    for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let kind = match view.dtype() {
            safetensors::Dtype::F32 => 0,
            safetensors::Dtype::BF16 => 30,
            other => panic!("{other:?}"),
        };
        let dims = view.shape().iter().rev().map(|dim| *dim as u64).collect();
        let offset = file.data.len() as u64;
        file.tensors.push(Tensor { name: renamed(&name).into(), dims, kind, offset });
        file.data.extend(view.data());
        file.data.resize(file.data.len().next_multiple_of(32), 0);
    }
    file
}

/// The file in two parts.
fn halves() -> [File; 2] {
    let whole = file();
    let middle = whole.tensors.len() / 2;
    let at = whole.tensors[middle].offset;
    let part = |no: u32| {
        let mut file = whole.clone();
        if no == 0 {
            file.tensors.truncate(middle);
            file.data.truncate(at as usize);
        } else {
            file.tensors.drain(..middle);
            file.tensors.iter_mut().for_each(|tensor| tensor.offset -= at);
            file.data.drain(..at as usize);
            file.keys.clear();
        }
        let all = whole.tensors.len() as u32;
        for (key, value) in [("split.no", no), ("split.count", 2), ("split.tensors.count", all)] {
            file.keys.push((key.into(), uint(value)));
        }
        file
    };
    [part(0), part(1)]
}

fn write(folder: &Path, name: &str, file: &File) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, file.bytes()).unwrap();
    path
}

/// The log-probabilities of a text, and whether the weights came from a cache.
fn run(path: &Path, options: &Options) -> (Vec<Option<f64>>, bool) {
    let engine = Engine::load(Some(path), options).unwrap();
    let score = engine.score(&Prompt::Ids(IDS.to_vec())).unwrap();
    engine.wait_for_cache();
    (score.logprobs, engine.is_from_cache())
}

fn options(weights: Weights) -> Options {
    Options { weights, cache: CacheMode::Off, threads: Some(1), ..Options::default() }
}

#[test]
fn the_same_weights_give_the_same_bits() {
    let folder = TempDir::new().unwrap();
    let whole = write(folder.path(), "whole.gguf", &file());
    let [first, second] = halves();
    let split = write(folder.path(), "m-00001-of-00002.gguf", &first);
    write(folder.path(), "m-00002-of-00002.gguf", &second);
    for weights in Weights::ALL {
        let (right, _) = run(&fixture(), &options(weights));
        assert!(right[1..].iter().all(|logprob| logprob.unwrap() < 0.0));
        assert_eq!(run(&whole, &options(weights)).0, right, "{weights:?}");
        assert_eq!(run(&split, &options(weights)).0, right, "{weights:?}");
    }
    let stored = Checkpoint::open(Some(&whole)).unwrap().check().unwrap();
    assert_eq!(stored.into_iter().collect::<Vec<_>>(), ["BF16"]);
}

#[test]
fn files_in_one_folder_have_caches_of_their_own() {
    let folder = TempDir::new().unwrap();
    let one = write(folder.path(), "one.gguf", &file());
    let mut changed = file();
    changed.data[..400].fill(0x3c);
    let two = write(folder.path(), "two.gguf", &changed);
    let cached = Options { cache: CacheMode::Auto, ..options(Weights::Int8) };
    let (cold_one, cold_two) = (run(&one, &cached), run(&two, &cached));
    assert!(!cold_one.1 && !cold_two.1);
    assert_ne!(cold_one.0, cold_two.0);
    for _ in 0..2 {
        assert_eq!(run(&one, &cached), (cold_one.0.clone(), true));
        assert_eq!(run(&two, &cached), (cold_two.0.clone(), true));
    }
    let places = |path: &Path| -> Vec<String> {
        let found = cache::list(None, &cache::folders_of(path).unwrap()).unwrap();
        let below = |path: &Path| path.strip_prefix(folder.path()).unwrap().display().to_string();
        found.iter().map(|cached| below(cached.folder.parent().unwrap())).collect()
    };
    let (of_one, of_two) = (".whin-cache/one.gguf", ".whin-cache/two.gguf");
    assert_eq!(places(&one), [of_one]);
    assert_eq!(places(folder.path()), [of_one, of_two]);

    // A file that changes makes its own cache worthless, and no other.
    fs::write(&one, changed.bytes()).unwrap();
    assert_eq!(run(&one, &cached), (cold_two.0.clone(), false));
    assert_eq!(run(&one, &cached), (cold_two.0.clone(), true));
    assert_eq!(run(&two, &cached), (cold_two.0.clone(), true));

    for cached in cache::list(None, &cache::folders_of(&two).unwrap()).unwrap() {
        assert_eq!(cached.checkpoint.as_deref(), Some(fs::canonicalize(&two).unwrap().as_path()));
        cache::remove(&cached).unwrap();
    }
    assert_eq!(places(folder.path()), [of_one]);
    cache::list(None, &[one]).unwrap().iter().for_each(|cached| cache::remove(cached).unwrap());
    assert!(!folder.path().join(".whin-cache").exists());
}

#[test]
fn caches_elsewhere_are_apart_too() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let one = write(folder.path(), "one.gguf", &file());
    let two = write(folder.path(), "two.gguf", &file());
    let mode = CacheMode::Folder(elsewhere.path().to_owned());
    let cached = Options { cache: mode, ..options(Weights::Int8) };
    for (path, is_cached) in [(&one, false), (&two, false), (&one, true), (&two, true)] {
        assert_eq!(run(path, &cached).1, is_cached, "{}", path.display());
    }
    let found = cache::list(Some(elsewhere.path()), &[one]).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].folder.display().to_string().contains("one.gguf"));
    assert!(!folder.path().join(".whin-cache").exists());
}

#[test]
fn a_part_that_changes_is_noticed() {
    let folder = TempDir::new().unwrap();
    let [first, mut second] = halves();
    let path = write(folder.path(), "m-00001-of-00002.gguf", &first);
    write(folder.path(), "m-00002-of-00002.gguf", &second);
    let cached = Options { cache: CacheMode::Auto, ..options(Weights::Int8) };
    let (cold, _) = run(&path, &cached);
    assert_eq!(run(&path, &cached), (cold.clone(), true));
    second.data[..200].fill(0x3c);
    write(folder.path(), "m-00002-of-00002.gguf", &second);
    let (changed, is_cached) = run(&path, &cached);
    assert!(!is_cached && changed != cold);
    // Another file beside them is none of theirs.
    fs::write(folder.path().join("config.json"), json!({ "model_type": "odd" }).to_string()).unwrap();
    assert_eq!(run(&path, &cached), (changed, true));
}

#[test]
fn tensors_that_are_missing_left_over_or_of_another_shape_are_named() {
    let refused = |change: &dyn Fn(&mut File), parts: &[&str]| {
        let folder = TempDir::new().unwrap();
        let mut file = file();
        change(&mut file);
        let path = write(folder.path(), "m.gguf", &file);
        let error = Checkpoint::open(Some(&path)).and_then(|checkpoint| checkpoint.check()).unwrap_err();
        let message = error.to_string();
        parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
    };
    let rename = |file: &mut File, from: &str, to: &str| {
        let tensor = file.tensors.iter_mut().find(|tensor| tensor.name == from.as_bytes()).unwrap();
        tensor.name = to.into();
    };
    refused(
        &|file| rename(file, "blk.1.ffn_up.weight", "blk.1.ffn_odd.weight"),
        &[
            "do not fit the metadata",
            "is missing from m.gguf",
            "\"blk.1.ffn_odd.weight\" in m.gguf is no part",
        ],
    );
    refused(
        &|file| rename(file, "blk.1.ffn_up.weight", "model.layers.1.mlp.down_proj.weight"),
        &[
            "\"model.layers.1.mlp.down_proj.weight\"",
            "is no part of the model",
            "\"blk.1.ffn_up.weight\" is missing",
        ],
    );
    // Of layers behind the others only those that guess further tokens are left alone.
    let layers = |file: &mut File| {
        let count = file.keys.iter_mut().find(|(key, _)| key == b"qwen3.block_count").unwrap();
        count.1 = uint(1);
    };
    refused(&layers, &["\"blk.1.ffn_up.weight\" in m.gguf is no part"]);
    refused(
        &|file| file.keys[4].1 = uint(32),
        &["expected [32, 24], found [40, 24]", "expected [24, 32], found [24, 40]"],
    );
}
