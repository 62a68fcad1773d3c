//! Token ids to text, one at a time, never half a character.

use super::Tokenizer;
use super::pieces::{Pieces, Table};

/// As many tokens, at most, are held back by decoders that look at neighbouring tokens.
const MAX_WINDOW: usize = 32;

/// Turns ids into text as they come. The pieces of [`push`](Self::push) and [`finish`](Self::finish),
/// joined, are [`Tokenizer::decode`] of all ids.
pub struct TextStream {
    tokenizer: Tokenizer,
    skip_special: bool,
    shown: Vec<u32>, // special tokens that are not skipped
    opened: bool,    // whether a token has been seen
    strip: usize,    // how many characters may still be stripped from the text's start
    partial: PartialChar,
    window: Window,
}

impl TextStream {
    /// A stream at the start of a text; special tokens are left out if `skip_special`, as is usual.
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        let strip = match tokenizer.pieces() {
            Pieces::PerToken(Table { strip: Some((_, most)), .. }) => *most,
            _ => 0,
        };
        Self {
            tokenizer: tokenizer.clone(),
            skip_special,
            shown: Vec::new(),
            opened: false,
            strip,
            partial: PartialChar::default(),
            window: Window::default(),
        }
    }

    /// The same stream, in which these special tokens are text like others.
    pub fn showing(mut self, ids: &[u32]) -> Self {
        self.shown = ids.to_vec();
        self
    }

    /// The text that is certain once `id` has come: often one word, empty for special tokens and inside
    /// a character. Bytes that can no longer become a character are U+FFFD at once.
    pub fn push(&mut self, id: u32) -> String {
        if self.skip_special && self.tokenizer.is_special(id) && !self.shown.contains(&id) {
            return String::new();
        }
        match self.tokenizer.pieces() {
            Pieces::PerToken(table) => {
                if !table.knows(id) {
                    return String::new();
                }
                let opening = !std::mem::replace(&mut self.opened, true);
                let spelt = if opening { self.tokenizer.id_to_token(id) } else { None };
                let text = match spelt.and_then(|spelt| table.first_bytes(&spelt)) {
                    Some(bytes) => self.partial.push(&bytes),
                    None => self.partial.push(table.bytes(id)),
                };
                match table.strip {
                    Some((stripped, _)) if self.strip > 0 => strip_start(&text, stripped, &mut self.strip),
                    _ => text,
                }
            }
            Pieces::Windowed => self.window.push(&self.tokenizer, id),
        }
    }

    /// The text that was still held back, at the end: U+FFFD for a character that was cut off. The
    /// stream must not be used afterwards for the same text.
    pub fn finish(&mut self) -> String {
        match self.tokenizer.pieces() {
            Pieces::PerToken(_) => self.partial.finish(),
            Pieces::Windowed => self.window.finish(&self.tokenizer),
        }
    }
}

/// `text` without the `stripped` characters at its start, at most `most` of them; `most` becomes what may
/// still be stripped from the text that follows.
fn strip_start(text: &str, stripped: char, most: &mut usize) -> String {
    let mut rest = text;
    while *most > 0 && !rest.is_empty() {
        match rest.strip_prefix(stripped) {
            Some(shorter) => (rest, *most) = (shorter, *most - 1),
            None => *most = 0,
        }
    }
    rest.to_owned()
}

/// The beginning of a character whose other bytes have not come: 3 bytes at most.
#[derive(Default)]
struct PartialChar {
    bytes: Vec<u8>,
}

impl PartialChar {
    /// The text of the bytes held and those that come, up to the last whole character. What cannot become
    /// a character is one U+FFFD per maximal subpart (The Unicode Standard, 3.9, "U+FFFD Substitution of
    /// Maximal Subparts"), as `String::from_utf8_lossy` has it.
    fn push(&mut self, more: &[u8]) -> String {
        self.bytes.extend_from_slice(more);
        let mut text = String::with_capacity(self.bytes.len());
        let mut done = 0;
        for chunk in self.bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            let at_the_end = done + invalid.len() == self.bytes.len();
            if at_the_end && can_become_a_character(invalid) {
                break;
            }
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                done += invalid.len();
            }
        }
        self.bytes.drain(..done);
        text
    }

    fn finish(&mut self) -> String {
        let cut = !std::mem::take(&mut self.bytes).is_empty();
        if cut { char::REPLACEMENT_CHARACTER.to_string() } else { String::new() }
    }
}

/// Whether `bytes` are a beginning of a character that lacks only bytes at its end.
fn can_become_a_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// The last ids, for decoders that look at neighbouring tokens: the text of the ids already written is
/// taken off the text of all ids in the window.
#[derive(Default)]
struct Window {
    ids: Vec<u32>,
    written: usize, // how many of `ids` are written, as context for the others
}

