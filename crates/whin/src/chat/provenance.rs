//! Who wrote which characters of a rendered prompt.
//!
//! Templates take strings and give one string, so what a user wrote has to be marked inside the strings. Before
//! rendering, those characters of a user's or a tool's text that stand in control tokens and are neither letters nor
//! blanks get stand-ins from Unicode's private use areas, one for one; afterwards they are put back, and their places are
//! known. Whatever a template does with the text (trim, split, quote, join), a stand-in remains a stand-in. A template that
//! looks for such characters in what a user wrote finds none.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

/// Roles whose text is not the caller's own.
const FOREIGN_ROLES: [&str; 4] = ["user", "tool", "function", "ipython"];

/// What one character of a text becomes while the template runs.
type Pair = (char, char);

/// Stand-ins that occur nowhere else in a conversation.
pub(super) struct StandIns<'a> {
    pairs: Vec<Pair>,
    /// Control tokens that the assistant does not write either.
    tokens: Option<&'a AhoCorasick>,
}

/// Finds these control tokens in texts; none where they are too many.
pub(super) fn finder(tokens: &[String]) -> Option<AhoCorasick> {
    AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(tokens).ok()
}

impl<'a> StandIns<'a> {
    /// Stand-ins for `characters`, none of which occurs in `texts`, as itself or as an escape. In the assistant's text
    /// only whole `tokens` count: it has tags of its own, which templates look for.
    pub fn new<'t>(
        characters: &BTreeSet<char>,
        tokens: Option<&'a AhoCorasick>,
        texts: impl Iterator<Item = &'t str>,
    ) -> Self {
        let mut taken: BTreeSet<char> = BTreeSet::new();
        for text in texts {
            taken.extend(text.chars().filter(|c| is_private(*c)));
            taken.extend(text.match_indices('\\').filter_map(|(at, _)| escaped(&text[at..])).map(|(c, _)| c));
        }
        // There are more of them than a text of 500 kilobytes can hold, and one that holds all leaves nothing to be rendered.
        let free =
            ('\u{e000}'..='\u{f8ff}').chain('\u{f0000}'..='\u{ffffd}').chain('\u{100000}'..='\u{10fffd}');
        let free = free.filter(|c| !taken.contains(c));
        Self { pairs: characters.iter().copied().zip(free).collect(), tokens }
    }

    /// Whether each of so many characters has one.
    pub fn are_enough_for(&self, characters: &BTreeSet<char>) -> bool {
        self.pairs.len() == characters.len()
    }

    /// Puts stand-ins into what users and tools wrote: their messages, and the ids and arguments of calls. In what the
    /// assistant wrote, they go into control tokens that it cannot have meant.
    pub fn mark_messages(&self, messages: &mut [Value]) {
        for message in messages.iter_mut().filter_map(Value::as_object_mut) {
            let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
            let is_foreign = FOREIGN_ROLES.contains(&role);
            let is_assistant = role == "assistant";
            for (key, value) in message.iter_mut() {
                match key.as_str() {
                    "role" => {}
                    "tool_calls" => self.mark_calls(value),
                    "content" if is_foreign => self.mark_content(value),
                    _ if is_foreign => self.mark_unless_name(value),
                    _ if is_assistant => self.mark_tokens(value),
                    _ => {}
                }
            }
        }
    }

    /// A text, or parts, of which `type` says what they are.
    fn mark_content(&self, content: &mut Value) {
        match content {
            Value::Array(parts) => {
                for (key, value) in parts.iter_mut().filter_map(Value::as_object_mut).flatten() {
                    if key != "type" {
                        self.mark(value);
                    }
                }
            }
            other => self.mark(other),
        }
    }

    fn mark_calls(&self, calls: &mut Value) {
        for call in calls.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            for (key, value) in call.iter_mut() {
                match (key.as_str(), value) {
                    ("type", _) => {}
                    ("arguments", arguments) => self.mark(arguments),
                    ("function", Value::Object(function)) => {
                        for (key, value) in function.iter_mut() {
                            if key == "arguments" { self.mark(value) } else { self.mark_unless_name(value) }
                        }
                    }
                    (_, value) => self.mark_unless_name(value),
                }
            }
        }
    }

    /// Ids and names are compared with others, so that plain ones are left alone.
    fn mark_unless_name(&self, value: &mut Value) {
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c));
        if !value.as_str().is_some_and(is_name) {
            self.mark(value);
        }
    }

    /// Puts stand-ins into every string of a value, keys included.
    pub fn mark(&self, value: &mut Value) {
        self.change(value, &|text| text.chars().map(|c| self.of(c)).collect());
    }

    /// Puts stand-ins into the control tokens in every string of a value.
    fn mark_tokens(&self, value: &mut Value) {
        let mark = |text: &str| {
            let (mut marked, mut done) = (String::with_capacity(text.len()), 0);
            for found in self.tokens.into_iter().flat_map(|tokens| tokens.find_iter(text)) {
                marked += &text[done..found.start()];
                marked.extend(text[found.range()].chars().map(|c| self.of(c)));
                done = found.end();
            }
            marked + &text[done..]
        };
        self.change(value, &mark);
    }

    fn change(&self, value: &mut Value, how: &dyn Fn(&str) -> String) {
        match value {
            Value::String(text) => *text = how(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.change(value, how)),
            Value::Object(map) => {
                let changed = std::mem::take(map).into_iter().map(|(key, mut value)| {
                    self.change(&mut value, how);
                    (how(&key), value)
                });
                *map = changed.collect::<Map<String, Value>>();
            }
            _ => {}
        }
    }

    fn of(&self, c: char) -> char {
        self.pairs.iter().find(|(character, _)| *character == c).map_or(c, |(_, stand_in)| *stand_in)
    }

    /// The text with its own characters again, and the sorted places, in bytes, of those that had stand-ins. Where the
    /// template escaped one, as in `\ue000`, it gets the character.
    pub fn unmark(&self, marked: &str) -> (String, Vec<usize>) {
        let (mut text, mut places) = (String::with_capacity(marked.len()), Vec::new());
        let mut rest = marked;
        while let Some(c) = rest.chars().next() {
            let escape = if c == '\\' { escaped(rest) } else { None };
            let (stand_in, length) = escape.unwrap_or((c, c.len_utf8()));
            match self.pairs.iter().find(|(_, known)| *known == stand_in) {
                Some((character, _)) => {
                    places.push(text.len());
                    text.push(*character);
                    rest = &rest[length..];
                }
                None => {
                    text.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        (text, places)
    }
}

fn is_private(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{ffffd}' | '\u{100000}'..='\u{10fffd}')
}

/// The private character that an escape at the beginning of `text` stands for, and its length: `\ue000`, or for those of
/// the higher planes two such in JSON and `\U000f0000` in Python.
fn escaped(text: &str) -> Option<(char, usize)> {
    let digits = |at: usize, count: usize| u32::from_str_radix(text.get(at..at + count)?, 16).ok();
    let (code, length) = match text.get(..2)? {
        "\\U" => (digits(2, 8)?, 10),
        "\\u" => match (digits(2, 4)?, text.get(6..8), digits(8, 4)) {
            (high @ 0xd800..=0xdbff, Some("\\u"), Some(low @ 0xdc00..=0xdfff)) => {
                (0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), 12)
            }
            (code, ..) => (code, 6),
        },
        _ => return None,
    };
    char::from_u32(code).filter(|c| is_private(*c)).map(|c| (c, length))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stand_ins(texts: &[&str]) -> StandIns<'static> {
        StandIns::new(&BTreeSet::from(['<', '>']), None, texts.iter().copied())
    }

    #[test]
    fn marks_come_off_again() {
        let stand_ins = stand_ins(&["\u{e000} and \\ue001"]);
        assert_eq!(stand_ins.pairs, [('<', '\u{e002}'), ('>', '\u{e003}')]);
        let mut value = json!({"a<": ["<b>", 1, null, {"c": ">"}]});
        stand_ins.mark(&mut value);
        assert_eq!(value, json!({"a\u{e002}": ["\u{e002}b\u{e003}", 1, null, {"c": "\u{e003}"}]}));
        let (text, places) = stand_ins.unmark("<\u{e002}é\u{e003}>\\ue002\\ue000\\u\u{e000}");
        assert_eq!(text, "<<é>><\\ue000\\u\u{e000}");
        assert_eq!(places, [1, 4, 6]);
    }

    #[test]
    fn a_text_with_every_private_character_of_the_first_plane_is_marked_all_the_same() {
        let all: String = ('\u{e000}'..='\u{f8ff}').collect();
        let stand_ins = stand_ins(&[&all, "\\udb80\\udc00 \\U000f0001"]);
        assert_eq!(stand_ins.pairs, [('<', '\u{f0002}'), ('>', '\u{f0003}')]);
        assert!(stand_ins.are_enough_for(&BTreeSet::from(['<', '>'])));
        let (text, places) = stand_ins.unmark("\u{f0002}\\udb80\\udc03\\U000f0002\\udb80");
        assert_eq!((text.as_str(), places), ("<><\\udb80", vec![0, 1, 2]));
    }

    #[test]
    fn only_what_others_wrote_is_marked() {
        let mut messages = [
            json!({"role": "system", "content": "<", "name": "<"}),
            json!({"role": "user", "content": [{"type": "text", "text": "<", "x": {"<": 1}}], "name": "<"}),
            json!({"role": "assistant", "content": "<think> <end>", "reasoning_content": "<end", "tool_calls": [
                {"id": "a_1", "function": {"name": "<", "arguments": {"x": "<"}}}, {"name": "f", "arguments": "<"}]}),
            json!({"role": "tool", "content": ">", "tool_call_id": "a_1", "name": "f.g"}),
        ];
        let tokens = finder(&["<end>".to_owned()]);
        StandIns { tokens: tokens.as_ref(), ..stand_ins(&[]) }.mark_messages(&mut messages);
        let expected = [
            json!({"role": "system", "content": "<", "name": "<"}),
            json!({"role": "user", "content": [{"type": "text", "text": "\u{e000}", "x": {"\u{e000}": 1}}],
                "name": "\u{e000}"}),
            json!({"role": "assistant", "content": "<think> \u{e000}end\u{e001}", "reasoning_content": "<end",
                "tool_calls": [{"id": "a_1", "function": {"name": "\u{e000}", "arguments": {"x": "\u{e000}"}}},
                {"name": "f", "arguments": "\u{e000}"}]}),
            json!({"role": "tool", "content": "\u{e001}", "tool_call_id": "a_1", "name": "f.g"}),
        ];
        assert_eq!(messages, expected);
    }
}
