//! Conversations in OpenAI's shape: what is accepted, and the form in which templates want to see it. Knows nothing of
//! how a template is rendered.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Error, ErrorKind, Result};

/// Who may speak.
const ROLES: [&str; 7] = ["system", "developer", "user", "assistant", "tool", "function", "ipython"];

/// How deep values may be nested, as in JSON that is read from a text.
const MAX_DEPTH: usize = 128;

/// Names that the template finds taken, beside those of special tokens (`bos_token` and so on).
const TAKEN: [&str; 30] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "conversation",
    "chat_template",
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "tokenizer_kwargs",
    "loop",
    "self",
    "caller",
    "varargs",
    "kwargs",
    "raise_exception",
    "strftime_now",
    "range",
    "namespace",
    "dict",
    "debug",
    "lipsum",
    "cycler",
    "joiner",
    "super",
];

/// Messages, and all that goes into a prompt beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The turns in OpenAI's shape: objects with `role`, `content`, and for calls `tool_calls`. Further keys reach the
    /// template as they are.
    pub messages: Vec<Value>,
    /// The functions that the model may call, in OpenAI's shape; empty for none. Calls of one that is `strict` keep to its
    /// parameters, unless the checkpoint writes calls in a way in which that cannot be enforced where the model calls as it
    /// likes (Llama's JSON, Python, gpt-oss, or one that is not known): a warning in the log says so.
    pub tools: Vec<Value>,
    /// Further variables for the template, such as `enable_thinking`.
    pub template_kwargs: Map<String, Value>,
    /// Texts to answer from, for templates that know them.
    pub documents: Option<Vec<Value>>,
    /// Whether the answer goes on with the last message instead of opening a turn of its own.
    pub continue_final_message: bool,
}

/// The form in which a template wants what OpenAI's shape has in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// It walks over the parts of a content; else it gets one text.
    pub parts: bool,
    /// It knows an assistant's turn that only calls by its content, which must be null; else it gets an empty text.
    pub null_content: bool,
    /// It writes the arguments of a call as the text that they are; else it gets an object.
    pub text_arguments: bool,
    /// It knows the role `developer`; else such messages are the system's.
    pub developer: bool,
}

impl Conversation {
    /// One question of a user.
    pub fn of_user(text: impl Into<String>) -> Self {
        let message = serde_json::json!({"role": "user", "content": text.into()});
        Self { messages: vec![message], ..Self::default() }
    }
}

/// The messages as a template of this `shape` wants them:
/// - parts of text are joined by newlines, unless the template walks over parts;
/// - a content that is null or missing beside calls is an empty text (or null for a template that shows calls only so); beside
///   thoughts or a refusal it is an empty text;
/// - arguments that are the text of a JSON object are that object, and nothing at all is an empty one; for a template that
///   writes arguments as they are, objects are their text instead;
/// - no calls at all (null, or an empty list) are left out;
/// - `developer` is `system` for templates that do not know it.
///
/// Everything else stays, numbers as they are spelled included.
///
/// # Errors
/// `invalid_arguments` for a conversation that is empty or not in OpenAI's shape, naming the place; also for tools,
/// documents and further variables that cannot be what they should.
pub fn normalise(conversation: &Conversation, shape: Shape) -> Result<Vec<Value>> {
    if conversation.messages.is_empty() {
        return Err(invalid(
            "there are no messages; give at least one, such as {\"role\": \"user\", \"content\": …}",
        ));
    }
    check_tools(&conversation.tools)?;
    check_variables(&conversation.template_kwargs)?;
    for (index, document) in conversation.documents.iter().flatten().enumerate() {
        if !document.is_object() {
            let message =
                format!("documents[{index}] is {}; give an object with title and text", kind(document));
            return Err(invalid(message));
        }
        check_depth(document, || format!("documents[{index}]"))?;
    }
    conversation.messages.iter().enumerate().map(|(index, message)| one(index, message, shape)).collect()
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArguments, message)
}