impl Window {
    fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        if tokenizer.id_to_token(id).is_none() {
            return String::new();
        }
        self.ids.push(id);
        let before = tokenizer.decode_by_crate(&self.ids[..self.written]);
        let now = tokenizer.decode_by_crate(&self.ids);
        // A character may still be open; but text that was produced as U+FFFD must not dam up the rest.
        let open = now.ends_with(char::REPLACEMENT_CHARACTER) && self.ids.len() - self.written < MAX_WINDOW;
        if open {
            return String::new();
        }
        self.ids.drain(..self.written);
        self.written = self.ids.len();
        now.get(before.len()..).unwrap_or_default().to_owned()
    }

    fn finish(&mut self, tokenizer: &Tokenizer) -> String {
        let before = tokenizer.decode_by_crate(&self.ids[..self.written]);
        let now = tokenizer.decode_by_crate(&self.ids);
        *self = Self::default();
        now.get(before.len()..).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seedling() -> Tokenizer {
        let json = include_bytes!("../../../../models/seedling/tokenizer.json");
        Tokenizer::from_bytes(json, "tokenizer.json").unwrap()
    }

    fn pushed(pieces: &[&[u8]]) -> Vec<String> {
        let mut partial = PartialChar::default();
        let mut texts: Vec<String> = pieces.iter().map(|piece| partial.push(piece)).collect();
        texts.push(partial.finish());
        texts
    }

    #[test]
    fn characters_come_whole() {
        let smile = "🙂".as_bytes();
        assert_eq!(pushed(&[&smile[..1], &smile[1..3], &smile[3..]]), ["", "", "🙂", ""]);
        assert_eq!(pushed(&[b"a\xc3", b"\xa9b"]), ["a", "éb", ""]);
        assert_eq!(pushed(&[b"a\xf0\x9f\x99"]), ["a", "\u{fffd}"]);
    }

    #[test]
    fn hopeless_bytes_are_replaced_at_once() {
        assert_eq!(pushed(&[b"\x80", b"\xff"]), ["\u{fffd}", "\u{fffd}", ""]);
        // F0 9F is a beginning; the A that follows ends its hope, and E2 82 41 likewise.
        assert_eq!(pushed(&[b"\xf0\x9f", b"A"]), ["", "\u{fffd}A", ""]);
        assert_eq!(pushed(&[b"\xe2\x82A"]), ["\u{fffd}A", ""]);
        // ED A0 would be a surrogate, C0 an overlong form, F4 90 past the last character: hopeless at once.
        assert_eq!(pushed(&[b"\xed", b"\xa0"]), ["", "\u{fffd}\u{fffd}", ""]);
        assert_eq!(pushed(&[b"\xc0"]), ["\u{fffd}", ""]);
        assert_eq!(pushed(&[b"\xf4\x90"]), ["\u{fffd}\u{fffd}", ""]);
    }

    proptest! {
        #[test]
        fn any_pieces_of_any_bytes_give_the_lossy_text(pieces in prop::collection::vec(byteish(), 0..20)) {
            let mut partial = PartialChar::default();
            let mut text = String::new();
            for piece in &pieces {
                text.push_str(&partial.push(piece));
                prop_assert!(partial.bytes.len() <= 3);
            }
            text.push_str(&partial.finish());
            let bytes = pieces.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }

    /// Bytes that often begin, continue or break characters.
    fn byteish() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            any::<u8>(),
            Just(0x41),
            prop::sample::select(vec![0xc3, 0xe2, 0xed, 0xf0, 0xf4, 0x80, 0x82, 0x9f, 0xa0, 0xac]),
        ];
        prop::collection::vec(byte, 0..4)
    }

    #[test]
    fn streamed_ids_give_the_text_of_all_ids() {
        let tokenizer = seedling();
        let ids = prop::collection::vec(0..tokenizer.vocab_size() as u32 + 20, 0..30);
        proptest!(|(ids in ids, skip_special: bool)| {
            let mut stream = TextStream::new(&tokenizer, skip_special);
            let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
            text.push_str(&stream.finish());
            prop_assert_eq!(&text, &tokenizer.decode(&ids, skip_special));
            // The `tokenizers` crate, which sees all ids at once, is the judge.
            let whole = tokenizer.shared.inner.decode(&ids, skip_special).unwrap();
            prop_assert_eq!(&text, &whole);
            if !skip_special {
                let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).collect();
                prop_assert_eq!(&text, &String::from_utf8_lossy(&bytes));
            }
        });
    }

    #[test]
    fn special_tokens_go_and_added_ones_stay() {
        let tokenizer = seedling();
        let ids = tokenizer.encode("<think>a</think>b<|im_end|>").unwrap();
        assert_eq!(tokenizer.decode(&ids, true), "<think>a</think>b");
        assert_eq!(tokenizer.decode(&ids, false), "<think>a</think>b<|im_end|>");
        let mut stream = TextStream::new(&tokenizer, true);
        let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
        assert_eq!(pieces, ["<think>", "a", "</think>", "b", ""]);
    }
}
