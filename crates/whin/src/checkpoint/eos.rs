//! The tokens after which a text ends.

use serde_json::Value;

use super::source::Source;
use crate::model::Spec;
use crate::model::config::token_ids;
use crate::{Error, ErrorKind, Result};

const FILE: &str = "generation_config.json";

/// The tokens that `generation_config.json` or `config.json` name as ends, each once. The tokenizer may know another.
///
/// # Errors
/// `invalid_checkpoint` where `generation_config.json` is broken or names a token that the model does not have.
pub fn end_tokens(source: &Source, spec: &Spec) -> Result<Vec<u32>> {
    let mut ends = match source.read(FILE)? {
        Some(bytes) => generation_ends(&bytes, spec.vocab)?,
        None => Vec::new(),
    };
    for id in &spec.eos {
        if !ends.contains(id) {
            ends.push(*id);
        }
    }
    Ok(ends)
}

fn generation_ends(json: &[u8], vocab: usize) -> Result<Vec<u32>> {
    let broken = |what: String| Error::new(ErrorKind::InvalidCheckpoint, format!("{FILE} {what}"));
    let value: Value = serde_json::from_slice(json)
        .map_err(|error| broken(format!("is not valid JSON: {error}; fetch the file again, or remove it")))?;
    let Value::Object(map) = value else {
        return Err(broken("holds no JSON object".to_owned()));
    };
    let Some(value) = map.get("eos_token_id") else { return Ok(Vec::new()) };
    let mut ids = token_ids(value, vocab).ok_or_else(|| {
        let found = crate::model::config::shown(value);
        broken(format!(
            "has eos_token_id {found}; accepted: token ids below vocab_size ({vocab}), a list of them, or null"
        ))
    })?;
    let mut seen = Vec::new();
    ids.retain(|id| {
        !seen.contains(id) && {
            seen.push(*id);
            true
        }
    });
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lists_and_null_are_read() {
        let ends = |json: &str| generation_ends(json.as_bytes(), 100);
        assert_eq!(ends(r#"{"eos_token_id": 7}"#).unwrap(), [7]);
        assert_eq!(ends(r#"{"eos_token_id": [7, 8, 7]}"#).unwrap(), [7, 8]);
        assert_eq!(ends(r#"{"eos_token_id": null}"#).unwrap(), [] as [u32; 0]);
        assert_eq!(ends("{}").unwrap(), [] as [u32; 0]);
        for json in
            ["{", "[]", r#"{"eos_token_id": 100}"#, r#"{"eos_token_id": "7"}"#, r#"{"eos_token_id": [-1]}"#]
        {
            let error = ends(json).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
            assert!(error.to_string().contains(FILE), "{error}");
        }
    }

    #[test]
    fn both_files_count() {
        let source = Source::open(None).unwrap();
        let spec = crate::model::config::read(&source.read("config.json").unwrap().unwrap()).unwrap();
        assert_eq!(end_tokens(&source, &spec).unwrap(), [6137, 6135]);
    }
}
