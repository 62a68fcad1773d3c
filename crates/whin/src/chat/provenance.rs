//! Who wrote which characters of a rendered prompt.
//!
//! Templates take strings and give one string, so what a user wrote has to be marked inside the strings. Before
//! rendering, those characters of a user's or a tool's text with which a control token could begin or end get
//! stand-ins from Unicode's private use area, one for one; afterwards they are put back, and their places are known.
//! Whatever a template does with the text (trim, split, quote, join), a stand-in remains a stand-in.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Roles whose text is not the caller's own.
const FOREIGN_ROLES: [&str; 4] = ["user", "tool", "function", "ipython"];

/// Stand-ins that occur nowhere else in a conversation.
pub(super) struct StandIns {
    /// The character, and what stands for it while the template runs.
    pairs: Vec<(char, char)>,
}

impl StandIns {
    /// Stand-ins for `characters`, none of which occurs in `texts`, as itself or as an escape.
    pub fn new<'a>(characters: &BTreeSet<char>, texts: impl Iterator<Item = &'a str>) -> Self {
        let mut taken: BTreeSet<char> = BTreeSet::new();
        for text in texts {
            taken.extend(text.chars().filter(|c| is_private(*c)));
            taken.extend(text.match_indices("\\u").filter_map(|(at, _)| escaped(text.get(at..at + 6)?)));
        }
        // 6,400 of them are escaped with four digits; should a text hold them all, it is left as it is, since
        // nothing that fits a prompt does.
        let free = ('\u{e000}'..='\u{f8ff}').filter(|c| !taken.contains(c));
        Self { pairs: characters.iter().copied().zip(free).collect() }
    }

    /// Puts stand-ins into what users and tools wrote: the contents of their messages, the arguments of calls, and
    /// documents.
    pub fn mark_messages(&self, messages: &mut [Value]) {
        for message in messages.iter_mut().filter_map(Value::as_object_mut) {
            let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
            if FOREIGN_ROLES.contains(&role)
                && let Some(content) = message.get_mut("content")
            {
                self.mark_content(content);
            }
            let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
            for call in calls.into_iter().flatten() {
                if let Some(arguments) = call.get_mut("arguments") {
                    self.mark(arguments);
                }
                if let Some(arguments) =
                    call.get_mut("function").and_then(|function| function.get_mut("arguments"))
                {
                    self.mark(arguments);
                }
            }
        }
    }

    /// A text, or parts of which `text` is one's text and all else says what it is.
    fn mark_content(&self, content: &mut Value) {
        match content {
            Value::Array(parts) => {
                for text in parts.iter_mut().filter_map(|part| part.get_mut("text")) {
                    self.mark(text);
                }
            }
            other => self.mark(other),
        }
    }

    /// Puts stand-ins into every string of a value, keys included.
    pub fn mark(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.marked(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.mark(value)),
            Value::Object(map) => {
                let marked = std::mem::take(map).into_iter().map(|(key, mut value)| {
                    self.mark(&mut value);
                    (self.marked(&key), value)
                });
                *map = marked.collect::<Map<String, Value>>();
            }
            _ => {}
        }
    }

    fn marked(&self, text: &str) -> String {
        let stand_in =
            |c| self.pairs.iter().find(|(character, _)| *character == c).map_or(c, |(_, stand_in)| *stand_in);
        text.chars().map(stand_in).collect()
    }

    /// The text with its own characters again, and the sorted places, in bytes, of those that had stand-ins. Where the
    /// template escaped one, as in `\ue000`, it gets the character.
    pub fn unmark(&self, marked: &str) -> (String, Vec<usize>) {
        let (mut text, mut places) = (String::with_capacity(marked.len()), Vec::new());
        let mut rest = marked;
        while let Some(c) = rest.chars().next() {
            let escape = if c == '\\' { rest.get(..6).and_then(escaped) } else { None };
            let (stand_in, length) = escape.map_or((c, c.len_utf8()), |stand_in| (stand_in, 6));
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
    ('\u{e000}'..='\u{f8ff}').contains(&c)
}

/// The private character that an escape such as `\ue000` stands for.
fn escaped(escape: &str) -> Option<char> {
    let c = u32::from_str_radix(escape.strip_prefix("\\u")?, 16).ok().and_then(char::from_u32)?;
    is_private(c).then_some(c)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stand_ins(texts: &[&str]) -> StandIns {
        StandIns::new(&BTreeSet::from(['<', '>']), texts.iter().copied())
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
    fn only_what_others_wrote_is_marked() {
        let mut messages = [
            json!({"role": "system", "content": "<"}),
            json!({"role": "user", "content": [{"type": "text", "text": "<"}], "name": "<"}),
            json!({"role": "assistant", "content": "<think>", "tool_calls": [
                {"function": {"name": "<", "arguments": {"x": "<"}}}, {"name": "f", "arguments": "<"}]}),
            json!({"role": "tool", "content": ">"}),
        ];
        stand_ins(&[]).mark_messages(&mut messages);
        let expected = [
            json!({"role": "system", "content": "<"}),
            json!({"role": "user", "content": [{"type": "text", "text": "\u{e000}"}], "name": "<"}),
            json!({"role": "assistant", "content": "<think>", "tool_calls": [
                {"function": {"name": "<", "arguments": {"x": "\u{e000}"}}}, {"name": "f", "arguments": "\u{e000}"}]}),
            json!({"role": "tool", "content": "\u{e001}"}),
        ];
        assert_eq!(messages, expected);
    }
}
