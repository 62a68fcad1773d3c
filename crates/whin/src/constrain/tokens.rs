//! A tokenizer's vocabulary in the form in which grammars are followed.

use std::sync::Arc;

use llguidance::toktrie::{INVALID_TOKEN, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result};

/// Bytes of the longest token that answers may hold: the tree of tokens is not deeper.
const LONGEST_TOKEN: usize = 1000;

/// Marks special tokens in the tree: a byte that no text holds.
const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// The bytes of each token, as a tree.
pub(super) struct Tokens {
    env: Arc<Env>,
    tokenizer: Tokenizer,
    vocab: usize,
    eos: Vec<u32>,
    opening: Option<Opening>,
}

/// Tokens that look different where they open a text: with SentencePiece, the space before a first word is dropped.
pub(super) struct Opening {
    /// The bytes of these tokens there.
    pub tree: TokTrie,
    pub ids: SimpleVob,
    /// Those of which nothing remains.
    pub blank: Vec<u32>,
}

/// The tree as `llguidance` wants it. Texts are never tokenised through it: any tokens that spell an answer will do, and
/// the model chooses among them.
struct Env(TokTrie);

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

impl Tokens {
    /// The tokens below `vocab`, and behind them one for each byte, in which texts are spelt that come by other ways.
    pub fn new(tokenizer: &Tokenizer, vocab: usize, eos: &[u32]) -> Result<Self> {
        if !tokenizer.has_token_bytes() {
            return Err(Error::new(
                ErrorKind::UnsupportedArchitecture,
                "this tokenizer spells tokens differently beside others, so enforced formats cannot be had with it",
            ));
        }
        let eos: Vec<u32> = eos.iter().copied().filter(|&id| (id as usize) < vocab).collect();
        let mut words = Vec::with_capacity(vocab + 256);
        for id in 0..vocab as u32 {
            let special = eos.contains(&id) || tokenizer.is_special(id);
            words.push(if special { marked(tokenizer, id) } else { spelt(tokenizer.token_bytes(id)) });
        }
        words.extend((0..=u8::MAX).map(|byte| spelt(vec![byte])));
        let info = TokRxInfo::new(words.len() as u32, eos.first().copied().unwrap_or(INVALID_TOKEN));
        let tree = tree(&info, &words)?;
        let opening = Opening::find(tokenizer, &info, &words, vocab)?;
        let tree = if eos.is_empty() { tree } else { tree.with_eos_tokens(&eos) };
        Ok(Self { env: Arc::new(Env(tree)), tokenizer: tokenizer.clone(), vocab, eos, opening })
    }

    pub fn env(&self) -> TokEnv {
        self.env.clone()
    }

    /// How many logits there are.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// The tokens that end an answer.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// The bytes of a token, special ones as they are spelt.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        self.tokenizer.token_bytes(id)
    }

    pub fn opening(&self) -> Option<&Opening> {
        self.opening.as_ref()
    }

    /// The tokens that spell `bytes`, one a byte.
    pub fn spelling(&self, bytes: &[u8]) -> Vec<u32> {
        bytes.iter().map(|&byte| self.vocab as u32 + u32::from(byte)).collect()
    }
}

impl Opening {
    fn find(
        tokenizer: &Tokenizer,
        info: &TokRxInfo,
        words: &[Vec<u8>],
        vocab: usize,
    ) -> Result<Option<Self>> {
        if !tokenizer.opens_differently() {
            return Ok(None);
        }
        let mut ids = SimpleVob::alloc(words.len());
        let (mut opening, mut blank) = (vec![Vec::new(); words.len()], Vec::new());
        for (id, word) in words[..vocab].iter().enumerate() {
            if word.is_empty() || word[0] == MARK {
                continue;
            }
            let bytes = tokenizer.opening_bytes(id as u32);
            if &bytes == word {
                continue;
            }
            ids.allow_token(id as u32);
            if bytes.is_empty() {
                blank.push(id as u32);
            }
            opening[id] = spelt(bytes);
        }
        Ok(Some(Self { tree: tree(info, &opening)?, ids, blank }))
    }
}

/// The bytes of a token of text; none for those that cannot be part of an answer.
fn spelt(bytes: Vec<u8>) -> Vec<u8> {
    let fits = bytes.len() <= LONGEST_TOKEN && !bytes.contains(&MARK);
    if fits { bytes } else { Vec::new() }
}

/// A special token, which only comes where a grammar names it: as `<|name|>`, or by its id.
fn marked(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let name = tokenizer.id_to_token(id).unwrap_or_default();
    let inner = name.strip_prefix('<').and_then(|name| name.strip_suffix('>'));
    let nameable =
        inner.is_some_and(|inner| !inner.starts_with('[') && !inner.contains(['<', '>', char::MAX]));
    let name = if nameable && name.len() < 90 { name } else { format!("<special {id}>") };
    [&[MARK], name.as_bytes()].concat()
}

fn tree(info: &TokRxInfo, words: &[Vec<u8>]) -> Result<TokTrie> {
    let build = || Ok(TokTrie::from(info, words));
    llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(build)).map_err(|error| {
        let why = super::grammars::reason(&error);
        let message = format!("this tokenizer's vocabulary cannot be used for enforced formats: {why}");
        Error::new(ErrorKind::UnsupportedArchitecture, message)
    })
}
