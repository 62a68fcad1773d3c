//! Loading takes little more memory than the weights it leaves behind. A process of its own, so that nothing else
//! moves the peak.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, json};
use whin::{CacheMode, Checkpoint, Engine, Options, Weights};

const MIB: u64 = 1 << 20;
const VOCAB: usize = 4096;
const WIDTH: usize = 1024;
const INNER: usize = 2048;
const HEAD_DIM: usize = 64;
const LAYERS: usize = 6;
/// Beside weights and the tensor in hand, loading touches the stacks of threads, the header, one row of f32 a thread
/// and code that was not yet paged in: little more than a MiB in all. Rows and cache of the steps stay untouched. The
/// rest is for the kernel, which counts pages on each processor and adds them up only now and then.
const SCRATCH: u64 = 4 * MIB;

/// What the writer of the load cache gathers before it writes, and what is hashed meanwhile.
const BUFFERS: u64 = 2 * MIB + 8 * MIB;

/// Names and shapes of all tensors.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, WIDTH]),
        ("model.norm.weight".to_owned(), vec![WIDTH]),
    ];
    for layer in 0..LAYERS {
        let parts: [(&str, &[usize]); 11] = [
            ("input_layernorm", &[WIDTH]),
            ("self_attn.q_proj", &[WIDTH, WIDTH]),
            ("self_attn.k_proj", &[WIDTH / 2, WIDTH]),
            ("self_attn.v_proj", &[WIDTH / 2, WIDTH]),
            ("self_attn.o_proj", &[WIDTH, WIDTH]),
            ("self_attn.q_norm", &[HEAD_DIM]),
            ("self_attn.k_norm", &[HEAD_DIM]),
            ("post_attention_layernorm", &[WIDTH]),
            ("mlp.gate_proj", &[INNER, WIDTH]),
            ("mlp.up_proj", &[INNER, WIDTH]),
            ("mlp.down_proj", &[WIDTH, INNER]),
        ];
        let name =
            |(part, shape): (&str, &[usize])| (format!("model.layers.{layer}.{part}.weight"), shape.to_vec());
        tensors.extend(parts.map(name));
    }
    tensors
}

fn bytes_of(shape: &[usize]) -> usize {
    shape.iter().product::<usize>() * size_of::<f32>()
}

/// Writes config and F32 weights, never holding more than a row of them.
fn write_checkpoint(folder: &Path, tensors: &[(String, Vec<usize>)]) {
    let config = json!({
        "model_type": "qwen3", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": WIDTH / HEAD_DIM,
        "num_key_value_heads": WIDTH / HEAD_DIM / 2, "head_dim": HEAD_DIM, "tie_word_embeddings": true,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += bytes_of(shape);
        header.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] }));
    }
    let mut header = serde_json::to_string(&header).unwrap();
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors")).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    // Marsaglia, "Xorshift RNGs": numbers within ±1.
    let mut bits = 0x9e37_79b9_u32;
    let mut row = Vec::new();
    for _ in 0..end / (16 * size_of::<f32>()) {
        row.clear();
        for _ in 0..16 {
            bits ^= bits << 13;
            bits ^= bits >> 17;
            bits ^= bits << 5;
            row.extend((bits as i32 as f32 / i32::MAX as f32).to_le_bytes());
        }
        file.write_all(&row).unwrap();
    }
    file.flush().unwrap();
}

/// A line of /proc/self/status, in bytes.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let kib: u64 = line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

#[test]
fn loading_holds_the_weights_and_one_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = tensors();
    write_checkpoint(folder.path(), &tensors);
    let stored: usize = tensors.iter().map(|tensor| bytes_of(&tensor.1)).sum();
    let largest = tensors.iter().map(|tensor| bytes_of(&tensor.1)).max().unwrap() as u64;

    let weights = Checkpoint::open(Some(folder.path())).unwrap().spec().weight_bytes(Weights::Int8);
    let before = status("VmRSS");
    let options = Options { threads: Some(2), prefill_chunk: 64, ..Options::default() };
    // First what takes least: packing ahead of time has no more than one weight in hand, stored and packed.
    let out = tempfile::tempdir().unwrap();
    let elsewhere = Options { cache: CacheMode::Folder(out.path().to_owned()), ..options.clone() };
    let checkpoint = Checkpoint::open(Some(folder.path())).unwrap();
    Engine::prepare(&checkpoint, &elsewhere, &mut |_, _| ()).unwrap();
    let packing = status("VmHWM") - before;
    assert!(packing <= 2 * largest + BUFFERS + SCRATCH, "{} KiB while packing", packing >> 10);
    assert!(packing + 8 * MIB < weights, "the test could not tell: {} of {weights}", packing);

    let engine = Engine::load(Some(folder.path()), &options).unwrap();
    engine.wait_for_cache(); // whose writer and hasher, until they are done, hold their buffers beside the weights
    let [peak, left] = ["VmHWM", "VmRSS"].map(|key| status(key) - before);

    let with_slack = weights + weights / 10 + SCRATCH;
    let at_most = with_slack + largest + BUFFERS;
    let figures = format!(
        "in KiB: {} stored, {} as int8, {} the largest tensor, {} at the peak, {} left",
        stored >> 10,
        weights >> 10,
        largest >> 10,
        peak >> 10,
        left >> 10
    );
    println!("{figures}");
    assert!(stored as u64 > 2 * at_most, "the test could not tell: {figures}");
    assert!(left + SCRATCH >= weights, "weights are not in memory: {figures}");
    assert!(peak <= at_most, "the peak is too high: {figures}");
    assert!(left <= with_slack, "more than the weights is left in memory: {figures}");
}
