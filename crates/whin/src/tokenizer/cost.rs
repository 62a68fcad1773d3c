//! What the settings of a tokenizer can cost, found before the crate or any text meets them.
//!
//! The steps of a `tokenizer.json` run one after the other, and some replace a character by a string. A short file can
//! hold steps that together make a gigabyte of each byte. No tokenizer needs them, so they are refused.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizers::models::ModelWrapper;

use super::guarded;

/// Bytes that a byte of a text may become before it is cut into tokens. Llama's come to 12, those of SentencePiece with
/// a table, which knows one character of 18, to some 300.
const MOST_TEXT: u64 = 1024;

/// Steps of each part, through every one of which a text goes, and of the decoder, through which the whole vocabulary
/// goes when a file is read. The most known are some ten, and five.
const MOST_STEPS: usize = 32;
const MOST_DECODER_STEPS: usize = 16;

/// Bytes of added tokens times steps of the normalizer, through which they go as well.
const MOST_ADDED_STEPS: u64 = 8 << 20;

/// Bytes that a byte of a token may become when it is decoded: none are known to become more than one.
const MOST_DECODED: u64 = 8;

/// Bytes of all added tokens after the steps for texts, which they go through when a file is read.
const MOST_ADDED: u64 = 32 << 20;

/// Characters of the longest word that WordPiece may look up piece by piece, in time that grows with their square; 100
/// and 200 are known.
const LONGEST_WORD: usize = 256;

/// Bytes of what a model puts before, behind or in place of pieces, for each of them.
const LONGEST_AFFIX: usize = 1024;

/// Bytes of all expressions and strings that are sought: reading them takes time that can grow with their square, a
/// second for so many. The longest known come to some 2,000.
const LONGEST_EXPRESSIONS: usize = 16 << 10;

/// Checks what the crate works on while it reads the settings of a file: tables of characters in base64, of which it
/// believes the length that each announces, and expressions.
pub(super) fn check_settings<'a>(
    settings: impl Iterator<Item = (&'static str, &'a RawValue)>,
) -> Result<(), String> {
    let mut expressions = 0;
    for (name, part) in settings {
        let value: Value = serde_json::from_str(part.get())
            .map_err(|error| format!("is not a tokenizer: {name}: {error}"))?;
        if strings("precompiled_charsmap", &value).any(|table| longest_replacement(table).is_none()) {
            return Err(format!("has a {name} with a broken precompiled_charsmap"));
        }
        // A string to be found becomes an expression, too.
        let patterns = strings("Regex", &value).chain(strings("String", &value));
        expressions += patterns.map(str::len).sum::<usize>();
    }
    match expressions > LONGEST_EXPRESSIONS {
        true => {
            Err(format!("has expressions of {expressions} bytes; at most {LONGEST_EXPRESSIONS} are accepted"))
        }
        false => Ok(()),
    }
}