fn one(index: usize, message: &Value, shape: Shape) -> Result<Value> {
    let Value::Object(message) = message else {
        return Err(invalid(format!(
            "messages[{index}] is {}; give an object with role and content",
            kind(message)
        )));
    };
    let known = || format!("the roles are {}", ROLES.join(", "));
    let role = match message.get("role") {
        Some(Value::String(role)) if ROLES.contains(&&**role) => role.as_str(),
        Some(Value::String(role)) => {
            let role = crate::error::shortened(role.clone(), 40);
            return Err(invalid(format!("messages[{index}] has the role {role:?}; {}", known())));
        }
        Some(other) => {
            return Err(invalid(format!("the role of messages[{index}] is {}; {}", kind(other), known())));
        }
        None => return Err(invalid(format!("messages[{index}] has no role; {}", known()))),
    };
    let place = format!("messages[{index}] (role {role:?})");
    for value in message.values() {
        check_depth(value, || place.clone())?;
    }
    let mut message = message.clone();
    if role == "developer" && !shape.developer {
        message.insert("role".to_owned(), "system".into());
    }
    let calls = tool_calls(&mut message, shape, &place)?;
    let content = content(&message, (role, calls), shape, &place)?;
    message.insert("content".to_owned(), content);
    Ok(Value::Object(message))
}

/// The content for the template's eyes; `calls` says whether the turn calls a tool.
fn content(message: &Map<String, Value>, turn: (&str, bool), shape: Shape, place: &str) -> Result<Value> {
    let (role, calls) = turn;
    match message.get("content") {
        Some(Value::String(text)) => Ok(Value::String(text.clone())),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(index, part)| text_of(part, index, place));
            let texts: Vec<&str> = texts.collect::<Result<_>>()?;
            Ok(if shape.parts { Value::Array(parts.clone()) } else { Value::String(texts.join("\n")) })
        }
        None | Some(Value::Null) if role == "assistant" && calls => {
            Ok(if shape.null_content { Value::Null } else { Value::String(String::new()) })
        }
        // A turn that was cut off while thinking has no text yet.
        None | Some(Value::Null) if role == "assistant" && has_other_text(message) => {
            Ok(Value::String(String::new()))
        }
        None | Some(Value::Null) if role == "assistant" => {
            Err(invalid(format!("{place} has neither content nor tool_calls; give one of them")))
        }
        None | Some(Value::Null) => {
            Err(invalid(format!("{place} has no content; give a text, \"\" for an empty one")))
        }
        Some(other) => Err(invalid(format!(
            "the content of {place} is {}; give a text or a list of text parts",
            kind(other)
        ))),
    }
}

fn has_other_text(message: &Map<String, Value>) -> bool {
    ["reasoning_content", "reasoning", "thinking", "refusal"]
        .iter()
        .any(|key| message.get(*key).is_some_and(Value::is_string))
        || message.get("function_call").is_some_and(Value::is_object)
}

fn text_of<'p>(part: &'p Value, index: usize, place: &str) -> Result<&'p str> {
    let wanted = "give {\"type\": \"text\", \"text\": …}";
    let kind_of_part = match part.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        _ => return Err(invalid(format!("content[{index}] of {place} is no object with a type; {wanted}"))),
    };
    if kind_of_part != "text" {
        let kind = crate::error::shortened(kind_of_part.to_owned(), 40);
        return Err(invalid(format!(
            "content[{index}] of {place} has the type {kind:?}, which is not supported; {wanted}"
        )));
    }
    let text = part.get("text").and_then(Value::as_str);
    text.ok_or_else(|| invalid(format!("content[{index}] of {place} has no text; {wanted}")))
}

/// Brings the calls of a message into shape, and says whether there are any.
fn tool_calls(message: &mut Map<String, Value>, shape: Shape, place: &str) -> Result<bool> {
    let calls = match message.get_mut("tool_calls") {
        None => return Ok(false),
        Some(Value::Array(calls)) if !calls.is_empty() => calls,
        Some(Value::Null | Value::Array(_)) => {
            message.shift_remove("tool_calls");
            return Ok(false);
        }
        Some(other) => return Err(invalid(format!("tool_calls of {place} is {}; give a list", kind(other)))),
    };
    for (index, call) in calls.iter_mut().enumerate() {
        let wanted = || {
            let message = format!(
                "tool_calls[{index}] of {place} must be {{\"type\": \"function\", \"function\": {{\"name\": …, \
                 \"arguments\": …}}}}"
            );
            invalid(message)
        };
        let Value::Object(call) = call else { return Err(wanted()) };
        // transformers also takes calls without the shell.
        let function = match call.contains_key("function") {
            true => call.get_mut("function").and_then(Value::as_object_mut).ok_or_else(wanted)?,
            false => call,
        };
        if !function.get("name").is_some_and(Value::is_string) {
            return Err(wanted());
        }
        let arguments = arguments(function.get("arguments"), shape.text_arguments);
        function.insert("arguments".to_owned(), arguments);
    }
    Ok(true)
}

