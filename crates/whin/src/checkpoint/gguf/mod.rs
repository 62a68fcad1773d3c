//! GGUF files: metadata and tensors in one file, or in the parts of one that was split. Knows the form of the files, and
//! no model.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

mod files;
pub mod metadata;
mod reader;

pub use files::{Gguf, is_gguf};
pub use metadata::Metadata;
