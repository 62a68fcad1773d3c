//! Calls as JSON between tags, such as `<tool_call>{"name": …, "arguments": …}</tool_call>`.

use super::call;
use super::json::{Json, JsonReader};
use super::{Reader, Step, is_blank};
use crate::chat::ToolCall;
use crate::chat::buffer::{Match, compare};

/// How calls in JSON end.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The value is the end.
    Value,
    /// This tag, which may only be missing at the end of the text and before the next start marker.
    Tag { close: &'static str, again: &'static str },
}

/// Reads one JSON value, or several one after the other: each an object, or an array of objects.
#[derive(Debug)]
pub(super) struct Block {
    end: End,
    state: State,
    calls: Vec<ToolCall>,
}

#[derive(Debug)]
enum State {
    Before,
    Json { from: usize, json: JsonReader },
    After,
    Tag { from: usize },
}

impl Block {
    pub fn new(end: End) -> Self {
        Self { end, state: State::Before, calls: Vec::new() }
    }

    fn json(&mut self, block: &[u8]) -> Step {
        let State::Json { from, json } = &mut self.state else { return Step::Failed };
        match json.read(block[block.len() - 1]) {
            Json::Begun => Step::More,
            Json::Wrong => Step::Failed,
            Json::Whole => {
                let text = str::from_utf8(&block[*from..]).ok();
                let Some(calls) = text.and_then(|text| call::calls(text, false)) else { return Step::Failed };
                self.calls.extend(calls);
                self.state = State::After;
                match self.end {
                    End::Value => Step::Done(block.len()),
                    End::Tag { .. } => Step::More,
                }
            }
        }
    }
}

impl Reader for Block {
    fn read(&mut self, block: &[u8]) -> Step {
        let last = block.len() - 1;
        match (&self.state, block[last]) {
            (State::Json { .. }, _) => return self.json(block),
            (State::Before | State::After, byte) if is_blank(byte) => return Step::More,
            (State::Before | State::After, b'{' | b'[') => {
                self.state = State::Json { from: last, json: JsonReader::new() };
                return self.json(block);
            }
            (State::Before, _) => return Step::Failed,
            (State::After, _) => self.state = State::Tag { from: last },
            (State::Tag { .. }, _) => {}
        }
        let (State::Tag { from }, End::Tag { close, again }) = (&self.state, self.end) else {
            return Step::Failed;
        };
        match compare(&block[*from..], &[close, again]) {
            Match::No => Step::Failed,
            Match::Begun => Step::More,
            Match::Whole(0) => Step::Done(block.len()),
            Match::Whole(_) => Step::Done(*from),
        }
    }

    fn finish(&mut self, block: &[u8]) -> Step {
        match self.state {
            State::Before | State::Json { .. } => Step::Failed,
            State::After | State::Tag { .. } => Step::Done(block.len()),
        }
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.calls)
    }
}
