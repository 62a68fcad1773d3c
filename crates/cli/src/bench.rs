//! `whin bench`: tokens a second, and how near that is to what this machine can do.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use whin::memory::{self, size};
use whin::{Engine, Request};

use crate::model::{EngineArgs, invalid};
use crate::out;

/// Measures prefill and decode, and the share of the memory bandwidth that they reach
///
/// Each figure is the median of several runs after one that does not count. Prompts are arbitrary tokens.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    engine: EngineArgs,
    /// Lengths of the prompts whose prefill is measured
    #[arg(long, value_delimiter = ',', default_value = "512", value_name = "N,…")]
    prompt: Vec<usize>,
    /// Tokens that stand before those whose decoding is measured
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "N,…")]
    depth: Vec<usize>,
    /// Texts that are decoded together
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    batch: Vec<usize>,
    /// Tokens of each text that are decoded
    #[arg(short = 'n', long, default_value_t = 64, value_name = "N")]
    tokens: usize,
    /// Runs that count
    #[arg(long, default_value_t = 3, value_name = "N")]
    runs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One measured figure.
struct Measured {
    kind: &'static str,
    tokens: usize,
    depth: usize,
    batch: usize,
    tokens_per_sec: f64,
    bytes_per_token: f64,
    flops_per_token: f64,
}

/// What this machine can do at most.
struct Limits {
    bytes_per_sec: Option<f64>,
    /// None for the reference, which nobody measures.
    flops_per_sec: Option<f64>,
}

impl Limits {
    /// What was measured before is not lost where these cannot be.
    fn measure(engine: &Engine, args: &Args) -> Self {
        let threads = args.engine.threads.unwrap_or_else(whin::available_threads);
        let unknown = |what: &str, error: whin::Error| {
            tracing::warn!("{what} could not be measured: {error}");
        };
        let kind = engine.weights().of_layers(engine.checkpoint().spec());
        let flops = args.engine.device.parse().and_then(|device| whin::peak_flops(device, kind, threads));
        Self {
            bytes_per_sec: memory::bandwidth(threads).map_err(|error| unknown("the bandwidth", error)).ok(),
            flops_per_sec: flops.map_err(|error| unknown("the speed of products", error)).ok().flatten(),
        }
    }
}

impl Measured {
    fn bytes_per_sec(&self) -> f64 {
        self.tokens_per_sec * self.bytes_per_token
    }

