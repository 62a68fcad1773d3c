//! Splits answers that are written into channels, as OpenAI's gpt-oss does (its "harmony" format): each message has a
//! header, `<|channel|>analysis<|message|>`, and ends with a marker.

use super::buffer::{AGAIN, Buffer, Match, compare, is_blank};
use super::tools::{Json, JsonReader, code, named};
use super::{Delta, Phase, add};

/// The texts that make up headers and ends.
pub(super) const MARKERS: [&str; 7] =
    ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"];
/// How reasoning begins, at the start of an answer and in a message of its own, and how it ends.
pub(super) const THOUGHTS: [&str; 2] =
    ["<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>analysis<|message|>"];
pub(super) const END: &str = "<|end|>";
const ENDS: [&str; 5] = ["<|start|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"];
const MESSAGE: &str = "<|message|>";

/// The built-in tool that is sent code instead of JSON.
const INTERPRETER: &str = "python";

/// No header is longer, in bytes.
const LONGEST_HEADER: usize = 512;

/// Where a prompt without blanks at its end leaves the answer.
pub(super) fn start(prompt: &str) -> Phase {
    let Some(header) = prompt.strip_suffix(MESSAGE) else { return Phase::Undecided };
    let header = header.rfind("<|start|>").map_or(header, |place| &header[place..]);
    if channel(header) == "analysis" { Phase::Reasoning } else { Phase::Content }
}

/// The channel that a header names.
fn channel(header: &str) -> &str {
    let name = header.rfind("<|channel|>").map_or("", |place| &header[place + "<|channel|>".len()..]);
    let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
    &name[..end]
}

/// The tool that a header speaks to: the word behind `to=`.
fn recipient(header: &str) -> Option<&str> {
    let name = &header[header.find("to=")? + "to=".len()..];
    let end = name.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(name.len());
    (!["", "assistant", "user", "all"].contains(&&name[..end])).then_some(&name[..end])
}

#[derive(Debug)]
pub(super) struct Channels {
    buffer: Buffer,
    tools: bool,
    state: State,
    reasoned: bool, // some reasoning has gone out
    spoken: bool,   // some content has gone out
    parted: bool,   // a new message has begun since
    again: usize,   // bytes that have been looked at more than once
    deltas: Vec<Delta>,
}

#[derive(Clone, Debug)]
enum State {
    /// Between messages and in headers: what is held back, if anything, is one.
    Header,
    Body {
        reasoning: bool,
        candidate: usize,
    },
    /// `reasoning` is what the text is if it turns out to be no call.
    Call {
        name: String,
        body: usize,
        json: Option<JsonReader>,
        reasoning: bool,
    },
    /// Behind the JSON of a call: only the end of the message may follow.
    After {
        name: String,
        arguments: String,
        body: usize,
        candidate: Option<usize>,
        reasoning: bool,
    },
    /// A call of the interpreter: everything up to the end of the message.
    Code {
        body: usize,
        candidate: usize,
    },
}

/// Looks for the end of a message from `candidate` on, which moves to where an end may have begun. Gives the place of the
/// end, and where the next message begins: one that begins without an end before it has its marker in its header.
fn message_end(buffer: &Buffer, candidate: &mut usize) -> Option<(usize, usize)> {
    let at = buffer.at;
    while *candidate < at {
        match compare(buffer.bytes(*candidate, at), &ENDS) {
            Match::Begun => return None,
            Match::No => *candidate += 1,
            Match::Whole(index) => return Some((*candidate, if index < 2 { *candidate } else { at })),
        }
    }
    None
}

