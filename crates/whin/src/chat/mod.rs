//! Conversations: messages become a prompt by the checkpoint's own template, and the answer's text becomes reasoning,
//! content and tool calls again. Knows texts and tokens, nothing of how a model computes.

mod buffer;
mod channels;
mod conventions;
mod format;
pub mod messages;
mod provenance;
mod reasoning;
mod router;
mod tags;
pub mod template;
pub mod tools;

use serde_json::Value;

use crate::{Error, ErrorKind, Result};
pub use conventions::Conventions;
pub(crate) use format::ChatFormat;
pub use format::ChatPrompt;
pub use messages::Conversation;
pub use reasoning::ReasoningTags;
pub use router::Router;
pub use tools::{Syntax, split_tool_calls};

/// Messages to answer, and how. [`Chat::default`] has no messages yet.
#[derive(Clone, Debug)]
pub struct Chat {
    /// What the template is given.
    pub conversation: Conversation,
    /// What control tokens in the texts of users and tools become.
    pub encoding: Encoding,
    /// Whether tools must be called.
    pub tool_choice: ToolChoice,
    /// Whether there may be several calls in one answer; without, generation ends after the first.
    pub parallel_tool_calls: bool,
    /// Whether reasoning is told apart from content. Without, it is left in the content as it was written.
    pub split_reasoning: bool,
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            conversation: Conversation::default(),
            encoding: Encoding::Safe,
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            split_reasoning: true,
        }
    }
}

/// How the text of a rendered conversation becomes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Control tokens such as `<|im_end|>` count where the template or the system message wrote them. In what a user or
    /// a tool wrote (messages, results, arguments of calls, documents) they are ordinary text, and so are special ones
    /// in what the assistant said. Conversations without them have the same tokens either way. A template that looks for
    /// such characters in what a user wrote finds none.
    #[default]
    Safe,
    /// As transformers does it: they count wherever they stand, so that users can write turns in the name of others.
    Parity,
}

/// Whether an answer calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// No call: what looks like one is content. The template still shows the tools.
    None,
    /// At least one call, and nothing but calls. This is enforced.
    Required,
    /// One call of this tool. This is enforced.
    Function(String),
}

impl ToolChoice {
    /// Whether the answer has to consist of calls.
    pub fn is_enforced(&self) -> bool {
        matches!(self, Self::Required | Self::Function(_))
    }
}

impl Chat {
    /// An answer to these messages, in OpenAI's shape, as the model likes it.
    pub fn new(messages: impl Into<Vec<Value>>) -> Self {
        let conversation = Conversation { messages: messages.into(), ..Conversation::default() };
        Self { conversation, ..Self::default() }
    }

    /// Checks what can be checked without the checkpoint's template.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments).
    pub fn validate(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArguments, message));
        let last = self.conversation.messages.last();
        if self.conversation.continue_final_message && last.is_none_or(|last| last["role"] != "assistant") {
            return invalid(
                "the last message is to be continued, but it is not the assistant's: end the conversation with what the \
                 answer begins with"
                    .to_owned(),
            );
        }
        let tools = &self.conversation.tools;
        match &self.tool_choice {
            ToolChoice::Required if tools.is_empty() => invalid(
                "a tool call is required, but there are no tools: give some, or do not require one"
                    .to_owned(),
            ),
            ToolChoice::Function(name) if !tools.iter().any(|tool| tool_name(tool) == Some(name)) => {
                let known: Vec<&str> = tools.iter().filter_map(tool_name).collect();
                let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
                invalid(format!(
                    "a call of the tool {name:?} is required, which is not among the tools: {known}"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// The name of a tool in OpenAI's shape.
pub(crate) fn tool_name(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}

/// An answer, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What the model thought, where it shows that.
    pub reasoning: Option<String>,
    /// What it said; none where it only called tools.
    pub content: Option<String>,
    /// The tools that it called, in order.
    pub tool_calls: Vec<ToolCall>,
}

impl Answer {
    /// Adds the next piece.
    pub fn push(&mut self, delta: &Delta) {
        match delta {
            Delta::Reasoning(text) => self.reasoning.get_or_insert_default().push_str(text),
            Delta::Content(text) => self.content.get_or_insert_default().push_str(text),
            Delta::Call(call) => self.tool_calls.push(call.clone()),
        }
    }

    /// The answer as a message of a conversation, in OpenAI's shape, with `reasoning_content` where there is reasoning.
    pub fn message(&self) -> Value {
        let mut message = serde_json::json!({ "role": "assistant", "content": self.content });
        if self.content.is_none() && self.tool_calls.is_empty() {
            message["content"] = Value::from("");
        }
        if let Some(reasoning) = &self.reasoning {
            message["reasoning_content"] = Value::from(reasoning.as_str());
        }
        if !self.tool_calls.is_empty() {
            let call = |call: &ToolCall| {
                serde_json::json!({
                    "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments },
                })
            };
            message["tool_calls"] = self.tool_calls.iter().map(call).collect();
        }
        message
    }
}

/// A call of a tool in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The function's name: never empty, not necessarily one that was offered.
    pub name: String,
    /// JSON text of an object, spelled as the model spelled it where it wrote JSON.
    pub arguments: String,
}

/// A piece of an answer, and what it belongs to. Pieces of one kind that follow each other are one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// What the model thinks before it answers.
    Reasoning(String),
    /// The answer itself.
    Content(String),
    /// One whole call, given once it is complete and well-formed: what has been streamed cannot be taken back,
    /// and a call that is malformed or cut off must not appear as one.
    Call(ToolCall),
}

/// Where an answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing but blanks, and perhaps the beginning of a reasoning tag, so far: reasoning may still begin.
    Undecided,
    /// Inside the reasoning.
    Reasoning,
    /// Behind the reasoning, and not in a call.
    Content,
    /// Inside the markup of a call that has begun, and may still turn out not to be one.
    Call,
}

/// Adds a piece, joined to the one before if both are text of one kind; an empty one is left out.
pub(crate) fn add(deltas: &mut Vec<Delta>, delta: Delta) {
    match (deltas.last_mut(), delta) {
        (_, Delta::Reasoning(text) | Delta::Content(text)) if text.is_empty() => {}
        (Some(Delta::Reasoning(before)), Delta::Reasoning(text))
        | (Some(Delta::Content(before)), Delta::Content(text)) => before.push_str(&text),
        (_, delta) => deltas.push(delta),
    }
}
