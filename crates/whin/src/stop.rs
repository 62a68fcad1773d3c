//! Stop strings: finds where an answer must end, in text that comes in pieces.
//!
//! Works on text alone; it knows nothing of tokens. The text of the prompt never comes here.

use crate::{Error, ErrorKind, Result};

/// Looks for stop strings in streamed text and holds back only what may become one.
///
/// The match that counts is the one that is complete first; among those that are complete with the same
/// character, the one that starts first, which is the longest. That depends on the text alone, never on the
/// pieces it came in: each byte is looked at once, in order.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<Stop>,
    held: String, // the longest end of the text so far that is a beginning of some stop string
    hit: Option<usize>, // the stop string that ended the text
}

/// One stop string, and how much of it the text ends with: the automaton of Knuth, Morris and Pratt
/// ("Fast pattern matching in strings", 1977).
#[derive(Clone, Debug)]
struct Stop {
    bytes: Vec<u8>,
    /// `borders[n]`: the longest proper beginning of `bytes[..=n]` that is also its end.
    borders: Vec<usize>,
    matched: usize,
}

impl StopStrings {
    /// # Errors
    /// `invalid_arguments` if a stop string is empty: it would match before the first character.
    pub fn new(stops: Vec<String>) -> Result<Self> {
        if let Some(place) = stops.iter().position(String::is_empty) {
            let message = format!("stop string {place} is empty; leave it out or give it a character");
            return Err(Error::new(ErrorKind::InvalidArguments, message));
        }
        let stops = stops.into_iter().map(|stop| Stop::new(stop.into_bytes())).collect();
        Ok(Self { stops, held: String::new(), hit: None })
    }

    /// The text that may be shown now that `piece` has come, and the place in the list of the stop string
    /// that hit, if one did (the first, if it stands there twice). The text ends where that stop string
    /// starts; whatever follows is swallowed.
    pub fn push(&mut self, piece: &str) -> (String, Option<usize>) {
        if self.hit.is_some() {
            return (String::new(), self.hit);
        }
        let before = self.held.len();
        self.held.push_str(piece);
        for (place, &byte) in piece.as_bytes().iter().enumerate() {
            let end = before + place + 1;
            let mut longest: Option<(usize, usize)> = None;
            for (index, stop) in self.stops.iter_mut().enumerate() {
                let complete = stop.advance(byte);
                if complete && longest.is_none_or(|(length, _)| stop.bytes.len() > length) {
                    longest = Some((stop.bytes.len(), index));
                }
            }
            if let Some((length, index)) = longest {
                self.hit = Some(index);
                let mut text = std::mem::take(&mut self.held);
                text.truncate(end - length);
                return (text, self.hit);
            }
        }
        let hold = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let release = self.held.len() - hold;
        (self.held.drain(..release).collect(), None)
    }

    /// The text that was held back, when no more comes, or when what comes does not belong to it; empty after a hit.
    pub fn finish(&mut self) -> String {
        self.stops.iter_mut().for_each(|stop| stop.matched = 0);
        std::mem::take(&mut self.held)
    }
}

impl Stop {
    fn new(bytes: Vec<u8>) -> Self {
        let mut borders = vec![0; bytes.len()];
        for end in 1..bytes.len() {
            let mut border = borders[end - 1];
            while border > 0 && bytes[border] != bytes[end] {
                border = borders[border - 1];
            }
            borders[end] = if bytes[border] == bytes[end] { border + 1 } else { 0 };
        }
        Self { bytes, borders, matched: 0 }
    }

    /// Takes the next byte of the text; true if the text now ends with the whole stop string.
    fn advance(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        if self.bytes[self.matched] == byte {
            self.matched += 1;
        }
        // Nothing is read after the first hit, so the automaton never has to leave this state.
        self.matched == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word by word: the earliest end, then the earliest start, then the first in the list.
    fn by_definition(stops: &[String], text: &str) -> (String, Option<usize>) {
        let mut best: Option<(usize, usize, usize)> = None;
        for (index, stop) in stops.iter().enumerate() {
            if let Some(start) = text.find(stop.as_str()) {
                let found = (start + stop.len(), start, index);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        match best {
            Some((_, start, index)) => (text[..start].to_owned(), Some(index)),
            None => (text.to_owned(), None),
        }
    }

    fn strings(stops: &[&str]) -> Vec<String> {
        stops.iter().map(|&stop| stop.to_owned()).collect()
    }

    fn streamed(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<usize>) {
        let mut finder = StopStrings::new(strings(stops)).unwrap();
        let mut hit = None;
        let mut released: Vec<String> = Vec::new();
        for piece in pieces {
            let (text, found) = finder.push(piece);
            released.push(text);
            hit = found;
        }
        released.push(finder.finish());
        (released, hit)
    }

    #[test]
    fn a_stop_string_over_several_pieces_never_leaks() {
        let (released, hit) = streamed(&["</end>"], &["yes", " <", "/e", "nd", "> no"]);
        assert_eq!(released, ["yes", " ", "", "", "", ""]);
        assert_eq!(hit, Some(0));
    }

    #[test]
    fn holds_exactly_what_may_become_a_stop_string_and_releases_it_at_the_end() {
        let (released, hit) = streamed(&["aab", "ac"], &["xaa", "aa", "c", "a"]);
        assert_eq!(released, ["x", "aa", "a", "", ""]);
        assert_eq!(hit, Some(1));
        let (released, hit) = streamed(&["User:"], &["a Us", "e", "r"]);
        assert_eq!(released, ["a ", "", "", "User"]);
        assert_eq!(hit, None);
    }

    #[test]
    fn the_match_that_is_complete_first_counts_then_the_longest() {
        assert_eq!(streamed(&["abcd", "bc"], &["xabcd"]), (strings(&["xa", ""]), Some(1)));
        assert_eq!(streamed(&["bc", "abc", "abc"], &["xabcd"]), (strings(&["x", ""]), Some(1)));
        assert_eq!(streamed(&["ab", "abc"], &["xa", "bc"]), (strings(&["x", "", ""]), Some(0)));
    }

    #[test]
    fn no_stop_strings_hold_nothing_and_an_empty_one_is_refused() {
        assert_eq!(streamed(&[], &["a", "b"]), (strings(&["a", "b", ""]), None));
        let error = StopStrings::new(strings(&["a", ""])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    }

    proptest! {
        #[test]
        fn any_pieces_give_what_the_whole_text_gives(
            stops in prop::collection::vec("[abé🙂]{1,5}", 0..4),
            text in "[abé🙂]{0,40}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            places.retain(|&place| text.is_char_boundary(place));
            places.extend([0, text.len()]);
            places.sort_unstable();

            let mut finder = StopStrings::new(stops.clone()).unwrap();
            let mut released = String::new();
            let mut hit = None;
            for pair in places.windows(2) {
                let (more, found) = finder.push(&text[pair[0]..pair[1]]);
                released.push_str(&more);
                hit = found;
                if hit.is_none() {
                    let shown = released.len();
                    let hold = (0..=pair[1])
                        .filter(|&start| text.is_char_boundary(start))
                        .find(|&start| {
                            let end = &text[start..pair[1]];
                            end.is_empty() || stops.iter().any(|stop| stop.starts_with(end) && stop != end)
                        });
                    prop_assert_eq!(Some(shown), hold);
                }
            }
            released.push_str(&finder.finish());
            prop_assert_eq!((released, hit), by_definition(&stops, &text));
        }
    }
}
