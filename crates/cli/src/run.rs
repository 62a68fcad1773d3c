//! `whin run`: one completion.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use whin::{Checkpoint, Completion, Engine, FinishReason, Logprobs, Prompt, Request};

use crate::answer::{self, Printer};
use crate::formats::FormatArgs;
use crate::interrupt::Interrupt;
use crate::messages::MessageArgs;
use crate::model::{EngineArgs, PromptArgs};
use crate::out;
use crate::sampling::SamplingArgs;

/// Continues a text, or answers messages
///
/// The text streams to stdout as it comes; figures go to stderr, as does reasoning. A tool call is a line of JSON. Without sampling options the likeliest token is
/// taken each time.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    messages: MessageArgs,
    #[command(flatten)]
    engine: EngineArgs,

    /// At most this many new tokens [default: up to the end of the context]
    #[arg(short = 'n', long, value_name = "N")]
    max_new_tokens: Option<usize>,
    /// Refuse the request, before any work, if it could need more positions than this
    #[arg(long, value_name = "N")]
    max_ctx: Option<usize>,

    #[command(flatten)]
    form: FormatArgs,

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

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let prompt = args.messages.prompt(&args.prompt)?;
    let interrupt = Interrupt::watch()?;
    let is_text = !matches!(prompt, Prompt::Ids(_));
    let checkpoint = args.engine.model.open()?;
    let mut request = Request {
        detokenize: is_text,
        prompt,
        max_new_tokens: args.max_new_tokens,
        max_ctx: args.max_ctx,
        sampling: args.sampling.sampling(),
        stop: args.stop.clone(),
        format: args.form.format()?,
        ignore_eos: args.ignore_eos,
        logprobs: args.logprobs,
    };
    request.validate(checkpoint.spec().vocab)?;
    let engine = args.engine.load(&checkpoint, is_text || !args.stop.is_empty())?;
    request.detokenize = is_text || can_detokenize(&checkpoint);
    let mut generation = engine.generate(&request)?;
    interrupt.cancels(generation.canceller());
    let mut printer = Printer::new(io::stdout().is_terminal());
    for token in generation.by_ref() {
        let token = token?;
        if args.json {
            continue;
        }
        match &request.prompt {
            Prompt::Chat(_) => token.deltas.iter().try_for_each(|delta| printer.show(delta))?,
            _ if request.detokenize => printer.text(&token.text)?,
            _ => printer.text(&format!("{} ", token.id))?,
        }
    }
    printer.end_reasoning();
    let completion = generation.finish()?;
    if args.json {
        out::json(&as_json(&engine, &completion))?;
    } else {
        // On a terminal the shell's prompt would stand behind the answer; elsewhere the text stays as it is.
        if !printer.ends_line && io::stdout().is_terminal() {
            out::text("\n")?;
        }
        out::note(&out::figures(&engine, &completion, request.sampling.temperature > 0.0));
    }
    Ok(if interrupt.take() { ExitCode::from(130) } else { ExitCode::SUCCESS })
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

fn as_json(engine: &Engine, completion: &Completion) -> Value {
    let mut value = json!({
        "token_ids": completion.token_ids,
        "n_prompt": completion.n_prompt,
        "generated_text": completion.generated_text,
        "finish_reason": completion.finish_reason.name(),
        "stop": completion.stop,
        "answer": completion.answer.as_ref().map(answer::as_json),
        "n_reasoning": completion.n_reasoning,
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
