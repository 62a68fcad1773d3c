//! The types that tools declare for their parameters.

use serde_json::Value;

/// The parameters of the tools of a request.
#[derive(Clone, Debug, Default)]
pub(in crate::chat) struct Schemas {}

impl Schemas {
    /// Of tools in OpenAI's shape; what has another shape declares nothing.
    pub fn new(_tools: &[Value]) -> Self {
        Self {}
    }
}
