//! What a template may cost: work, text and depth of calls. Knows nothing of what it renders.

use std::io::{self, Write};
use std::thread;

use serde_json::Value;

use super::{Conversation, unsupported};
use crate::{Error, ErrorKind, Result};

/// The longest prompt, in bytes.
pub(super) const MAX_OUTPUT: usize = 16 << 20;

/// The stack of the thread that a template is read or rendered on: both recurse, to depths that the engine limits, and
/// so does freeing values that a template has nested as deep as its work allows.
const STACK: usize = 256 << 20;

/// The work that every rendering may do. A unit is a step of the template or 64 bytes of text that it makes, so that this
/// bounds time and memory alike.
const FUEL: u64 = 400_000;

/// The work that finding out the shape of a template may take, for each of its small conversations.
pub(super) const PROBE: u64 = 50_000;

/// The most work that a long conversation gets beside, for templates that look at all messages for each of them.
const MAX_EXTRA: u64 = 4_000_000;

/// The work that a conversation may take with a template of `length` bytes, more where there is more to render.
pub(super) fn fuel(messages: &[Value], conversation: &Conversation, length: usize) -> u64 {
    let extra = (messages.len() as u64).saturating_mul(length as u64).min(MAX_EXTRA);
    let documents = conversation.documents.iter().flatten();
    let values = messages.iter().chain(&conversation.tools).chain(documents);
    FUEL + extra + values.map(|value| 200 + size(value) / 4).sum::<u64>()
}

fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(|item| 16 + size(item)).sum(),
        Value::Object(entries) => {
            entries.iter().map(|(key, value)| 16 + key.len() as u64 + size(value)).sum()
        }
        _ => 8,
    }
}

/// Runs `work` on a thread with stack enough for the deepest recursion that the engine allows. Nothing of the engine may
/// leave it: an error holds the template's values, which take as much stack to free.
pub(super) fn with_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("whin-template".to_owned()).stack_size(STACK);
        match thread.spawn_scoped(scope, work) {
            Ok(running) => running.join().unwrap_or_else(|_| Err(unsupported("the template engine gave up"))),
            Err(error) => {
                let message = format!("no thread could be started to render the chat template: {error}");
                Err(Error::new(ErrorKind::OutOfMemory, message).caused_by(error))
            }
        }
    })
}

/// Where the rendered text goes, up to its limit.
#[derive(Default)]
pub(super) struct Sink {
    bytes: Vec<u8>,
    full: bool,
}

impl Sink {
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn into_text(self) -> String {
        // The engine writes whole strings.
        String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

impl Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > MAX_OUTPUT {
            self.full = true;
            return Err(io::Error::other("the text is too long"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
