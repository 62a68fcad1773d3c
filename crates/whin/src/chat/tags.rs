//! Splits answers whose reasoning and calls stand between tags: everything but channels.
//!
//! It looks at each byte in order, and goes back only where something that began like a call turns out to be none.

use std::sync::Arc;

use super::buffer::{AGAIN, Buffer, Match, compare, is_blank};
use super::tools::{Reader, Schemas, Step};
use super::{Delta, Phase, ReasoningTags, Syntax, ToolCall, add};

#[derive(Debug)]
pub(super) struct Tags {
    reasoning: Option<ReasoningTags>, // until the place where reasoning may begin has passed
    syntax: Option<Syntax>,
    pub schemas: Arc<Schemas>,
    declared: bool, // the prompt has left the answer in its content
    buffer: Buffer,
    again: usize, // bytes that have been looked at more than once
    state: State,
    deltas: Vec<Delta>,
}

#[derive(Debug)]
enum State {
    Reasoning(Thought),
    Content(Content),
    Call(Call),
}

#[derive(Debug)]
struct Thought {
    close: &'static str,
    first: bool,      // nothing has come yet
    candidate: usize, // where the closing tag may have begun
}

/// `released..blank` is content, `blank..candidate` blanks, `candidate..at` what may become a tag.
#[derive(Clone, Copy, Debug)]
struct Content {
    blank: usize,
    candidate: usize,
    before: Before,
    lead: bool,                    // a call without a start marker may still begin here
    any: bool,                     // some content has gone out
    tail: &'static [&'static str], // tags that may stand behind a call
}

/// What stands directly before the blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Reasoning,
    Call,
    Text,
}

#[derive(Debug)]
struct Call {
    content: Content, // where it stood at the start marker
    start: usize,     // of the start marker
    block: usize,     // behind it
    reader: Box<dyn Reader>,
}