/// The arguments of a call as an object, or as the text of one.
fn arguments(given: Option<&Value>, as_text: bool) -> Value {
    match given {
        None | Some(Value::Null) if as_text => "{}".into(),
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => arguments(None, as_text),
        Some(Value::String(text)) if !as_text => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Value::Object(object),
            _ => Value::String(text.clone()),
        },
        Some(object @ Value::Object(_)) if as_text => spaced(object).into(),
        Some(other) => other.clone(),
    }
}

/// JSON with the blanks that Python writes, which models have seen.
fn spaced(value: &Value) -> String {
    struct Spaced;
    impl serde_json::ser::Formatter for Spaced {
        fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
            out.write_all(if first { b"" } else { b", " })
        }

        fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
            out.write_all(if first { b"" } else { b", " })
        }

        fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
            out.write_all(b": ")
        }
    }
    let mut out = Vec::new();
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced));
    match (written, String::from_utf8(out)) {
        (Ok(()), Ok(text)) => text,
        // Neither can be: the serializer writes text to memory.
        _ => value.to_string(),
    }
}

fn check_tools(tools: &[Value]) -> Result<()> {
    for (index, tool) in tools.iter().enumerate() {
        let is_function = tool.get("type").and_then(Value::as_str) == Some("function");
        let name = tool.get("function").and_then(|function| function.get("name"));
        if !is_function || !name.is_some_and(Value::is_string) {
            return Err(invalid(format!(
                "tools[{index}] must be {{\"type\": \"function\", \"function\": {{\"name\": …, \"description\": …, \
                 \"parameters\": …}}}}"
            )));
        }
        check_depth(tool, || format!("tools[{index}]"))?;
    }
    Ok(())
}

fn check_variables(variables: &Map<String, Value>) -> Result<()> {
    for (name, value) in variables {
        let is_inner = name.starts_with("__") || name.starts_with("whin_");
        if TAKEN.contains(&&**name) || name.ends_with("_token") || is_inner {
            let name = crate::error::shortened(name.clone(), 40);
            return Err(invalid(format!("the template variable {name:?} is not free; leave it out")));
        }
        check_depth(value, || format!("the template variable {name:?}"))?;
    }
    Ok(())
}

fn check_depth(value: &Value, place: impl Fn() -> String) -> Result<()> {
    match is_within(value, MAX_DEPTH) {
        true => Ok(()),
        false => Err(invalid(format!("{} is nested more than {MAX_DEPTH} levels deep", place()))),
    }
}

fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(entries) => levels > 0 && entries.values().all(|entry| is_within(entry, levels - 1)),
        _ => true,
    }
}

