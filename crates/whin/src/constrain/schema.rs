//! JSON Schemas made ready for the grammar compiler: every keyword is enforced, refused by name, or known to be an
//! annotation. It knows nothing of tokens.
//!
//! The compiler ignores what it does not know, and a few things that it does know in certain company. What leaves this
//! module holds only keywords that it enforces, in the company in which it does.

mod cases;
mod joined;
mod keywords;
mod patterns;
mod values;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::Strictness;
use crate::error::shortened;
use crate::{Error, ErrorKind, Result};
pub(super) use joined::alternatives;
use keywords::{Keyword, kind};
pub(super) use values::pattern as check_pattern;

/// Bytes of a schema's text. The largest known ones, such as FHIR's, have some 4 MB; those people ask for, a few kB.
const MAX_BYTES: usize = 1 << 20;

/// How deep schemas and values may be nested.
const MAX_DEPTH: usize = 64;

/// Schemas within a schema.
const MAX_SCHEMAS: usize = 20_000;

/// Schemas that are pointed at.
const MAX_DEFINITIONS: usize = 1000;

/// Properties of one object: the compiler takes time that grows with their square.
const MAX_PROPERTIES: usize = 1000;

/// Problems that one message names.
const MAX_PROBLEMS: usize = 10;

/// Bytes of a value in a message.
const LONGEST_QUOTE: usize = 60;

/// A schema that holds nothing but what is enforced.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prepared {
    /// The schema, its definitions under `$defs` as `0`, `1` and so on.
    pub schema: Value,
    /// What is not enforced: empty unless the caller was lenient.
    pub loosened: Vec<String>,
    /// Where a `oneOf` stands.
    pub exclusive: Vec<String>,
}

/// Checks `schema` and rewrites it for the compiler; `origin` names it in messages.
///
/// # Errors
/// `invalid_arguments` that names every keyword that cannot be enforced, with its place.
pub(crate) fn prepare(schema: &Value, strictness: Strictness, origin: &str) -> Result<Prepared> {
    let refuse = |why: String| Error::new(ErrorKind::InvalidArguments, format!("{origin}: {why}"));
    let bytes = measure(schema, 0).map_err(&refuse)?;
    if bytes > MAX_BYTES {
        return Err(refuse(format!("it has {bytes} bytes, and {MAX_BYTES} are the most")));
    }
    let mut preparer = Preparer {
        root: schema,
        strictness,
        definitions: Vec::new(),
        known: HashMap::new(),
        schemas: 0,
        problems: Vec::new(),
        exclusive: Vec::new(),
    };
    let mut prepared = preparer.schema(schema, "#", true);
    // Definitions may point at others, which then stand behind them.
    let mut next = 0;
    while next < preparer.definitions.len() && preparer.schemas <= MAX_SCHEMAS {
        let (place, found) = (preparer.definitions[next].place.clone(), preparer.definitions[next].found);
        preparer.definitions[next].prepared = preparer.schema(found, &place, false);
        next += 1;
    }
    if preparer.schemas > MAX_SCHEMAS {
        return Err(refuse(format!("it holds more than {MAX_SCHEMAS} schemas")));
    }
    let problems = preparer.problems;
    // What is wrong one by one says more than what is wrong together.
    let mut soft = overcome(problems, strictness).map_err(&refuse)?;
    let definitions: Vec<Value> = preparer.definitions.into_iter().map(|one| one.prepared).collect();
    let clashes = cases::clashes(&prepared, &definitions).into_iter().map(Problem::from).collect();
    soft.extend(overcome(clashes, strictness).map_err(&refuse)?);
    if !joined::is_bearable(&prepared, &definitions) {
        return Err(refuse("patterns that must hold together are too many or too long".into()));
    }
    if let (Value::Object(root), false) = (&mut prepared, definitions.is_empty()) {
        let named = definitions.into_iter().enumerate().map(|(n, schema)| (n.to_string(), schema));
        root.insert("$defs".into(), Value::Object(named.collect()));
    }
    let loosened = soft.into_iter().map(|problem| problem.text).collect();
    Ok(Prepared { schema: prepared, loosened, exclusive: preparer.exclusive })
}

/// The bytes of a value's text, roughly, if it is not nested too deep for the code that follows.
fn measure(value: &Value, depth: usize) -> Result<usize, String> {
    if depth > 2 * MAX_DEPTH {
        return Err(format!("it is nested more than {} deep", 2 * MAX_DEPTH));
    }
    Ok(match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(number) => number.as_str().len() + 1,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => {
            items.iter().try_fold(2, |sum, item| Ok::<_, String>(sum + measure(item, depth + 1)?))?
        }
        Value::Object(map) => map.iter().try_fold(2, |sum, (key, item)| {
            Ok::<_, String>(sum + key.len() + 4 + measure(item, depth + 1)?)
        })?,
    })
}

