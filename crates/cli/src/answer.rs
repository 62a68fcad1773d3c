//! An answer to messages as a person or a pipe reads it while it comes.

use std::io::{self, IsTerminal};

use anyhow::Result;
use serde_json::{Value, json};
use whin::{Answer, Delta, ToolCall};

use crate::out;

/// Content goes to stdout as it stands, each call as a line of JSON; reasoning goes to stderr, dimmed on a terminal.
pub struct Printer {
    /// Whether reasoning stands on a line that has not ended.
    thinks: bool,
    /// Whether what was written to stdout ends with the end of a line, or nothing was.
    pub ends_line: bool,
    dims: bool,
    /// Whether a person sees stdout, and control characters must not steer the terminal.
    is_seen: bool,
}

impl Printer {
    /// For an answer that has yet to begin. `is_seen` says that a person reads stdout: control characters are spelt out.
    pub fn new(is_seen: bool) -> Self {
        Self { thinks: false, ends_line: true, dims: io::stderr().is_terminal(), is_seen }
    }

    /// Shows the next piece.
    pub fn show(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::Reasoning(text) => {
                let text = out::harmless(text);
                out::aside(&if self.dims { format!("\x1b[2m{text}\x1b[22m") } else { text });
                self.thinks = true;
                Ok(())
            }
            Delta::Content(text) => {
                self.end_reasoning();
                self.text(text)
            }
            Delta::Call(call) => {
                self.end_reasoning();
                let before = if self.ends_line { "" } else { "\n" };
                self.text(&format!("{before}{}\n", call_as_text(call)))
            }
        }
    }

    /// Writes to stdout.
    pub fn text(&mut self, text: &str) -> Result<()> {
        if !text.is_empty() {
            self.ends_line = text.ends_with('\n');
            match self.is_seen {
                true => out::text(&out::harmless(text))?,
                false => out::text(text)?,
            }
        }
        Ok(())
    }

    /// Ends the lines that reasoning stands on.
    pub fn end_reasoning(&mut self) {
        if std::mem::take(&mut self.thinks) {
            out::aside("\n\n");
        }
    }
}

/// A call as JSON, its arguments spelt as the model spelt them.
pub fn call_as_text(call: &ToolCall) -> String {
    format!("{{\"name\": {}, \"arguments\": {}}}", Value::from(call.name.as_str()), call.arguments)
}

/// The parts of an answer.
pub fn as_json(answer: &Answer) -> Value {
    let call = |call: &ToolCall| json!({ "name": call.name, "arguments": call.arguments });
    json!({
        "reasoning": answer.reasoning,
        "content": answer.content,
        "tool_calls": answer.tool_calls.iter().map(call).collect::<Vec<Value>>(),
    })
}
