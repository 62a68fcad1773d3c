//! A model whose matrices are of all types of blocks, quantised by ggml: what transformers computes on the numbers that
//! the `gguf` package finds in them.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use whin::{CacheMode, Checkpoint, Device, Engine, KvKind, Options, Prompt, Weights};
use whin_kernels::WeightKind;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(name)
}

/// The prompt, and the log-probability of each of its tokens but the first, given those before.
fn golden() -> (Vec<u32>, Vec<f64>) {
    let bytes = std::fs::read(fixture("types.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let prompt = tensors.tensor("prompt").unwrap().data().to_vec();
    let prompt: Vec<u32> = prompt.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as u32).collect();
    let logits = tensors.tensor("logits").unwrap();
    let vocab = logits.shape()[1];
    let numbers: Vec<f64> =
        logits.data().as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect();
    let score = |(row, next): (&[f64], &u32)| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row[*next as usize] - sum.ln()
    };
    let scores = numbers.chunks_exact(vocab).zip(&prompt[1..]).map(score).collect();
    (prompt, scores)
}

fn scores(device: Device, weights: Weights, cache: CacheMode) -> Vec<f64> {
    let options = Options { device, weights, kv: KvKind::F32, cache, ..Options::default() };
    let engine = Engine::load(Some(&fixture("types.gguf")), &options).unwrap();
    let (prompt, _) = golden();
    engine.score(&Prompt::Ids(prompt)).unwrap().logprobs.into_iter().flatten().collect()
}

fn worst(found: &[f64], right: &[f64]) -> f64 {
    assert_eq!(found.len(), right.len());
    found.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn every_type_is_read_as_its_package_reads_it() {
    let checkpoint = Checkpoint::open(Some(&fixture("types.gguf"))).unwrap();
    let stored = checkpoint.check().unwrap();
    let all = [
        "BF16", "F16", "F32", "IQ4_NL", "MXFP4", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1",
        "Q5_K", "Q6_K", "Q8_0",
    ];
    assert_eq!(stored, all.map(str::to_owned).into_iter().collect::<BTreeSet<_>>());
    let (_, right) = golden();
    for device in [Device::Reference, Device::Auto] {
        let off = worst(&scores(device, Weights::F32, CacheMode::Off), &right);
        assert!(off < 1e-3, "{device:?}: {off}");
    }
}

/// By default blocks whose form there is are kept as they are, and everything else has a scale for each 32 inputs.
#[test]
fn blocks_are_kept_in_the_nearest_form() {
    let checkpoint = Checkpoint::open(Some(&fixture("types.gguf"))).unwrap();
    let kinds: BTreeSet<&str> = checkpoint.spec().native.values().map(|kind| kind.name()).collect();
    let forms = [WeightKind::Int4, WeightKind::Int4Affine, WeightKind::Int8Groups].map(WeightKind::name);
    assert_eq!(kinds, BTreeSet::from(forms));
    let (_, right) = golden();
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheMode::Folder(folder.path().to_owned());
    let cold = scores(Device::Auto, Weights::Auto, cache.clone());
    let off = worst(&cold, &right);
    // A row has one scale with int8, and 32 of its inputs with the nearest form.
    let coarse = worst(&scores(Device::Auto, Weights::Int8, CacheMode::Off), &right);
    assert!(off < 0.5 && off < coarse, "{off}, and {coarse} with int8");
    assert_eq!(scores(Device::Auto, Weights::Auto, cache), cold);
    let apart = worst(&scores(Device::Reference, Weights::Auto, CacheMode::Off), &cold);
    // An activation at the border between two integers may fall on either side.
    assert!(apart < 5e-3, "{apart}");
    println!("{off} in the nearest form, {coarse} with int8");
}
