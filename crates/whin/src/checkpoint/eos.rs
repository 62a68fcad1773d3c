//! The tokens after which a text ends. They are settled when a checkpoint is opened, without its tokenizer, so that no
//! answer depends on whether somebody needed that before.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::header::shortened;
use super::source::Source;
use crate::model::Spec;
use crate::model::config::{shown, token_ids};
use crate::tokenizer;
use crate::{Error, ErrorKind, Result};

const GENERATION: &str = "generation_config.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const TOKENIZER: &str = "tokenizer.json";

/// The files have some hundred bytes and, with the descriptions of thousands of added tokens, some two million;
/// longer ones could only be meant to cost memory.
const LONGEST_GENERATION: usize = 1 << 20;
const LONGEST_TOKENIZER_CONFIG: usize = 16 << 20;

/// The tokens that `generation_config.json`, `config.json` or `tokenizer_config.json` name as ends, each once. Of a GGUF
/// file, those that its metadata name, and tokens that end texts by their names.
///
/// # Errors
/// `invalid_checkpoint` where `generation_config.json` or `tokenizer_config.json` is broken, or the former names a
/// token that the model does not have; `io` where they cannot be read. A broken `tokenizer.json` is none, since token
/// ids run without it: a name that cannot be looked up for its sake is a warning.
pub fn end_tokens(source: &Source, spec: &Spec) -> Result<Vec<u32>> {
    let mut ends = match read(source, GENERATION, LONGEST_GENERATION)? {
        Some(json) => generation_ends(&json, spec.vocab).map_err(|what| broken(source, GENERATION, &what))?,
        None => Vec::new(),
    };
    if let Some(metadata) = source.metadata() {
        ends.extend(tokenizer::end_tokens(metadata, spec.vocab)?);
    }
    ends.extend(&spec.eos);
    ends.extend(tokenizer_end(source, spec.vocab)?);
    let mut seen = std::collections::HashSet::new();
    ends.retain(|id| seen.insert(*id));
    Ok(ends)
}

/// The bytes of a file of at most `longest` bytes.
fn read(source: &Source, name: &str, longest: usize) -> Result<Option<whin_kernels::bytes::Bytes>> {
    match source.read(name)? {
        Some(json) if json.len() > longest => {
            Err(broken(source, name, &format!("is longer than {longest} bytes")))
        }
        json => Ok(json),
    }
}

fn broken(source: &Source, name: &str, what: &str) -> Error {
    let message = format!("{} {what}; fetch the file again, or remove it", source.describe(name));
    Error::new(ErrorKind::InvalidCheckpoint, message)
}

/// The keys of a JSON object that `T` has; all others are skipped and cost nothing.
fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    // A struct could as well be read from a list.
    if json.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Err("holds no JSON object".to_owned());
    }
    serde_json::from_slice(json).map_err(|error| format!("is broken: {}", shortened(&error)))
}

fn generation_ends(json: &[u8], vocab: usize) -> Result<Vec<u32>, String> {
    #[derive(Deserialize)]
    struct Generation {
        eos_token_id: Option<Value>,
    }
    let value = object::<Generation>(json)?.eos_token_id.unwrap_or(Value::Null);
    token_ids(&value, vocab).ok_or_else(|| {
        let found = shown(&value);
        format!("has eos_token_id {found}; accepted: token ids below vocab_size ({vocab}), a list of them, or null")
    })
}

/// The end token that `tokenizer_config.json` names by its text.
fn tokenizer_end(source: &Source, vocab: usize) -> Result<Option<u32>> {
    let Some(json) = read(source, TOKENIZER_CONFIG, LONGEST_TOKENIZER_CONFIG)? else { return Ok(None) };
    let found = named_end(&json).map_err(|what| broken(source, TOKENIZER_CONFIG, &what))?;
    let (name, id) = match found {
        None => return Ok(None),
        Some((name, Some(id))) => (name, Ok(id)),
        Some((name, None)) => {
            let id = id_in_tokenizer(source, &name);
            (name, id)
        }
    };
    let unusable = match id {
        Ok(id) if (id as usize) < vocab => return Ok(Some(id)),
        Ok(id) => format!("its id {id} is past the vocabulary of {vocab}"),
        Err(why) => why,
    };
    let name = shown(&Value::String(name.into_owned()));
    tracing::warn!("{TOKENIZER_CONFIG} ends texts with the token {name}, which is ignored: {unusable}");
    Ok(None)
}

