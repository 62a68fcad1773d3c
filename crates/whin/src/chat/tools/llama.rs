//! Calls of Llama 3: JSON, an object or a list, as the whole answer, or whatever stands behind `<|python_tag|>`.

use super::json::{Json, JsonReader};
use super::{Reader, Step, call, is_blank, literal};
use crate::chat::ToolCall;

/// Reads to the end of the text: only then is it certain that nothing but calls has come.
#[derive(Debug)]
pub(super) struct Llama {
    tagged: bool, // the tag stood before
    state: State,
    calls: Vec<ToolCall>,
}

#[derive(Debug)]
enum State {
    Before,
    Json { from: usize, json: JsonReader },
    After,
    Code { from: usize },
}

impl Llama {
    pub fn new(tagged: bool) -> Self {
        Self { tagged, state: State::Before, calls: Vec::new() }
    }

    /// No more comes. Code that was cut off is none: nobody knows how it goes on.
    fn end(&mut self, block: &[u8], cut: bool) -> Step {
        match self.state {
            State::After => Step::Done(block.len()),
            State::Code { from } => {
                let Ok(text) = str::from_utf8(&block[from..]) else { return Step::Failed };
                let text = text.trim_ascii_end();
                match no_code(text) {
                    Some(calls) => self.calls.extend(calls),
                    None if cut => return Step::More,
                    None => self.calls.push(call::code("python", text)),
                }
                Step::Done(block.len())
            }
            State::Before | State::Json { .. } => Step::More,
        }
    }

    fn json(&mut self, block: &[u8]) -> Step {
        let State::Json { from, json } = &mut self.state else { return Step::Failed };
        match json.read(block[block.len() - 1]) {
            Json::Begun => Step::More,
            Json::Wrong => Step::Failed,
            Json::Whole => {
                // An answer in JSON with a name in it is no call; only a call has arguments.
                let text = str::from_utf8(&block[*from..]).ok();
                let Some(calls) = text.and_then(|text| call::calls(text, !self.tagged)) else {
                    return Step::Failed;
                };
                self.calls.extend(calls);
                self.state = State::After;
                Step::More
            }
        }
    }
}

/// What stands behind the tag and is neither an object nor code: a list of calls, or a call of a tool that is built in,
/// `NAME.call(KEY=VALUE)`.
fn no_code(text: &str) -> Option<Vec<ToolCall>> {
    if text.starts_with('[') {
        return call::calls(text, true);
    }
    let call = literal::call(text)?;
    let name = call.name.strip_suffix(".call")?.to_owned();
    Some(vec![ToolCall { name, ..call }])
}

impl Reader for Llama {
    fn read(&mut self, block: &[u8]) -> Step {
        let last = block.len() - 1;
        match (&self.state, block[last]) {
            (State::Json { .. }, _) => self.json(block),
            (State::Code { .. }, _) => Step::More,
            (State::Before | State::After, byte) if is_blank(byte) => Step::More,
            (State::After, b';') => Step::More,
            // Code may well begin with a list.
            (State::Before, b'[') if self.tagged => {
                self.state = State::Code { from: last };
                Step::More
            }
            (State::Before | State::After, b'{' | b'[') => {
                self.state = State::Json { from: last, json: JsonReader::new() };
                self.json(block)
            }
            (State::Before, _) if self.tagged => {
                self.state = State::Code { from: last };
                Step::More
            }
            (State::Before | State::After, _) => Step::Failed,
        }
    }

    fn finish(&mut self, block: &[u8]) -> Step {
        self.end(block, false)
    }

    fn cut(&mut self, block: &[u8]) -> Step {
        self.end(block, true)
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.calls)
    }
}
