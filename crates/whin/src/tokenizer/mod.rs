//! Text to token ids and back, as the checkpoint's `tokenizer.json` says, or the metadata of its GGUF file.
//!
//! The `tokenizers` crate does the work; this module decides how it is used: nothing is added, cut or
//! padded, hostile files become errors, and ids become bytes first and text last. It knows nothing of
//! chat templates or of models.

mod bpe;
mod cost;
mod gguf;
mod guarded_text;
mod outline;
mod pieces;
mod scored;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokenizers::models::ModelWrapper;
use tokenizers::{Model, OffsetType, Token};

use crate::error::shortened;
use crate::{Error, ErrorKind, Result};
pub(crate) use gguf::{end_tokens, special_tokens};
pub(crate) use outline::added_token;
use outline::{DeclaredToken, Outline};
use pieces::Pieces;
use scored::Scored;
pub use stream::TextStream;

/// One more than the largest id that is believed. The largest known vocabularies have some 900,000 ids;
/// without a limit a single absurd id would make the tables below eat all memory.
const MAX_IDS: usize = 1 << 21;

/// Characters of a reason in a message. The crate's quote what they found in the file, and a file may hold anything.
const LONGEST_REASON: usize = 300;

/// A checkpoint's tokenizer. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

/// A token that is no part of the model proper.
pub(crate) struct AddedToken {
    pub id: u32,
    pub text: String,
    pub is_special: bool,
    /// Whether it is looked for in normalized text.
    pub is_normalized: bool,
}

struct Shared {
    inner: tokenizers::Tokenizer,
    /// Takes the place of the model in `inner`, which then only has the ids.
    scored: Option<Scored>,
    pieces: Pieces,
    special: Vec<bool>, // (vocab_size)
    origin: String,
}

impl Tokenizer {
    /// Reads the bytes of a `tokenizer.json`; `origin` is the file's name for error messages.
    ///
    /// Truncation, padding and merge dropout that the file may ask for are switched off: they serve
    /// training, and here they would change prompts in silence.
    ///
    /// # Errors
    /// `invalid_checkpoint` if the file is damaged, too large, or gives an added token another id than
    /// it declares; `unsupported_architecture` if its decoder cannot be streamed.
    pub fn from_bytes(json: &[u8], origin: &str) -> Result<Self> {
        let invalid = |why: String| {
            let why = shortened(why, LONGEST_REASON);
            Error::new(ErrorKind::InvalidCheckpoint, format!("{origin}: {why}"))
        };
        let (outline, declared) = outline::check(json).map_err(invalid)?;
        let (mut inner, largest) = read(json, &outline, &declared).map_err(invalid)?;
        cost::check_model(inner.get_model()).map_err(invalid)?;
        switch_off_training_aids(&mut inner).map_err(|why| invalid(why.to_string()))?;

        // The crate numbers added tokens itself, and only warns when the file says otherwise.
        for DeclaredToken { id, content } in &declared {
            let given = inner.token_to_id(content);
            if given.is_some_and(|given| given != *id) {
                let given = given.unwrap_or_default();
                return Err(invalid(format!(
                    "added token {content:?} is declared as id {id}, but by its place it is id {given}"
                )));
            }
        }

        Self::new(inner, None, largest, origin)
    }