/// What JSON calls it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shaped(message: Value, shape: Shape) -> Value {
        let conversation = Conversation { messages: vec![message], ..Conversation::default() };
        normalise(&conversation, shape).unwrap().remove(0)
    }

    fn refusal(conversation: &Conversation) -> String {
        let error = normalise(conversation, Shape::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{error}");
        error.to_string()
    }

    #[test]
    fn arguments_become_objects_and_keep_their_numbers() {
        let call = |arguments: Value| {
            json!({"role": "assistant", "content": null, "tool_calls":
                [{"type": "function", "function": {"name": "f", "arguments": arguments}}]})
        };
        for (given, seen) in [
            (
                json!("{\"x\": 1.0, \"y\": 12345678901234567890123}"),
                "{\"x\":1.0,\"y\":12345678901234567890123}",
            ),
            (json!(""), "{}"),
            (json!(" \n"), "{}"),
            (Value::Null, "{}"),
            (json!("[1]"), "\"[1]\""),
            (json!("{"), "\"{\""),
            (json!({"x": 1}), "{\"x\":1}"),
        ] {
            let message = shaped(call(given), Shape::default());
            assert_eq!(message["tool_calls"][0]["function"]["arguments"].to_string(), seen);
            assert_eq!(message["content"], "");
        }
        let text = Shape { text_arguments: true, null_content: true, ..Shape::default() };
        let message = shaped(call(json!({"x": 1})), text);
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"x\": 1}");
        assert_eq!(message["content"], Value::Null);
    }

    #[test]
    fn parts_are_joined_for_templates_that_take_text() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]);
        let message = json!({"role": "user", "content": parts});
        assert_eq!(shaped(message.clone(), Shape::default())["content"], "a\n\nb");
        assert_eq!(shaped(message, Shape { parts: true, ..Shape::default() })["content"], parts);
    }

    #[test]
    fn unknown_keys_stay_and_empty_calls_go() {
        let message =
            json!({"role": "developer", "content": "a", "name": null, "x": [1.50], "tool_calls": []});
        assert_eq!(
            shaped(message, Shape::default()).to_string(),
            "{\"role\":\"system\",\"content\":\"a\",\"name\":null,\"x\":[1.5]}"
        );
    }

    #[test]
    fn what_is_not_in_shape_is_refused_by_name() {
        let mut deep = json!(1);
        for _ in 0..200 {
            deep = json!([deep]);
        }
        for (message, parts) in [
            (json!(1), vec!["messages[0]", "a number"]),
            (json!({"content": "x"}), vec!["no role", "assistant"]),
            (json!({"role": 1, "content": "x"}), vec!["a number", "system"]),
            (json!({"role": "robot", "content": "x"}), vec!["messages[0]", "\"robot\"", "developer"]),
            (json!({"role": "user"}), vec!["messages[0]", "\"user\"", "no content"]),
            (json!({"role": "system", "content": null}), vec!["\"system\"", "no content"]),
            (json!({"role": "tool", "content": null}), vec!["\"tool\"", "no content"]),
            (json!({"role": "assistant", "content": null}), vec!["neither content nor tool_calls"]),
            (json!({"role": "assistant", "tool_calls": []}), vec!["neither content nor tool_calls"]),
            (json!({"role": "assistant", "tool_calls": 1}), vec!["tool_calls", "a number"]),
            (json!({"role": "assistant", "tool_calls": [{"function": {}}]}), vec!["tool_calls[0]", "name"]),
            (json!({"role": "user", "content": {"a": 1}}), vec!["an object", "text parts"]),
            (
                json!({"role": "user", "content": [{"type": "image_url"}]}),
                vec!["content[0]", "\"image_url\""],
            ),
            (json!({"role": "user", "content": ["x"]}), vec!["content[0]", "no object"]),
            (json!({"role": "user", "content": [{"type": "text"}]}), vec!["content[0]", "no text"]),
            (json!({"role": "user", "content": "x", "deep": deep}), vec!["nested more than 128"]),
        ] {
            let found = refusal(&Conversation { messages: vec![message], ..Conversation::default() });
            for part in parts {
                assert!(found.contains(part), "{part:?} is not in {found:?}");
            }
        }
        assert!(refusal(&Conversation::default()).contains("no messages"));
    }

    #[test]
    fn tools_documents_and_variables_are_checked() {
        for tool in [
            json!("f"),
            json!({"type": "function"}),
            json!({"function": {"name": "f"}}),
            json!({"name": "f"}),
        ] {
            let conversation = Conversation { tools: vec![tool], ..Conversation::of_user("x") };
            assert!(refusal(&conversation).contains("tools[0]"));
        }
        for name in [
            "messages",
            "tools",
            "add_generation_prompt",
            "bos_token",
            "image_token",
            "raise_exception",
            "tokenize",
            "whin_add",
        ] {
            let template_kwargs = [(name.to_owned(), json!(true))].into_iter().collect();
            let conversation = Conversation { template_kwargs, ..Conversation::of_user("x") };
            assert!(refusal(&conversation).contains(name));
        }
        let conversation = Conversation { documents: Some(vec![json!("x")]), ..Conversation::of_user("x") };
        assert!(refusal(&conversation).contains("documents[0]"));
    }
}
