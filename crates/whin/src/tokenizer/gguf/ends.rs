//! The tokens after which a text ends, and those that chat templates name, in the metadata of a GGUF file. The rest of the
//! tokenizer is not needed for them.

use std::collections::BTreeSet;

use super::broken;
use super::vocabulary::{KINDS, Kind, TOKENS};
use crate::Result;
use crate::checkpoint::gguf::Metadata;

/// The keys whose tokens end texts.
const END_KEYS: [&str; 3] =
    ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// Tokens that end texts by their names, as llama.cpp has it: files rarely name all ends of a model.
const ENDS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    MARKUP,
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Also the end of a crossed-out text in HTML, which is what it is where the file calls it text, as with Qwen. llama.cpp
/// ends texts there all the same.
const MARKUP: &str = "</s>";

/// Tokens that end what is filled into a gap: padding, the next repository, the next file. Each is looked for by its key,
/// else by its names.
const GAP_ENDS: [(&str, &[&str]); 3] = [
    ("tokenizer.ggml.fim_pad_token_id", &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    (
        "tokenizer.ggml.fim_rep_token_id",
        &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    ),
    ("tokenizer.ggml.fim_sep_token_id", &["<|file_sep|>"]),
];

/// What templates call special tokens, and the keys that have their ids.
const TEMPLATE_KEYS: [(&str, &str); 6] = [
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ("sep_token", "tokenizer.ggml.seperator_token_id"), // spelt like this in all files
    ("pad_token", "tokenizer.ggml.padding_token_id"),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];

/// The tokens after which a text ends, each once, those that have keys first.
///
/// # Errors
/// `invalid_checkpoint` where a key names a token that there is not.
pub(crate) fn end_tokens(file: &Metadata, vocab: usize) -> Result<Vec<u32>> {
    let mut ends = Vec::new();
    for key in END_KEYS {
        ends.extend(id(file, key, vocab)?);
    }
    let named = Named::find(file)?;
    ends.extend(named.ends.iter().map(|(id, _)| *id));
    for ((key, _), named) in GAP_ENDS.iter().zip(named.gap_ends) {
        ends.extend(id(file, key, vocab)?.or(named));
    }
    let mut seen = BTreeSet::new();
    let not_an_end = named.not_an_end();
    ends.retain(|id| Some(*id) != not_an_end && seen.insert(*id));
    Ok(ends)
}

/// The tokens that steer the model whatever the file says of them: files call some of them text.
pub(super) fn controls(file: &Metadata) -> Result<Vec<u32>> {
    let named = Named::find(file)?;
    Ok(named.ends.iter().map(|(id, _)| *id).chain(named.gap_ends.into_iter().flatten()).collect())
}

/// The special tokens that templates see, under their names there.
///
/// # Errors
/// As [`end_tokens`]; also where the name of one is not in UTF-8.
pub(crate) fn special_tokens(file: &Metadata) -> Result<Vec<(&'static str, String)>> {
    let Some(texts) = file.texts(TOKENS)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (name, key) in TEMPLATE_KEYS {
        let Some(id) = id(file, key, texts.len())? else { continue };
        let text = texts.clone().nth(id as usize).unwrap_or_default();
        let text = std::str::from_utf8(text)
            .map_err(|_| broken(file, &format!("has a token that is not in UTF-8: {TOKENS}[{id}]")))?;
        found.push((name, text.to_owned()));
    }
    Ok(found)
}

/// The token under `key`, if there is one.
fn id(file: &Metadata, key: &str, vocab: usize) -> Result<Option<u32>> {
    match file.integer(key)? {
        Some(id) if id < vocab as u64 => Ok(Some(id as u32)),
        Some(_) => Err(file.refuse(key, &format!("a token id below {vocab}"))),
        None => Ok(None),
    }
}

/// Tokens that are known by their names.
#[derive(Default)]
struct Named {
    ends: Vec<(u32, &'static str)>,
    gap_ends: [Option<u32>; GAP_ENDS.len()],
}

impl Named {
    fn find(file: &Metadata) -> Result<Self> {
        let mut found = Self::default();
        for (id, text) in file.texts(TOKENS)?.into_iter().flatten().enumerate() {
            // All names begin with one of these.
            if !matches!(text.first(), Some(b'<' | b'[' | b'_')) {
                continue;
            }
            let id = id as u32;
            if let Some(name) = ENDS.iter().find(|name| name.as_bytes() == text)
                && (*name != MARKUP || !is_text(file, id)?)
            {
                found.ends.push((id, name));
            }
            for ((_, names), found) in GAP_ENDS.iter().zip(&mut found.gap_ends) {
                if names.iter().any(|name| name.as_bytes() == text) {
                    found.get_or_insert(id);
                }
            }
        }
        Ok(found)
    }

    /// The one that ends nothing in the company of others: `<|end|>` is the end of a message where answers have ends of
    /// their own.
    fn not_an_end(&self) -> Option<u32> {
        let id = |name: &str| self.ends.iter().find(|(_, end)| *end == name).map(|(id, _)| *id);
        let has = |name: &str| id(name).is_some();
        let calls = has("<|call|>") || has("<|calls|>");
        if calls && (has("<|return|>") || has("<|flush|>")) { id("<|end|>") } else { None }
    }
}

/// Whether the file calls a token one of plain text.
fn is_text(file: &Metadata, id: u32) -> Result<bool> {
    let kind = file.integers(KINDS)?.and_then(|mut kinds| kinds.nth(id as usize));
    Ok(kind == Some(Kind::Normal as i64))
}