    fn flops_per_sec(&self) -> f64 {
        self.tokens_per_sec * self.flops_per_token
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.check()?;
    let checkpoint = args.engine.model.open()?;
    let engine = args.engine.load(&checkpoint, false)?;
    args.check_window(engine.window())?;
    // Its writing would take from what is measured.
    engine.wait_for_cache();
    let mut results = Vec::new();
    for &tokens in &args.prompt {
        results.push(prefill(&engine, args, tokens)?);
    }
    for &depth in &args.depth {
        for &batch in &args.batch {
            results.push(decode(&engine, args, depth, batch)?);
        }
    }
    // Before the measuring of the bandwidth takes memory of its own.
    let peak = memory::peak();
    let limits = Limits::measure(&engine, args);
    if args.json {
        print_json(&engine, &limits, peak, &results)?;
    } else {
        print_table(&engine, &limits, peak, &results)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn check(&self) -> Result<()> {
        let too_small =
            [(&self.prompt, "prompt"), (&self.batch, "batch")].into_iter().find(|(n, _)| n.contains(&0));
        if let Some((_, name)) = too_small {
            return Err(invalid(format!("--{name} holds 0: there would be nothing to measure")).into());
        }
        if self.tokens < 2 || self.runs == 0 {
            return Err(invalid("--tokens must be at least 2 and --runs at least 1").into());
        }
        if self.batch.iter().any(|&batch| batch > 64) {
            return Err(invalid("--batch can be at most 64: more texts are never decoded together").into());
        }
        if let Some(batch) = self.batch.iter().find(|batch| **batch > self.engine.prefill_chunk) {
            return Err(invalid(format!(
                "--batch {batch} is more than --prefill-chunk: a step has no room for so many texts"
            ))
            .into());
        }
        Ok(())
    }

    fn check_window(&self, window: usize) -> Result<()> {
        let batch = self.batch.iter().copied().max().unwrap_or(1);
        let deepest =
            self.depth.iter().map(|&depth| depth.max(1).saturating_add(self.new_tokens(depth, batch)));
        let longest =
            self.prompt.iter().map(|prompt| prompt.saturating_add(1)).chain(deepest).max().unwrap_or(0);
        if longest > window {
            return Err(
                invalid(format!("{longest} tokens are needed, and the model's window has {window}")).into()
            );
        }
        Ok(())
    }

    /// While the last of a batch reads its prompt, the first already decodes; all go on until the last has enough.
    fn new_tokens(&self, depth: usize, batch: usize) -> usize {
        let meanwhile = (batch - 1).saturating_mul(depth / self.engine.prefill_chunk.max(1) + 2);
        self.tokens.saturating_add(1 + meanwhile)
    }
}

/// Arbitrary tokens, others for each `text`.
fn prompt(engine: &Engine, len: usize, text: usize) -> Vec<u32> {
    let vocab = engine.checkpoint().spec().vocab;
    (0..len).map(|i| ((i * 7919 + text * 104_729 + 17) % vocab) as u32).collect()
}

fn request(engine: &Engine, len: usize, text: usize, new: usize) -> Request {
    Request { max_new_tokens: Some(new), ignore_eos: true, ..Request::ids(prompt(engine, len, text)) }
}

fn median(args: &Args, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    measure()?;
    let mut values = (0..args.runs).map(|_| measure()).collect::<Result<Vec<f64>>>()?;
    values.sort_by(f64::total_cmp);
    Ok(values[values.len() / 2])
}

fn prefill(engine: &Engine, args: &Args, tokens: usize) -> Result<Measured> {
    let request = request(engine, tokens, 0, 1);
    let seconds = median(args, || Ok(engine.generate(&request)?.finish()?.prefill_seconds))?;
    let chunk = args.engine.prefill_chunk.max(1);
    let spec = engine.checkpoint().spec();
    let head = spec.head_bytes(engine.weights());
    // Each step reads the layers, and the keys and values so far; the last one the head too.
    let ends = (chunk..tokens).step_by(chunk).chain([tokens]);
    let step =
        |end: usize| spec.step_bytes(engine.weights()) - head + spec.attention_bytes(end - 1, engine.kv());
    let bytes = (ends.map(step).sum::<u64>() + head) as f64;
    let flops = (0..tokens).map(|position| spec.token_flops(position)).sum::<u64>() + spec.head_flops();
    Ok(Measured {
        kind: "prefill",
        tokens,
        depth: 0,
        batch: 1,
        tokens_per_sec: tokens as f64 / seconds,
        bytes_per_token: bytes / tokens as f64,
        flops_per_token: flops as f64 / tokens as f64,
    })
}

fn decode(engine: &Engine, args: &Args, depth: usize, batch: usize) -> Result<Measured> {
    let mut new = args.new_tokens(depth, batch);
    let tokens_per_sec = median(args, || {
        // A small model may answer the first text before the last is even asked for: then all get longer.
        loop {
            if let Some(rate) = decode_rate(engine, args.tokens, (depth.max(1), batch, new))? {
                return Ok(rate);
            }
            new *= 2;
            if depth.max(1) + new > engine.window() {
                return Err(invalid(format!(
                    "{batch} texts never decoded {} tokens at the same time within the model's window: choose a smaller \
                     --batch or --tokens",
                    args.tokens
                ))
                .into());
            }
        }
    })?;
    let spec = engine.checkpoint().spec();
    let position = depth.max(1) + args.tokens / 2;
    let keys_and_values = spec.attention_bytes(position, engine.kv()) as f64;
    Ok(Measured {
        kind: "decode",
        tokens: args.tokens,
        depth,
        batch,
        tokens_per_sec,
        bytes_per_token: spec.step_bytes(engine.weights()) as f64 / batch as f64 + keys_and_values,
        flops_per_token: (spec.token_flops(position) + spec.head_flops()) as f64,
    })
}

/// Tokens a second of `batch` texts of `len` tokens together, over `tokens` tokens of each, from the moment when all
/// of them decode. None where they did not decode together for so long; an error where the window forbids longer ones.
fn decode_rate(
    engine: &Engine,
    tokens: usize,
    (len, batch, new): (usize, usize, usize),
) -> Result<Option<f64>> {
    let requests = (0..batch).map(|text| engine.generate(&request(engine, len, text, new)));
    let generations = requests.collect::<Result<Vec<_>, _>>()?;
    // Tokens wait for their reader, and know when they were made.
    let read = |generation: whin::Generation| generation.map(|token| Ok(token?.at)).collect();
    let times = generations.into_iter().map(read).collect::<Result<Vec<Vec<Instant>>, whin::Error>>()?;
    let Some(start) = times.iter().filter_map(|times| times.first()).max() else { return Ok(None) };
    // The end: when the slowest has its last token that counts, and none has yet run out of tokens.
    let after = |times: &Vec<Instant>| times.iter().filter(|time| *time > start).nth(tokens - 1).copied();
    let Some(ends) = times.iter().map(after).collect::<Option<Vec<Instant>>>() else { return Ok(None) };
    let last = times.iter().filter_map(|times| times.last()).min();
    let Some(end) = ends.iter().max().filter(|end| Some(*end) <= last) else { return Ok(None) };
    let count = times.iter().flatten().filter(|time| *time > start && *time <= end).count();
    Ok(Some(count as f64 / end.duration_since(*start).as_secs_f64()))
}

fn print_json(engine: &Engine, limits: &Limits, peak: Option<u64>, results: &[Measured]) -> Result<()> {
    let entry = |measured: &Measured| {
        json!({
            "kind": measured.kind,
            "tokens": measured.tokens,
            "depth": measured.depth,
            "batch": measured.batch,
            "tokens_per_sec": measured.tokens_per_sec,
            "bytes_per_token": measured.bytes_per_token,
            "gb_per_sec": measured.bytes_per_sec() / 1e9,
            "share_of_bandwidth": limits.bytes_per_sec.map(|most| measured.bytes_per_sec() / most),
            "gflop_per_sec": measured.flops_per_sec() / 1e9,
            "share_of_peak": limits.flops_per_sec.map(|peak| measured.flops_per_sec() / peak),
        })
    };
    out::json(&json!({
        "weights": engine.weights().name(),
        "kv": engine.kv().name(),
        "bandwidth_gb_per_sec": limits.bytes_per_sec.map(|most| most / 1e9),
        "peak_gflop_per_sec": limits.flops_per_sec.map(|peak| peak / 1e9),
        "peak_rss_bytes": peak,
        "results": results.iter().map(entry).collect::<Vec<_>>(),
    }))?;
    Ok(())
}

fn print_table(engine: &Engine, limits: &Limits, peak: Option<u64>, results: &[Measured]) -> Result<()> {
    let mut table = format!(
        "{}, {}, keys and values {} · peak memory {}\n",
        engine.device(),
        engine.weights().name(),
        engine.kv().name(),
        peak.map_or("?".to_owned(), size),
    );
    let bandwidth = limits.bytes_per_sec.map(|most| format!("memory is read at {:.1} GB/s", most / 1e9));
    let peak =
        limits.flops_per_sec.map(|most| format!("products in the cache run at {:.0} GFLOP/s", most / 1e9));
    let limits_in_words: Vec<String> = bandwidth.into_iter().chain(peak).collect();
    table += &format!("this machine: {}", limits_in_words.join(" · "));
    let share = |rate: f64, most: Option<f64>| {
        most.map_or(String::new(), |most| format!("{:.0}%", 100.0 * rate / most))
    };
    table += &format!(
        "\n{:<8} {:>6} {:>6} {:>6} {:>10} {:>9} {:>8} {:>6} {:>8} {:>6}\n",
        "", "tokens", "depth", "batch", "tokens/s", "MB/token", "GB/s", "share", "GFLOP/s", "share",
    );
    for measured in results {
        table += &format!(
            "{:<8} {:>6} {:>6} {:>6} {:>10.1} {:>9.1} {:>8.1} {:>6} {:>8.0} {:>6}\n",
            measured.kind,
            measured.tokens,
            measured.depth,
            measured.batch,
            measured.tokens_per_sec,
            measured.bytes_per_token / 1e6,
            measured.bytes_per_sec() / 1e9,
            share(measured.bytes_per_sec(), limits.bytes_per_sec),
            measured.flops_per_sec() / 1e9,
            share(measured.flops_per_sec(), limits.flops_per_sec),
        );
    }
    out::text(&table)?;
    Ok(())
}
