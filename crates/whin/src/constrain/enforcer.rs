//! Where in an answer a grammar holds: behind the reasoning, or at once where there is none.
//!
//! Knows how checkpoints write reasoning, and follows an answer on its own. What follows the reasoning must be whole when
//! the answer ends: where a model would end the answer while it still reasons, it ends the reasoning.

use std::sync::Arc;

use super::watch::{Watch, set, without_empty_lines};
use super::{Grammars, Matcher};
use crate::chat::{Phase, Router};
use crate::tokenizer::{TextStream, Tokenizer};
use crate::{Error, ErrorKind, Result};

/// Empty lines that may stand before and behind the reasoning.
const MAX_BLANKS: usize = 4;

/// Bytes of text before a token that are kept to find a marker in.
const LATEST: usize = 256;

/// Says for each token of an answer which ones may come next.
pub(crate) struct Enforcer {
    /// At the start of what is enforced.
    start: Matcher,
    /// What follows the answer since then; none while it is about to take another way.
    matcher: Option<Matcher>,
    state: State,
    watch: Arc<Watch>,
    /// The ways in which calls may begin, where only they are enforced.
    calls: Vec<Beginning>,
    follower: Option<Follower>,
    mask: Vec<u32>,
    /// Whether reasoning may begin, where it still may.
    may_reason: bool,
}

/// A marker behind which a call follows a grammar.
struct Beginning {
    marker: String,
    /// For tokens in which the marker ends.
    watch: Arc<Watch>,
    /// Behind the marker.
    start: Matcher,
}

/// Tells reasoning, or calls, from the rest.
struct Follower {
    tokenizer: Tokenizer,
    stream: TextStream,
    router: Router,
    /// The latest text, in which a marker may stand.
    latest: String,
}

impl Follower {
    fn new(tokenizer: &Tokenizer, stream: TextStream, router: Router) -> Self {
        Self { tokenizer: tokenizer.clone(), stream, router, latest: String::new() }
    }

    /// Takes in a token, and gives its bytes and the phase after it.
    fn push(&mut self, id: u32) -> (Vec<u8>, Phase) {
        let text = self.stream.push(id);
        self.router.push(&text);
        let mut first = self.latest.len().saturating_sub(LATEST);
        while !self.latest.is_char_boundary(first) {
            first += 1;
        }
        self.latest.drain(..first);
        self.latest += &text;
        (self.tokenizer.token_bytes(id), self.router.phase())
    }

    /// The text before what came since the current phase began, if it is still known.
    fn before_phase(&self) -> Option<&str> {
        self.latest.strip_suffix(self.router.since_phase())
    }
}

enum State {
    /// Reasoning may still begin: `text` is all that is there, without blanks before it.
    Undecided { text: Vec<u8>, blanks: usize },
    /// Within the reasoning, which ends with these bytes so far.
    Reasoning { tail: Vec<u8> },
    /// Behind the reasoning.
    Behind { blanks: usize },
    /// The grammar has taken over.
    Settled,
    /// Everything is allowed until a call begins. The text ends with these bytes.
    Free { tail: Vec<u8> },
    /// Within a call.
    Call,
    /// Within a call that began in a way that no grammar is known for.
    Foreign,
}

impl Enforcer {
    /// For an answer that `matcher` follows from its first token on.
    pub fn at_once(grammars: &Grammars, matcher: Matcher) -> Self {
        Self {
            start: matcher.clone(),
            matcher: Some(matcher),
            state: State::Settled,
            watch: grammars.watch(&[], ""),
            calls: Vec::new(),
            follower: None,
            mask: Vec::new(),
            may_reason: true,
        }
    }

    /// For an answer to messages, which begins in `phase` and may show its reasoning first. `router` must take it apart and
    /// look for no tool calls; `stream` must show it all that it needs. Reasoning begins with one of `openings` and ends
    /// with `close`.
    pub fn behind_reasoning(
        grammars: &Grammars,
        matcher: Matcher,
        (tokenizer, stream): (&Tokenizer, TextStream),
        (router, phase): (Router, Phase),
        (openings, close): (&[&str], &str),
    ) -> Self {
        let state = match phase {
            Phase::Reasoning => State::Reasoning { tail: Vec::new() },
            Phase::Undecided => State::Undecided { text: Vec::new(), blanks: MAX_BLANKS },
            Phase::Content | Phase::Call => State::Settled,
        };
        let mut start = matcher.clone();
        start.go_on();
        Self {
            start,
            matcher: Some(matcher),
            state,
            watch: grammars.watch(openings, close),
            calls: Vec::new(),
            follower: Some(Follower::new(tokenizer, stream, router)),
            mask: Vec::new(),
            may_reason: true,
        }
    }

