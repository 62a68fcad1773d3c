//! Runs Hugging Face language-model checkpoints: a prompt goes in, tokens come out.

#[doc(hidden)]
pub mod checkpoint;
mod error;
#[doc(hidden)]
pub mod model;

pub use error::{Error, ErrorKind, Result};
