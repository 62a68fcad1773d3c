//! Calls whose arguments stand as bare text between tags: `<function=NAME><parameter=KEY>VALUE</parameter></function>`
//! and the like.
//!
//! Nothing in a value is escaped, so a closing tag counts only if the markup goes on behind it. Where it is missing, a
//! line of the value that begins with the tag of another parameter of the tool ends it. Without a schema that names the
//! parameter, such a line is part of the value, in which it may well stand.

use std::collections::HashMap;
use std::sync::Arc;

use super::schema::Bare;
use super::{Reader, Schemas, Step, is_blank, named};
use crate::chat::ToolCall;
use crate::chat::buffer::{Match, compare};

/// No key that ends the value before it is longer, in bytes.
const LONGEST_KEY: usize = 256;

/// The tags around the parts of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Around a block of calls.
    pub open: &'static str,
    pub close: &'static str,
    /// Before the name; none where the name stands first.
    name: Option<&'static str>,
    /// Behind the name; none where a newline or the next tag ends it.
    name_end: Option<&'static str>,
    key: &'static str,
    key_end: &'static str,
    /// Before a value; none where it follows the key.
    value: Option<&'static str>,
    value_end: &'static str,
    /// Behind a call; where that is `close`, a block holds one only.
    end: &'static str,
    bare: Bare,
}

impl Form {
    /// Of Qwen3-Coder.
    pub const QWEN: Self = Self {
        open: "<tool_call>",
        close: "</tool_call>",
        name: Some("<function="),
        name_end: Some(">"),
        key: "<parameter=",
        key_end: ">",
        value: None,
        value_end: "</parameter>",
        end: "</function>",
        bare: Bare::Text,
    };
    /// Of Seed-OSS.
    pub const SEED: Self = Self { open: "<seed:tool_call>", close: "</seed:tool_call>", ..Self::QWEN };
    /// Of MiniMax M2.
    pub const MINI_MAX: Self = Self {
        open: "<minimax:tool_call>",
        close: "</minimax:tool_call>",
        name: Some("<invoke name=\""),
        name_end: Some("\">"),
        key: "<parameter name=\"",
        key_end: "\">",
        end: "</invoke>",
        ..Self::QWEN
    };
    /// Of GLM 4.5.
    pub const GLM: Self = Self {
        open: "<tool_call>",
        close: "</tool_call>",
        name: None,
        name_end: None,
        key: "<arg_key>",
        key_end: "</arg_key>",
        value: Some("<arg_value>"),
        value_end: "</arg_value>",
        end: "</tool_call>",
        bare: Bare::Json,
    };
}

#[derive(Debug)]
pub(super) struct Markup {
    form: Form,
    single: bool, // the end of the call is that of the block
    schemas: Arc<Schemas>,
    state: State,
    name: String,
    key: String,
    arguments: Vec<(String, String)>, // as JSON, in the order of their first mention
    places: HashMap<String, usize>,   // of keys among them
    calls: Vec<ToolCall>,
}

/// `from` is where the part begins, and `tag` where a tag within it may have begun. `line` is where the last line of a
/// value begins, from its second one on.
#[derive(Clone, Copy, Debug)]
enum State {
    Open { tag: Option<usize> },
    Name { from: usize, tag: usize },
    Between { tag: Option<usize> },
    Key { from: usize, tag: usize },
    BeforeValue { tag: Option<usize> },
    Value { from: usize, tag: usize, line: Option<usize> },
    AfterValue { from: usize, to: usize, tag: Option<usize>, line: Option<usize> },
    After { tag: Option<usize> },
}

impl Markup {
    /// For a block whose first part begins at a place.
    pub fn new(form: Form, schemas: &Arc<Schemas>, from: usize) -> Self {
        let state = match form.name {
            Some(_) => State::Open { tag: None },
            None => State::Name { from, tag: from },
        };
        Self {
            form,
            single: form.end == form.close,
            schemas: schemas.clone(),
            state,
            name: String::new(),
            key: String::new(),
            arguments: Vec::new(),
            places: HashMap::new(),
            calls: Vec::new(),
        }
    }

