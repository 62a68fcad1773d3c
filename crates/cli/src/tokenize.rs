//! `whin tokenize`: ids of a text, and back.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use whin::Prompt;

use crate::messages::MessageArgs;
use crate::model::{ModelArgs, PromptArgs, invalid};
use crate::out;

/// Prints the token ids of a text or of messages, or with --prompt-ids the text of token ids
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    messages: MessageArgs,
    #[command(flatten)]
    model: ModelArgs,
    /// Print one JSON object: token_ids, text, tokens
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let prompt = args.messages.prompt(&args.prompt)?;
    let checkpoint = args.model.open()?;
    let tokenizer = checkpoint.tokenizer()?;
    let (ids, text) = match &prompt {
        Prompt::Text(text) => (tokenizer.encode(text)?, text.clone()),
        Prompt::Chat(chat) => {
            let prompt = checkpoint.chat_prompt(chat)?;
            (prompt.token_ids, prompt.text)
        }
        Prompt::Ids(ids) => {
            let vocab = checkpoint.spec().vocab;
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
                return Err(invalid(format!("token {id}: the model knows ids 0 to {}", vocab - 1)).into());
            }
            (ids.clone(), tokenizer.decode(ids, false))
        }
    };
    if args.json {
        let tokens: Vec<String> = ids.iter().map(|id| tokenizer.decode(&[*id], false)).collect();
        out::json(&json!({"token_ids": ids, "text": text, "tokens": tokens}))?;
    } else if !matches!(prompt, Prompt::Ids(_)) {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        out::text(&format!("{}\n", ids.join(",")))?;
    } else {
        out::text(&format!("{text}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
