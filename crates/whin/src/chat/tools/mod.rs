//! The syntaxes in which models write tool calls: where a call begins, how it is read, where it ends.
//!
//! A syntax is a row of the tables below and a `Reader`, which sees the text behind the start marker one byte after
//! the other and says when it is a call, or can no longer become one. Nothing here knows of reasoning or of text
//! around the calls.

mod block;
mod call;
mod gemma;
mod json;
mod literal;
mod llama;
mod markup;
mod mistral;
mod pythonic;
mod schema;
mod sections;
mod split;
mod syntax;
mod tagged;

use super::ToolCall;
use super::buffer::is_blank;
pub(super) use call::{code, named};
pub(super) use json::{Json, JsonReader};
pub(super) use schema::Schemas;
pub use split::split_tool_calls;
pub use syntax::Syntax;

/// What a reader makes of the text that it has seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It may still become a call.
    More,
    /// It can no longer become one.
    Failed,
    /// So many bytes of it are one call or several.
    Done(usize),
}

/// Has a reader keep the state of its next step, or gives what it is to say instead.
fn keep<S>(state: &mut S, next: Result<S, Step>) -> Step {
    match next {
        Ok(next) => {
            *state = next;
            Step::More
        }
        Err(step) => step,
    }
}

/// Reads the text behind one start marker.
pub(super) trait Reader: std::fmt::Debug + Send {
    /// Takes the last byte of `block`, which is the whole text behind the start marker. It is called with every
    /// length from one on, until it says something else than [`Step::More`].
    fn read(&mut self, block: &[u8]) -> Step;

    /// No more comes. [`Step::More`] counts as [`Step::Failed`].
    fn finish(&mut self, block: &[u8]) -> Step;

    /// No more comes, since the text was cut off: only what is complete is a call.
    fn cut(&mut self, block: &[u8]) -> Step {
        self.finish(block)
    }

    /// The calls: all of them after [`Step::Done`], before that those that are complete.
    fn calls(&mut self) -> Vec<ToolCall>;
}