impl Channels {
    pub fn new(start: Phase, tools: bool) -> Self {
        let state = match start {
            Phase::Undecided => State::Header,
            _ => State::Body { reasoning: start == Phase::Reasoning, candidate: 0 },
        };
        let (reasoned, spoken, parted) = (false, false, false);
        Self {
            buffer: Buffer::default(),
            tools,
            state,
            reasoned,
            spoken,
            parted,
            again: 0,
            deltas: Vec::new(),
        }
    }

    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.buffer.push(text);
        self.advance();
        if let State::Body { candidate, .. } = self.state {
            self.give(candidate);
        }
        self.buffer.forget();
        std::mem::take(&mut self.deltas)
    }

    /// No more comes; `cut` says that the text did not end by itself.
    pub fn finish(&mut self, cut: bool) -> Vec<Delta> {
        // What fails at the end may hold other messages.
        let end = self.buffer.end();
        loop {
            match self.state {
                State::Call { .. } | State::Code { .. } if cut => self.between(end),
                // Without JSON, only the end of the message makes it a call.
                State::After { body, candidate: Some(place), .. } if cut && self.is_blank(body, place) => {
                    self.between(end);
                }
                State::Call { body, .. } => self.fail(body),
                State::After { .. } => self.called(end),
                State::Code { body, .. } => self.run(body, end, end),
                State::Header | State::Body { .. } => break,
            }
            self.advance();
        }
        if matches!(self.state, State::Header) {
            let held = self.buffer.bytes(self.buffer.released, end);
            let blank = self.is_blank(self.buffer.released, end);
            // A header that is cut off says nothing; anything else is text.
            let begins = MARKERS.iter().any(|marker| held.starts_with(marker.as_bytes()));
            let text = held.trim_ascii_start();
            if blank || begins || cut && (text.starts_with(b"to=") || text.starts_with(b"<|")) {
                self.buffer.released = end;
            }
            self.state = State::Body { reasoning: false, candidate: end };
        }
        self.give(end);
        if let State::Body { candidate, .. } = &mut self.state {
            *candidate = end;
        }
        std::mem::take(&mut self.deltas)
    }

    /// Looks at all bytes that are there.
    fn advance(&mut self) {
        while self.buffer.at < self.buffer.end() {
            self.buffer.at += 1;
            match self.state {
                State::Header => self.header(),
                State::Body { .. } => self.body(),
                State::Call { .. } => self.call(),
                State::After { .. } => self.after(),
                State::Code { .. } => self.code(),
            }
        }
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            State::Header => Phase::Undecided,
            State::Body { reasoning: true, .. } => Phase::Reasoning,
            State::Body { .. } => Phase::Content,
            State::Call { .. } | State::After { .. } | State::Code { .. } => Phase::Call,
        }
    }

    pub fn since_phase(&self) -> &str {
        self.buffer.since_phase()
    }

    fn is_blank(&self, from: usize, to: usize) -> bool {
        self.buffer.bytes(from, to).iter().all(|&byte| is_blank(byte))
    }

    /// Gives out the text up to a place, as what the message is.
    fn give(&mut self, to: usize) {
        let State::Body { reasoning, .. } = self.state else { return };
        let mut text = self.buffer.release(to);
        if text.is_empty() {
            return;
        }
        let any = if reasoning { &mut self.reasoned } else { &mut self.spoken };
        // Messages of one kind are told apart by a newline.
        if std::mem::replace(any, true) && std::mem::take(&mut self.parted) {
            text.insert(0, '\n');
        }
        self.parted = false;
        let delta = if reasoning { Delta::Reasoning(text) } else { Delta::Content(text) };
        add(&mut self.deltas, delta);
    }

    /// A header begins at a place, and what stands before has gone out.
    fn between(&mut self, place: usize) {
        (self.buffer.released, self.buffer.phase) = (place, place);
        self.parted = true;
        self.state = State::Header;
    }

    /// What looked like a message is none: it is content, and so is what follows up to the next message, which is
    /// looked for from a place on, as long as that does not take longer than the length of the text allows.
    fn fail(&mut self, from: usize) {
        let at = self.buffer.at;
        self.buffer.phase = self.buffer.released;
        let reasoning = match self.state {
            State::Call { reasoning, .. } | State::After { reasoning, .. } => reasoning,
            _ => false,
        };
        self.state = State::Body { reasoning, candidate: at };
        if self.again + (at - from) <= AGAIN * at {
            self.again += at - from;
            self.buffer.at = from;
            self.state = State::Body { reasoning, candidate: from };
        }
    }

    fn header(&mut self) {
        let (from, at) = (self.buffer.released, self.buffer.at);
        let held = self.buffer.bytes(from, at);
        let byte = held[held.len() - 1];
        if is_blank(byte) && held.len() == 1 && self.parted {
            self.buffer.released = at;
            return;
        }
        let text = held.trim_ascii_start();
        let begins = ["<|start|>", "<|channel|>", MESSAGE, "to="];
        let sound = text.is_empty()
            || begins.iter().any(|begin| begin.as_bytes().starts_with(&text[..text.len().min(begin.len())]));
        let over = ["<|end|>", "<|return|>", "<|call|>"].iter().any(|end| held.ends_with(end.as_bytes()));
        if !sound || over || held.len() > LONGEST_HEADER {
            return self.fail(from + 1);
        }
        if !held.ends_with(MESSAGE.as_bytes()) {
            return;
        }
        let header = String::from_utf8_lossy(&held[..held.len() - MESSAGE.len()]).into_owned();
        let reasoning = channel(&header) == "analysis";
        let name = recipient(&header);
        if let Some(name) = name.and_then(|name| name.strip_prefix("functions.")) {
            if !self.tools || name.is_empty() {
                return self.fail(at);
            }
            self.buffer.phase = at;
            self.state = State::Call { name: name.to_owned(), body: at, json: None, reasoning: false };
            return;
        }
        // What speaks to a built-in tool has no markup to show, even if it is no call.
        (self.buffer.released, self.buffer.phase) = (at, at);
        self.state = match name.filter(|_| self.tools) {
            None => State::Body { reasoning, candidate: at },
            Some(INTERPRETER) => State::Code { body: at, candidate: at },
            Some(name) => State::Call { name: name.to_owned(), body: at, json: None, reasoning },
        };
    }

    /// Takes a byte of the code for the interpreter.
    fn code(&mut self) {
        let State::Code { body, candidate } = &mut self.state else { return };
        let body = *body;
        if let Some((place, next)) = message_end(&self.buffer, candidate) {
            self.run(body, place, next);
        }
    }

    /// The code for the interpreter is complete, and its message ends at another place.
    fn run(&mut self, body: usize, to: usize, end: usize) {
        let text = String::from_utf8_lossy(self.buffer.bytes(body, to));
        let json = text.trim_ascii();
        // It may have been sent in JSON like the arguments of other tools.
        let call = if json.starts_with('{') { named(INTERPRETER, json) } else { None };
        self.deltas.push(Delta::Call(call.unwrap_or_else(|| code(INTERPRETER, text.trim_ascii_end()))));
        self.between(end);
    }

    fn body(&mut self) {
        let State::Body { candidate, .. } = &mut self.state else { return };
        if let Some((place, next)) = message_end(&self.buffer, candidate) {
            self.give(place);
            self.between(next);
        }
    }

    fn call(&mut self) {
        let State::Call { name, body, json, reasoning } = &mut self.state else { return };
        let (body, reasoning, at) = (*body, *reasoning, self.buffer.at);
        let byte = self.buffer.byte(at - 1);
        let reader = match json {
            Some(reader) => reader,
            None if is_blank(byte) => return,
            None if byte == b'<' => {
                let (name, arguments) = (std::mem::take(name), "{}".to_owned());
                self.state = State::After { name, arguments, body, candidate: Some(at - 1), reasoning };
                return;
            }
            None if byte == b'{' => json.insert(JsonReader::new()),
            None => return self.fail(body),
        };
        match reader.read(byte) {
            Json::Begun => {}
            Json::Wrong => self.fail(body),
            Json::Whole => {
                let arguments = String::from_utf8_lossy(self.buffer.bytes(body, at)).into_owned();
                let name = std::mem::take(name);
                self.state = State::After { name, arguments, body, candidate: None, reasoning };
            }
        }
    }

    fn after(&mut self) {
        let State::After { candidate, body, .. } = &mut self.state else { return };
        let (body, at) = (*body, self.buffer.at);
        if candidate.is_none() && is_blank(self.buffer.byte(at - 1)) {
            return;
        }
        let place = *candidate.get_or_insert(at - 1);
        match compare(self.buffer.bytes(place, at), &ENDS) {
            Match::Begun => {}
            Match::No => self.fail(body),
            Match::Whole(index) => self.called(if index < 2 { place } else { at }),
        }
    }

    /// A call is complete, and ends at a place.
    fn called(&mut self, end: usize) {
        let State::After { name, arguments, body, .. } = &self.state else { return };
        match named(name, arguments) {
            Some(call) => {
                self.deltas.push(Delta::Call(call));
                self.between(end);
            }
            None => self.fail(*body),
        }
    }
}
