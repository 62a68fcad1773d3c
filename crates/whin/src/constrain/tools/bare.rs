//! Arguments that are written one by one: between tags, or in a list.

use serde_json::{Map, Value, json};

use super::{Tool, Writer};
use crate::constrain::lark::literal;
use crate::{Error, ErrorKind, Result};

/// The tags around keys and values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tags {
    /// `<parameter=KEY>\nVALUE\n</parameter>\n`
    Qwen3Coder,
    /// `<parameter name="KEY">VALUE</parameter>\n`
    MiniMaxM2,
    /// `<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n`
    Glm4,
}

/// How arguments are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// `KEY=VALUE, KEY=VALUE`, where values are Python's.
    Python,
    /// `KEY:VALUE,KEY:VALUE`, where strings stand between `<|"|>`.
    Gemma,
}

impl Tags {
    fn before(self, key: &str) -> String {
        match self {
            Self::Qwen3Coder => format!("<parameter={key}>\n"),
            Self::MiniMaxM2 => format!("<parameter name=\"{key}\">"),
            Self::Glm4 => format!("<arg_key>{key}</arg_key>\n<arg_value>"),
        }
    }

    fn after(self) -> &'static str {
        match self {
            Self::Qwen3Coder => "\n</parameter>\n",
            Self::MiniMaxM2 => "</parameter>\n",
            Self::Glm4 => "</arg_value>\n",
        }
    }

    /// Any text in which the closing tag does not begin: without `</pa`, or `</ar`.
    fn text(self) -> &'static str {
        match self {
            Self::Qwen3Coder | Self::MiniMaxM2 => r"(?s:[^<]|<+(?:[^<\/]|\/[^p<]|\/p[^a<]))*",
            Self::Glm4 => r"(?s:[^<]|<+(?:[^<\/]|\/[^a<]|\/a[^r<]))*",
        }
    }
}

