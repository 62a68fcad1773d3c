//! Splits the tool calls off a whole text of which nothing else is known.

use super::Syntax;
use crate::chat::{Conventions, Delta, Phase, ReasoningTags, Router, ToolCall};

/// Splits the tool calls off the text of an answer, in whichever of the [syntaxes](Syntax) with start markers they
/// are written.
///
/// Gives what is left of the text (nothing, if the answer consists of calls) and the calls in their order. Blanks
/// beside calls are left out; what is no well-formed call stays in the text, to the letter, and so does the
/// reasoning with its tags, in which calls do not count. Of an answer in channels, the reasoning is left out.
pub fn split_tool_calls(text: &str) -> (Option<String>, Vec<ToolCall>) {
    let (reasoning, rest) = text.split_at(reasoning(text));
    let mut candidates: Vec<_> =
        Syntax::ALL.iter().filter_map(|&syntax| Some((begins(rest, syntax)?, syntax))).collect();
    candidates.sort_by_key(|&(place, _)| place);
    for (_, syntax) in candidates {
        let (content, calls) = split(rest, syntax);
        if !calls.is_empty() {
            let content = format!("{reasoning}{content}");
            return ((!content.is_empty()).then_some(content), calls);
        }
    }
    ((!text.is_empty()).then(|| text.to_owned()), Vec::new())
}

/// Where the text may first hold a call.
fn begins(text: &str, syntax: Syntax) -> Option<usize> {
    let starts = match syntax {
        Syntax::Harmony => &["<|channel|>"],
        // Without arguments, it is just a word between tags.
        Syntax::Glm4 if !text.contains("<arg_key>") => return None,
        _ => syntax.starts(),
    };
    starts.iter().filter_map(|start| text.find(start)).min()
}

/// The length of the reasoning at the beginning of a text, with its tags. The prompt may have held the opening one:
/// then the closing one stands in the text without it.
fn reasoning(text: &str) -> usize {
    let Some(tags) = ReasoningTags::detect(text, &|_| false) else { return 0 };
    let close = text.find(tags.close).map(|place| place + tags.close.len());
    if text.trim_ascii_start().starts_with(tags.open) {
        return close.unwrap_or(text.len());
    }
    let Some(close) = close.filter(|&close| !text[..close].contains(tags.open)) else { return 0 };
    // In an argument, the tag ends nothing.
    let inside = Syntax::ALL.iter().any(|&syntax| {
        begins(&text[..close], syntax).is_some() && !split(text, syntax).0.contains(tags.close)
    });
    if inside { 0 } else { close }
}

/// The content of a text without reasoning, and its calls in one syntax.
fn split(text: &str, syntax: Syntax) -> (String, Vec<ToolCall>) {
    let conventions = Conventions { reasoning: None, syntax: Some(syntax) };
    let start = if syntax == Syntax::Harmony { Phase::Undecided } else { Phase::Content };
    let mut router = Router::new(&conventions, start, true);
    let mut deltas = router.push(text);
    deltas.extend(router.finish());
    let (mut content, mut calls) = (String::new(), Vec::new());
    for delta in deltas {
        match delta {
            Delta::Content(text) => content.push_str(&text),
            Delta::Reasoning(_) => {}
            Delta::Call(call) => calls.push(call),
        }
    }
    (content, calls)
}
