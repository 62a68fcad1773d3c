//! Splits the text of an answer into reasoning, content and tool calls, while it comes.
//!
//! Works on text alone; it knows nothing of tokens.

use serde_json::Value;

use super::channels::Channels;
use super::tags::Tags;
use super::tools::Schemas;
use super::{Conventions, Delta, Phase, Syntax};

/// Splits an answer as it is streamed.
///
/// What comes out depends on the text alone, never on the pieces it comes in: each byte is looked at in order. Text
/// is given out at once, but for what may yet become a tag, blanks that may stand before a call, and calls: each
/// comes whole ([`Delta::Call`]), once it is complete.
///
/// - Reasoning comes first or not at all: only a block that begins the answer (or stands open at the end of the
///   prompt) counts, and only its first closing tag. One newline inside either tag and the blank lines behind the
///   block are left out. A block that is cut off is reasoning to its end.
/// - Calls count outside of the reasoning only. Blanks around them are left out, unless there is text on both sides.
///   What is no well-formed call stays content, to the letter.
#[derive(Debug)]
pub struct Router {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tags(Tags),
    Channels(Channels),
}

impl Router {
    /// For one answer. `start` is the phase in which the prompt left it ([`Conventions::start`]); if it is
    /// [`Phase::Content`], a reasoning block that the answer itself begins with is still split off. Without `tools`
    /// nothing is a call, and its markup is text.
    pub fn new(conventions: &Conventions, start: Phase, tools: bool) -> Self {
        let kind = match conventions.syntax {
            Some(Syntax::Harmony) => Kind::Channels(Channels::new(start, tools)),
            syntax => Kind::Tags(Tags::new(conventions.reasoning, syntax.filter(|_| tools), start)),
        };
        Self { kind }
    }

    /// The same router with the tools that were offered, in OpenAI's shape: syntaxes that spell arguments as bare
    /// text take their types from the schemas of the parameters. Without a schema, such an argument is a string.
    pub fn with_tools(mut self, tools: &[Value]) -> Self {
        if let Kind::Tags(tags) = &mut self.kind {
            tags.schemas = Schemas::new(tools).into();
        }
        self
    }

    /// Takes the next piece of the answer, and gives what can be told of it so far.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        match &mut self.kind {
            Kind::Tags(tags) => tags.push(text),
            Kind::Channels(channels) => channels.push(text),
        }
    }

    /// Gives what was held back, when the answer has ended by itself.
    pub fn finish(&mut self) -> Vec<Delta> {
        match &mut self.kind {
            Kind::Tags(tags) => tags.finish(false),
            Kind::Channels(channels) => channels.finish(false),
        }
    }

    /// As [`Router::finish`], for an answer that did not end by itself: one cut off at its longest length, say.
    ///
    /// A call that has begun and could still have become one is left out, rather than given out as text: its start
    /// marker, and what stands behind it. Calls before it in the same block that are complete count. Code for an
    /// interpreter is never complete when it is cut off. What has begun without a start marker and has no complete
    /// call in it stays content, since it may be an answer in JSON, and so does what is no call however it goes on.
    pub fn finish_cut(&mut self) -> Vec<Delta> {
        match &mut self.kind {
            Kind::Tags(tags) => tags.finish(true),
            Kind::Channels(channels) => channels.finish(true),
        }
    }

    /// Where the answer stands.
    pub fn phase(&self) -> Phase {
        match &self.kind {
            Kind::Tags(tags) => tags.phase(),
            Kind::Channels(channels) => channels.phase(),
        }
    }

    /// The text, as it was pushed, since the current phase began: behind the closing tag of the reasoning, or behind
    /// the start marker of the call that is open.
    pub fn since_phase(&self) -> &str {
        match &self.kind {
            Kind::Tags(tags) => tags.since_phase(),
            Kind::Channels(channels) => channels.since_phase(),
        }
    }
}
