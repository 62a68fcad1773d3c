//! Finds out in which form a template wants its messages, by rendering conversations of two turns and looking at what
//! came out. Knows nothing of how they are brought into that form.

use serde_json::{Map, Value, json};

use super::{Compiled, Conversation, Shape, limits};

/// Texts that no template writes by itself.
const TEXT: &str = "whin-probe-text";
const NAME: &str = "whin_probe_name";
const KEY: &str = "whin_probe_key";

/// The form that shows most of what a conversation says; what OpenAI's shape comes closest to where none shows it.
pub(super) fn find_out(template: &Compiled, tokens: &Map<String, Value>) -> Shape {
    let render = |messages: &[Value]| {
        let conversation = Conversation { messages: messages.to_vec(), ..Conversation::default() };
        template.render_within(limits::PROBE, messages, &conversation, tokens).unwrap_or_default()
    };
    let parts = render(&[json!({"role": "user", "content": [{"type": "text", "text": TEXT}]})]);
    // A list that is printed as such has the text too, and its keys.
    let shows_parts = parts.contains(TEXT) && !parts.contains("'text'") && !parts.contains("\"text\"");
    let shapes = [(false, false), (false, true), (true, false), (true, true)];
    let shown = shapes.into_iter().find(|(null_content, text_arguments)| {
        let content = if *null_content { Value::Null } else { "".into() };
        let arguments = json!({KEY: 1});
        let arguments = if *text_arguments { arguments.to_string().into() } else { arguments };
        let call = json!({"id": "call00000", "type": "function", "function": {"name": NAME, "arguments": arguments}});
        let rendered = render(&[
            json!({"role": "user", "content": TEXT}),
            json!({"role": "assistant", "content": content, "tool_calls": [call]}),
        ]);
        // Python's notation, or quotes with a stroke before them, mean that the arguments were of the other kind.
        let in_python = rendered.contains(&format!("'{KEY}'"));
        let twice = rendered.contains(&format!("\\\"{KEY}"));
        rendered.contains(NAME) && rendered.contains(KEY) && !in_python && !twice
    });
    let (null_content, text_arguments) = shown.unwrap_or_default();
    let developer = ["'developer'", "\"developer\""].iter().any(|role| template.text.contains(role));
    Shape { parts: shows_parts, null_content, text_arguments, developer }
}
