//! `whin score`: how well the model foresees a text.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use whin::Prompt;

use crate::model::{EngineArgs, PromptArgs};
use crate::out;

/// Prints the log-probability of each token of a text, and the perplexity, to judge a quantisation
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print one JSON object: token_ids, logprobs (natural logarithms, null for the first token), perplexity
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let prompt = args.prompt.prompt()?;
    let checkpoint = args.engine.model.open()?;
    prompt.validate(checkpoint.spec().vocab)?;
    let engine = args.engine.load(&checkpoint, matches!(prompt, Prompt::Text(_)))?;
    let score = engine.score(&prompt)?;
    if args.json {
        out::json(&json!({
            "token_ids": score.token_ids,
            "logprobs": score.logprobs,
            "perplexity": score.perplexity(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let tokenizer = engine.checkpoint().tokenizer().ok();
    let mut table = String::new();
    for (id, logprob) in score.token_ids.iter().zip(&score.logprobs) {
        let logprob = logprob.map_or("-".to_owned(), |logprob| format!("{logprob:.4}"));
        let token = tokenizer.map_or(String::new(), |t| format!("{:?}", t.decode(&[*id], false)));
        table += &format!("{id:>8}  {logprob:>10}  {token}\n");
    }
    out::text(&table)?;
    let perplexity = score.perplexity().map_or("-".to_owned(), |perplexity| format!("{perplexity:.4}"));
    out::text(&format!("perplexity {perplexity} over {} tokens\n", score.token_ids.len().saturating_sub(1)))?;
    Ok(ExitCode::SUCCESS)
}
