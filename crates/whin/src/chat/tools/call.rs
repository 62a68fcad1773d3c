//! From the JSON of a call to its name and its arguments.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat::ToolCall;

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The calls that a JSON text holds: an object, or an array of at least one.
pub(super) fn calls(json: &str, arguments_required: bool) -> Option<Vec<ToolCall>> {
    if json.starts_with('{') {
        return call(json, arguments_required).map(|call| vec![call]);
    }
    let list: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    let calls: Option<Vec<_>> = list.iter().map(|item| call(item.get(), arguments_required)).collect();
    calls.filter(|calls| !calls.is_empty())
}

/// The call that an object with a `name` and its `arguments` or `parameters` is; other keys do not matter.
fn call(json: &str, arguments_required: bool) -> Option<ToolCall> {
    let fields: Fields = serde_json::from_str(json).ok()?;
    let name = fields.get("name").or_else(|| fields.get("tool_name"))?;
    let given = fields.get("arguments").or_else(|| fields.get("parameters"));
    if given.is_none() && arguments_required {
        return None;
    }
    let name: String = serde_json::from_str(name.get()).ok()?;
    named(&name, given.map_or("{}", |value| value.get()))
}

/// A call with this name and these arguments, as far as they are what they should be: an object, nothing, or a
/// string that holds one of these.
pub(in crate::chat) fn named(name: &str, arguments: &str) -> Option<ToolCall> {
    let arguments = match arguments.as_bytes().first() {
        Some(b'"') => object(&serde_json::from_str::<String>(arguments).ok()?)?,
        _ => object(arguments)?,
    };
    (!name.trim().is_empty()).then(|| ToolCall { name: name.to_owned(), arguments })
}

/// The call of an interpreter of code.
pub(in crate::chat) fn code(name: &str, text: &str) -> ToolCall {
    ToolCall { name: name.to_owned(), arguments: format!("{{\"code\": {}}}", Value::from(text)) }
}

fn object(text: &str) -> Option<String> {
    let text = text.trim_ascii();
    if text.is_empty() || text == "null" {
        return Some("{}".to_owned());
    }
    // Reads all of it, so that whoever reads the arguments next cannot fail.
    matches!(serde_json::from_str(text), Ok(Value::Object(_))).then(|| text.to_owned())
}
