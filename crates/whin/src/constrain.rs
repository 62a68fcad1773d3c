//! Answers of a given form: a JSON schema, a regular expression, a grammar, or one of several texts.
//!
//! The `llguidance` crate does the work: it follows an answer through a grammar and says which tokens may come next.
//! This module decides what is asked of it, so that nothing is promised that it would not keep, and within which limits.
//! It knows tokenizers, grammars and how calls of tools are written, and nothing of models or requests.

mod enforcer;
mod grammar;
mod grammars;
mod lark;
mod matcher;
mod schema;
mod tokens;
mod tools;
mod watch;

pub(crate) use enforcer::Enforcer;
pub use grammar::{Format, Grammar, Strictness};
pub use grammars::Grammars;
pub use matcher::Matcher;
pub use tools::{Calls, tool_grammar};
pub(crate) use tools::{final_channel, strict_grammar};
