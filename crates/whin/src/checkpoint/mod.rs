//! The files of a checkpoint: where they are, and what tensors are in them. Knows no model.

pub mod eos;
pub mod gguf;
mod header;
pub mod hub;
pub mod safetensors;
pub mod seen;
pub mod source;
pub mod storage;
pub mod tensors;

pub use eos::end_tokens;
pub use hub::Download;
pub use source::Source;
pub use storage::Storage;
pub use tensors::{TensorRef, Tensors};
