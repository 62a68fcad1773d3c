//! Calls as Python writes them: `[NAME(KEY=VALUE, …), …]`, or one a line between tags.

use super::literal;
use super::{Reader, Step, is_blank};
use crate::chat::ToolCall;
use crate::chat::buffer::{Match, compare};

/// More brackets within each other are refused.
const MAX_DEPTH: usize = 100;

/// Finds the ends of the calls, and has each parsed when it is complete. Without a closing tag, the list must be the
/// whole answer.
#[derive(Debug)]
pub(super) struct Pythonic {
    close: Option<&'static str>,
    list: bool, // a square bracket is open
    state: State,
    calls: Vec<ToolCall>,
}

#[derive(Debug)]
enum State {
    Before,
    /// Before a call; a list may end here.
    Between,
    Name {
        from: usize,
    },
    Arguments {
        from: usize,
        open: Vec<u8>,
        text: Option<Text>,
    },
    /// Behind a call.
    After {
        newline: bool,
    },
    /// Behind the list.
    End,
    Tag {
        from: usize,
    },
}

/// A string that is open.
#[derive(Clone, Copy, Debug)]
struct Text {
    quote: u8,
    quotes: usize, // that stand directly before
    body: bool,    // something else has come
    three: bool,
    escaped: bool,
}

impl Pythonic {
    /// `close` is the closing tag where an opening one stood before.
    pub fn new(close: Option<&'static str>) -> Self {
        Self { close, list: false, state: State::Before, calls: Vec::new() }
    }

    fn step(&mut self, block: &[u8]) -> Option<State> {
        let last = block.len() - 1;
        let byte = block[last];
        let starts_name = byte == b'_' || byte.is_ascii_alphabetic() || byte >= 0x80;
        match std::mem::replace(&mut self.state, State::End) {
            state @ (State::Before | State::Between | State::End) if is_blank(byte) => Some(state),
            State::Before if byte == b'[' => {
                self.list = true;
                Some(State::Between)
            }
            State::Before if starts_name && self.close.is_some() => Some(State::Name { from: last }),
            State::Between if starts_name => Some(State::Name { from: last }),
            State::Between | State::After { .. } if byte == b']' && self.list => {
                (!self.calls.is_empty()).then_some(State::End)
            }
            State::Name { from } => match byte {
                b'(' => Some(State::Arguments { from, open: vec![b')'], text: None }),
                b'.' | b'-' | b'0'..=b'9' => Some(State::Name { from }),
                _ => starts_name.then_some(State::Name { from }),
            },
            State::Arguments { from, mut open, mut text } => {
                if !arguments(&mut open, &mut text, byte) {
                    return None;
                }
                if !open.is_empty() {
                    return Some(State::Arguments { from, open, text });
                }
                let call = str::from_utf8(&block[from..]).ok().and_then(literal::call)?;
                self.calls.push(call);
                Some(State::After { newline: false })
            }
            State::After { newline } if is_blank(byte) => {
                Some(State::After { newline: newline || byte == b'\n' })
            }
            State::After { .. } if byte == b',' => Some(State::Between),
            State::After { newline: true } if starts_name && !self.list => Some(State::Name { from: last }),
            State::After { .. } if !self.list => self.tag(block, last),
            State::End => self.tag(block, last),
            State::Tag { from } => self.tag(block, from),
            State::Before | State::Between | State::After { .. } => None,
        }
    }

    /// What the closing tag that begins at a place makes of the block.
    fn tag(&self, block: &[u8], from: usize) -> Option<State> {
        (compare(&block[from..], self.close.as_slice()) != Match::No).then_some(State::Tag { from })
    }
}

/// Takes a byte of the arguments; false if they cannot go on like that.
fn arguments(open: &mut Vec<u8>, text: &mut Option<Text>, byte: u8) -> bool {
    if let Some(inside) = text {
        match inside.read(byte) {
            Progress::Inside => return true,
            Progress::Over => {
                *text = None;
                return true;
            }
            Progress::Before => *text = None,
            Progress::Wrong => return false,
        }
    }
    match byte {
        b'\'' | b'"' => {
            *text = Some(Text { quote: byte, quotes: 1, body: false, three: false, escaped: false });
            true
        }
        b'(' | b'[' | b'{' => {
            open.push(if byte == b'(' { b')' } else { byte + 2 });
            open.len() <= MAX_DEPTH
        }
        b')' | b']' | b'}' => open.pop() == Some(byte),
        _ => true,
    }
}

enum Progress {
    Inside,
    /// The string ends with this byte.
    Over,
    /// The string, an empty one, has ended before this byte.
    Before,
    Wrong,
}

impl Text {
    fn read(&mut self, byte: u8) -> Progress {
        if std::mem::take(&mut self.escaped) {
            return Progress::Inside;
        }
        if byte == self.quote {
            self.quotes += 1;
            return match (self.body, self.three, self.quotes) {
                (false, false, 3) => {
                    (self.three, self.body, self.quotes) = (true, true, 0);
                    Progress::Inside
                }
                (true, true, 3) | (true, false, _) => Progress::Over,
                _ => Progress::Inside,
            };
        }
        if !self.body && self.quotes == 2 {
            return Progress::Before;
        }
        (self.body, self.quotes) = (true, 0);
        self.escaped = byte == b'\\';
        if byte == b'\n' && !self.three { Progress::Wrong } else { Progress::Inside }
    }
}

impl Reader for Pythonic {
    fn read(&mut self, block: &[u8]) -> Step {
        match self.step(block) {
            None => Step::Failed,
            Some(State::Tag { from }) if Some(&block[from..]) == self.close.map(str::as_bytes) => {
                Step::Done(block.len())
            }
            Some(state) => {
                self.state = state;
                Step::More
            }
        }
    }

    fn finish(&mut self, block: &[u8]) -> Step {
        match self.state {
            State::End | State::Tag { .. } => Step::Done(block.len()),
            State::After { .. } if !self.list => Step::Done(block.len()),
            _ => Step::Failed,
        }
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.calls)
    }
}
