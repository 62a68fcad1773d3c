//! Writes a checkpoint with random weights in the shape of a known model.
//!
//! Measuring speed, memory and load time needs a checkpoint of the right size, not one that makes sense. The weights
//! follow from the seed alone, so two machines can compare their answers without copying gigabytes.

mod shape;
mod values;
mod write;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::values::Dtype;

/// Writes a checkpoint with random weights in the shape of a known model.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Qwen3-0.6B, Qwen3-1.7B, Qwen3-4B, Qwen3-8B, Qwen3-14B or Qwen3-32B
    shape: String,
    /// Folder to write; created when missing, refused when it holds a checkpoint
    out_dir: PathBuf,
    /// All weights follow from this number
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of weight files
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Folder from which tokenizer and chat template files are copied
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
    /// How weights are stored
    #[arg(long, value_enum, default_value = "bf16")]
    dtype: Dtype,
    /// Number of layers, instead of the model's own
    #[arg(long)]
    layers: Option<usize>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut shape = shape::named(&arguments.shape)?;
    if let Some(layers) = arguments.layers {
        ensure!(layers > 0, "--layers must be at least 1");
        shape.layers = layers;
    }
    let start = Instant::now();
    let job = write::Job {
        shape: &shape,
        dtype: arguments.dtype,
        seed: arguments.seed,
        shards: arguments.shards,
        tokenizer: arguments.tokenizer.as_deref(),
    };
    let bytes = write::checkpoint(&job, &arguments.out_dir)?;
    println!(
        "{}: {:.2} GB of weights in {:.1} s",
        arguments.out_dir.display(),
        bytes as f64 / 1e9,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
