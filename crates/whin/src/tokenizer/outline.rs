//! A first look at a `tokenizer.json`, in memory that the file's length bounds.
//!
//! The `tokenizers` crate copies each part of the file several times, some hundred bytes for each number in it, before
//! it looks at what it has. So parts that no tokenizer needs are refused here, while they are still text.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::cost;

/// The largest `tokenizer.json` that is read. The largest known ones have some 40 MB.
pub(super) const LONGEST: usize = 64 << 20;

/// Bytes and JSON values in a part that only holds settings, such as the decoder. The longest known, a table of a
/// SentencePiece normalizer, has some 400,000 bytes.
const LONGEST_PART: usize = 1 << 20;
const MOST_PART_VALUES: usize = 1 << 14;

/// JSON values in the vocabulary and its merges: a number counts twice. The most known are some 3.6 million.
pub(super) const MOST_MODEL_VALUES: usize = 4 << 20;

/// Bytes of the pieces of a Unigram vocabulary, which become a tree with a table at each byte.
const LONGEST_PIECES: usize = 8 << 20;

/// Bytes of a single such piece: the tree is as deep, and is freed by recursion.
const LONGEST_PIECE: usize = 1024;

/// JSON values in the list of added tokens, nine for each; the most known are some 600,000.
const MOST_ADDED_VALUES: usize = 1 << 20;

/// Bytes of the contents of added tokens, which become one automaton.
pub(super) const LONGEST_ADDED: usize = 4 << 20;

/// An added token as the file declares it.
#[derive(Deserialize)]
pub(super) struct DeclaredToken {
    pub id: u32,
    pub content: String,
}

/// The parts of the file as they stand there.
#[derive(Deserialize)]
pub(super) struct Outline<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    version: Option<&'a RawValue>,
    #[serde(borrow)]
    truncation: Option<&'a RawValue>,
    #[serde(borrow)]
    padding: Option<&'a RawValue>,
    #[serde(borrow)]
    pub added_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow)]
    post_processor: Option<&'a RawValue>,
    #[serde(borrow)]
    decoder: Option<&'a RawValue>,
    #[serde(borrow)]
    pub model: Option<&'a RawValue>,
}

/// Unlike other parts, the version may be missing, but not null.
fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Outline<'a> {
    fn read(json: &'a [u8]) -> Result<Self, String> {
        if json.len() > LONGEST {
            return Err(format!("has {} bytes; at most {LONGEST} are read", json.len()));
        }
        // Each opens a value, and the parser notes a byte for each that is open.
        let opened = json.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
        if opened > MOST_MODEL_VALUES + MOST_ADDED_VALUES {
            return Err(format!("has {opened} lists and objects, more than any tokenizer"));
        }
        serde_json::from_slice(json).map_err(|error| format!("is not a tokenizer: {error}"))
    }

    /// The parts that only hold settings, and are there.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, &'a RawValue)> {
        let parts = [
            ("version", self.version),
            ("truncation", self.truncation),
            ("padding", self.padding),
            ("normalizer", self.normalizer),
            ("pre_tokenizer", self.pre_tokenizer),
            ("post_processor", self.post_processor),
            ("decoder", self.decoder),
        ];
        parts.into_iter().filter_map(|(name, part)| Some((name, part?)))
    }

    /// The same file with an empty model and no added tokens, whose ids depend on the model.
    pub fn without_model(&self) -> String {
        let mut json = "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}".to_owned();
        for (name, part) in self.settings() {
            json.push_str(&format!(",\"{name}\":{}", part.get()));
        }
        json.push('}');
        json
    }

    /// Checks that the model is of bearable size before the crate reads it.
    pub fn check_model(&self) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Model<'a> {
            #[serde(borrow)]
            vocab: Option<&'a RawValue>,
        }
        let Some(model) = self.model else { return Ok(()) };
        measure("model", model, MOST_MODEL_VALUES)?;
        let model: Model<'_> = serde_json::from_str(model.get())
            .map_err(|error| format!("is not a tokenizer: model: {error}"))?;
        // Only Unigram has a list, of pieces and their scores.
        if let Some(vocab) = model.vocab.filter(|vocab| vocab.get().starts_with('[')) {
            let Size { text, longest, .. } = measure("model", vocab, MOST_MODEL_VALUES)?;
            if text > LONGEST_PIECES {
                return Err(format!("has pieces of {text} bytes; at most {LONGEST_PIECES} are read"));
            }
            if longest > LONGEST_PIECE {
                return Err(format!("has a piece of {longest} bytes; at most {LONGEST_PIECE} are read"));
            }
        }
        Ok(())
    }

    fn declared(&self) -> Result<Vec<DeclaredToken>, String> {
        let Some(added) = self.added_tokens else { return Ok(Vec::new()) };
        measure("added_tokens", added, MOST_ADDED_VALUES)?;
        let tokens: Vec<DeclaredToken> = serde_json::from_str(added.get())
            .map_err(|error| format!("is not a tokenizer: added_tokens: {error}"))?;
        let text: usize = tokens.iter().map(|token| token.content.len()).sum();
        if text > LONGEST_ADDED {
            return Err(format!("has added tokens of {text} bytes; at most {LONGEST_ADDED} are read"));
        }
        Ok(tokens)
    }
}

