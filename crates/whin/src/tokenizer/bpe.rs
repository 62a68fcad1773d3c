//! Reads a `tokenizer.json` with a BPE vocabulary, as nearly all models have, several times faster than the
//! `tokenizers` crate, which copies vocabulary and merges through two generic trees first. What it finds odd it leaves to
//! the crate, so that no file means anything else here.

use std::fmt;

use ahash::AHashMap;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokenizers::AddedToken;
use tokenizers::models::bpe::BPE;

use super::outline::{MOST_MODEL_VALUES, Outline};

/// The tokenizer of a file that `outline` is of, which `settings` is without its model, and the largest id of that; none
/// where the crate has to read it.
pub(super) fn read(
    outline: &Outline<'_>,
    settings: tokenizers::Tokenizer,
) -> Option<(tokenizers::Tokenizer, Option<u32>)> {
    let (model, largest) = model(outline.model?)?;
    let added: Vec<AddedToken> = match outline.added_tokens {
        Some(added) => serde_json::from_str(added.get()).ok()?,
        None => Vec::new(),
    };
    let mut tokenizer = settings;
    tokenizer.with_model(model);
    tokenizer.add_tokens(added).ok()?;
    Some((tokenizer, largest))
}

fn model(json: &RawValue) -> Option<(BPE, Option<u32>)> {
    let Model {
        kind,
        dropout,
        unk_token,
        continuing_subword_prefix,
        end_of_word_suffix,
        fuse_unk,
        byte_fallback,
        ignore_merges,
        vocab,
        merges,
    } = serde_json::from_str(json.get()).ok()?;
    if kind != "BPE" {
        return None;
    }
    let largest = vocab.0.values().max().copied();
    let mut builder = BPE::builder().vocab_and_merges(vocab.0, merges.0);
    if let Some(dropout) = dropout {
        builder = builder.dropout(dropout);
    }
    if let Some(token) = unk_token {
        builder = builder.unk_token(token);
    }
    if let Some(prefix) = continuing_subword_prefix {
        builder = builder.continuing_subword_prefix(prefix);
    }
    if let Some(suffix) = end_of_word_suffix {
        builder = builder.end_of_word_suffix(suffix);
    }
    builder = builder.fuse_unk(fuse_unk.unwrap_or(false));
    builder = builder.byte_fallback(byte_fallback.unwrap_or(false));
    Some((builder.ignore_merges(ignore_merges.unwrap_or(false)).build().ok()?, largest))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Vocab,
    merges: Merges,
}

/// From each token to its id.
struct Vocab(AHashMap<String, u32>);

/// Pairs of tokens that become one, the first ones first.
struct Merges(Vec<(String, String)>);

fn too_many<E: serde::de::Error>() -> E {
    E::custom(format!("more than {MOST_MODEL_VALUES} values"))
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from tokens to ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut vocab = AHashMap::with_capacity(1 << 16);
                while let Some((token, id)) = map.next_entry::<String, u32>()? {
                    if vocab.len() == MOST_MODEL_VALUES {
                        return Err(too_many());
                    }
                    // Which of two ids counts is for the crate to say.
                    if vocab.insert(token, id).is_some() {
                        return Err(A::Error::custom("a token that stands there twice"));
                    }
                }
                Ok(Vocab(vocab))
            }
        }
        deserializer.deserialize_map(Tokens)
    }
}

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Merges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of pairs of tokens")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merges, A::Error> {
                let mut merges = Vec::with_capacity(1 << 16);
                let mut form = None;
                while let Some(Pair { first, second, is_line }) = seq.next_element()? {
                    if merges.len() == MOST_MODEL_VALUES {
                        return Err(too_many());
                    }
                    if *form.get_or_insert(is_line) != is_line {
                        return Err(A::Error::custom("merges in two forms"));
                    }
                    merges.push((first, second));
                }
                Ok(Merges(merges))
            }
        }
        deserializer.deserialize_seq(Pairs)
    }
}

