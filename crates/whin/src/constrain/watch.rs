//! The tokens that may begin or end the reasoning of an answer, found once for a checkpoint.

use super::tokens::Tokens;

/// Bytes of the reasoning's end, or of what comes before a call, that are kept: a tag may have begun in them.
const LONGEST_TAG: usize = 64;

/// Tokens that have to do with the tags around the reasoning.
pub(super) struct Watch {
    tags: Vec<Vec<u8>>, // that begin the reasoning
    close: Vec<u8>,
    /// Tokens that may be part of one that begins it, perhaps with blanks before.
    related: Vec<(u32, Vec<u8>)>,
    /// Tokens in which it may end, and more than blanks stand behind that.
    suspects: Vec<(u32, Vec<u8>)>,
    /// Empty lines.
    blanks: Vec<u32>,
    /// The token that ends it by itself.
    closer: Option<u32>,
    ends: Vec<u32>,
    all: Vec<u32>, // a mask, which allows the ends if there is a closer to put in their place
    everything: Vec<u32>, // a mask, which allows the ends
}

impl Watch {
    pub fn new(tokens: &Tokens, tags: &[&str], close: &str) -> Self {
        let tags: Vec<Vec<u8>> = tags.iter().map(|tag| tag.as_bytes().to_vec()).collect();
        let close = close.as_bytes().to_vec();
        let mut all = vec![0; tokens.vocab().div_ceil(32)];
        let (mut related, mut suspects, mut blanks) = (Vec::new(), Vec::new(), Vec::new());
        let mut closer = None;
        for id in 0..tokens.vocab() as u32 {
            let bytes = tokens.bytes(id);
            if bytes.is_empty() || tokens.eos().contains(&id) {
                continue;
            }
            set(&mut all, id);
            if bytes == close {
                closer = Some(id);
            }
            let text = bytes.trim_ascii_start();
            if text.is_empty() {
                if bytes.ends_with(b"\n") {
                    blanks.push(id);
                }
            } else if tags.iter().any(|tag| is_part_of(text, tag)) {
                related.push((id, bytes.clone()));
            }
            if may_straddle(&bytes, &close) {
                suspects.push((id, bytes.clone()));
            }
        }
        let ends = tokens.eos().to_vec();
        let mut everything = all.clone();
        ends.iter().for_each(|&id| set(&mut everything, id));
        if closer.is_some() {
            all.clone_from(&everything);
        }
        Self { tags, close, related, suspects, blanks, closer, ends, all, everything }
    }

    /// Whether this is about these tags.
    pub fn is_for(&self, tags: &[&str], close: &str) -> bool {
        self.close == close.as_bytes()
            && self.tags.iter().map(Vec::as_slice).eq(tags.iter().map(|tag| tag.as_bytes()))
    }

    /// Whether the reasoning may begin with `text`.
    pub fn may_open(&self, text: &[u8]) -> bool {
        self.tags.iter().any(|tag| tag.starts_with(text))
    }

    /// The tokens that go on towards the beginning of reasoning behind `text`.
    pub fn openings(&self, text: &[u8]) -> impl Iterator<Item = u32> {
        let rests: Vec<&[u8]> = self.tags.iter().filter_map(|tag| tag.strip_prefix(text)).collect();
        let first = text.is_empty();
        let fits = move |(_, bytes): &&(u32, Vec<u8>)| {
            let bytes = if first { bytes.trim_ascii_start() } else { bytes };
            rests.iter().any(|rest| !rest.is_empty() && (rest.starts_with(bytes) || bytes.starts_with(rest)))
        };
        self.related.iter().filter(fits).map(|(id, _)| *id)
    }

    /// The tokens that would end reasoning whose end is `tail`, with the text that they would bring behind that.
    pub fn straddling<'a>(&'a self, tail: &'a [u8]) -> impl Iterator<Item = (u32, String)> + 'a {
        let tail = &tail[tail.len().saturating_sub(self.close.len().saturating_sub(1))..];
        self.suspects.iter().filter_map(move |(id, bytes)| {
            let all = [tail, bytes].concat();
            let place = all.windows(self.close.len()).position(|window| window == self.close)?;
            let rest = String::from_utf8_lossy(&all[place + self.close.len()..]).into_owned();
            (!rest.trim_ascii().is_empty()).then_some((*id, rest))
        })
    }

    /// The end of the reasoning once `bytes` have come.
    pub fn longer_tail(mut tail: Vec<u8>, bytes: &[u8]) -> Vec<u8> {
        tail.extend_from_slice(bytes);
        tail.drain(..tail.len().saturating_sub(LONGEST_TAG));
        tail
    }

    pub fn blanks(&self) -> &[u32] {
        &self.blanks
    }

    /// The mask of all tokens that may stand in reasoning, or be asked for there.
    pub fn all(&self) -> &[u32] {
        &self.all
    }

    /// The mask of all tokens.
    pub fn everything(&self) -> &[u32] {
        &self.everything
    }

    /// The token to take in reasoning where the model chose `id`: one that would end the answer ends the reasoning.
    pub fn instead(&self, id: u32) -> u32 {
        self.closer.filter(|_| self.ends.contains(&id)).unwrap_or(id)
    }

    pub fn has_no_ends(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Whether `text` may stand in a text that begins with `tag`, reaching into it.
fn is_part_of(text: &[u8], tag: &[u8]) -> bool {
    (0..tag.len()).any(|place| tag[place..].starts_with(text) || text.starts_with(&tag[place..]))
}

/// Whether the tag `close` may end within `bytes`, with more than blanks behind it.
fn may_straddle(bytes: &[u8], close: &[u8]) -> bool {
    let Some((last, _)) = close.split_last() else { return false };
    let ends = bytes.iter().enumerate().filter(|(_, byte)| *byte == last).map(|(place, _)| place + 1);
    ends.into_iter().any(|end| {
        let begun = &bytes[..end];
        (close.ends_with(begun) || begun.ends_with(close)) && !bytes[end..].trim_ascii().is_empty()
    })
}

/// `text` without the empty lines that it begins with: they belong to the reasoning before them.
pub(super) fn without_empty_lines(text: &str) -> &str {
    let blank = text.len() - text.trim_ascii_start().len();
    let lines = text[..blank].rfind('\n').map_or(0, |place| place + 1);
    &text[lines..]
}

/// Allows a token.
pub(super) fn set(mask: &mut [u32], id: u32) {
    if let Some(word) = mask.get_mut(id as usize / 32) {
        *word |= 1 << (id % 32);
    }
}
