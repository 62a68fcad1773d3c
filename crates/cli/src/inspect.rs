//! `whin inspect`: what a checkpoint is, whether it runs, and what it will need.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use whin::memory::{available, size};
use whin::model::Layers;
use whin::{Checkpoint, Needs, Options, Weights};

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
    let most = checkpoint.spec().max_positions;
    let context = args.context.unwrap_or(most);
    if context > most || context < most.min(2) {
        return Err(invalid(format!("context {context}: the model can do {} to {most}", most.min(2))).into());
    }
    let spec = checkpoint.spec();
    // Where no matrix is stored in blocks, auto is one of the others.
    let forms = Weights::ALL.iter().filter(|weights| **weights == weights.settled(spec));
    let needs = forms.map(|&weights| {
        let options = Options {
            weights,
            kv: args.kv.kind(),
            context: Some(context),
            prefill_chunk: args.prefill_chunk,
            ..Options::default()
        };
        (weights, Needs::new(spec, &options))
    });
    let needs = needs.collect();
    let kv = args.kv.kind().name();
    let report = Report { checkpoint, stored, context, kv, needs, available: available() };
    if args.json {
        out::json(&report.json())?
    } else {
        out::text(&report.text())?
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of a checkpoint that runs.
struct Report {
    checkpoint: Checkpoint,
    /// How its matrices are stored.
    stored: BTreeSet<String>,
    /// The tokens for which keys and values are counted, and their form.
    context: usize,
    kv: &'static str,
    /// In each form of weights, the largest first.
    needs: Vec<(Weights, Needs)>,
    /// Bytes of memory.
    available: Option<u64>,
}

impl Report {
    /// What is the same in all forms of weights.
    fn rest(&self) -> &Needs {
        &self.needs[0].1
    }

    fn fits(&self, needs: &Needs) -> bool {
        self.available.is_none_or(|available| needs.total(self.context) <= available)
    }

    fn json(&self) -> Value {
        let spec = self.checkpoint.spec();
        let by_form = |value: &dyn Fn(&Needs) -> Value| {
            let named = self.needs.iter().map(|(weights, needs)| (weights.name().to_owned(), value(needs)));
            Value::Object(named.collect())
        };
        json!({
            "runs": true,
            "family": spec.family,
            "parameters": spec.parameters(),
            "layers": spec.layers.len(),
            "layer_groups": spec.describe().iter().map(|group| &group.json).collect::<Vec<_>>(),
            "width": spec.width,
            "vocab": spec.vocab,
            "tied_head": spec.tied,
            "max_positions": spec.max_positions,
            "end_tokens": *self.checkpoint.end_tokens(),
            "tokenizer": self.checkpoint.has_tokenizer(),
            "stored": self.stored,
            "weight_bytes": by_form(&|needs| needs.weights.into()),
            "context": self.context,
            "cache_bytes": self.rest().cache(self.context),
            "state_bytes": self.rest().state,
            "kv": self.kv,
            "scratch_bytes": self.rest().scratch,
            "total_bytes": by_form(&|needs| needs.total(self.context).into()),
            "available_bytes": self.available,
            "fits": by_form(&|needs| self.fits(needs).into()),
        })
    }

    fn text(&self) -> String {
        let (checkpoint, spec, context) = (&self.checkpoint, self.checkpoint.spec(), self.context);
        let head = if spec.tied { "head tied to the embedding" } else { "separate head" };
        let tokenizer =
            if checkpoint.has_tokenizer() { "present" } else { "missing: only token ids can be run" };
        let mut lines = vec![
            ("family", spec.family.to_owned()),
            ("parameters", format!("{:.1} million", spec.parameters() as f64 / 1e6)),
            (
                "shape",
                format!(
                    "{} layers, width {}, vocabulary {}, {head}",
                    spec.layers.len(),
                    spec.width,
                    spec.vocab
                ),
            ),
        ];
        lines.extend(
            spec.describe()
                .iter()
                .map(layers)
                .enumerate()
                .map(|(i, text)| (if i == 0 { "layers" } else { "" }, text)),
        );
        lines.extend([
            ("window", format!("{} tokens", spec.max_positions)),
            ("end tokens", format!("{:?}", checkpoint.end_tokens())),
            ("tokenizer", tokenizer.to_owned()),
        ]);
        // Plain floats go without saying.
        if self.stored.iter().any(|way| way.contains("scale")) {
            let stored: Vec<&str> = self.stored.iter().map(String::as_str).collect();
            lines.push(("stored", stored.join(", ")));
        }
        lines.push(("weights", self.sizes(|needs| needs.weights)));
        let of_states = match self.rest().state {
            0 => String::new(),
            state => format!(", {} of it for any number", size(state)),
        };
        lines.push((
            "cache",
            format!("{} {} for {context} tokens{of_states}", self.kv, size(self.rest().cache(context))),
        ));
        lines.push(("rows", size(self.rest().scratch)));
        lines.push(("in all", self.sizes(|needs| needs.total(context)) + &self.free()));
        lines.push(("runs", "yes".to_owned()));
        lines.iter().map(|(name, value)| format!("{name:<13}{value}\n")).collect()
    }

    /// Bytes in each form, the smallest first.
    fn sizes(&self, bytes: impl Fn(&Needs) -> u64) -> String {
        let one = |(weights, needs): &(Weights, Needs)| format!("{} {}", weights.name(), size(bytes(needs)));
        self.needs.iter().rev().map(one).collect::<Vec<_>>().join(", ")
    }

    /// How much memory is free, and for what that is too little.
    fn free(&self) -> String {
        let Some(available) = self.available else { return String::new() };
        let beyond = self.needs.iter().rev().filter(|(_, needs)| !self.fits(needs));
        let beyond: Vec<&str> = beyond.map(|(weights, _)| weights.name()).collect();
        let too_little = if beyond.is_empty() { "" } else { ", too little for " };
        format!("; {} are free{too_little}{}", size(available), beyond.join(", "))
    }
}

/// Layers that are the same, on one line.
fn layers(group: &Layers) -> String {
    let run = |run: &std::ops::Range<usize>| match run.len() {
        1 => run.start.to_string(),
        _ => format!("{}-{}", run.start, run.end - 1),
    };
    let numbers = group.numbers.iter().map(run).collect::<Vec<_>>().join(",");
    let arrangement = if group.arrangement.is_empty() { "" } else { "; " };
    format!("{numbers}: {}; {}{arrangement}{}", group.mixer, group.feed_forward, group.arrangement)
}
