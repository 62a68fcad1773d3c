//! Messages on their way to a prompt. Knows nothing of tokens or of how an answer is computed.

pub mod messages;
pub mod template;
