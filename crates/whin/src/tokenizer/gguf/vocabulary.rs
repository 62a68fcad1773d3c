//! The tokens in the metadata of a GGUF file, and what each is for. Their texts stay where they lie in the file. It knows
//! nothing of how texts become tokens.

use ahash::AHashMap;

use super::broken;
use crate::Result;
use crate::checkpoint::gguf::Metadata;

/// The most tokens, which are as many as a table of half a million places takes without a bigger one, and some 50 MB; the
/// largest known vocabularies in such files have some 260,000.
const MOST_TOKENS: usize = 7 << 16;

/// Bytes of all tokens, and of the longest one. The most known are some 3 million.
const LONGEST_TEXTS: usize = 16 << 20;
const LONGEST_TEXT: usize = 1 << 16;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(super) const KINDS: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal = 1,
    /// Stands for what no token spells.
    Unknown = 2,
    /// Steers the model; is no text.
    Control = 3,
    /// Text that is always one token.
    UserDefined = 4,
    /// Is no token at all.
    Unused = 5,
    /// Stands for a single byte, as in `<0x0A>`.
    Byte = 6,
}

impl Kind {
    fn read(number: i64) -> Option<Self> {
        let all = [Self::Normal, Self::Unknown, Self::Control, Self::UserDefined, Self::Unused, Self::Byte];
        all.into_iter().find(|kind| *kind as i64 == number)
    }
}

/// The tokens of a file.
pub(super) struct Vocabulary<'a> {
    /// (ids); empty where an id has no token.
    pub texts: Vec<&'a str>,
    pub kinds: Vec<Kind>, // (ids)
    ids: AHashMap<String, u32>,
}

impl<'a> Vocabulary<'a> {
    /// Reads it; the model has embeddings for `rows` tokens.
    pub fn read(file: &'a Metadata, rows: usize) -> Result<Self> {
        let texts = texts(file, rows)?;
        let mut ids = AHashMap::with_capacity(texts.len());
        for (id, text) in texts.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            if let Some(other) = ids.insert((*text).to_owned(), id as u32) {
                return Err(broken(
                    file,
                    &format!(
                        "spells the tokens {other} and {id} alike, {:?}",
                        crate::error::shortened((*text).to_owned(), 100)
                    ),
                ));
            }
        }
        let kinds = kinds(file, texts.len())?;
        Ok(Self { texts, kinds, ids })
    }

    /// The id of a text.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The id of a text, which is likely that of `near` or the next one.
    pub fn id_near(&self, text: &str, near: u32) -> Option<u32> {
        let mut close = [near, near + 1].into_iter();
        close.find(|id| self.texts.get(*id as usize) == Some(&text)).or_else(|| self.id(text))
    }

    /// The ids of all tokens, without those that are called unused and are not `needed`.
    pub fn into_ids(mut self, needed: impl Fn(u32) -> bool) -> AHashMap<String, u32> {
        for (id, (text, kind)) in self.texts.iter().zip(&self.kinds).enumerate() {
            if *kind == Kind::Unused && !needed(id as u32) {
                self.ids.remove(*text);
            }
        }
        self.ids
    }

    /// Each token that there is, with its id.
    pub fn tokens(&self) -> impl Iterator<Item = (u32, &'a str, Kind)> {
        let all = self.texts.iter().zip(&self.kinds).enumerate();
        all.filter(|(_, (text, _))| !text.is_empty()).map(|(id, (text, kind))| (id as u32, *text, *kind))
    }
}

/// The texts of all tokens.
fn texts(file: &Metadata, rows: usize) -> Result<Vec<&str>> {
    let tokens = file.texts(TOKENS)?;
    let tokens = tokens.ok_or_else(|| broken(file, &format!("has no tokens: {TOKENS} is missing")))?;
    let count = tokens.len();
    if count > MOST_TOKENS {
        return Err(broken(file, &format!("has {count} tokens; at most {MOST_TOKENS} are read")));
    }
    if count != rows {
        let message = format!("has {count} tokens ({TOKENS}), but embeddings for {rows}");
        return Err(broken(file, &message));
    }
    let mut sum = 0;
    let mut texts = Vec::with_capacity(count);
    for (id, bytes) in tokens.enumerate() {
        sum += bytes.len();
        if bytes.len() > LONGEST_TEXT || sum > LONGEST_TEXTS {
            return Err(broken(
                file,
                &format!(
                    "has tokens that are too long: {TOKENS}[{id}] has {} bytes, with those before it {sum}; at most \
                 {LONGEST_TEXT} and {LONGEST_TEXTS} are read",
                    bytes.len()
                ),
            ));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| broken(file, &format!("has a token that is not in UTF-8: {TOKENS}[{id}]")))?;
        texts.push(text);
    }
    Ok(texts)
}

/// What all tokens are for; where the file does not say, they are text.
fn kinds(file: &Metadata, count: usize) -> Result<Vec<Kind>> {
    let Some(numbers) = file.integers(KINDS)? else { return Ok(vec![Kind::Normal; count]) };
    if numbers.len() != count {
        return Err(broken(file, &format!("has {count} tokens, but {} values in {KINDS}", numbers.len())));
    }
    let kind = |(id, number): (usize, i64)| {
        Kind::read(number).ok_or_else(|| {
            broken(file, &format!("has {KINDS}[{id}] {number}; known are 1 to 6, from normal to byte"))
        })
    };
    numbers.enumerate().map(kind).collect()
}

/// The scores of `count` tokens.
pub(super) fn scores(file: &Metadata, count: usize) -> Result<Vec<f32>> {
    let numbers = file.numbers(SCORES)?;
    let numbers =
        numbers.ok_or_else(|| broken(file, &format!("has no scores of its tokens: {SCORES} is missing")))?;
    if numbers.len() != count {
        return Err(broken(file, &format!("has {count} tokens, but {} values in {SCORES}", numbers.len())));
    }
    let score = |(id, number): (usize, f64)| match number.is_nan() {
        true => Err(broken(file, &format!("has {SCORES}[{id}] that is no number"))),
        // Both zeros are the same score.
        false => Ok(number as f32 + 0.0),
    };
    numbers.enumerate().map(score).collect()
}
