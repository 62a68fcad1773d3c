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
    let all = Weights::ALL.iter().filter(|weights| **weights == weights.settled(spec));
    let forms = all.map(|&weights| {
        let options = Options {
            weights,
            kv: args.kv.kind(),
            context: args.context,
            prefill_chunk: args.prefill_chunk,
            ..Options::default()
        };
        Form { weights, needs: Needs::new(spec, &options), window: checkpoint.window(&options).ok() }
    });
    let forms = forms.collect();
    let kv = args.kv.kind().name();
    // Not only whether there is one: what it holds may be of no use.
    let tokenizer = checkpoint.has_tokenizer().then(|| checkpoint.tokenizer().map(|_| ())).transpose();
    let report = Report { checkpoint, stored, tokenizer, context, kv, forms, available: available() };
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
    /// Whether there is one; else why it cannot be read.
    tokenizer: whin::Result<Option<()>>,
    /// The largest first.
    forms: Vec<Form>,
    /// Bytes of memory.
    available: Option<u64>,
}

/// A form of weights.
struct Form {
    weights: Weights,
    needs: Needs,
    /// The longest text that free memory has room for; none where it has none for weights and a text.
    window: Option<usize>,
}

impl Report {
    /// What is the same in all forms of weights.
    fn rest(&self) -> &Needs {
        &self.forms[0].needs
    }

    /// The form that is taken where none is asked for.
    fn usual(&self) -> &Form {
        let usual = Weights::Auto.settled(self.checkpoint.spec());
        self.forms.iter().find(|form| form.weights == usual).unwrap_or(&self.forms[0])
    }

    fn json(&self) -> Value {
        let spec = self.checkpoint.spec();
        let by_form = |value: &dyn Fn(&Form) -> Value| {
            let named = self.forms.iter().map(|form| (form.weights.name().to_owned(), value(form)));
            Value::Object(named.collect())
        };
        json!({
            "runs": self.usual().window.is_some(),
            "family": spec.family,
            "parameters": spec.parameters(),
            "layers": spec.layers.len(),
            "layer_groups": spec.describe().iter().map(|group| &group.json).collect::<Vec<_>>(),
            "width": spec.width,
            "vocab": spec.vocab,
            "tied_head": spec.tied,
            "max_positions": spec.max_positions,
            "end_tokens": *self.checkpoint.end_tokens(),
            "scales": { "embedding": spec.embedding_scale, "residual": spec.residual_scale, "logits": spec.logit_scale },
            "logit_softcap": spec.logit_softcap,
            "tokenizer": matches!(self.tokenizer, Ok(Some(()))),
            "tokenizer_error": self.tokenizer.as_ref().err().map(ToString::to_string),
            "stored": self.stored,
            "weight_bytes": by_form(&|form| form.needs.weights.into()),
            "context": self.context,
            "cache_bytes": self.rest().cache(self.context),
            "state_bytes": self.rest().state,
            "kv": self.kv,
            "scratch_bytes": self.rest().scratch,
            "total_bytes": by_form(&|form| form.needs.total(self.context).into()),
            "available_bytes": self.available,
            "fits": by_form(&|form| (form.window.is_some_and(|window| window >= self.context)).into()),
            "longest_context": by_form(&|form| form.window.into()),
        })
    }

    fn text(&self) -> String {
        let (checkpoint, spec) = (&self.checkpoint, self.checkpoint.spec());
        let head = if spec.tied { "head tied to the embedding" } else { "separate head" };
        let tokenizer = match &self.tokenizer {
            Ok(Some(())) => "present".to_owned(),
            Ok(None) => "missing: only token ids can be run".to_owned(),
            Err(error) => format!("unusable, only token ids can be run: {error}"),
        };
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
            ("tokenizer", tokenizer),
        ]);
        if let Some(scales) = self.scales() {
            lines.push(("scales", scales));
        }
        // Plain floats go without saying.
        if self.stored.iter().any(|way| way.contains("scale")) {
            let stored: Vec<&str> = self.stored.iter().map(String::as_str).collect();
            lines.push(("stored", stored.join(", ")));
        }
        lines.push(("weights", self.sizes(|needs| needs.weights)));
        lines.extend(self.memory());
        lines.iter().map(|(name, value)| format!("{name:<13}{value}\n")).collect()
    }

    /// What it takes of memory, and whether there is as much.
    fn memory(&self) -> Vec<(&'static str, String)> {
        let context = self.context;
        let of_states = match self.rest().state {
            0 => String::new(),
            state => format!(", {} of it for any number", size(state)),
        };
        let usual = self.usual();
        let runs = match usual.window {
            Some(window) if window >= context => "yes".to_owned(),
            Some(window) => format!("yes, texts of up to {window} tokens, for which memory is free"),
            None => format!("no, since too little memory is free for {}", usual.weights.name()),
        };
        let cache =
            format!("{} {} for {context} tokens{of_states}", self.kv, size(self.rest().cache(context)));
        let all = self.sizes(|needs| needs.total(context)) + &self.free();
        vec![("cache", cache), ("rows", size(self.rest().scratch)), ("in all", all), ("runs", runs)]
    }

    /// What embedding, residuals and logits are multiplied with, and the cap of logits, where there is such.
    fn scales(&self) -> Option<String> {
        let spec = self.checkpoint.spec();
        let scales = [
            ("embedding", spec.embedding_scale),
            ("residuals", spec.residual_scale),
            ("logits", spec.logit_scale),
        ];
        let scale = |(what, scale): (&str, f32)| (scale != 1.0).then(|| format!("{what} times {scale}"));
        let mut all: Vec<String> = scales.into_iter().filter_map(scale).collect();
        all.extend(spec.logit_softcap.map(|cap| format!("logits capped at {cap}")));
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Bytes in each form, the smallest first.
    fn sizes(&self, bytes: impl Fn(&Needs) -> u64) -> String {
        let one = |form: &Form| format!("{} {}", form.weights.name(), size(bytes(&form.needs)));
        self.forms.iter().rev().map(one).collect::<Vec<_>>().join(", ")
    }

    /// How much memory is free, for what it is too little, and for what it has less room than is counted.
    fn free(&self) -> String {
        let Some(available) = self.available else { return String::new() };
        let mut free = format!("; {} are free", size(available));
        let less = self.forms.iter().rev().filter_map(|form| {
            let window = form.window.filter(|window| *window < self.context)?;
            Some(format!("{window} tokens with {}", form.weights.name()))
        });
        let none = self.forms.iter().rev().filter(|form| form.window.is_none());
        let none = none.map(|form| form.weights.name().to_owned());
        for (what, which) in [("room for", less.collect::<Vec<_>>()), ("too little for", none.collect())] {
            if !which.is_empty() {
                free.push_str(&format!(", {what} {}", which.join(", ")));
            }
        }
        free
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