    /// For a block whose name begins at once, and which ends with the call.
    pub fn named(form: Form, schemas: &Arc<Schemas>) -> Self {
        Self { single: true, state: State::Name { from: 0, tag: 0 }, ..Self::new(form, schemas, 0) }
    }

    /// Expects one of `tags` behind blanks: the one that is there, or what to say meanwhile.
    fn expect(block: &[u8], tag: &mut Option<usize>, tags: &[&str]) -> Result<usize, Step> {
        let last = block.len() - 1;
        if tag.is_none() && is_blank(block[last]) {
            return Err(Step::More);
        }
        match compare(&block[*tag.get_or_insert(last)..], tags) {
            Match::Whole(index) => Ok(index),
            Match::Begun => Err(Step::More),
            Match::No => Err(Step::Failed),
        }
    }

    /// Whether the text ends with `end`, keeping the place where that may have begun.
    fn ends(block: &[u8], tag: &mut usize, end: &str) -> bool {
        while *tag < block.len() {
            match compare(&block[*tag..], &[end]) {
                Match::Whole(_) => return true,
                Match::Begun => return false,
                Match::No => *tag += 1,
            }
        }
        false
    }

    fn step(&mut self, block: &[u8]) -> Result<(), Step> {
        let (form, at) = (self.form, block.len());
        match &mut self.state {
            State::Open { tag } => {
                Self::expect(block, tag, form.name.as_slice())?;
                self.state = State::Name { from: at, tag: at };
            }
            State::Name { .. } => return self.read_name(block),
            State::Between { tag } => match Self::expect(block, tag, &[form.key, form.end])? {
                0 => self.state = State::Key { from: at, tag: at },
                _ => return self.complete(at),
            },
            State::Key { from, tag } => {
                if block[at - 1] == b'\n' {
                    return Err(Step::Failed);
                }
                if Self::ends(block, tag, form.key_end) {
                    let key = text(&block[*from..*tag])?.trim_ascii().to_owned();
                    self.begin_value(key, at);
                }
            }
            State::BeforeValue { tag } => {
                Self::expect(block, tag, form.value.as_slice())?;
                self.state = State::Value { from: at, tag: at, line: None };
            }
            State::Value { from, tag, line } => {
                if Self::ends(block, tag, form.value_end) {
                    self.state = State::AfterValue { from: *from, to: *tag, tag: None, line: *line };
                } else if block[at - 1] == b'\n' {
                    *line = Some(at);
                } else if let Some(line) = *line {
                    let from = *from;
                    return self.read_line(block, from, line);
                }
            }
            State::AfterValue { .. } => return self.read_after_value(block),
            State::After { .. } => return self.read_after(block),
        }
        Err(Step::More)
    }

    fn read_name(&mut self, block: &[u8]) -> Result<(), Step> {
        let State::Name { from, tag } = &mut self.state else { return Err(Step::Failed) };
        let last = block.len() - 1;
        let end = match self.form.name_end {
            Some(end) if Self::ends(block, tag, end) => *tag,
            Some(_) if *tag < block.len() => return Err(Step::More),
            None if matches!(block[last], b'\n' | b'<') => last,
            _ if matches!(block[last], b'\n' | b'<' | b'{' | b'"') => return Err(Step::Failed),
            // Prose behind a tag is no name.
            _ if last == *from || is_blank(block[last]) || !is_blank(block[last - 1]) => {
                return Err(Step::More);
            }
            _ if block[*from..last].iter().all(|&byte| is_blank(byte)) => return Err(Step::More),
            _ => return Err(Step::Failed),
        };
        self.name = text(&block[*from..end])?.trim_ascii().to_owned();
        if self.name.is_empty() || self.name.contains(|c: char| c.is_whitespace()) {
            return Err(Step::Failed);
        }
        let tag = (block[last] == b'<').then_some(last);
        self.state = State::Between { tag };
        Err(Step::More)
    }

    /// A key is complete with the tag that ends at a place.
    fn begin_value(&mut self, key: String, at: usize) {
        self.key = key;
        self.state = match self.form.value {
            Some(_) => State::BeforeValue { tag: None },
            None => State::Value { from: at, tag: at, line: None },
        };
    }