    /// A tokenizer that was read; `largest` is the largest id of its model.
    fn new(
        inner: tokenizers::Tokenizer,
        scored: Option<Scored>,
        largest: Option<u32>,
        origin: &str,
    ) -> Result<Self> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidCheckpoint, format!("{origin}: {why}"));
        let added = inner.get_added_tokens_decoder();
        let largest = added.keys().copied().max().max(largest);
        let ids = largest.map_or(0, |largest| largest as usize + 1);
        if ids > MAX_IDS {
            return Err(invalid(format!("token id {} is too large; ids end at {}", ids - 1, MAX_IDS - 1)));
        }
        let mut special = vec![false; ids];
        for (id, token) in added {
            special[id as usize] = token.special;
        }
        let pieces = Pieces::new(&inner, ids).map_err(|why| match why {
            pieces::Unusable::Broken(why) => invalid(why),
            pieces::Unusable::Unsupported(why) => {
                Error::new(ErrorKind::UnsupportedArchitecture, format!("{origin}: {why}"))
            }
        })?;
        Ok(Self { shared: Arc::new(Shared { inner, scored, pieces, special, origin: origin.to_owned() }) })
    }

    /// The ids of `text` as it stands: no template, no beginning-of-text token. The names of special
    /// tokens inside the text become those tokens, as in the reference.
    ///
    /// # Errors
    /// `invalid_checkpoint` if the vocabulary has no way to spell the text; `invalid_arguments` if a pattern
    /// of the file gives up on it, as on millions of blanks in a row.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.guarded(text, || {
            let Shared { inner, scored, .. } = &*self.shared;
            if scored.is_none() {
                return Ok(inner.encode_fast(text, false)?.get_ids().to_vec());
            }
            let added = inner.get_added_vocabulary();
            let mut pieces = added.extract_and_normalize(inner.get_normalizer(), text);
            pieces.tokenize(|piece| self.tokenize(piece.get()))?;
            Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
        })
    }

    /// The tokens of a piece of normalized text.
    fn tokenize(&self, piece: &str) -> tokenizers::Result<Vec<Token>> {
        let model = self.shared.inner.get_model();
        match &self.shared.scored {
            Some(scored) => scored.tokenize(model, piece),
            None => model.tokenize(piece),
        }
    }

    /// Runs code of the `tokenizers` crate on `text`, and says what is wrong where it fails.
    fn guarded<T>(&self, text: &str, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
        guarded(work).map_err(|why| {
            let why = shortened(why, LONGEST_REASON);
            let origin = &self.shared.origin;
            // A search that takes too many attempts panics with the name of the limit.
            if why.contains("Onig: ") && why.contains("limit") {
                return Error::new(
                    ErrorKind::InvalidArguments,
                    format!(
                        "the text of {} bytes is too much for a pattern of {origin}, which gives up ({why}); shorten \
                         the text, above all long runs of blanks or of the same character",
                        text.len()
                    ),
                );
            }
            Error::new(ErrorKind::InvalidCheckpoint, format!("{origin}: cannot tokenize this text: {why}"))
        })
    }

    /// The text of `ids`. Ids without a token count for nothing; bytes that form no character become
    /// one U+FFFD per maximal subpart. Special tokens are left out if `skip_special`.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = TextStream::new(self, skip_special);
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// The bytes that `id` adds to a text that has already begun: possibly a part of a character; empty
    /// for ids without a token.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        match &self.shared.pieces {
            Pieces::PerToken(table) => table.bytes(id).to_vec(),
            Pieces::Windowed => self.decode_by_crate(&[id]).into_bytes(),
        }
    }

    /// Whether each token has bytes of its own, whatever stands beside it.
    pub(crate) fn has_token_bytes(&self) -> bool {
        matches!(self.shared.pieces, Pieces::PerToken(_))
    }

    /// Whether some tokens may have other bytes where they open a text.
    pub(crate) fn opens_differently(&self) -> bool {
        matches!(&self.shared.pieces, Pieces::PerToken(table) if table.opens_differently())
    }

    /// The bytes of `id` where it opens a text, as [`TextStream`] has it.
    pub(crate) fn opening_bytes(&self, id: u32) -> Vec<u8> {
        let Pieces::PerToken(table) = &self.shared.pieces else { return self.token_bytes(id) };
        let spelt = self.id_to_token(id).unwrap_or_default();
        let bytes = table.first_bytes(&spelt).unwrap_or_else(|| table.bytes(id).to_vec());
        let Some((stripped, most)) = table.strip else { return bytes };
        let width = stripped.len_utf8();
        let is_stripped = |char: &&[u8]| *char == stripped.to_string().as_bytes();
        let count = bytes.chunks(width).take(most).take_while(is_stripped).count();
        bytes[count * width..].to_vec()
    }

    /// Whether `id` is a special token: a marker such as `<|im_end|>`, which is no part of an answer's
    /// text. Added tokens need not be special: Qwen3's `<think>` is not.
    pub fn is_special(&self, id: u32) -> bool {
        self.shared.special.get(id as usize).copied().unwrap_or(false)
    }

    /// The tokens that are no part of the model proper, such as `<|im_end|>`, in no order.
    pub(crate) fn added_tokens(&self) -> impl Iterator<Item = AddedToken> {
        let added = self.shared.inner.get_added_tokens_decoder().into_iter();
        added.map(|(id, token)| AddedToken {
            id,
            text: token.content,
            is_special: token.special,
            is_normalized: token.normalized,
        })
    }

    /// The id of the token that is spelt `token` in the vocabulary file.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.shared.inner.token_to_id(token)
    }

    /// The token of `id` as the vocabulary file spells it (`Ġthe`, not ` the`).
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.shared.inner.id_to_token(id)
    }

    /// One more than the largest id that has a token. A checkpoint's logits are often padded beyond it.
    pub fn vocab_size(&self) -> usize {
        self.shared.special.len()
    }

    fn pieces(&self) -> &Pieces {
        &self.shared.pieces
    }

    /// The text of `ids` by the decoder of the `tokenizers` crate, for the decoders that look at
    /// neighbouring tokens.
    fn decode_by_crate(&self, ids: &[u32]) -> String {
        // Some of the crate's decoders panic on an empty list.
        let known: Vec<u32> =
            ids.iter().copied().filter(|&id| self.shared.inner.id_to_token(id).is_some()).collect();
        if known.is_empty() {
            return String::new();
        }
        // A decoder that fails on its own vocabulary leaves nothing better than the spelling.
        guarded(|| self.shared.inner.decode(&known, false))
            .unwrap_or_else(|_| known.iter().filter_map(|&id| self.id_to_token(id)).collect())
    }
}

/// The tokenizer in `json`, by our own reader where that knows its model, else by the crate's.
fn read(
    json: &[u8],
    outline: &Outline<'_>,
    declared: &[DeclaredToken],
) -> Result<(tokenizers::Tokenizer, Option<u32>), String> {
    let by_crate = |json: &[u8]| {
        guarded(|| tokenizers::Tokenizer::from_bytes(json))
            .map_err(|why| format!("is not a tokenizer: {why}"))
    };
    let settings = by_crate(outline.without_model().as_bytes())?;
    cost::check_steps(&settings, declared.iter().map(|token| token.content.len() as u64).sum())?;
    if let Ok(Some(read)) = guarded(|| Ok(bpe::read(outline, settings))) {
        return Ok(read);
    }
    outline.check_model()?;
    let inner = by_crate(json)?;
    let largest = inner.get_vocab(false).into_values().max();
    Ok((inner, largest))
}

fn switch_off_training_aids(inner: &mut tokenizers::Tokenizer) -> tokenizers::Result<()> {
    inner.with_padding(None);
    inner.with_truncation(None)?;
    if let ModelWrapper::BPE(bpe) = inner.get_model()
        && bpe.dropout.is_some()
    {
        let mut bpe = bpe.clone();
        bpe.dropout = None;
        inner.with_model(bpe);
    }
    Ok(())
}

/// Runs code of the `tokenizers` crate, which panics where a hostile file should give an error.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    // Nothing half-made survives: `work` builds a new value, or reads through caches that may lose entries.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("its reader failed without a reason").to_owned())
        }
    }
}
