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

/// The tokenizer of a file that `outline` is of, which `settings` is without its model; none where the crate has to read
/// it.
pub(super) fn read(outline: &Outline<'_>, settings: tokenizers::Tokenizer) -> Option<tokenizers::Tokenizer> {
    let model = model(outline.model?)?;
    let added: Vec<AddedToken> = match outline.added_tokens {
        Some(added) => serde_json::from_str(added.get()).ok()?,
        None => Vec::new(),
    };
    let mut tokenizer = settings;
    tokenizer.with_model(model);
    tokenizer.add_tokens(added).ok()?;
    Some(tokenizer)
}

fn model(json: &RawValue) -> Option<BPE> {
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
    builder.ignore_merges(ignore_merges.unwrap_or(false)).build().ok()
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
                while let Some(Pair(first, second)) = seq.next_element()? {
                    if merges.len() == MOST_MODEL_VALUES {
                        return Err(too_many());
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
struct Pair(String, String);

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
                two.map(|(first, second)| Pair(first.to_owned(), second.to_owned()))
                    .ok_or_else(|| E::custom("no two tokens"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Pair, A::Error> {
                let (Some(first), Some(second), None) =
                    (seq.next_element()?, seq.next_element()?, seq.next_element::<IgnoredAny>()?)
                else {
                    return Err(A::Error::custom("no two tokens"));
                };
                Ok(Pair(first, second))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