impl Tags {
    pub fn new(reasoning: Option<ReasoningTags>, syntax: Option<Syntax>, start: Phase) -> Self {
        let state = match (start, reasoning) {
            (Phase::Reasoning, Some(tags)) => State::Reasoning(Thought::new(tags.close, 0)),
            _ => State::Content(Content::new(0, Before::Nothing)),
        };
        let reasoning = reasoning.filter(|_| matches!(state, State::Content(_)));
        Self {
            reasoning,
            syntax,
            schemas: Arc::default(),
            declared: matches!(start, Phase::Content | Phase::Call),
            buffer: Buffer::default(),
            again: 0,
            state,
            deltas: Vec::new(),
        }
    }

    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.buffer.push(text);
        self.advance();
        self.release();
        self.buffer.forget();
        std::mem::take(&mut self.deltas)
    }

    /// No more comes; `cut` says that the text did not end by itself.
    pub fn finish(&mut self, cut: bool) -> Vec<Delta> {
        // What fails at the end may hold another call, which may fail as well.
        while let State::Call(call) = &mut self.state {
            let block = self.buffer.bytes(call.block, self.buffer.end());
            match if cut { call.reader.cut(block) } else { call.reader.finish(block) } {
                Step::Done(length) => self.settle(Step::Done(length)),
                _ if cut => self.cut_call(),
                _ => self.settle(Step::Failed),
            }
            self.advance();
        }
        let end = self.buffer.end();
        match &mut self.state {
            State::Reasoning(thought) => {
                thought.candidate = end;
                add(&mut self.deltas, Delta::Reasoning(self.buffer.release(end)));
            }
            State::Content(content) => {
                let only_blanks = content.candidate == end;
                let beside = match content.before {
                    Before::Call => only_blanks || cut, // a tag that is cut off
                    Before::Reasoning => only_blanks,
                    Before::Nothing | Before::Text => false,
                };
                if beside {
                    content.blank = content.blank.max(self.buffer.released);
                    add(&mut self.deltas, Delta::Content(self.buffer.release(content.blank)));
                    self.buffer.released = end;
                } else {
                    content.settle(&mut self.buffer);
                    add(&mut self.deltas, Delta::Content(self.buffer.release(end)));
                }
                (content.blank, content.candidate) = (end, end);
            }
            State::Call(_) => {}
        }
        std::mem::take(&mut self.deltas)
    }

    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Reasoning(_) => Phase::Reasoning,
            State::Call(_) => Phase::Call,
            State::Content(content) => match self.reasoning {
                Some(tags) if content.before == Before::Nothing && !self.declared => {
                    let tail = self.buffer.bytes(content.candidate, self.buffer.at);
                    if tags.open.as_bytes().starts_with(tail) { Phase::Undecided } else { Phase::Content }
                }
                _ => Phase::Content,
            },
        }
    }

    pub fn since_phase(&self) -> &str {
        self.buffer.since_phase()
    }

    /// Looks at all bytes that are there.
    fn advance(&mut self) {
        while self.buffer.at < self.buffer.end() {
            self.buffer.at += 1;
            match &mut self.state {
                State::Reasoning(_) => self.think(),
                State::Content(_) => self.read(),
                State::Call(call) => {
                    let step = call.reader.read(self.buffer.bytes(call.block, self.buffer.at));
                    self.settle(step);
                }
            }
        }
    }

    /// Gives out what is certain.
    fn release(&mut self) {
        match &self.state {
            State::Reasoning(thought) => {
                let end = thought.trimmed(&self.buffer);
                add(&mut self.deltas, Delta::Reasoning(self.buffer.release(end)));
            }
            State::Content(content) => {
                // Blanks wait for what follows them: a call swallows those before it.
                let waits = self.syntax.is_some() || content.before != Before::Text;
                let end = if waits { content.blank } else { content.candidate };
                add(&mut self.deltas, Delta::Content(self.buffer.release(end.max(self.buffer.released))));
            }
            State::Call(_) => {}
        }
    }

    fn think(&mut self) {
        let State::Reasoning(thought) = &mut self.state else { return };
        let at = self.buffer.at;
        if std::mem::take(&mut thought.first) && self.buffer.byte(at - 1) == b'\n' {
            (self.buffer.released, thought.candidate) = (at, at);
        }
        while thought.candidate < at {
            match compare(self.buffer.bytes(thought.candidate, at), &[thought.close]) {
                Match::Begun => return,
                Match::No => thought.candidate += 1,
                Match::Whole(_) => {
                    let end = thought.trimmed(&self.buffer);
                    add(&mut self.deltas, Delta::Reasoning(self.buffer.release(end)));
                    (self.buffer.released, self.buffer.phase) = (at, at);
                    self.state = State::Content(Content::new(at, Before::Reasoning));
                    return;
                }
            }
        }
    }

    fn read(&mut self) {
        let State::Content(content) = &mut self.state else { return };
        let at = self.buffer.at;
        let opens = match self.reasoning {
            Some(tags) if content.before == Before::Nothing => Some(tags),
            _ => None,
        };
        let starts = self.syntax.map_or(&[] as &[&str], Syntax::starts);
        while content.candidate < at {
            let tail = self.buffer.bytes(content.candidate, at);
            let open = opens.filter(|_| content.before == Before::Nothing).map(|tags| tags.open);
            let found = [compare(tail, open.as_slice()), compare(tail, content.tail), compare(tail, starts)];
            match found {
                [Match::Whole(_), ..] => return self.open(),
                [_, Match::Whole(_), _] => {
                    self.buffer.released = at;
                    *content = Content { blank: at, candidate: at, ..*content };
                    return;
                }
                [_, _, Match::Whole(index)] => return self.begin(at, Some(index)),
                [Match::No, Match::No, Match::No] => {}
                _ => return,
            }
            let leads = content.lead && self.syntax.is_some_and(|syntax| syntax.leads(tail[0]));
            if leads {
                let start = content.candidate;
                self.buffer.at = start;
                return self.begin(start, None);
            }
            content.pass(&mut self.buffer);
        }
    }

    /// The opening tag of the reasoning ends here.
    fn open(&mut self) {
        let at = self.buffer.at;
        if let Some(tags) = self.reasoning.take() {
            (self.buffer.released, self.buffer.phase) = (at, at);
            self.state = State::Reasoning(Thought::new(tags.close, at));
        }
    }

    /// A call may begin: the block behind its start marker, if it has one, begins at `block`.
    fn begin(&mut self, block: usize, marker: Option<usize>) {
        let (State::Content(content), Some(syntax)) = (&self.state, self.syntax) else { return };
        let content = *content;
        add(&mut self.deltas, Delta::Content(self.buffer.release(content.blank.max(self.buffer.released))));
        self.buffer.phase = block;
        let reader = syntax.reader(marker, &self.schemas);
        self.state = State::Call(Call { content, start: content.candidate, block, reader });
    }

    /// The text is cut off within the call that is open. It is not given out as text, unless nothing but its first
    /// bytes tells that it was to be a call.
    fn cut_call(&mut self) {
        let State::Call(call) = &mut self.state else { return };
        let (end, calls) = (self.buffer.end(), call.reader.calls());
        if calls.is_empty() && call.start == call.block {
            return self.settle(Step::Failed);
        }
        self.called(calls, end);
    }

    /// Calls are complete, and end at a place.
    fn called(&mut self, calls: Vec<ToolCall>, end: usize) {
        let State::Call(call) = &self.state else { return };
        let any = call.content.any || call.content.before == Before::Text;
        self.deltas.extend(calls.into_iter().map(Delta::Call));
        self.buffer.at = end;
        (self.buffer.released, self.buffer.phase) = (end, end);
        let tail = self.syntax.map_or(&[] as &[&str], Syntax::tail);
        self.state = State::Content(Content { tail, any, ..Content::new(end, Before::Call) });
    }

    /// A step of the call that is open.
    fn settle(&mut self, step: Step) {
        let State::Call(call) = &mut self.state else { return };
        match step {
            Step::More => {}
            Step::Done(length) => {
                let (calls, end) = (call.reader.calls(), call.block + length);
                self.called(calls, end);
            }
            Step::Failed => {
                let (mut content, start, at) = (call.content, call.start, self.buffer.at);
                self.buffer.phase = start;
                content.pass(&mut self.buffer);
                if self.again + (at - content.candidate) <= AGAIN * at {
                    self.again += at - content.candidate;
                    self.buffer.at = content.candidate;
                } else {
                    (content.blank, content.candidate) = (at, at);
                }
                self.state = State::Content(content);
            }
        }
    }
}

