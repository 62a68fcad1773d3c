//! `whin inspect`: what a checkpoint is, whether it runs, and what it will need.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use whin::memory::{available, size};
use whin::{Needs, Options, Weights};

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
    /// Count the rows of steps with this many prompt tokens
    #[arg(long, default_value_t = Options::default().prefill_chunk, value_name = "N", hide_short_help = true)]
    prefill_chunk: usize,
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
    let stored = checkpoint.check()?;
    let spec = checkpoint.spec();
    let context = args.context.unwrap_or(spec.max_positions);
    if context == 0 || context > spec.max_positions {
        return Err(
            invalid(format!("context {context}: the model can do 1 to {}", spec.max_positions)).into()
        );
    }
    let options = |weights| Options {
        weights,
        kv: args.kv.kind(),
        context: Some(context),
        prefill_chunk: args.prefill_chunk,
        ..Options::default()
    };
    let needs = |weights| Needs::new(spec, &options(weights));
    let rest = needs(Weights::Int8); // all but the weights is the same for all
    let available = available();
    if args.json {
        let by_form = |bytes: &dyn Fn(Weights) -> u64| {
            let named = Weights::ALL.map(|weights| (weights.name().to_owned(), bytes(weights).into()));
            Value::Object(named.into_iter().collect())
        };
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
            "stored": stored,
            "weight_bytes": by_form(&|weights| needs(weights).weights),
            "context": context,
            "cache_bytes": rest.cache(context),
            "kv": args.kv.kind().name(),
            "scratch_bytes": rest.scratch,
            "total_bytes": by_form(&|weights| needs(weights).total(context)),
            "available_bytes": available,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = if spec.tied { "head tied to the embedding" } else { "separate head" };
    let tokenizer = if checkpoint.has_tokenizer() { "present" } else { "missing: only token ids can be run" };
    // Plain floats go without saying.
    let stored: Vec<String> = stored.into_iter().collect();
    let is_quantised = stored.iter().any(|way| way.contains("scale"));
    let stored = if is_quantised { format!("stored       {}\n", stored.join(", ")) } else { String::new() };
    let sizes = |bytes: &dyn Fn(Weights) -> u64| {
        let mut sizes = Weights::ALL.map(|form| format!("{} {}", form.name(), size(bytes(form))));
        sizes.reverse();
        sizes.join(", ")
    };
    let free = available.map_or(String::new(), |free| format!("; {} are free", size(free)));
    out::text(&format!(
        "family       {}\nparameters   {:.1} million\nshape        {} layers, width {}, vocabulary {}, {head}\nwindow       \
         {} tokens\nend tokens   {:?}\ntokenizer    {tokenizer}\n{stored}weights      {}\ncache        {} \
         {} for {context} tokens\nrows         {}\nin all       {}{free}\nruns         yes\n",
        spec.family,
        spec.parameters() as f64 / 1e6,
        spec.layers.len(),
        spec.width,
        spec.vocab,
        spec.max_positions,
        checkpoint.end_tokens(),
        sizes(&|weights| needs(weights).weights),
        args.kv.kind().name(),
        size(rest.cache(context)),
        size(rest.scratch),
        sizes(&|weights| needs(weights).total(context)),
    ))?;
    Ok(ExitCode::SUCCESS)
}