/// An end token's name, and its id where that is known.
type NamedEnd<'a> = (Cow<'a, str>, Option<u32>);

/// The name of the end token in a `tokenizer_config.json`, with its id where the file lists its added tokens.
fn named_end(json: &[u8]) -> Result<Option<NamedEnd<'_>>, String> {
    #[derive(Deserialize)]
    struct Config<'a> {
        #[serde(borrow)]
        eos_token: Option<&'a RawValue>,
        #[serde(borrow)]
        added_tokens_decoder: Option<&'a RawValue>,
    }
    let config: Config<'_> = object(json)?;
    let Some(eos) = config.eos_token else { return Ok(None) };
    let eos = eos.get();
    let name = match eos.starts_with('{') {
        true => serde_json::from_str(eos).map(|Content { content }| content),
        false => serde_json::from_str(eos).map(|Text(name)| name),
    };
    let name = name.map_err(|_| {
        let found: String = eos.chars().take(100).collect();
        format!("has eos_token {found}; accepted: a string, an object with a string as content, or null")
    })?;
    let id = match config.added_tokens_decoder {
        Some(added) => FindId(&name)
            .deserialize(&mut serde_json::Deserializer::from_str(added.get()))
            .map_err(|error| format!("has broken added_tokens_decoder: {}", shortened(&error)))?,
        None => None,
    };
    Ok(Some((name, id)))
}

/// The id of the added token `name` in `tokenizer.json`, or why there is none. Nothing else of the file is kept.
fn id_in_tokenizer(source: &Source, name: &str) -> Result<u32, String> {
    let json = source.read(TOKENIZER).map_err(|error| error.to_string())?;
    let json = json.ok_or_else(|| format!("there is no {TOKENIZER} to look it up in"))?;
    let id = tokenizer::added_token(&json, name)
        .map_err(|why| format!("{TOKENIZER} {}", crate::error::shortened(why, 300)))?;
    id.ok_or_else(|| format!("no added token of {TOKENIZER} has that name"))
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An object that describes a token.
#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    content: Cow<'a, str>,
}

