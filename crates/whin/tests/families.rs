//! Tiny checkpoints with the answers that transformers gives on the same weights: every option of a family, on every
//! backend.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::path::{Path, PathBuf};

use whin::checkpoint::{Source, Tensors};
use whin::model::forward::{Run, forward};
use whin::model::weights::Model;
use whin::model::{Plan, Spec, config};
use whin::{Device, Engine, FinishReason, Options, Request, WeightKind};
use whin_kernels::cpu::{Cpu, Isa, isa};
use whin_kernels::reference::Reference;
use whin_kernels::{BLOCK, Backend, Step};

/// What transformers computed for one checkpoint.
struct Golden {
    folder: PathBuf,
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    prefill: Vec<f32>, // (prompt, vocab)
    decode: Vec<f32>,  // (greedy, vocab); row i follows greedy[i]
}

impl Golden {
    fn read(folder: &Path) -> Self {
        let json = std::fs::read(folder.join("golden.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let ids = |key: &str| serde_json::from_value(json[key].clone()).unwrap();
        let bytes = std::fs::read(folder.join("golden.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let numbers = |name: &str| {
            let data = tensors.tensor(name).unwrap().data().to_vec();
            data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
        };
        Self {
            folder: folder.to_owned(),
            prompt: ids("prompt_ids"),
            greedy: ids("greedy_ids"),
            prefill: numbers("prefill_logits"),
            decode: numbers("decode_logits"),
        }
    }

    /// The form that holds the stored weights exactly.
    fn weights(&self) -> WeightKind {
        let name = self.name();
        if name.starts_with("stored-") { WeightKind::F32 } else { WeightKind::Bf16 }
    }

    fn name(&self) -> &str {
        self.folder.file_name().unwrap().to_str().unwrap()
    }
}

fn goldens() -> Vec<Golden> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(fixtures)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("golden.json").is_file())
        .collect();
    folders.sort();
    assert!(folders.len() >= 40, "only {} checkpoints found", folders.len());
    folders.iter().map(|folder| Golden::read(folder)).collect()
}

/// A model on a backend, with one sequence in a scattered block table.
struct Session<B: Backend> {
    backend: B,
    spec: Spec,
    model: Model<B>,
    run: Run<B>,
    table: Vec<u32>,
    n_prompt: usize,
    done: usize,
}

impl<B: Backend> Session<B> {
    fn new(mut backend: B, golden: &Golden) -> Self {
        let source = Source::open(Some(&golden.folder)).unwrap();
        let spec = config::read(&source.read("config.json").unwrap().unwrap()).unwrap();
        let loads = Plan::new(&spec).claim(Tensors::open(&source).unwrap()).unwrap();
        let model = Model::load(&mut backend, &spec, &loads, golden.weights(), &mut |_, _| ()).unwrap();
        let most = golden.prompt.len().max(1);
        let mut run = Run::new(&mut backend, &spec, most, most).unwrap();
        let blocks = (golden.prompt.len() + golden.greedy.len()).div_ceil(BLOCK);
        backend.grow(&mut run.state, 2 * blocks).unwrap();
        let table = (0..blocks as u32).rev().map(|block| 2 * block + 1).collect();
        Self { backend, spec, model, run, table, n_prompt: golden.prompt.len(), done: 0 }
    }

    /// Runs the next tokens in one step and returns the logits of each: (tokens, vocab).
    fn feed(&mut self, tokens: &[u32]) -> Vec<f32> {
        let positions: Vec<u32> = (self.done..self.done + tokens.len()).map(|p| p as u32).collect();
        let spans: Vec<u32> = positions.iter().map(|&p| (p + 1).max(self.n_prompt as u32)).collect();
        let step = Step {
            tokens: tokens.to_vec(),
            slots: vec![0; tokens.len()],
            tables: vec![self.table.clone()],
            rotations: self.spec.ropes.iter().map(|rope| rope.rotation(&positions, &spans)).collect(),
            wanted: (0..tokens.len() as u32).collect(),
            positions,
        };
        self.done += tokens.len();
        forward(&mut self.backend, &self.spec, &self.model, &step, &mut self.run);
        self.backend.read(&self.run.logits, tokens.len()).unwrap()
    }
}

/// The largest difference, in standard deviations of the right logits.
fn worst(found: &[f32], right: &[f32]) -> f64 {
    assert_eq!(found.len(), right.len());
    let mean = right.iter().map(|x| f64::from(*x)).sum::<f64>() / right.len() as f64;
    let variance = right.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / right.len() as f64;
    let differences = found.iter().zip(right).map(|(a, b)| f64::from(a - b).abs());
    // NaN must not get lost in a maximum.
    differences.fold(0.0, |worst, d| if d > worst || d.is_nan() { d } else { worst }) / variance.sqrt()
}

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (id, x)| if *x > logits[best] { id } else { best });
    best as u32
}