/// `["a", "b"]`, or `"a b"` in older files.
struct Pair {
    first: String,
    second: String,
    is_line: bool,
}

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Pair;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pair of tokens")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Pair, E> {
                let two = text.split_once(' ').filter(|(_, second)| !second.contains(' '));
                // A line of merges.txt that names its version is no merge.
                let two = two.filter(|_| !text.starts_with("#version"));
                let (first, second) = two.ok_or_else(|| E::custom("no two tokens"))?;
                Ok(Pair { first: first.to_owned(), second: second.to_owned(), is_line: true })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Pair, A::Error> {
                let (Some(first), Some(second), None) =
                    (seq.next_element()?, seq.next_element()?, seq.next_element::<IgnoredAny>()?)
                else {
                    return Err(A::Error::custom("no two tokens"));
                };
                Ok(Pair { first, second, is_line: false })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::outline;

    fn file(change: impl FnOnce(&mut Value)) -> String {
        let mut json = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [
                { "id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                  "normalized": false, "special": true },
                { "id": 1, "content": "b", "single_word": true, "lstrip": false, "rstrip": true,
                  "normalized": true, "special": false },
            ],
            "normalizer": { "type": "Lowercase" },
            "pre_tokenizer": { "type": "Whitespace" },
            "post_processor": null,
            "decoder": { "type": "Fuse" },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": false, "ignore_merges": false,
                "vocab": { "a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "?": 5 },
                "merges": [["a", "b"], ["ab", "c"]],
            },
        });
        change(&mut json);
        json.to_string()
    }

    /// Whether the file is read here; then the result must be that of the crate.
    fn reads(json: &str) -> bool {
        let (outline, _) = outline::check(json.as_bytes()).unwrap();
        let settings = tokenizers::Tokenizer::from_bytes(outline.without_model());
        let Some((here, largest)) = settings.ok().and_then(|settings| super::read(&outline, settings)) else {
            return false;
        };
        let right = tokenizers::Tokenizer::from_bytes(json).unwrap();
        assert_eq!(here.to_string(false).unwrap(), right.to_string(false).unwrap());
        assert_eq!(largest, right.get_vocab(false).into_values().max());
        for text in ["abc ab cab", "<s>ABCxyzab", "b ab b  <s> bb", ""] {
            let encode = |tokenizer: &tokenizers::Tokenizer| {
                let encoding = tokenizer.encode(text, false).unwrap();
                (encoding.get_ids().to_vec(), encoding.get_tokens().to_vec())
            };
            assert_eq!(encode(&here), encode(&right), "{text:?}");
        }
        true
    }

    #[test]
    fn what_is_read_here_is_what_the_crate_reads() {
        assert!(reads(&file(|_| ())));
        assert!(reads(&file(|json| json["model"]["merges"] = json!(["a b", "ab c"]))));
        assert!(reads(&file(|json| json["model"]["merges"] = json!([]))));
        assert!(reads(&file(|json| json["model"]["ignore_merges"] = json!(true))));
        assert!(reads(&file(|json| json["model"]["end_of_word_suffix"] = json!("c"))));
        assert!(reads(&file(|json| json["added_tokens"] = json!([]))));
        let seedling =
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/seedling/tokenizer.json"));
        assert!(reads(seedling));
    }

    #[test]
    fn what_is_odd_is_left_to_the_crate() {
        let odd: [fn(&mut Value); 9] = [
            |json| json["version"] = json!(null),
            |json| json["model"]["merges"] = json!([["a", "b"], "ab c"]),
            |json| json["model"]["type"] = json!("WordPiece"),
            |json| json["model"]["x"] = json!(1),
            |json| json["model"]["merges"] = json!(["#version: 0.2", "a b"]),
            |json| json["model"]["merges"] = json!(["a b c"]),
            |json| json["model"]["merges"] = json!([["a", "x"]]),
            |json| json["model"]["vocab"]["a"] = json!(-1),
            |json| json["version"] = json!("2.0"),
        ];
        for (index, change) in odd.into_iter().enumerate() {
            assert!(!reads(&file(change)), "case {index}");
        }
        assert!(!reads(&file(|_| ()).replace("\"c\":2", "\"a\":2")), "a token that stands there twice");
    }
}