/// The strings under `key` anywhere in `value`.
fn strings<'v>(key: &'v str, value: &'v Value) -> Box<dyn Iterator<Item = &'v str> + 'v> {
    match value {
        Value::Array(items) => Box::new(items.iter().flat_map(move |item| strings(key, item))),
        Value::Object(map) => {
            let own = map.get(key).and_then(Value::as_str);
            Box::new(own.into_iter().chain(map.values().flat_map(move |item| strings(key, item))))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// Bytes of the longest string in a table: after four bytes with the length of a tree and the tree itself, strings that
/// each end with a zero byte. None where the tree is not all there.
fn longest_replacement(table: &str) -> Option<u64> {
    let bytes = BASE64_STANDARD.decode(table).ok()?;
    let (tree, rest) = bytes.split_first_chunk::<4>()?;
    let strings = rest.get(u32::from_le_bytes(*tree) as usize / 4 * 4..)?;
    strings.split(|byte| *byte == 0).map(|string| string.len() as u64).max()
}

/// Checks the steps of a tokenizer whose model and added tokens do not matter; `added` are the bytes of the latter.
pub(super) fn check_steps(settings: &tokenizers::Tokenizer, added: u64) -> Result<(), String> {
    // As the crate writes it, in one spelling, whatever the file has.
    let file = guarded(|| settings.to_string(false))?;
    let file: Value = serde_json::from_str(&file).map_err(|error| error.to_string())?;
    for (part, most) in [
        ("normalizer", MOST_STEPS),
        ("pre_tokenizer", MOST_STEPS),
        ("post_processor", MOST_STEPS),
        ("decoder", MOST_DECODER_STEPS),
    ] {
        let steps = steps(&file[part]);
        if steps > most {
            return Err(format!("has a {part} of {steps} steps; at most {most} are accepted"));
        }
    }
    let in_turn = steps(&file["normalizer"]) as u64;
    if in_turn.saturating_mul(added) > MOST_ADDED_STEPS {
        return Err(format!(
            "has {added} bytes of added tokens and a normalizer of {in_turn} steps for each"
        ));
    }
    let normalized = growth(&file["normalizer"]);
    let parts = ["pre_tokenizer", "post_processor"].iter().map(|part| growth(&file[*part]));
    let text = parts.fold(normalized, u64::saturating_mul);
    if text > MOST_TEXT {
        return Err(format!("can make a text {text} times longer; at most {MOST_TEXT} times is accepted"));
    }
    if normalized.saturating_mul(added) > MOST_ADDED {
        return Err(format!(
            "can make its {added} bytes of added tokens {normalized} times longer; at most {MOST_ADDED} bytes are kept"
        ));
    }
    match growth(&file["decoder"]) {
        decoded if decoded > MOST_DECODED => {
            Err(format!("can make a token {decoded} times longer; at most {MOST_DECODED} times is accepted"))
        }
        _ => Ok(()),
    }
}

/// The steps of a sequence; none where `step` is no sequence.
fn sequence(step: &Value) -> Option<impl Iterator<Item = &Value>> {
    let lists = ["normalizers", "pretokenizers", "decoders", "processors"];
    (step["type"] == "Sequence").then(|| lists.into_iter().filter_map(|list| step[list].as_array()).flatten())
}

/// How many steps there are in `step`, itself included.
fn steps(step: &Value) -> usize {
    1 + sequence(step).map_or(0, |inner| inner.map(steps).sum())
}

/// Bytes that one byte may become in a step, at the most.
fn growth(step: &Value) -> u64 {
    if let Some(inner) = sequence(step) {
        return inner.map(growth).fold(1, u64::saturating_mul);
    }
    let length = |key: &str| step[key].as_str().map_or(0, |text| text.len() as u64);
    match step["type"].as_str() {
        Some("Replace") => match step["pattern"]["String"].as_str().map_or(0, |pattern| pattern.len() as u64)
        {
            // An expression, or a string, that also matches between two characters.
            0 => length("content") + 1,
            pattern => length("content").div_ceil(pattern).max(1),
        },
        Some("Prepend") => length("prepend") + 1,
        // Each byte becomes a character of up to two bytes, and there may be a blank before all.
        Some("ByteLevel") => 3,
        // A blank becomes another character, which may also stand before each word.
        Some("Metaspace") => length("replacement") + 1,
        Some("Precompiled") => {
            step["precompiled_charsmap"].as_str().and_then(longest_replacement).unwrap_or(u64::MAX).max(1)
        }
        // Replaces what it finds by a blank; nothing is found everywhere.
        Some("BPEDecoder") if length("suffix") == 0 => 2,
        Some("CTC") if length("word_delimiter_token") == 0 => 2,
        Some("WordPiece") => 2,
        Some("TemplateProcessing") => {
            let pieces = |list: &str| {
                let pieces = step[list].as_array().into_iter().flatten();
                pieces.filter(|piece| !piece["Sequence"].is_null()).count() as u64
            };
            // Two texts come out of a template that stands before this one.
            pieces("single").max(pieces("pair") / 2).max(1)
        }
        _ => 1,
    }
}

/// Checks what a model does for each piece of a text.
pub(super) fn check_model(model: &ModelWrapper) -> Result<(), String> {
    let affixes = match model {
        ModelWrapper::BPE(bpe) => {
            [bpe.continuing_subword_prefix.as_ref(), bpe.end_of_word_suffix.as_ref(), bpe.unk_token.as_ref()]
        }
        ModelWrapper::WordPiece(words) => {
            let most = words.max_input_chars_per_word;
            if most > LONGEST_WORD {
                return Err(format!(
                    "looks up words of {most} characters; at most {LONGEST_WORD} are accepted"
                ));
            }
            [Some(&words.continuing_subword_prefix), Some(&words.unk_token), None]
        }
        ModelWrapper::WordLevel(words) => [Some(&words.unk_token), None, None],
        ModelWrapper::Unigram(_) => [None; 3],
    };
    match affixes.into_iter().flatten().find(|affix| affix.len() > LONGEST_AFFIX) {
        Some(affix) => Err(format!(
            "has a prefix, suffix or unknown token of {} bytes; at most {LONGEST_AFFIX} are accepted",
            affix.len()
        )),
        None => Ok(()),
    }
}
