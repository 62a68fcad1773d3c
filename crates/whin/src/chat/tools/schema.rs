//! The types that tools declare for their parameters, and the JSON of arguments that were written as bare text.

use std::collections::HashMap;

use serde_json::Value;

use super::literal;

/// How deep alternatives within alternatives, and references to references, are followed.
const MAX_DEPTH: usize = 8;

/// The parameters of the tools of a request: function, parameter, types.
#[derive(Clone, Debug, Default)]
pub(in crate::chat) struct Schemas(HashMap<String, HashMap<String, Types>>);

/// What a value without a declared type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bare {
    /// A string.
    Text,
    /// JSON or a literal of Python if it is one, else a string.
    Json,
}

/// The types that a schema allows.
#[derive(Clone, Copy, Debug, Default)]
struct Types {
    text: bool,
    null: bool,
    number: bool,
    boolean: bool,
    object: bool,
    array: bool,
}

impl Schemas {
    /// Of tools in OpenAI's shape; what has another shape declares nothing.
    pub fn new(tools: &[Value]) -> Self {
        let functions = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let parameters = function.get("parameters")?;
            let properties = parameters.get("properties")?.as_object()?;
            let types = properties
                .iter()
                .map(|(key, schema)| (key.clone(), Types::of(schema, parameters, MAX_DEPTH)));
            Some((name, types.collect()))
        });
        Self(functions.collect())
    }

    /// Whether a function declares a parameter.
    pub(super) fn has(&self, function: &str, key: &str) -> bool {
        self.0.get(function).is_some_and(|keys| keys.contains_key(key))
    }

    /// The JSON text of an argument.
    pub(super) fn value(&self, function: &str, key: &str, text: &str, bare: Bare) -> String {
        let types = self.0.get(function).and_then(|keys| keys.get(key)).filter(|types| types.any());
        // The newlines between the tags and the value are not part of it.
        let whole = match bare {
            Bare::Text => {
                let text = text.strip_prefix('\n').unwrap_or(text);
                text.strip_suffix('\n').unwrap_or(text)
            }
            Bare::Json => text,
        };
        let typed = match types {
            Some(types) => types.value(whole.trim_ascii()),
            None if bare == Bare::Json => Types::ALL.value(whole.trim_ascii()),
            None => None,
        };
        typed.unwrap_or_else(|| Value::String(whole.to_owned()).to_string())
    }
}

impl Types {
    /// Everything but strings, which are what is left.
    const ALL: Self =
        Self { text: false, null: true, number: true, boolean: true, object: true, array: true };

    fn any(self) -> bool {
        self.text || self.null || self.number || self.boolean || self.object || self.array
    }

    /// Those of a schema within `parameters`, to which its references refer.
    fn of(schema: &Value, parameters: &Value, depth: usize) -> Self {
        let mut types = Self::default();
        match schema.get("type") {
            Some(Value::String(name)) => types.add(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| types.add(name))
            }
            _ => {}
        }
        let values =
            schema.get("enum").and_then(Value::as_array).into_iter().flatten().chain(schema.get("const"));
        if !types.any() {
            values.for_each(|value| types.add(kind(value)));
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            types.null = true;
        }
        let alternatives = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema.get(key)?.as_array());
        let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
        let referred = pointer.and_then(|pointer| parameters.pointer(pointer));
        if depth > 0 {
            for alternative in alternatives.flatten().chain(referred) {
                let other = Self::of(alternative, parameters, depth - 1);
                types.text |= other.text;
                types.null |= other.null;
                types.number |= other.number;
                types.boolean |= other.boolean;
                types.object |= other.object;
                types.array |= other.array;
            }
        }
        types
    }

    fn add(&mut self, name: &str) {
        match name {
            "string" => self.text = true,
            "null" => self.null = true,
            "number" | "integer" => self.number = true,
            "boolean" => self.boolean = true,
            "object" => self.object = true,
            "array" => self.array = true,
            _ => {}
        }
    }

    /// The JSON of a value, if it is not a string. Where a string is allowed, everything is one but null.
    fn value(self, text: &str) -> Option<String> {
        if matches!(text, "null" | "None") && (self.null || !self.text) {
            return Some("null".to_owned());
        }
        if self.text {
            return None;
        }
        match text {
            "true" | "True" if self.boolean => return Some("true".to_owned()),
            "false" | "False" if self.boolean => return Some("false".to_owned()),
            _ => {}
        }
        let json = match serde_json::from_str::<Value>(text) {
            Ok(value) => (text.to_owned(), value),
            Err(_) => {
                let json = literal::json(text)?;
                let value = serde_json::from_str(&json).ok()?;
                (json, value)
            }
        };
        match json {
            (json, Value::Number(_)) if self.number => Some(json),
            (json, Value::Object(_)) if self.object => Some(json),
            (json, Value::Array(_)) if self.array => Some(json),
            _ => None,
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