/// Something that cannot be enforced, or (hard) that is no schema at all.
#[derive(Clone)]
struct Problem {
    hard: bool,
    text: String,
}

impl From<cases::Clash> for Problem {
    fn from(clash: cases::Clash) -> Self {
        match clash {
            cases::Clash::Soft(text) => Self { hard: false, text },
            cases::Clash::Hard(text) => Self { hard: true, text },
        }
    }
}

/// The problems that do not stand in the way, if none does; else what to say of those that do.
fn overcome(problems: Vec<Problem>, strictness: Strictness) -> Result<Vec<Problem>, String> {
    let passes = |problem: &Problem| strictness == Strictness::Lenient && !problem.hard;
    let (soft, mut in_the_way): (Vec<_>, Vec<_>) = problems.into_iter().partition(passes);
    in_the_way.sort_by_key(|problem| !problem.hard);
    if in_the_way.is_empty() { Ok(soft) } else { Err(told(&in_the_way)) }
}

fn told(problems: &[Problem]) -> String {
    let mut text: Vec<&str> =
        problems.iter().take(MAX_PROBLEMS).map(|problem| problem.text.as_str()).collect();
    let more = format!("and {} more", problems.len().saturating_sub(MAX_PROBLEMS));
    if problems.len() > MAX_PROBLEMS {
        text.push(&more);
    }
    text.join("; ")
}

/// A schema that a `$ref` points at.
struct Definition<'a> {
    place: String,
    found: &'a Value,
    prepared: Value,
}

struct Preparer<'a> {
    root: &'a Value,
    strictness: Strictness,
    definitions: Vec<Definition<'a>>,
    known: HashMap<String, usize>, // pointer → place in `definitions`
    schemas: usize,
    problems: Vec<Problem>,
    exclusive: Vec<String>, // places of `oneOf`
}

impl<'a> Preparer<'a> {
    fn hard(&mut self, text: String) {
        self.problems.push(Problem { hard: true, text });
    }

    fn unsupported(&mut self, place: &str, keyword: &str, what: &str) {
        let text = format!("{place}: \"{keyword}\" cannot be enforced{what}");
        self.problems.push(Problem { hard: false, text });
    }

    /// The rewritten form of the schema at `place`. What is wrong with it goes to the problems.
    fn schema(&mut self, schema: &'a Value, place: &str, is_root: bool) -> Value {
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS || place.matches('/').count() > 4 * MAX_DEPTH {
            return Value::Bool(true);
        }
        let Some(source) = schema.as_object() else {
            if !schema.is_boolean() {
                self.hard(format!("{place}: a schema is an object or a boolean, not {}", quoted(schema)));
            }
            return if is_root && schema == &Value::Bool(true) { json!({}) } else { schema.clone() };
        };
        let mut parts = Parts::default();
        for (keyword, value) in source {
            match kind(keyword) {
                Keyword::Annotation => {}
                Keyword::Root if is_root => {}
                Keyword::Known => self.keyword(source, keyword, value, place, &mut parts),
                _ => self.unsupported(place, keyword, ""),
            }
        }
        self.together(source, place, &mut parts);
        parts.join(source)
    }

    /// Takes in one keyword, whose value has yet to be looked at.
    fn keyword(
        &mut self,
        source: &'a Map<String, Value>,
        keyword: &'a str,
        value: &'a Value,
        place: &str,
        parts: &mut Parts,
    ) {
        let at = format!("{place}/{keyword}");
        match keyword {
            "properties" | "patternProperties" => {
                let Some(map) = value.as_object() else { return self.not_a(&at, "an object", value) };
                if map.len() > MAX_PROPERTIES {
                    return self
                        .hard(format!("{at}: {} names, and {MAX_PROPERTIES} are the most", map.len()));
                }
                let mut prepared = Map::new();
                for (name, schema) in map {
                    let at = format!("{at}/{}", escaped(name));
                    let fine = match keyword {
                        "properties" => values::text(name).map(|()| name.clone()),
                        _ => patterns::translate(name),
                    };
                    let schema = self.schema(schema, &at, false);
                    match fine {
                        Ok(name) if prepared.contains_key(&name) => {
                            self.unsupported(&at, keyword, " for two patterns that are the same");
                        }
                        Ok(name) => _ = prepared.insert(name, schema),
                        Err(why) => self.unsupported(&at, keyword, &format!(" for this name: {why}")),
                    }
                }
                parts.base.insert(keyword.into(), Value::Object(prepared));
            }
            "anyOf" | "allOf" | "oneOf" | "prefixItems" => self.list(keyword, value, &at, parts),
            "items" if value.is_array() => self.list("prefixItems", value, &at, parts),
            // Without a list of items it says nothing.
            "additionalItems" if source.get("items").is_some_and(Value::is_array) => {
                let prepared = self.schema(value, &at, false);
                parts.base.insert("items".into(), prepared);
            }
            "additionalItems" => {}
            "items" | "additionalProperties" => {
                let prepared = self.schema(value, &at, false);
                parts.base.insert(keyword.into(), prepared);
            }
            "$ref" => self.reference(value, place, parts),
            _ => self.plain(keyword, value, place, parts),
        }
    }