impl Thought {
    fn new(close: &'static str, place: usize) -> Self {
        Self { close, first: true, candidate: place }
    }

    /// Where the reasoning ends if the closing tag begins at the candidate: one newline before it is left out.
    fn trimmed(&self, buffer: &Buffer) -> usize {
        let newline = self.candidate > buffer.released && buffer.byte(self.candidate - 1) == b'\n';
        self.candidate - usize::from(newline)
    }
}

impl Content {
    fn new(place: usize, before: Before) -> Self {
        Self { blank: place, candidate: place, before, lead: before != Before::Call, any: false, tail: &[] }
    }

    /// Takes the byte at the candidate for what it is: no tag begins there.
    fn pass(&mut self, buffer: &mut Buffer) {
        if is_blank(buffer.byte(self.candidate)) {
            self.candidate += 1;
            return;
        }
        self.settle(buffer);
        self.candidate += 1;
        self.blank = self.candidate;
    }

    /// Text stands at the candidate: decides what becomes of the blanks before it.
    fn settle(&mut self, buffer: &mut Buffer) {
        let blanks = buffer.bytes(self.blank, self.candidate);
        match self.before {
            Before::Nothing | Before::Text => {}
            Before::Call if self.any => {}
            Before::Call => buffer.released = self.candidate,
            Before::Reasoning => {
                let lines = blanks.iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
                buffer.released = self.blank + lines;
            }
        }
        (self.before, self.lead, self.any, self.tail) = (Before::Text, false, true, &[]);
    }
}