/// Logits of the whole prompt and of each generated token, against transformers; and the prompt in chunks.
fn check<B: Backend>(backend: impl Fn() -> B) {
    for golden in goldens() {
        let mut session = Session::new(backend(), &golden);
        let place = format!("{} on {}", golden.name(), session.backend.name());
        let vocab = session.spec.vocab;
        let whole = session.feed(&golden.prompt);
        let off = worst(&whole, &golden.prefill);
        assert!(off < 1e-3, "{place}: prompt logits are {off} standard deviations off");
        let mut last = whole[whole.len() - vocab..].to_vec();
        for (index, &token) in golden.greedy.iter().enumerate() {
            assert_eq!(argmax(&last), token, "{place}: greedy token {index}");
            last = session.feed(&[token]);
            let off = worst(&last, &golden.decode[index * vocab..(index + 1) * vocab]);
            assert!(off < 1e-3, "{place}: logits after token {index} are {off} standard deviations off");
        }
        for chunk in [1, 7] {
            let mut session = Session::new(backend(), &golden);
            let logits: Vec<f32> =
                golden.prompt.chunks(chunk).flat_map(|tokens| session.feed(tokens)).collect();
            assert!(logits == whole, "{place}: chunks of {chunk} give other bits than the whole prompt");
        }
    }
}

fn check_cpu<I: Isa>() {
    if I::detect().is_some() {
        check(|| Cpu::<I>::new(2).unwrap());
    } else {
        println!("not run: this processor lacks {}", I::NAME);
    }
}

#[test]
fn reference_equals_transformers() {
    check(|| Reference);
}

#[test]
fn scalar_equals_transformers() {
    check_cpu::<isa::scalar::Scalar>();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_equals_transformers() {
    check_cpu::<isa::avx2::Avx2>();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx512_equals_transformers() {
    check_cpu::<isa::avx512::Avx512>();
}

#[cfg(target_arch = "aarch64")]
#[test]
fn neon_equals_transformers() {
    check_cpu::<isa::neon::Neon>();
}

/// The comparison itself must be able to fail.
#[test]
fn a_planted_error_is_found() {
    let right = [0.0, 1.0, 2.0, 3.0];
    assert_eq!(worst(&right, &right), 0.0);
    assert!(worst(&[0.0, 1.0, 2.0, 3.01], &right) > 1e-3);
    assert!(worst(&[0.01, 1.0, 2.0, 3.0], &right) > 1e-3);
    assert!(worst(&[0.0, f32::NAN, 2.0, 3.0], &right).is_nan());
    assert!((worst(&[0.0, f32::NAN, 2.0, 3.0], &right) < 1e-3).eq(&false));
}

/// The same through the public door, with text, cache growth and sampling between.
#[test]
fn the_engine_gives_the_greedy_tokens() {
    for golden in goldens() {
        for device in [Device::Reference, Device::Auto] {
            let options =
                Options { device, weights: golden.weights(), threads: Some(2), ..Options::default() };
            let engine = Engine::load(Some(&golden.folder), &options).unwrap();
            let request = Request {
                max_new_tokens: Some(golden.greedy.len()),
                ignore_eos: true,
                ..Request::ids(golden.prompt.clone())
            };
            let completion = engine.generate(&request).unwrap().finish().unwrap();
            assert_eq!(
                completion.token_ids,
                [&*golden.prompt, &*golden.greedy].concat(),
                "{}",
                golden.name()
            );
            assert_eq!(completion.finish_reason, FinishReason::Length);
            assert_eq!(completion.generated_text, None);
        }
    }
}
