//! Runs Hugging Face language-model checkpoints: a prompt goes in, tokens come out.

mod error;
pub mod sample;
pub mod stop;
pub mod tokenizer;

pub use error::{Error, ErrorKind, Result};
