//! Runs Hugging Face language-model checkpoints: a prompt goes in, tokens come out.
//!
//! ```
//! use whin::{Engine, Options, Request};
//!
//! let engine = Engine::load(None, &Options::default())?; // the built-in demo model
//! let request = Request { max_new_tokens: Some(8), ..Request::text("The capital of France is") };
//! let completion = engine.generate(&request)?.finish()?;
//! assert_eq!(completion.generated_text.as_deref(), Some(" Paris."));
//! # Ok::<(), whin::Error>(())
//! ```
//!
//! The modules stand in the order in which a token passes through them: [`Engine::generate`] takes a [`Request`],
//! [`chat`] renders its
//! messages, [`tokenizer`] turns its text into tokens, the scheduler cuts them into steps, the worker runs each step through
//! the model, [`sample`] chooses the next token, [`tokenizer`] turns it back into text and [`stop`] decides whether
//! that was the end. [`Checkpoint`] and the [`checkpoint`] and [`model`] modules are what has happened before: from
//! files to weights.

mod engine;
mod request;

pub mod chat;
pub mod tokenizer;

mod blocks;
mod scheduler;
mod sequence;
mod text_out;
mod worker;

pub mod constrain;
pub mod sample;
pub mod stop;

mod launch;
mod opened;
mod resident;

#[doc(hidden)]
pub mod checkpoint;
#[doc(hidden)]
pub mod model;

#[doc(hidden)]
pub mod fuzzing;

pub mod cache;
mod device;
mod error;
mod fit;
pub mod memory;

pub use cache::{CacheMode, Verify};
pub use chat::{
    Answer, Chat, ChatPrompt, Conversation, Delta, Encoding, ToolCall, ToolChoice, split_tool_calls,
};
pub use checkpoint::Download;
pub use device::{Device, DeviceInfo, available_threads, devices, instruction_sets, peak_flops};
pub use engine::{Engine, Options};
pub use error::{Error, ErrorKind, Result};
pub use fit::Needs;
pub use launch::Prepared;
pub use model::Weights;
pub use opened::Checkpoint;
pub use request::{Canceller, Completion, FinishReason, Generation, Prompt, Request, Score, Token};
pub use resident::Engines;
pub use sample::{Logprobs, Sampling};
pub use whin_kernels::KvKind;
