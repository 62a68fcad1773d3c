//! Conversations: what lies between messages and the text that a model reads and writes.
//!
//! An answer is text in the conventions of its checkpoint: [`Conventions`] finds them in the source of the chat
//! template, and a [`Router`] splits the text, in whatever pieces it comes, into reasoning, content and tool calls.
//! Nothing here knows of tokens or of the engine.

mod buffer;
mod channels;
mod conventions;
mod reasoning;
mod router;
mod tags;
pub mod tools;

pub use conventions::Conventions;
pub use reasoning::ReasoningTags;
pub use router::Router;
pub use tools::{Syntax, split_tool_calls};

/// A call of a tool in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The function's name: never empty, not necessarily one that was offered.
    pub name: String,
    /// JSON text of an object, spelled as the model spelled it where it wrote JSON.
    pub arguments: String,
}

/// A piece of an answer, and what it belongs to. Pieces of one kind that follow each other are one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// What the model thinks before it answers.
    Reasoning(String),
    /// The answer itself.
    Content(String),
    /// One whole call, given once it is complete and well-formed: what has been streamed cannot be taken back,
    /// and a call that is malformed or cut off must not appear as one.
    Call(ToolCall),
}

/// Where an answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing but blanks, and perhaps the beginning of a reasoning tag, so far: reasoning may still begin.
    Undecided,
    /// Inside the reasoning.
    Reasoning,
    /// Behind the reasoning, and not in a call.
    Content,
    /// Inside the markup of a call that has begun, and may still turn out not to be one.
    Call,
}

/// Adds a piece, joined to the one before if both are text of one kind; an empty one is left out.
pub(crate) fn add(deltas: &mut Vec<Delta>, delta: Delta) {
    match (deltas.last_mut(), delta) {
        (_, Delta::Reasoning(text) | Delta::Content(text)) if text.is_empty() => {}
        (Some(Delta::Reasoning(before)), Delta::Reasoning(text))
        | (Some(Delta::Content(before)), Delta::Content(text)) => before.push_str(&text),
        (_, delta) => deltas.push(delta),
    }
}
