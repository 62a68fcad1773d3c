//! Calls of Mistral behind `[TOOL_CALLS]`: a JSON list, or a name and its arguments.

use super::block::{Block, End};
use super::json::{Json, JsonReader};
use super::{Reader, Step, is_blank, named};
use crate::chat::ToolCall;
use crate::chat::buffer::{Match, compare};

const ARGUMENTS: &str = "[ARGS]";
const ID: &str = "[CALL_ID]";

#[derive(Debug)]
pub(super) struct Mistral {
    state: State,
    name: String,
    calls: Vec<ToolCall>,
}

#[derive(Debug)]
enum State {
    Before,
    List(Block),
    Name {
        from: usize,
    },
    /// Behind the name; its own blanks included.
    AfterName {
        tag: Option<usize>,
    },
    Id,
    Json {
        from: usize,
        json: JsonReader,
    },
}

impl Mistral {
    pub fn new() -> Self {
        Self { state: State::Before, name: String::new(), calls: Vec::new() }
    }

    fn json(&mut self, block: &[u8]) -> Step {
        let State::Json { from, json } = &mut self.state else { return Step::Failed };
        match json.read(block[block.len() - 1]) {
            Json::Begun => Step::More,
            Json::Wrong => Step::Failed,
            Json::Whole => {
                match str::from_utf8(&block[*from..]).ok().and_then(|text| named(&self.name, text)) {
                    Some(call) => {
                        self.calls.push(call);
                        Step::Done(block.len())
                    }
                    None => Step::Failed,
                }
            }
        }
    }

    /// Takes a byte behind the name.
    fn after_name(&mut self, block: &[u8], tag: Option<usize>) -> Step {
        let last = block.len() - 1;
        match (tag, block[last]) {
            (None, byte) if is_blank(byte) => Step::More,
            (None, b'{') => {
                self.state = State::Json { from: last, json: JsonReader::new() };
                self.json(block)
            }
            (tag, _) => {
                let from = tag.unwrap_or(last);
                match compare(&block[from..], &[ARGUMENTS, ID]) {
                    Match::No => return Step::Failed,
                    Match::Begun => self.state = State::AfterName { tag: Some(from) },
                    Match::Whole(0) => self.state = State::AfterName { tag: None },
                    Match::Whole(_) => self.state = State::Id,
                }
                Step::More
            }
        }
    }
}

impl Reader for Mistral {
    fn read(&mut self, block: &[u8]) -> Step {
        let last = block.len() - 1;
        let byte = block[last];
        match &mut self.state {
            State::Before if is_blank(byte) => Step::More,
            State::Before if matches!(byte, b'[' | b'{') => {
                // A list is its own end: nothing closes it.
                let mut list = Block::new(End::Value);
                let step = list.read(block);
                self.state = State::List(list);
                step
            }
            State::Before => {
                self.state = State::Name { from: last };
                self.read(block)
            }
            State::List(list) => list.read(block),
            State::Name { from } => match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => Step::More,
                _ => {
                    let Ok(name) = str::from_utf8(&block[*from..last]) else { return Step::Failed };
                    name.clone_into(&mut self.name);
                    self.state = State::AfterName { tag: None };
                    self.after_name(block, None)
                }
            },
            State::AfterName { tag } => {
                let tag = *tag;
                self.after_name(block, tag)
            }
            State::Id if byte == b'[' => self.after_name(block, None),
            State::Id => {
                if byte.is_ascii_alphanumeric() {
                    Step::More
                } else {
                    Step::Failed
                }
            }
            State::Json { .. } => self.json(block),
        }
    }

    fn finish(&mut self, block: &[u8]) -> Step {
        match &mut self.state {
            State::List(list) => list.finish(block),
            _ => Step::Failed,
        }
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        match &mut self.state {
            State::List(list) => list.calls(),
            _ => std::mem::take(&mut self.calls),
        }
    }
}
