//! The part of an answer that a router still needs: what is held back, and what the current phase consists of.
//!
//! Places are counted in bytes from the beginning of the answer. It knows nothing of what the text means.

/// Text that is no call is searched once more for a call that begins inside it, as long as no more text is read again
/// than so many times what has come, so that no answer takes longer than its length allows.
pub(super) const AGAIN: usize = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    text: String,
    base: usize,         // the place of the first byte of `text`
    pub at: usize,       // the place of the next byte to be looked at
    pub released: usize, // what stands before has been given out, or dropped
    pub phase: usize,    // where the current phase began
}

impl Buffer {
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// The place behind the last byte.
    pub fn end(&self) -> usize {
        self.base + self.text.len()
    }

    /// The bytes between two places.
    pub fn bytes(&self, from: usize, to: usize) -> &[u8] {
        &self.text.as_bytes()[from - self.base..to - self.base]
    }

    pub fn byte(&self, place: usize) -> u8 {
        self.text.as_bytes()[place - self.base]
    }

    /// Gives out the text up to a place, which must not lie within a character.
    pub fn release(&mut self, to: usize) -> String {
        let text = self.text[self.released - self.base..to - self.base].to_owned();
        self.released = to;
        text
    }

    /// The text since the current phase began.
    pub fn since_phase(&self) -> &str {
        &self.text[self.phase - self.base..]
    }

    /// Forgets what is neither held back nor part of the current phase.
    pub fn forget(&mut self) {
        let keep = self.released.min(self.phase);
        self.text.drain(..keep - self.base);
        self.base = keep;
    }
}

/// What the end of a text is of a list of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// No beginning of any.
    No,
    /// A beginning of one.
    Begun,
    /// The whole of the one with this index.
    Whole(usize),
}

/// Compares a text with tags, none of which may be the beginning of another.
pub(super) fn compare(tail: &[u8], tags: &[&str]) -> Match {
    let mut result = Match::No;
    for (index, tag) in tags.iter().enumerate() {
        if tag.as_bytes() == tail {
            return Match::Whole(index);
        }
        if tag.as_bytes().starts_with(tail) {
            result = Match::Begun;
        }
    }
    result
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
