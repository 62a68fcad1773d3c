//! `whin run`: one completion.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use whin::{Canceller, Checkpoint, Completion, Engine, FinishReason, Logprobs, Prompt, Request, Sampling};

use crate::model::{EngineArgs, PromptArgs};
use crate::out;

/// Continues a text
///
/// The text streams to stdout as it comes; figures go to stderr. Without sampling options the likeliest token is
/// taken each time.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    engine: EngineArgs,

    /// At most this many new tokens [default: up to the end of the context]
    #[arg(short = 'n', long, value_name = "N")]
    max_new_tokens: Option<usize>,
    /// Refuse the request, before any work, if it could need more positions than this
    #[arg(long, value_name = "N")]
    max_ctx: Option<usize>,

    #[command(flatten)]
    sampling: SamplingArgs,

    /// End before this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Go on after tokens that end a text
    #[arg(long)]
    ignore_eos: bool,
    /// Report the log-probability of each token and of the K likeliest beside it (with --json)
    #[arg(long, value_name = "K", requires = "json")]
    logprobs: Option<usize>,
    /// Print one JSON object with every field of the result, and no text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Sampling", allow_negative_numbers = true)]
struct SamplingArgs {
    /// Divide the logits by this before drawing; 0 takes the likeliest token
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    temperature: f32,
    /// Draw from the K likeliest tokens only; 0 is off
    #[arg(long, default_value_t = 0, value_name = "K")]
    top_k: i64,
    /// Draw from the smallest set of tokens that reaches this probability
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    top_p: f32,
    /// Draw from tokens at least this many times as likely as the likeliest
    #[arg(long, default_value_t = 0.0, value_name = "P")]
    min_p: f32,
    /// Divide the logits of tokens in prompt or answer by this
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    repeat_penalty: f32,
    /// Take this off the logits of tokens in the answer
    #[arg(long, default_value_t = 0.0, value_name = "X")]
    presence_penalty: f32,
    /// Take this off the logits of tokens in the answer, once for each time they stand there
    #[arg(long, default_value_t = 0.0, value_name = "X")]
    frequency_penalty: f32,
    /// Add X to the logit of token ID; may be given several times
    #[arg(long, value_name = "ID=X", value_parser = parse_bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws [default: a random one, which is reported]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let parse = || {
        let (id, bias) = text.split_once('=')?;
        Some((id.trim().parse().ok()?, bias.trim().parse().ok()?))
    };
    parse().ok_or_else(|| "expected ID=X, as in 42=-1.5".to_owned())
}

impl SamplingArgs {
    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            seed: self.seed,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let prompt = args.prompt.prompt()?;
    let interrupt = Interrupt::watch()?;
    let is_text = matches!(prompt, Prompt::Text(_));
    let checkpoint = args.engine.model.open()?;
    let mut request = Request {
        detokenize: is_text,
        prompt,
        max_new_tokens: args.max_new_tokens,
        max_ctx: args.max_ctx,
        sampling: args.sampling.sampling(),
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        logprobs: args.logprobs,
    };
    request.validate(checkpoint.spec().vocab)?;
    let engine = args.engine.load(&checkpoint, is_text || !args.stop.is_empty())?;
    request.detokenize = is_text || can_detokenize(&checkpoint);
    let mut generation = engine.generate(&request)?;
    interrupt.cancels(generation.canceller());
    let mut ends_line = true;
    for token in generation.by_ref() {
        let token = token?;
        if args.json {
            continue;
        }
        let text = if request.detokenize { token.text } else { format!("{} ", token.id) };
        if !text.is_empty() {
            ends_line = text.ends_with('\n');
            out::text(&text)?;
        }
    }
    let completion = generation.finish()?;
    if args.json {
        out::json(&as_json(&engine, &completion))?;
    } else {
        // On a terminal the shell's prompt would stand behind the answer; elsewhere the text stays as it is.
        if !ends_line && io::stdout().is_terminal() {
            out::text("\n")?;
        }
        out::note(&figures(&engine, &completion, request.sampling.temperature > 0.0));
    }
    Ok(if interrupt.came() { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Whether the answer to token ids can be shown as text. Where it cannot, ids are shown instead, and why is said.
fn can_detokenize(checkpoint: &Checkpoint) -> bool {
    match checkpoint.tokenizer() {
        Ok(_) => true,
        Err(error) => {
            out::note(&format!("note: tokens are shown as ids: {error}"));
            false
        }
    }
}

/// Ctrl-C: ends the generation with the text so far.
struct Interrupt {
    came: Arc<AtomicBool>,
    cancels: Arc<Mutex<Option<Canceller>>>,
}

impl Interrupt {
    fn watch() -> Result<Self> {
        let interrupt = Self { came: Arc::default(), cancels: Arc::default() };
        let (came, cancels) = (Arc::clone(&interrupt.came), Arc::clone(&interrupt.cancels));
        let handler = move || {
            let again = came.swap(true, Ordering::SeqCst);
            match &*cancels.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(canceller) if !again => canceller.cancel(),
                // Nothing is generated yet, or the user insists.
                _ => std::process::exit(130),
            }
        };
        ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")?;
        Ok(interrupt)
    }

    fn cancels(&self, canceller: Canceller) {
        *self.cancels.lock().unwrap_or_else(PoisonError::into_inner) = Some(canceller);
    }

    fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }
}

fn figures(engine: &Engine, completion: &Completion, sampled: bool) -> String {
    let stop = completion.stop.as_ref().map_or(String::new(), |stop| format!(" {stop:?}"));
    let seed = if sampled { format!(" · seed {}", completion.seed) } else { String::new() };
    format!(
        "[prompt {} tokens, {:.1} tok/s · answer {} tokens, {:.1} tok/s · {}{stop}{seed} · {}, {} · loaded{} in {:.2} s]",
        completion.n_prompt,
        completion.prefill_tokens_per_sec(),
        completion.n_generated(),
        completion.decode_tokens_per_sec(),
        completion.finish_reason.name(),
        engine.device(),
        engine.weights().name(),
        if engine.is_from_cache() { " from cache" } else { "" },
        engine.load_seconds(),
    )
}

fn as_json(engine: &Engine, completion: &Completion) -> Value {
    let mut value = json!({
        "token_ids": completion.token_ids,
        "n_prompt": completion.n_prompt,
        "generated_text": completion.generated_text,
        "finish_reason": completion.finish_reason.name(),
        "stop": completion.stop,
        "stopped_on_eos": completion.finish_reason == FinishReason::Eos,
        "seed": completion.seed,
        "device": engine.device(),
        "weights": engine.weights().name(),
        "kv": engine.kv().name(),
        "loaded_from_cache": engine.is_from_cache(),
        "load_seconds": engine.load_seconds(),
        "prefill_seconds": completion.prefill_seconds,
        "decode_seconds": completion.decode_seconds,
        "prefill_tokens_per_sec": completion.prefill_tokens_per_sec(),
        "decode_tokens_per_sec": completion.decode_tokens_per_sec(),
    });
    if let Some(logprobs) = &completion.logprobs {
        let entry = |at: &Logprobs| json!({"token_id": at.token_id, "logprob": at.logprob, "top": at.top});
        value["logprobs"] = logprobs.iter().map(entry).collect();
    }
    value
}