    fn not_a(&mut self, at: &str, what: &str, value: &Value) {
        self.hard(format!("{at}: must be {what}, not {}", quoted(value)));
    }

    fn list(&mut self, keyword: &str, value: &'a Value, at: &str, parts: &mut Parts) {
        let Some(schemas) = value.as_array() else { return self.not_a(at, "a list of schemas", value) };
        if schemas.is_empty() && keyword != "prefixItems" {
            return self.not_a(at, "a list of at least one schema", value);
        }
        let prepared: Vec<Value> = schemas
            .iter()
            .enumerate()
            .map(|(n, schema)| self.schema(schema, &format!("{at}/{n}"), false))
            .collect();
        if keyword == "prefixItems" {
            parts.base.insert(keyword.into(), Value::Array(prepared));
        } else {
            if keyword == "oneOf" {
                self.exclusive(at);
            }
            parts.applicators.push((keyword.into(), Value::Array(prepared)));
        }
    }

    /// The compiler wants alternatives of which it can see that no two fit, and else takes `oneOf` for `anyOf`, or refuses it
    /// without saying where.
    fn exclusive(&mut self, at: &str) {
        if self.strictness == Strictness::Lenient {
            let text = format!("{at}: counts as \"anyOf\" where more than one of its schemas may fit");
            self.problems.push(Problem { hard: false, text });
        }
        self.exclusive.push(at.to_owned());
    }

    /// Keywords whose values hold no schema.
    fn plain(&mut self, keyword: &str, value: &'a Value, place: &str, parts: &mut Parts) {
        match values::check(keyword, value) {
            Ok(()) => {}
            Err(values::Flaw::Wrong(why)) => return self.hard(format!("{place}/{keyword}: {why}")),
            Err(values::Flaw::Unsupported(why)) => return self.unsupported(place, keyword, &why),
        }
        match keyword {
            "enum" | "const" => parts.applicators.push((keyword.into(), value.clone())),
            // Checked to be false, which says nothing.
            "uniqueItems" => {}
            "pattern" => match patterns::translate(value.as_str().unwrap_or_default()) {
                Ok(pattern) => _ = parts.base.insert(keyword.into(), pattern.into()),
                Err(why) => self.unsupported(place, keyword, &format!(" as {}: {why}", quoted(value))),
            },
            "nullable" => parts.nullable = value == &Value::Bool(true),
            "format" => match values::exact_format(value.as_str().unwrap_or_default()) {
                Some(pattern) => parts.applicators.push(("allOf".into(), json!([{ "pattern": pattern }]))),
                None => _ = parts.base.insert(keyword.into(), value.clone()),
            },
            _ => _ = parts.base.insert(keyword.into(), value.clone()),
        }
    }

    fn reference(&mut self, value: &'a Value, place: &str, parts: &mut Parts) {
        let at = format!("{place}/$ref");
        let Some(pointer) = value.as_str() else { return self.not_a(&at, "a text", value) };
        if pointer == "#" || pointer == "#/" {
            return parts.applicators.push(("$ref".into(), json!("#")));
        }
        let Some(found) = values::resolve(self.root, pointer) else {
            let quoted = quoted(value);
            return self.hard(format!("{at}: {quoted} is not found: only places within the schema can be pointed at, as in #/$defs/name"));
        };
        let known = self.known.get(pointer).copied();
        let index = known.unwrap_or(self.definitions.len());
        if known.is_none() {
            if index == MAX_DEFINITIONS {
                return self.hard(format!("{at}: more than {MAX_DEFINITIONS} places are pointed at"));
            }
            self.known.insert(pointer.into(), index);
            let place = shortened(pointer.to_owned(), LONGEST_QUOTE);
            self.definitions.push(Definition { place, found, prepared: Value::Bool(true) });
        }
        parts.applicators.push(("$ref".into(), json!(format!("#/$defs/{index}"))));
    }