impl Writer<'_> {
    /// The arguments between tags, in the order of the schema.
    pub(super) fn bare_arguments(&mut self, index: usize, tool: &Tool, tags: Tags) -> Result<String> {
        let mut arguments = String::new();
        for (place, parameter) in parameters(tool)?.into_iter().enumerate() {
            let rule = format!("value{index}_{place}");
            let value = match as_text(&parameter).map_err(|why| refused(tool, parameter.key, &why))? {
                Some(Text::OneOf(texts)) => {
                    let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
                    format!("({}) {}", texts.join(" | "), literal(tags.after()))
                }
                Some(Text::Any { least, most }) => {
                    let most = most.map_or(String::new(), |most| most.to_string());
                    let length = match (least, most.is_empty()) {
                        (0, true) => String::new(),
                        _ => format!(" & /(?s:.{{{least},{most}}})/"),
                    };
                    self.rules +=
                        &format!("{rule}[suffix={}]: /{}/{length}\n", literal(tags.after()), tags.text());
                    rule
                }
                None => {
                    let schema =
                        self.schema(format!("{index}_{place}"), parameter.standalone(tool), tool.strictness);
                    format!("{schema} {}", literal(tags.after()))
                }
            };
            let argument = format!("{} {value}", literal(&tags.before(parameter.key)));
            arguments += &if parameter.required { format!(" {argument}") } else { format!(" ({argument})?") };
        }
        Ok(arguments)
    }

    /// A list of arguments, in the order of the schema.
    pub(super) fn listed_arguments(&mut self, index: usize, tool: &Tool, list: List) -> Result<String> {
        let parameters = parameters(tool)?;
        // `rest{n}` is what may come from the nth on, `more{n}` with a comma before it.
        let rule = |name: &str, place: usize| format!("{name}{index}_{place}");
        let (equals, comma) = match list {
            List::Python => ("=", "\", \""),
            List::Gemma => (":", "\",\""),
        };
        let count = parameters.len();
        for (place, parameter) in parameters.into_iter().enumerate() {
            let name = parameter.key;
            if !name.chars().all(|char| char == '_' || char.is_ascii_alphanumeric()) {
                return Err(refused(tool, name, "is no name in the syntax of this checkpoint"));
            }
            let value = match list {
                List::Python => self.python_value((index, place), tool, &parameter),
                List::Gemma => self.gemma_value((index, place), tool, &parameter)?,
            };
            let argument = format!("{} {value}", literal(&format!("{name}{equals}")));
            let (rest, more) = (rule("rest", place + 1), rule("more", place + 1));
            let (skip, skip_more) = match parameter.required {
                true => (String::new(), String::new()),
                false => (format!(" | {rest}"), format!(" | {more}")),
            };
            self.rules += &format!("{}: {argument} {more}{skip}\n", rule("rest", place));
            self.rules += &format!("{}: {comma} {argument} {more}{skip_more}\n", rule("more", place));
        }
        self.rules += &format!("{}: \"\"\n{}: \"\"\n", rule("rest", count), rule("more", count));
        Ok(rule("rest", 0))
    }

    /// JSON, which is read as Python's, but for what Python spells differently and stands alone.
    fn python_value(
        &mut self,
        (index, place): (usize, usize),
        tool: &Tool,
        parameter: &Parameter<'_>,
    ) -> String {
        match parameter.schema.get("type").and_then(Value::as_str) {
            Some("boolean") if parameter.schema.len() == 1 => "(\"True\" | \"False\")".into(),
            Some("null") => "\"None\"".into(),
            _ => self.schema(format!("{index}_{place}"), parameter.standalone(tool), tool.strictness),
        }
    }

    /// Strings between tags of their own, and what is spelt as in JSON.
    fn gemma_value(
        &mut self,
        (index, place): (usize, usize),
        tool: &Tool,
        parameter: &Parameter<'_>,
    ) -> Result<String> {
        let quote = self.tag("<|\"|>");
        match as_text(parameter).map_err(|why| refused(tool, parameter.key, &why))? {
            Some(Text::OneOf(texts)) => {
                let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
                return Ok(format!("{quote} ({}) {quote}", texts.join(" | ")));
            }
            Some(Text::Any { least, most }) => {
                let most = most.map_or(String::new(), |most| most.to_string());
                let rule = format!("TEXT{index}_{place}");
                // Nothing in it can begin a quote.
                self.rules += &format!("{rule}: /(?s:[^<]|<+[^<|])*/ & /(?s:.{{{least},{most}}})/\n");
                return Ok(format!("{quote} {rule} {quote}"));
            }
            None => {}
        }
        let schema = parameter.resolved();
        let is_plain =
            |kind: &Value| ["boolean", "null", "integer", "number"].iter().any(|plain| kind == plain);
        let kinds = schema
            .get("type")
            .map_or(&[][..], |kind| kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice));
        if kinds.is_empty() || !kinds.iter().all(is_plain) {
            let why = "cannot be enforced in the syntax of this checkpoint, but for texts, numbers, booleans and null";
            return Err(refused(tool, parameter.key, why));
        }
        Ok(self.schema(format!("{index}_{place}"), parameter.standalone(tool), tool.strictness))
    }
}

/// A parameter of a tool.
struct Parameter<'a> {
    key: &'a str,
    schema: Map<String, Value>,
    required: bool,
    definitions: Option<&'a Value>,
}

impl Parameter<'_> {
    /// Its schema with all that it refers to.
    fn standalone(&self, tool: &Tool) -> Map<String, Value> {
        let mut schema = self.schema.clone();
        if let Some(definitions) = tool.parameters.get("$defs") {
            schema.insert("$defs".into(), definitions.clone());
        }
        schema
    }

    /// What the schema says, also where it only refers to another.
    fn resolved(&self) -> Map<String, Value> {
        let pointer =
            self.schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"));
        let found = pointer.and_then(|name| self.definitions?.get(name)?.as_object());
        found.filter(|_| self.schema.len() == 1).unwrap_or(&self.schema).clone()
    }
}

