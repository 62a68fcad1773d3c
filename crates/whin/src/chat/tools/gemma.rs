//! Calls of Gemma 4: `call:NAME{KEY:VALUE,…}`, where `<|"|>` stands around strings.

use std::collections::HashSet;

use serde_json::Value;

use super::{Reader, Step, is_blank, keep, named};
use crate::chat::ToolCall;
use crate::chat::buffer::{Match, compare};

const CALL: &str = "call:";
const QUOTE: &str = "<|\"|>";
const CLOSE: &str = "<tool_call|>";
const AGAIN: &str = "<|tool_call>";

/// More brackets within each other are refused.
const MAX_DEPTH: usize = 100;

/// Finds the end of the arguments, and has them parsed there.
#[derive(Debug)]
pub(super) struct Gemma {
    state: State,
    name: String,
    calls: Vec<ToolCall>,
}

/// `tag` is where a tag, and `quote` where a quote may have begun.
#[derive(Debug)]
enum State {
    Open { tag: Option<usize> },
    Name { from: usize },
    Arguments { from: usize, open: Vec<u8>, inside: bool, quote: usize },
    After { tag: Option<usize> },
}

impl Gemma {
    pub fn new() -> Self {
        Self { state: State::Open { tag: None }, name: String::new(), calls: Vec::new() }
    }

    /// The state with one byte more, or what the reader is to say.
    fn step(&mut self, block: &[u8]) -> Result<State, Step> {
        let at = block.len();
        let last = at - 1;
        let byte = block[last];
        match std::mem::replace(&mut self.state, State::After { tag: None }) {
            State::Open { tag: None } if is_blank(byte) => Ok(State::Open { tag: None }),
            State::Open { tag } => {
                let from = tag.unwrap_or(last);
                match compare(&block[from..], &[CALL]) {
                    Match::No => Err(Step::Failed),
                    Match::Begun => Ok(State::Open { tag: Some(from) }),
                    Match::Whole(_) => Ok(State::Name { from: at }),
                }
            }
            State::Name { from } if byte == b'{' => {
                self.name = text(&block[from..last])?.to_owned();
                Ok(State::Arguments { from: last, open: vec![b'}'], inside: false, quote: at })
            }
            State::Name { from } => {
                let sound = byte >= 0x80 || byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
                if sound { Ok(State::Name { from }) } else { Err(Step::Failed) }
            }
            State::Arguments { from, open, inside, quote } => {
                self.arguments(block, from, open, (inside, quote))
            }
            State::After { tag: None } if is_blank(byte) => Ok(State::After { tag: None }),
            State::After { tag } => {
                let from = tag.unwrap_or(last);
                match compare(&block[from..], &[CLOSE, AGAIN]) {
                    Match::No => Err(Step::Failed),
                    Match::Begun => Ok(State::After { tag: Some(from) }),
                    Match::Whole(0) => Err(Step::Done(at)),
                    Match::Whole(_) => Err(Step::Done(from)),
                }
            }
        }
    }

    /// Takes a byte of the arguments. Brackets within strings do not count.
    fn arguments(
        &mut self,
        block: &[u8],
        from: usize,
        mut open: Vec<u8>,
        (mut inside, mut quote): (bool, usize),
    ) -> Result<State, Step> {
        let at = block.len();
        while quote < at {
            match compare(&block[quote..], &[QUOTE]) {
                Match::Begun => break,
                Match::Whole(_) => {
                    inside = !inside;
                    quote = at;
                }
                Match::No => {
                    match block[quote] {
                        _ if inside => {}
                        b'{' | b'[' => open.push(block[quote] + 2),
                        byte @ (b'}' | b']') if open.pop() != Some(byte) => return Err(Step::Failed),
                        _ => {}
                    }
                    quote += 1;
                }
            }
        }
        if open.len() > MAX_DEPTH {
            return Err(Step::Failed);
        }
        if !open.is_empty() {
            return Ok(State::Arguments { from, open, inside, quote });
        }
        let json = json(text(&block[from..])?).ok_or(Step::Failed)?;
        self.calls.push(named(&self.name, &json).ok_or(Step::Failed)?);
        Ok(State::After { tag: None })
    }
}

fn text(bytes: &[u8]) -> Result<&str, Step> {
    str::from_utf8(bytes).map_err(|_| Step::Failed)
}

/// The JSON of an object in Gemma's spelling.
fn json(text: &str) -> Option<String> {
    let mut parser = Parser { rest: text, json: String::new() };
    parser.value(MAX_DEPTH + 1)?;
    parser.rest.is_empty().then_some(parser.json)
}

struct Parser<'a> {
    rest: &'a str,
    json: String,
}

impl<'a> Parser<'a> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.trim_ascii_start().strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The text up to one of some characters, without the blanks around it.
    fn until(&mut self, ends: &[char]) -> &'a str {
        let (text, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        text.trim_ascii()
    }

    fn quoted(&mut self) -> Option<&'a str> {
        let (text, rest) = self.rest.split_once(QUOTE)?;
        self.rest = rest;
        Some(text)
    }

    fn string(&mut self, text: &str) {
        self.json.push_str(&Value::from(text).to_string());
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if self.take(QUOTE) {
            let text = self.quoted()?;
            self.string(text);
        } else if self.take("{") {
            self.object(depth)?;
        } else if self.take("[") {
            self.list(depth)?;
        } else {
            // What is nothing else is a string without its quotes.
            match self.until(&[',', ']', '}']) {
                "" => return None,
                "None" => self.json.push_str("null"),
                text if serde_json::from_str::<Value>(text).is_ok_and(|value| !value.is_string()) => {
                    self.json.push_str(text);
                }
                text => self.string(text),
            }
        }
        Some(())
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        let (mut keys, mut comma) = (HashSet::new(), "");
        self.json.push('{');
        while !self.take("}") {
            if !comma.is_empty() && !self.take(",") {
                return None;
            }
            let key = if self.take(QUOTE) { self.quoted()? } else { self.until(&[':', ',', '{', '}']) };
            if key.is_empty() || !keys.insert(key) || !self.take(":") {
                return None;
            }
            self.json.push_str(comma);
            self.string(key);
            self.json.push_str(": ");
            self.value(depth)?;
            comma = ", ";
        }
        self.json.push('}');
        Some(())
    }

    fn list(&mut self, depth: usize) -> Option<()> {
        let mut comma = "";
        self.json.push('[');
        while !self.take("]") {
            if !comma.is_empty() && !self.take(",") {
                return None;
            }
            self.json.push_str(comma);
            self.value(depth)?;
            comma = ", ";
        }
        self.json.push(']');
        Some(())
    }
}

impl Reader for Gemma {
    fn read(&mut self, block: &[u8]) -> Step {
        let next = self.step(block);
        keep(&mut self.state, next)
    }

    fn finish(&mut self, block: &[u8]) -> Step {
        if matches!(self.state, State::After { .. }) { Step::Done(block.len()) } else { Step::Failed }
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.calls)
    }
}