    /// What several keywords say together.
    fn together(&mut self, source: &Map<String, Value>, place: &str, parts: &mut Parts) {
        values::modern_bounds(&mut parts.base);
        if let Some(keyword) = values::misread_bound(&parts.base) {
            self.unsupported(place, keyword, " at a whole number, with the other bound less than 1 away");
        }
        if parts.nullable {
            values::allow_null(&mut parts.base);
        }
        if let Some(format) = source.get("format")
            && let Some(kind) = source.get("type")
            && !values::may_be(kind, "string")
        {
            self.unsupported(place, "format", &format!(" as {} on what is no string", quoted(format)));
        }
        if self.strictness == Strictness::Strict {
            self.close(place, parts);
        }
        if source.contains_key("prefixItems") && source.get("items").is_some_and(Value::is_array) {
            self.unsupported(place, "items", " as a list beside \"prefixItems\"");
        }
        // Names beyond those of the schema can repeat, and a repeated name counts once.
        if let Some(Value::Array(names)) = parts.base.get_mut("required") {
            let mut seen = HashSet::new();
            names.retain(|name| seen.insert(name.to_string()));
        }
        let required = parts.base.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
        let least = parts.base.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        if least > required + 1 {
            let what = format!(" beyond the {required} names in \"required\" and one more");
            self.unsupported(place, "minProperties", &what);
            parts.base.remove("minProperties");
        }
    }

    /// OpenAI's `strict`: all properties are there and no others.
    fn close(&mut self, place: &str, parts: &mut Parts) {
        let base = &mut parts.base;
        let is_object = base.get("type").is_some_and(|kind| values::may_be(kind, "object"));
        if !is_object && !base.contains_key("properties") {
            return;
        }
        if base.get("additionalProperties").is_some_and(|others| others != &Value::Bool(false)) {
            self.hard(format!("{place}/additionalProperties: must be false in a strict schema"));
        }
        let names = parts.base.get("properties").and_then(Value::as_object);
        let required = parts.base.get("required").and_then(Value::as_array);
        let is_missing = |name: &&str| !names.is_some_and(|names| names.contains_key(*name));
        let missing = required.into_iter().flatten().filter_map(Value::as_str).find(is_missing);
        let missing = missing.map(|name| quoted(&json!(name)));
        let names: Vec<Value> = names.into_iter().flat_map(Map::keys).map(|name| json!(name)).collect();
        if let Some(name) = missing {
            self.hard(format!(
                "{place}/required: {name} is not in \"properties\", and a strict schema has no other names"
            ));
        }
        parts.base.insert("required".into(), Value::Array(names));
        parts.base.insert("additionalProperties".into(), Value::Bool(false));
    }
}

/// A schema in the making. The compiler reads keywords in order and only sees together what stands together, so all that
/// are no applicators stay in one group.
#[derive(Default)]
struct Parts {
    base: Map<String, Value>,
    applicators: Vec<(String, Value)>,
    nullable: bool,
}

impl Parts {
    fn join(self, source: &Map<String, Value>) -> Value {
        // Properties of what is referred to before the schema's own come before them.
        let place = |keyword: &str| source.keys().position(|key| key == keyword);
        let own = place("properties").unwrap_or(usize::MAX);
        let leads = |keyword: &str| own < usize::MAX && place(keyword).is_some_and(|place| place < own);
        let (first, last): (Vec<_>, Vec<_>) =
            self.applicators.into_iter().partition(|(keyword, _)| leads(keyword));
        let mut joined = Map::new();
        let mut again = Vec::new(); // `allOf` may come twice
        for (keyword, value) in first.into_iter().chain(self.base).chain(last) {
            if let Some(before) = joined.insert(keyword.clone(), value) {
                again.push(json!({ keyword: before }));
            }
        }
        if !again.is_empty() {
            let both = joined.entry("allOf").or_insert_with(|| json!([]));
            if let Some(both) = both.as_array_mut() {
                both.extend(again);
            }
        }
        Value::Object(joined)
    }
}

/// A name as a JSON pointer spells it.
fn escaped(name: &str) -> String {
    shortened(name.replace('~', "~0").replace('/', "~1"), LONGEST_QUOTE)
}

fn quoted(value: &Value) -> String {
    shortened(value.to_string(), LONGEST_QUOTE)
}
