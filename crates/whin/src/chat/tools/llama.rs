//! Calls of Llama 3: JSON as the whole answer, or whatever stands behind `<|python_tag|>`.

use serde_json::Value;

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

    fn json(&mut self, block: &[u8]) -> Step {
        let State::Json { from, json } = &mut self.state else { return Step::Failed };
        match json.read(block[block.len() - 1]) {
            Json::Begun => Step::More,
            Json::Wrong => Step::Failed,
            Json::Whole => {
                // An answer in JSON with a name in it is no call; only a call has arguments.
                let text = str::from_utf8(&block[*from..]).ok();
                let Some(call) = text.and_then(|text| call::call(text, !self.tagged)) else {
                    return Step::Failed;
                };
                self.calls.push(call);
                self.state = State::After;
                Step::More
            }
        }
    }
}

/// A call of a tool that is built in, `NAME.call(KEY=VALUE)`, else code for the interpreter.
fn code(text: &str) -> ToolCall {
    let built_in = literal::call(text).and_then(|call| {
        let name = call.name.strip_suffix(".call")?.to_owned();
        Some(ToolCall { name, ..call })
    });
    built_in.unwrap_or_else(|| {
        let arguments = format!("{{\"code\": {}}}", Value::from(text));
        ToolCall { name: "python".to_owned(), arguments }
    })
}

impl Reader for Llama {
    fn read(&mut self, block: &[u8]) -> Step {
        let last = block.len() - 1;
        match (&self.state, block[last]) {
            (State::Json { .. }, _) => self.json(block),
            (State::Code { .. }, _) => Step::More,
            (State::Before | State::After, byte) if is_blank(byte) => Step::More,
            (State::After, b';') => Step::More,
            (State::Before | State::After, b'{') => {
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
        match self.state {
            State::After => Step::Done(block.len()),
            State::Code { from } => match str::from_utf8(&block[from..]) {
                Ok(text) => {
                    self.calls.push(code(text.trim_ascii_end()));
                    Step::Done(block.len())
                }
                Err(_) => Step::Failed,
            },
            State::Before | State::Json { .. } => Step::Failed,
        }
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.calls)
    }
}
