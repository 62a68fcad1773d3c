//! Calls in sections of which each has a head and a body between markers: DeepSeek and Kimi.

use super::json::{Json, JsonReader};
use super::{Reader, Step, is_blank, keep, named};
use crate::chat::ToolCall;
use crate::chat::buffer::{Match, compare};

/// No head is longer, in bytes.
const LONGEST_HEAD: usize = 256;

/// The markers around the parts of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    /// Before each call.
    begin: &'static str,
    /// Between head and body.
    body: &'static str,
    /// Behind each call.
    end: &'static str,
    /// Behind all calls.
    end_all: &'static str,
}

impl Marks {
    pub const DEEP_SEEK: Self = Self {
        begin: "<｜tool▁call▁begin｜>",
        body: "<｜tool▁sep｜>",
        end: "<｜tool▁call▁end｜>",
        end_all: "<｜tool▁calls▁end｜>",
    };
    pub const KIMI: Self = Self {
        begin: "<|tool_call_begin|>",
        body: "<|tool_call_argument_begin|>",
        end: "<|tool_call_end|>",
        end_all: "<|tool_calls_section_end|>",
    };
}

/// Reads one call; its end marker may be missing before another marker and at the end of the text.
#[derive(Debug)]
pub(super) struct Sections {
    marks: Marks,
    state: State,
    name: String,
    calls: Vec<ToolCall>,
}

/// `tag` is where a marker may have begun, `ticks` how many of a fence have come.
#[derive(Debug)]
enum State {
    Open {
        tag: Option<usize>,
    },
    Head {
        from: usize,
        tag: usize,
    },
    Body,
    /// DeepSeek V3 writes the name behind the head, on a line of its own, and a fence around the JSON.
    Name {
        from: usize,
    },
    Fence {
        ticks: usize,
    },
    Json {
        from: usize,
        ticks: usize,
        json: JsonReader,
    },
    After {
        ticks: usize,
        tag: Option<usize>,
    },
}

/// How many backticks make a fence.
const FENCE: usize = 3;

impl Sections {
    /// Behind the marker of all calls if it is the first, behind that of one call if it is the second.
    pub fn new(marks: Marks, marker: Option<usize>) -> Self {
        let state = match marker {
            Some(1) => State::Head { from: 0, tag: 0 },
            _ => State::Open { tag: None },
        };
        Self { marks, state, name: String::new(), calls: Vec::new() }
    }

    /// The state with one byte more, or what the reader is to say.
    fn step(&mut self, block: &[u8]) -> Result<State, Step> {
        let at = block.len();
        let last = at - 1;
        let byte = block[last];
        let json = |ticks| State::Json { from: last, ticks, json: JsonReader::new() };
        match std::mem::replace(&mut self.state, State::Body) {
            State::Open { tag: None } if is_blank(byte) => Ok(State::Open { tag: None }),
            State::Open { tag } => {
                let from = tag.unwrap_or(last);
                match compare(&block[from..], &[self.marks.begin]) {
                    Match::No => Err(Step::Failed),
                    Match::Begun => Ok(State::Open { tag: Some(from) }),
                    Match::Whole(_) => Ok(State::Head { from: at, tag: at }),
                }
            }
            State::Head { from, tag } => self.head(block, from, tag),
            State::Body if is_blank(byte) => Ok(State::Body),
            State::Body if byte == b'{' => self.json(block, json(0)),
            State::Body => Ok(State::Name { from: last }),
            State::Name { from } => match byte {
                b'\n' => {
                    self.name = name(&block[from..last])?.to_owned();
                    Ok(State::Fence { ticks: 0 })
                }
                b'<' | b'{' | b'"' => Err(Step::Failed),
                _ if last - from > LONGEST_HEAD => Err(Step::Failed),
                _ => Ok(State::Name { from }),
            },
            State::Fence { ticks } => match (ticks, byte) {
                (0 | FENCE, b'{') => self.json(block, json(ticks)),
                (0..FENCE, b'`') => Ok(State::Fence { ticks: ticks + 1 }),
                (0 | FENCE, byte) if is_blank(byte) => Ok(State::Fence { ticks }),
                (FENCE, b'a'..=b'z' | b'A'..=b'Z') => Ok(State::Fence { ticks }),
                _ => Err(Step::Failed),
            },
            state @ State::Json { .. } => self.json(block, state),
            State::After { ticks, tag } => self.after(block, ticks, tag),
        }
    }

    fn head(&mut self, block: &[u8], from: usize, mut tag: usize) -> Result<State, Step> {
        let at = block.len();
        while tag < at {
            match compare(&block[tag..], &[self.marks.body]) {
                Match::No => tag += 1,
                Match::Begun => break,
                Match::Whole(_) => {
                    let head = name(&block[from..tag])?;
                    // Kimi's heads are `functions.NAME:0`.
                    let head = head.strip_prefix("functions.").unwrap_or(head);
                    let number =
                        head.rsplit_once(':').filter(|(_, end)| end.bytes().all(|b| b.is_ascii_digit()));
                    self.name = number.map_or(head, |(name, _)| name).to_owned();
                    return Ok(State::Body);
                }
            }
        }
        let sound = block[at - 1] != b'\n' && at - from <= LONGEST_HEAD;
        if sound { Ok(State::Head { from, tag }) } else { Err(Step::Failed) }
    }

    fn json(&mut self, block: &[u8], mut state: State) -> Result<State, Step> {
        let State::Json { from, ticks, json } = &mut state else { return Err(Step::Failed) };
        match json.read(block[block.len() - 1]) {
            Json::Begun => Ok(state),
            Json::Wrong => Err(Step::Failed),
            Json::Whole => {
                let text = str::from_utf8(&block[*from..]).map_err(|_| Step::Failed)?;
                self.calls.push(named(&self.name, text).ok_or(Step::Failed)?);
                Ok(State::After { ticks: *ticks, tag: None })
            }
        }
    }

    /// Behind the JSON: the other end of a fence and the end marker, or another marker if it is missing.
    fn after(&mut self, block: &[u8], ticks: usize, tag: Option<usize>) -> Result<State, Step> {
        let last = block.len() - 1;
        match (tag, block[last]) {
            (None, b'`') if ticks > 0 => Ok(State::After { ticks: ticks - 1, tag }),
            (None, byte) if is_blank(byte) => Ok(State::After { ticks, tag }),
            _ => {
                let from = tag.unwrap_or(last);
                match compare(&block[from..], &[self.marks.end, self.marks.begin, self.marks.end_all]) {
                    Match::No => Err(Step::Failed),
                    Match::Begun => Ok(State::After { ticks, tag: Some(from) }),
                    Match::Whole(0) => Err(Step::Done(block.len())),
                    Match::Whole(_) => Err(Step::Done(from)),
                }
            }
        }
    }
}

/// A name or a head in a text of which it is all but the blanks around it.
fn name(bytes: &[u8]) -> Result<&str, Step> {
    let name = str::from_utf8(bytes).map_err(|_| Step::Failed)?.trim_ascii();
    let sound = name.len() <= LONGEST_HEAD && !name.contains(|c: char| c.is_whitespace());
    if sound { Ok(name) } else { Err(Step::Failed) }
}

impl Reader for Sections {
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