    /// Whether the last line of a value is the tag of another parameter: then the closing tag before it is missing.
    fn read_line(&mut self, block: &[u8], from: usize, line: usize) -> Result<(), Step> {
        let Form { key, key_end, bare, .. } = self.form;
        if block.len() - line > key.len() + LONGEST_KEY + key_end.len() {
            return Err(Step::More);
        }
        let tag = block[line..].strip_prefix(key.as_bytes());
        let Some(next) = tag.and_then(|tag| tag.strip_suffix(key_end.as_bytes())) else {
            return Err(Step::More);
        };
        let next = text(next)?.trim_ascii();
        let given = next == self.key || self.places.contains_key(next);
        if given || !self.schemas.has(&self.name, next) {
            return Err(Step::More);
        }
        let next = next.to_owned();
        // Where the newline before a closing tag is no part of the value, that is seen to where its type is.
        self.store(text(&block[from..line - usize::from(bare == Bare::Json)])?);
        self.begin_value(next, block.len());
        Err(Step::More)
    }

    /// The value of the current key is complete.
    fn store(&mut self, text: &str) {
        let value = self.schemas.value(&self.name, &self.key, text, self.form.bare);
        match self.places.get(&self.key) {
            Some(&place) => self.arguments[place].1 = value,
            None => {
                self.places.insert(self.key.clone(), self.arguments.len());
                self.arguments.push((std::mem::take(&mut self.key), value));
            }
        }
    }

    fn read_after_value(&mut self, block: &[u8]) -> Result<(), Step> {
        let State::AfterValue { from, to, tag, line } = &mut self.state else { return Err(Step::Failed) };
        let (from, to, line, at) = (*from, *to, *line, block.len());
        match Self::expect(block, tag, &[self.form.key, self.form.end]) {
            Ok(index) => {
                self.store(text(&block[from..to])?);
                if index > 0 {
                    return self.complete(at);
                }
                self.state = State::Key { from: at, tag: at };
            }
            Err(Step::Failed) => {
                // The closing tag was part of the value.
                let mut place = tag.unwrap_or(at - 1);
                Self::ends(block, &mut place, self.form.value_end);
                let newline = block[to..at].iter().rposition(|&byte| byte == b'\n');
                let line = newline.map(|newline| to + newline + 1).or(line);
                self.state = State::Value { from, tag: place, line };
            }
            Err(step) => return Err(step),
        }
        Err(Step::More)
    }

    /// A call is complete with the tag that ends at a place.
    fn complete(&mut self, at: usize) -> Result<(), Step> {
        let mut json = String::from("{");
        for (index, (key, value)) in self.arguments.drain(..).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let key = serde_json::Value::String(key);
            json.push_str(&format!("{comma}{key}: {value}"));
        }
        json.push('}');
        self.places.clear();
        self.calls.push(named(&self.name, &json).ok_or(Step::Failed)?);
        self.state = State::After { tag: None };
        Err(if self.single { Step::Done(at) } else { Step::More })
    }

    /// Behind a call: the end of the block, which may be missing before the next one, or another call.
    fn read_after(&mut self, block: &[u8]) -> Result<(), Step> {
        let State::After { tag } = &mut self.state else { return Err(Step::Failed) };
        let Form { open, close, name, .. } = self.form;
        match Self::expect(block, tag, &[close, open, name.unwrap_or(close)])? {
            0 => Err(Step::Done(block.len())),
            1 => Err(Step::Done(tag.unwrap_or_default())),
            _ => {
                self.state = State::Name { from: block.len(), tag: block.len() };
                Err(Step::More)
            }
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str, Step> {
    str::from_utf8(bytes).map_err(|_| Step::Failed)
}

impl Reader for Markup {
    fn read(&mut self, block: &[u8]) -> Step {
        self.step(block).err().unwrap_or(Step::More)
    }

    fn finish(&mut self, block: &[u8]) -> Step {
        if matches!(self.state, State::After { .. }) { Step::Done(block.len()) } else { Step::Failed }
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.calls)
    }
}