/// Checks that the file is JSON and of bearable size in each part but the model; gives the parts and the added tokens.
pub(super) fn check(json: &[u8]) -> Result<(Outline<'_>, Vec<DeclaredToken>), String> {
    let outline = Outline::read(json)?;
    for (name, part) in outline.settings() {
        if part.get().len() > LONGEST_PART {
            return Err(format!(
                "has a {name} of {} bytes; at most {LONGEST_PART} are read",
                part.get().len()
            ));
        }
        measure(name, part, MOST_PART_VALUES)?;
    }
    cost::check_settings(outline.settings())?;
    let declared = outline.declared()?;
    Ok((outline, declared))
}

/// The id of the added token `content`, from a file of which nothing else needs to be sound.
pub(crate) fn added_token(json: &[u8], content: &str) -> Result<Option<u32>, String> {
    let tokens = Outline::read(json)?.declared()?;
    Ok(tokens.iter().find(|token| token.content == content).map(|token| token.id))
}

/// Reads a part of the file, of at most so many values, and gives its size.
fn measure(name: &str, part: &RawValue, most: usize) -> Result<Size, String> {
    let mut size = Size { values: 0, text: 0, longest: 0, most };
    Measure(&mut size)
        .deserialize(&mut serde_json::Deserializer::from_str(part.get()))
        .map_err(|error| format!("is not a tokenizer: {name}: {error}"))?;
    Ok(size)
}

struct Size {
    values: usize,
    text: usize,    // bytes of all strings
    longest: usize, // bytes of the longest string
    most: usize,
}

/// Goes through a JSON value and keeps nothing. A number counts as two values: one that would lose digits comes wrapped
/// in an object.
struct Measure<'s>(&'s mut Size);

impl Measure<'_> {
    fn count<E: serde::de::Error>(&mut self, text: usize) -> Result<(), E> {
        self.0.values += 1;
        self.0.text += text;
        self.0.longest = self.0.longest.max(text);
        match self.0.values > self.0.most {
            true => Err(E::custom(format!("more than {} values", self.0.most))),
            false => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Measure<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Measure<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(mut self) -> Result<(), E> {
        self.count(0)
    }

    fn visit_bool<E: serde::de::Error>(mut self, _: bool) -> Result<(), E> {
        self.count(0)
    }

    fn visit_u64<E: serde::de::Error>(mut self, _: u64) -> Result<(), E> {
        self.count(0)?;
        self.count(0)
    }

    fn visit_i64<E: serde::de::Error>(mut self, _: i64) -> Result<(), E> {
        self.count(0)?;
        self.count(0)
    }

    fn visit_f64<E: serde::de::Error>(mut self, _: f64) -> Result<(), E> {
        self.count(0)?;
        self.count(0)
    }

    fn visit_str<E: serde::de::Error>(mut self, text: &str) -> Result<(), E> {
        self.count(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.count(0)?;
        while seq.next_element_seed(Measure(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.count(0)?;
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Measure(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_opens_too_much_is_refused_before_it_is_parsed() {
        let json = "[".repeat(8 << 20);
        let why = super::check(json.as_bytes()).err().unwrap();
        assert_eq!(why, "has 8388608 lists and objects, more than any tokenizer");
    }
}
