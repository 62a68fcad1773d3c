//! Answers of a given form: a JSON schema, a regular expression, a grammar, or one of several texts.
//!
//! The `llguidance` crate does the work: it follows an answer through a grammar and says which tokens may come next.
//! This module decides what is asked of it, so that nothing is promised that it would not keep, and within which limits.
//! It knows tokenizers and grammars, and nothing of models or requests.

mod grammar;
mod grammars;
mod lark;
mod matcher;
mod schema;
mod tokens;

pub use grammar::{Format, Grammar, Strictness};
pub use grammars::Grammars;
pub use matcher::Matcher;