    /// For an answer that says what it likes, but whose calls of tools must be what the matcher beside their start marker
    /// follows from behind that on. There must be at least one. `router` must take the answer apart, calls included.
    pub fn in_calls(
        grammars: &Grammars,
        calls: Vec<(Matcher, &str)>,
        (tokenizer, stream): (&Tokenizer, TextStream),
        router: Router,
    ) -> Option<Self> {
        let begin = |(mut start, marker): (Matcher, &str)| {
            start.go_on();
            Beginning { marker: marker.to_owned(), watch: grammars.watch(&[], marker), start }
        };
        let calls: Vec<Beginning> = calls.into_iter().map(begin).collect();
        let first = calls.first()?;
        Some(Self {
            start: first.start.clone(),
            matcher: None,
            state: State::Free { tail: Vec::new() },
            watch: first.watch.clone(),
            calls,
            follower: Some(Follower::new(tokenizer, stream, router)),
            mask: Vec::new(),
            may_reason: true,
        })
    }

    /// Whether [`Self::hear`] wants to know the next token that the model would choose without a form to keep to.
    pub fn listens(&self) -> bool {
        matches!(&self.state, State::Undecided { text, .. } if text.is_empty())
    }

    /// Hears that token. Reasoning begins only where it would begin by itself: to a model that has another beginning in
    /// mind, a tag may otherwise seem the best of what the form leaves.
    pub fn hear(&mut self, free: u32) {
        self.may_reason =
            self.watch.openings(&[]).any(|id| id == free) || self.watch.blanks().contains(&free);
    }

    /// The tokens that may come next, in the form that [`Sampler::sample`](crate::sample::Sampler::sample) takes.
    ///
    /// # Errors
    /// As [`Matcher::mask`].
    pub fn mask(&mut self) -> Result<&[u32]> {
        self.mask.clear();
        // A token that ends the reasoning, or begins a call, may bring what follows along, which must fit.
        match &self.state {
            State::Reasoning { tail } => {
                self.mask.extend_from_slice(self.watch.all());
                forbid(&mut self.mask, self.watch.straddling(tail), &self.start);
                return Ok(&self.mask);
            }
            State::Free { tail } => {
                self.mask.extend_from_slice(self.watch.everything());
                for call in &self.calls {
                    forbid(&mut self.mask, call.watch.straddling(tail), &call.start);
                }
                return Ok(&self.mask);
            }
            State::Foreign => {
                self.mask.extend_from_slice(self.watch.everything());
                return Ok(&self.mask);
            }
            _ => {}
        }
        match &mut self.matcher {
            Some(matcher) => self.mask.extend_from_slice(matcher.mask()?),
            None => self.mask.resize(self.watch.all().len(), 0),
        }
        let blanks = match &self.state {
            State::Undecided { text, .. } if text.is_empty() && !self.may_reason => 0,
            State::Undecided { text, blanks } => {
                self.watch.openings(text).for_each(|id| set(&mut self.mask, id));
                if text.is_empty() { *blanks } else { 0 }
            }
            State::Behind { blanks } => *blanks,
            _ => 0,
        };
        if blanks > 0 {
            self.watch.blanks().iter().for_each(|&id| set(&mut self.mask, id));
        }
        Ok(&self.mask)
    }

    /// Takes in a token that the mask allowed, and gives the one that stands for it: an end within the reasoning only ends
    /// that.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) where it was not allowed.
    pub fn accept(&mut self, id: u32) -> Result<u32> {
        let id = match self.state {
            State::Reasoning { .. } => self.watch.instead(id),
            _ => id,
        };
        self.follow(id).map(|()| id)
    }

    fn follow(&mut self, id: u32) -> Result<()> {
        if matches!(self.state, State::Settled) {
            return self.matcher.as_mut().map_or(Ok(()), |matcher| matcher.accept(id));
        }
        let Some(follower) = &mut self.follower else { return Ok(()) };
        let (bytes, phase) = follower.push(id);
        match std::mem::replace(&mut self.state, State::Settled) {
            State::Reasoning { tail } if phase == Phase::Reasoning => {
                self.state = State::Reasoning { tail: Watch::longer_tail(tail, &bytes) };
            }
            State::Reasoning { .. } => self.begin(id, phase, &bytes)?,
            State::Behind { blanks } => {
                if !self.take(id)? {
                    self.state = State::Behind { blanks: blanks.saturating_sub(1) };
                }
            }
            State::Undecided { text, blanks } => self.open(id, phase, (text, blanks), &bytes)?,
            State::Free { .. } if phase == Phase::Call => self.call()?,
            State::Free { tail } => self.state = State::Free { tail: Watch::longer_tail(tail, &bytes) },
            State::Call => self.go_on_calling(id, phase)?,
            State::Foreign if phase == Phase::Call => self.state = State::Foreign,
            State::Foreign => self.state = State::Free { tail: Vec::new() },
            State::Settled => {}
        }
        if matches!(self.state, State::Settled) {
            self.follower = None;
        }
        Ok(())
    }

