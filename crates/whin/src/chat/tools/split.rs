//! Splits the tool calls off a whole text of which nothing else is known.

use super::Syntax;
use crate::chat::{Conventions, Delta, Phase, ReasoningTags, Router, ToolCall};

/// Splits the tool calls off the text of an answer, between `<tool_call>` tags.
///
/// Gives what is left of the text (nothing, if the answer consists of calls) and the calls in their order. What is no
/// well-formed call stays in the text, to the letter, and so does the reasoning with its tags; calls in it do not
/// count.
pub fn split_tool_calls(text: &str) -> (Option<String>, Vec<ToolCall>) {
    let conventions = Conventions { reasoning: Some(ReasoningTags::THINK), syntax: Some(Syntax::Hermes) };
    let mut router = Router::new(&conventions, Phase::Undecided, true);
    let mut deltas = router.push(text);
    deltas.extend(router.finish());
    let (mut content, mut calls) = (String::new(), Vec::new());
    for delta in deltas {
        match delta {
            Delta::Content(text) | Delta::Reasoning(text) => content.push_str(&text),
            Delta::Call(call) => calls.push(call),
        }
    }
    ((!content.is_empty()).then_some(content), calls)
}
