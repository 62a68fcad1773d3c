//! `whin inspect`: what a checkpoint is, whether it runs, and what it will need.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use whin::Weights;
use whin::memory::size;

use crate::model::{KvArgs, ModelArgs, invalid, open};
use crate::out;

/// Says what a checkpoint is, whether it runs here, and how much memory it will need
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the checkpoint, or its name on the Hugging Face hub; without it, the built-in demo model
    #[arg(value_name = "FOLDER|NAME")]
    folder: Option<std::path::PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    kv: KvArgs,
    /// Count the memory of the key-value cache for a text of this many tokens [default: the model's window]
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command. A checkpoint that does not run is a failure with every reason.
pub fn run(args: &Args) -> Result<ExitCode> {
    let checkpoint = match (&args.folder, &args.model.model) {
        (Some(_), Some(_)) => return Err(invalid("the checkpoint is given twice: leave --model away").into()),
        (Some(folder), None) => open(Some(folder))?,
        (None, _) => args.model.open()?,
    };
    checkpoint.check()?;
    let spec = checkpoint.spec();
    let context = args.context.unwrap_or(spec.max_positions);
    if context == 0 || context > spec.max_positions {
        return Err(
            invalid(format!("context {context}: the model can do 1 to {}", spec.max_positions)).into()
        );
    }
    let per_position = spec.cache_shape(args.kv.kind()).bytes_per_position() as u64;
    let cache = per_position.saturating_mul(context as u64);
    if args.json {
        out::json(&json!({
            "runs": true,
            "family": spec.family,
            "parameters": spec.parameters(),
            "layers": spec.layers.len(),
            "width": spec.width,
            "vocab": spec.vocab,
            "tied_head": spec.tied,
            "max_positions": spec.max_positions,
            "end_tokens": *checkpoint.end_tokens(),
            "tokenizer": checkpoint.has_tokenizer(),
            "weight_bytes": Weights::ALL
                .map(|weights| (weights.name(), spec.weight_bytes(weights)))
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
            "context": context,
            "cache_bytes": cache,
            "kv": args.kv.kind().name(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = if spec.tied { "head tied to the embedding" } else { "separate head" };
    let tokenizer = if checkpoint.has_tokenizer() { "present" } else { "missing: only token ids can be run" };
    let mut weights = Weights::ALL.map(|form| format!("{} {}", form.name(), size(spec.weight_bytes(form))));
    weights.reverse();
    let weights = weights.join(", ");
    out::text(&format!(
        "family       {}\nparameters   {:.1} million\nshape        {} layers, width {}, vocabulary {}, {head}\nwindow       \
         {} tokens\nend tokens   {:?}\ntokenizer    {tokenizer}\nweights      {weights}\ncache        {} \
         {} for {context} tokens\nruns         yes\n",
        spec.family,
        spec.parameters() as f64 / 1e6,
        spec.layers.len(),
        spec.width,
        spec.vocab,
        spec.max_positions,
        checkpoint.end_tokens(),
        args.kv.kind().name(),
        size(cache),
    ))?;
    Ok(ExitCode::SUCCESS)
}