/// Finds the key of the token with this content in an object from ids to tokens.
struct FindId<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for FindId<'_> {
    type Value = Option<u32>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u32>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FindId<'_> {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from token ids to tokens")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<u32>, A::Error> {
        let mut found = None;
        while let Some((Text(id), Content { content })) = map.next_entry::<Text<'de>, Content<'de>>()? {
            let id = id.parse().map_err(|_| A::Error::custom("a key is no token id"))?;
            if content == self.0 {
                found.get_or_insert(id);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    #[test]
    fn numbers_lists_and_null_are_read() {
        let ends = |json: &str| generation_ends(json.as_bytes(), 100);
        assert_eq!(ends(r#"{"eos_token_id": 7}"#).unwrap(), [7]);
        assert_eq!(ends(r#"{"eos_token_id": [7, 8]}"#).unwrap(), [7, 8]);
        assert_eq!(ends(r#"{"eos_token_id": null}"#).unwrap(), [] as [u32; 0]);
        assert_eq!(ends("{}").unwrap(), [] as [u32; 0]);
        for json in ["", "{", "[]", "[7]", "null", r#"{"eos_token_id": 100}"#, r#"{"eos_token_id": "7"}"#] {
            assert!(ends(json).is_err(), "{json}");
        }
        assert!(ends(r#"{"eos_token_id": [-1]}"#).unwrap_err().contains("[-1]"));
    }

    #[test]
    fn all_files_count() {
        let source = Source::open(None).unwrap();
        let spec = crate::model::config::read(&source.read("config.json").unwrap().unwrap()).unwrap();
        assert_eq!(end_tokens(&source, &spec).unwrap(), [6137, 6135]);
    }

    /// The end tokens of a folder with these files beside a config that names none; the vocabulary is 100.
    fn ends(files: &[(&str, &str)]) -> Result<Vec<u32>> {
        let source = Source::open(None).unwrap();
        let mut spec = crate::model::config::read(&source.read("config.json").unwrap().unwrap()).unwrap();
        spec.eos.clear();
        spec.vocab = 100;
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        end_tokens(&Source::open(Some(folder.path())).unwrap(), &spec)
    }

    const ADDED: &str =
        r#"{"model": {"x": [0]}, "added_tokens": [{"id": 5, "content": "</s>", "special": true}]}"#;

    #[test]
    fn names_are_looked_up_without_the_tokenizer() {
        let config = |text: &str| ends(&[(TOKENIZER_CONFIG, text), (TOKENIZER, ADDED)]);
        assert_eq!(config(r#"{"eos_token": "</s>"}"#).unwrap(), [5]);
        assert_eq!(config(r#"{"eos_token": "<\/s>", "model_max_length": 1e30}"#).unwrap(), [5]);
        assert_eq!(config(r#"{"eos_token": {"content": "</s>", "special": true}}"#).unwrap(), [5]);
        // The list of the same file comes first.
        let both = r#"{"added_tokens_decoder": {"3": {"content": "a"}, "4": {"content": "</s>"}}, "eos_token": "</s>"}"#;
        assert_eq!(config(both).unwrap(), [4]);
        assert_eq!(ends(&[(TOKENIZER_CONFIG, both), (TOKENIZER, "{")]).unwrap(), [4]);
        // No name, or none that can be found: token ids must run all the same.
        for none in ["{}", r#"{"eos_token": null}"#, r#"{"eos_token": "absent"}"#] {
            assert_eq!(config(none).unwrap(), [] as [u32; 0], "{none}");
        }
        let name = r#"{"eos_token": "</s>"}"#;
        let past = ADDED.replace('5', "100");
        for tokenizer in ["", "{", "[]", r#"{"added_tokens": 3}"#, past.as_str()] {
            assert_eq!(ends(&[(TOKENIZER_CONFIG, name), (TOKENIZER, tokenizer)]).unwrap(), [] as [u32; 0]);
        }
        assert_eq!(ends(&[(TOKENIZER_CONFIG, name)]).unwrap(), [] as [u32; 0]);
    }

    #[test]
    fn broken_files_are_named() {
        for text in [
            "",
            "{",
            "[]",
            r#"{"eos_token": 3}"#,
            r#"{"eos_token": {}}"#,
            r#"{"eos_token": ["</s>"]}"#,
            r#"{"eos_token": "</s>", "added_tokens_decoder": []}"#,
            r#"{"eos_token": "</s>", "added_tokens_decoder": {"a": {"content": "b"}}}"#,
        ] {
            let error = ends(&[(TOKENIZER_CONFIG, text), (TOKENIZER, ADDED)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint, "{text}");
            assert!(error.to_string().contains(TOKENIZER_CONFIG), "{error}");
        }
        for (name, length) in [(GENERATION, LONGEST_GENERATION), (TOKENIZER_CONFIG, LONGEST_TOKENIZER_CONFIG)]
        {
            let fill = |count: usize| format!("{{\"x\":[{}0]}}", "0,".repeat(count));
            assert_eq!(ends(&[(name, &fill(length / 2 - 10))]).unwrap(), [] as [u32; 0]);
            let error = ends(&[(name, &fill(length / 2))]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
            assert!(error.to_string().contains(&format!("{name} is longer than {length}")), "{error}");
        }
    }
}