fn parameters(tool: &Tool) -> Result<Vec<Parameter<'_>>> {
    let all = &tool.parameters;
    let says_more = [
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "patternProperties",
        "minProperties",
        "maxProperties",
        "enum",
        "const",
    ];
    if let Some(keyword) = says_more.iter().find(|keyword| all.contains_key(**keyword)) {
        return Err(refused(tool, keyword, "says more than one parameter's schema can"));
    }
    if all.get("additionalProperties") != Some(&Value::Bool(false)) && !all.contains_key("properties") {
        return Err(refused(
            tool,
            "properties",
            "are missing: in the syntax of this checkpoint parameters must be declared",
        ));
    }
    let required = all.get("required").and_then(Value::as_array);
    let properties = all.get("properties").and_then(Value::as_object);
    let read = |(key, schema): (&'_ String, &Value)| {
        if schema.to_string().contains(r##""$ref":"#""##) {
            return Err(refused(tool, key, "refers to all parameters"));
        }
        if key.contains(['<', '>', '\n', '\r', '=']) {
            return Err(refused(tool, key, "is no name that can stand in a tag"));
        }
        Ok(schema.as_object().cloned().unwrap_or_default())
    };
    properties
        .into_iter()
        .flatten()
        .map(|entry| {
            Ok(Parameter {
                key: entry.0,
                schema: read(entry)?,
                required: required.is_some_and(|names| names.iter().any(|name| name == entry.0)),
                definitions: all.get("$defs"),
            })
        })
        .collect()
}

/// A value that is written as it is.
enum Text {
    Any { least: u64, most: Option<u64> },
    OneOf(Vec<String>),
}

/// The texts that a parameter may be, if it may be a text at all: then all of its values are read as texts, but for null.
fn as_text(parameter: &Parameter<'_>) -> Result<Option<Text>, String> {
    let schema = parameter.resolved();
    let listed = schema.get("enum").and_then(Value::as_array).cloned();
    let listed = listed.or_else(|| schema.get("const").map(|one| vec![one.clone()]));
    if let Some(values) = listed {
        if !values.iter().any(Value::is_string) {
            return Ok(None);
        }
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Null => Some("null".into()),
            _ => None,
        };
        let texts = values.iter().map(text).collect::<Option<_>>();
        return texts
            .map(|texts| Some(Text::OneOf(texts)))
            .ok_or_else(|| "mixes texts with other values".into());
    }
    let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    let mut kinds: Vec<Value> = Vec::new();
    for one in alternatives.into_iter().flatten().chain([&Value::Object(schema.clone())]) {
        match one.get("type") {
            Some(Value::Array(several)) => kinds.extend(several.iter().cloned()),
            Some(kind) => kinds.push(kind.clone()),
            None => {}
        }
    }
    if !kinds.contains(&json!("string")) {
        return Ok(None);
    }
    let plain = |map: &Map<String, Value>| {
        map.keys().all(|key| ["type", "minLength", "maxLength", "anyOf", "oneOf"].contains(&key.as_str()))
    };
    let bare = |one: &Value| one.as_object().is_some_and(|map| map.keys().all(|key| key == "type"));
    if !plain(&schema) || !alternatives.into_iter().flatten().all(bare) {
        return Err(
            "is a text, of which only the length or a list of choices can be enforced in the syntax of this \
                    checkpoint"
                .into(),
        );
    }
    let count = |key: &str| schema.get(key).and_then(Value::as_u64);
    Ok(Some(Text::Any { least: count("minLength").unwrap_or(0), most: count("maxLength") }))
}

fn refused(tool: &Tool, key: &str, why: &str) -> Error {
    let message = format!("the parameters of the tool {:?}: {key:?} {why}", tool.name);
    Error::new(ErrorKind::InvalidArguments, message)
}
