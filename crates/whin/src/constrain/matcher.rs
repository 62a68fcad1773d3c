//! One answer on its way through a grammar.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::toktrie::SimpleVob;
use llguidance::{TokenParser, panic_utils};

use super::grammars::reason;
use super::tokens::Tokens;
use crate::{Error, ErrorKind, Result};

/// Follows an answer through a grammar and says which tokens may come next.
///
/// The end tokens of the checkpoint are allowed where the answer is whole, and nowhere else; special tokens only where the
/// grammar names them; ids without a token never.
#[derive(Clone)]
pub struct Matcher {
    parser: TokenParser,
    tokens: Arc<Tokens>,
    mask: Option<SimpleVob>,
    /// Whether the next token opens the answer's text.
    opening: bool,
    ended: bool,
}

impl Matcher {
    pub(super) fn new(parser: TokenParser, tokens: Arc<Tokens>) -> Self {
        Self { parser, tokens, mask: None, opening: true, ended: false }
    }

    /// Says that text has come before: the next token does not open a text, where some tokenizers drop a space.
    pub fn go_on(&mut self) {
        self.opening = false;
        self.mask = None;
    }

    /// The tokens that may come next: id `i` where bit `i % 32` of word `i / 32` is set. Ids past its end, and those past
    /// the logits, are not allowed. Nothing is where the answer has ended.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) where the grammar turns out to take too much time or memory.
    pub fn mask(&mut self) -> Result<&[u32]> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => self.compute()?,
        };
        Ok(self.mask.insert(mask).as_slice())
    }

    fn compute(&mut self) -> Result<SimpleVob> {
        let accepting = self.is_accepting();
        let tokens = self.tokens.clone();
        let mut mask = if self.ended || accepting && !self.parser.parser.can_advance() {
            self.parser.token_env.tok_trie().alloc_token_set()
        } else {
            self.follow("is too complex to go on", |parser| parser.compute_mask())?
        };
        if self.opening
            && let Some(opening) = tokens.opening()
        {
            mask.sub(&opening.ids);
            self.follow("is too complex to go on", |parser| {
                parser.parser.with_recognizer(|recognizer| opening.tree.add_bias(recognizer, &mut mask, &[]));
                Ok::<(), Error>(())
            })?;
            opening.blank.iter().for_each(|&id| mask.allow_token(id));
        }
        // What ends a gen() of a grammar's own is an end as well.
        let ends = !self.ended && (accepting || tokens.eos().iter().any(|&id| mask.is_allowed(id)));
        tokens.eos().iter().for_each(|&id| mask.set(id as usize, ends));
        (tokens.vocab()..mask.len()).for_each(|id| mask.set(id, false));
        Ok(mask)
    }

    /// Whether the mask allows a token.
    ///
    /// # Errors
    /// As [`Self::mask`].
    pub fn allows(&mut self, id: u32) -> Result<bool> {
        let word = self.mask()?.get(id as usize / 32).copied().unwrap_or(0);
        Ok(word >> (id % 32) & 1 == 1)
    }

    /// Takes in a token that the mask allowed.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) where the grammar does not allow it; the matcher is of no use then.
    pub fn accept(&mut self, id: u32) -> Result<()> {
        if self.tokens.eos().contains(&id) && !self.ended {
            let allowed = self.allows(id)?;
            self.ended = true;
            self.mask = None;
            return if allowed { Ok(()) } else { Err(refused("does not end here")) };
        }
        let tokens = self.tokens.clone();
        self.mask = None;
        let opening = std::mem::replace(&mut self.opening, false);
        match tokens.opening().filter(|all| opening && all.ids.is_allowed(id)) {
            Some(all) => self.spell(&tokens.spelling(all.tree.token(id))),
            None => self.spell(&[id]),
        }
    }

    fn spell(&mut self, ids: &[u32]) -> Result<()> {
        if self.ended {
            return Err(refused("has ended"));
        }
        self.follow("does not allow this token", |parser| {
            ids.iter().try_for_each(|&id| parser.consume_token(id).map(|_| ()))
        })
    }

    /// Takes in text that came by another way than tokens of its own. Returns false, and stays as it was, if it does not
    /// fit.
    pub fn accept_text(&mut self, text: &str) -> bool {
        let ids = self.tokens.spelling(text.as_bytes());
        let fits =
            |parser: &mut TokenParser| parser.validate_tokens_raw(&ids).map(|count| count == ids.len());
        if self.ended || !self.follow("", fits).unwrap_or(false) {
            return false;
        }
        if !text.is_empty() {
            self.go_on();
        }
        self.spell(&ids).is_ok()
    }

    /// Whether the answer could end here.
    pub fn is_accepting(&mut self) -> bool {
        self.ended || self.follow("", |parser| Ok::<_, Error>(parser.is_accepting())).unwrap_or(false)
    }

    /// Whether nothing but the end may follow.
    pub fn is_over(&mut self) -> bool {
        if self.ended {
            return true;
        }
        let eos = self.tokens.eos().to_vec();
        let accepting = self.is_accepting();
        let ends = |(word, &bits): (usize, &u32)| {
            let of_eos =
                eos.iter().filter(|&&id| id as usize / 32 == word).fold(0, |bits, &id| bits | 1 << (id % 32));
            bits & !of_eos == 0
        };
        accepting && self.mask().is_ok_and(|mask| mask.iter().enumerate().all(ends))
    }

    fn follow<T, E: std::fmt::Display>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut TokenParser) -> Result<T, E>,
    ) -> Result<T> {
        let parser = &mut self.parser;
        let done = panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(work(parser))));
        let refuse = |error: &dyn std::fmt::Display| refused(&format!("{what}: {}", reason(error)));
        done.map_err(|error| refuse(&error))?.map_err(|error| refuse(&error))
    }
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::InvalidArguments, format!("the grammar of the answer {why}"))
}
