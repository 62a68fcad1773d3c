//! From tokens to what the caller reads: text, taken apart where it answers messages, and cut at stop strings.

use crate::chat::{Delta, Phase, Router};
use crate::stop::StopStrings;
use crate::tokenizer::TextStream;

/// The text of one answer on its way.
pub(crate) struct TextOut {
    stream: TextStream,
    stops: StopStrings,
    /// The same texts, to name the one that hit.
    names: Vec<String>,
    messages: Option<Messages>,
}

/// What is asked of the calls in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    /// The answer consists of them, so that what is cut off is one.
    pub alone: bool,
    /// The answer ends after the first.
    pub one: bool,
}

/// What an answer to messages needs besides.
struct Messages {
    router: Router,
    calls: Calls,
    /// Everything that the model wrote.
    raw: String,
    /// Where in it the content begins that is being written.
    content_from: usize,
    n_reasoning: usize,
}

/// What comes after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More of the text.
    More,
    /// Nothing: the text has ended by itself.
    End,
    /// Nothing: it is cut off.
    Cut,
}

/// What one token added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    /// The text, or the content of an answer to messages.
    pub text: String,
    /// The pieces of an answer to messages.
    pub deltas: Vec<Delta>,
    /// The stop string that ended the text.
    pub stop: Option<String>,
    /// Whether the text is over for another reason: a call was complete, and more are not wanted.
    pub is_over: bool,
}

impl TextOut {
    /// The text of an answer to a text or to tokens.
    pub fn new(stream: TextStream, stops: StopStrings, names: Vec<String>) -> Self {
        Self { stream, stops, names, messages: None }
    }

    /// The text of an answer to messages.
    pub fn routed(self, router: Router, calls: Calls) -> Self {
        let messages = Messages { router, calls, raw: String::new(), content_from: 0, n_reasoning: 0 };
        Self { messages: Some(messages), ..self }
    }

    /// Takes in the next token, none where that is not part of the text, as the one that ends it.
    pub fn push(&mut self, id: Option<u32>, next: Next) -> Piece {
        let is_last = next != Next::More;
        let mut text = id.map(|id| self.stream.push(id)).unwrap_or_default();
        if is_last {
            text += &self.stream.finish();
        }
        let Some(messages) = &mut self.messages else {
            let mut piece = Piece::default();
            self.cut(&text, is_last, &mut piece.text, &mut piece.stop);
            return piece;
        };
        let mut deltas = messages.push(&text);
        match next {
            Next::More => {}
            Next::End => deltas.extend(messages.router.finish()),
            Next::Cut => deltas.extend(messages.finish_cut()),
        }
        let piece = self.cut_deltas(deltas, is_last);
        if let (Some(stop), Some(messages)) = (&piece.stop, &mut self.messages) {
            messages.end_before(stop);
        }
        piece
    }

    /// Adds to `out` what may be shown of `text`.
    fn cut(&mut self, text: &str, is_last: bool, out: &mut String, stop: &mut Option<String>) {
        let (shown, hit) = self.stops.push(text);
        *out += &shown;
        match hit {
            Some(hit) => *stop = Some(self.names[hit].clone()),
            None if is_last => *out += &self.stops.finish(),
            None => {}
        }
    }

    /// Stop strings count in content alone, and do not reach across what stands between two pieces of it.
    fn cut_deltas(&mut self, deltas: Vec<Delta>, is_last: bool) -> Piece {
        let mut piece = Piece::default();
        for delta in deltas {
            let mut content = String::new();
            match &delta {
                Delta::Content(text) => self.cut(text, false, &mut content, &mut piece.stop),
                Delta::Reasoning(_) | Delta::Call(_) => content = self.stops.finish(),
            }
            piece.add_content(content);
            if !matches!(delta, Delta::Content(_)) {
                piece.is_over = matches!(delta, Delta::Call(_)) && self.wants_one_call();
                piece.deltas.push(delta);
            }
            if piece.stop.is_some() || piece.is_over {
                return piece;
            }
        }
        if is_last {
            piece.add_content(self.stops.finish());
        }
        piece
    }

    fn wants_one_call(&self) -> bool {
        self.messages.as_ref().is_some_and(|messages| messages.calls.one)
    }

    /// What the model has written in answer to messages, and how many tokens of it are reasoning.
    pub fn raw(&self) -> (Option<String>, usize) {
        self.messages
            .as_ref()
            .map_or((None, 0), |messages| (Some(messages.raw.clone()), messages.n_reasoning))
    }
}

impl Messages {
    fn push(&mut self, text: &str) -> Vec<Delta> {
        let before = self.router.phase();
        self.raw += text;
        let deltas = self.router.push(text);
        let after = self.router.phase();
        if [before, after].contains(&Phase::Reasoning) {
            self.n_reasoning += 1;
        }
        // Whatever the piece began with, the content behind its last tag is what stop strings are looked for in.
        if after != Phase::Content {
            self.content_from = self.raw.len();
        } else if before != Phase::Content || deltas.iter().any(|delta| !matches!(delta, Delta::Content(_))) {
            self.content_from = self.raw.len() - self.router.since_phase().len();
        }
        deltas
    }

    /// What was held back of an answer that is cut off.
    fn finish_cut(&mut self) -> Vec<Delta> {
        let mut deltas = self.router.finish_cut();
        if self.calls.alone {
            deltas.retain(|delta| !matches!(delta, Delta::Content(_)));
        }
        deltas
    }

    /// Forgets the stop string that ended the content, and what follows it.
    fn end_before(&mut self, stop: &str) {
        let at = self.raw[self.content_from..].find(stop).map(|at| self.content_from + at);
        // It may have stood before a tag that came with the same token.
        if let Some(at) = at.or_else(|| self.raw.rfind(stop)) {
            self.raw.truncate(at);
        }
    }
}

impl Piece {
    fn add_content(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        self.text += &text;
        match self.deltas.last_mut() {
            Some(Delta::Content(last)) => *last += &text,
            _ => self.deltas.push(Delta::Content(text)),
        }
    }
}