    /// Gives a token to the grammar, if it takes it.
    fn take(&mut self, id: u32) -> Result<bool> {
        let Some(matcher) = &mut self.matcher else { return Ok(false) };
        let taken = matcher.allows(id)?;
        if taken {
            matcher.accept(id)?;
        }
        Ok(taken)
    }

    /// A token while reasoning may still begin.
    fn open(
        &mut self,
        id: u32,
        phase: Phase,
        (mut text, blanks): (Vec<u8>, usize),
        bytes: &[u8],
    ) -> Result<()> {
        let taken = self.take(id)?;
        if !taken && text.is_empty() && bytes.trim_ascii().is_empty() {
            // Without reasoning, it would be content that nobody asked for.
            self.matcher = None;
            self.state = State::Undecided { text, blanks: blanks.saturating_sub(1) };
            return Ok(());
        }
        if text.is_empty() {
            text.extend_from_slice(bytes.trim_ascii_start());
        } else {
            text.extend_from_slice(bytes);
        }
        if !taken {
            self.matcher = None;
        }
        if phase == Phase::Reasoning {
            self.state = State::Reasoning { tail: Vec::new() };
        } else if self.watch.may_open(&text) {
            self.state = State::Undecided { text, blanks: 0 };
        } else if self.matcher.is_none() {
            return Err(misfit());
        }
        Ok(())
    }

    /// The reasoning has ended, and a token may have brought some of what follows.
    fn begin(&mut self, id: u32, phase: Phase, bytes: &[u8]) -> Result<()> {
        self.matcher = Some(self.start.clone());
        let since = self.follower.as_ref().map_or("", |follower| follower.router.since_phase());
        let since = match phase {
            Phase::Undecided => since.trim_ascii_start(),
            _ => without_empty_lines(since),
        };
        let since = since.as_bytes().to_vec();
        let undecided = phase == Phase::Undecided; // the next message may be reasoning again
        if since.is_empty() {
            self.state = match undecided {
                true => State::Undecided { text: Vec::new(), blanks: MAX_BLANKS },
                false => State::Behind { blanks: MAX_BLANKS },
            };
            return Ok(());
        }
        // A token by itself may be one that has no spelling.
        let fits = if since == bytes {
            self.take(id)?
        } else {
            let matcher = self.matcher.as_mut();
            matcher.is_some_and(|matcher| matcher.accept_text(&String::from_utf8_lossy(&since)))
        };
        if undecided && self.watch.may_open(&since) {
            if !fits {
                self.matcher = None;
            }
            self.state = State::Undecided { text: since, blanks: 0 };
            return Ok(());
        }
        if fits { Ok(()) } else { Err(misfit()) }
    }

    /// A call has begun, and the token that began it may have brought some of it.
    fn call(&mut self) -> Result<()> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let before = follower.before_phase().unwrap_or_default();
        let Some(call) = self.calls.iter().find(|call| before.ends_with(&call.marker)) else {
            self.state = State::Foreign;
            return Ok(());
        };
        let mut matcher = call.start.clone();
        let since = follower.router.since_phase();
        if !matcher.accept_text(without_empty_lines(since)) && !matcher.accept_text(since) {
            return Err(misfit());
        }
        self.matcher = Some(matcher);
        self.state = State::Call;
        Ok(())
    }

    /// A token within a call, which may be its last.
    fn go_on_calling(&mut self, id: u32, phase: Phase) -> Result<()> {
        let Some(matcher) = &mut self.matcher else { return Ok(()) };
        matcher.accept(id)?;
        self.state = State::Call;
        if phase != Phase::Call || matcher.is_over() {
            self.matcher = None;
            self.state = State::Free { tail: Vec::new() };
        }
        Ok(())
    }

    /// Whether the answer is whole and cannot go on, and there is no token to say so.
    pub fn must_end(&mut self) -> bool {
        self.watch.has_no_ends()
            && matches!(self.state, State::Settled)
            && self.matcher.as_mut().is_some_and(Matcher::is_over)
    }
}

/// Forbids the tokens that would bring text along which `start` does not take.
fn forbid(mask: &mut [u32], tokens: impl Iterator<Item = (u32, String)>, start: &Matcher) {
    for (id, rest) in tokens {
        if !start.clone().accept_text(without_empty_lines(&rest)) {
            mask[id as usize / 32] &= !(1 << (id % 32));
        }
    }
}

fn misfit() -> Error {
    let message = "a token came that the form of the answer does not allow";
    Error::new(ErrorKind::InvalidArguments, message)
}

#[cfg(test)]
mod tests;
