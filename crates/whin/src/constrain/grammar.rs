//! What an answer may be asked to look like, and the grammar that says so.

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

use super::lark;
use super::schema::prepare;
use crate::error::shortened;
use crate::{Error, ErrorKind, Result};

/// Bytes of a regular expression.
const MAX_REGEX: usize = 1 << 16;

/// Bytes of a Lark grammar, or of all choices together.
const MAX_TEXT: usize = 1 << 20;

/// Characters of what was given in a message.
const LONGEST_QUOTE: usize = 60;

/// Blanks between the parts of a JSON value: a space, or a line break with the indentation of the next line. Models
/// differ in which they like, and with no bound a run of blanks could go on for ever.
const BLANKS: &str = r" |\r?\n[ \t]{0,32}";

/// Escapes in strings. Without `\u`, every text has one spelling, and a name cannot be passed off as another.
const ESCAPES: &str = "nrbtf\\\"";

/// How much of a JSON schema must be enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// All of it: a keyword that cannot be enforced is refused by name.
    #[default]
    Enforced,
    /// As [`Self::Enforced`], and every object has all of its properties and no others, as OpenAI's `strict` wants it.
    Strict,
    /// As much as can be: other keywords count for nothing.
    Lenient,
}

/// The form that an answer must have, from its first character to its last.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Any JSON object.
    JsonObject,
    /// A JSON value that a JSON Schema (draft 2020-12, and what older drafts spell differently) accepts. Properties
    /// come in the order of the schema; patterns are JavaScript's. Between the parts of the value stand a space, a line break with up to 32
    /// blanks of indentation, or nothing.
    JsonSchema {
        /// The schema: an object or a boolean.
        schema: Value,
        /// What becomes of keywords that cannot be enforced.
        strictness: Strictness,
    },
    /// A text that matches a regular expression from end to end. The syntax is that of the `regex` crate, without
    /// look-around and word boundaries.
    Regex(String),
    /// A text of a context-free grammar, in `llguidance`'s dialect of Lark, whose rule `start` is the answer. JSON schemas
    /// within it (`%json`) are read by `llguidance`, which ignores keywords that it does not know.
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
}

impl Format {
    /// A JSON value of which all that `schema` says is enforced.
    pub fn json_schema(schema: Value) -> Self {
        Self::JsonSchema { schema, strictness: Strictness::Enforced }
    }
}

/// A grammar that is ready to be compiled for a tokenizer. Clones are cheap.
#[derive(Clone, Debug, PartialEq)]
pub struct Grammar(Arc<Parts>);

#[derive(Debug, PartialEq)]
struct Parts {
    /// In Lark, where it is more than a schema: rules refer to the schemas as `@name`.
    lark: Option<String>,
    /// By name, ready for the compiler. A text is a grammar in Lark.
    schemas: Vec<(String, Value)>,
    /// What tells this grammar from others.
    key: String,
    loosened: Vec<String>,
    /// Where its schemas have a `oneOf`, which the compiler may refuse.
    exclusive: Vec<String>,
}

impl Grammar {
    /// The grammar of `format`.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) that says what cannot be enforced, and where it stands.
    pub fn new(format: &Format) -> Result<Self> {
        match format {
            Format::JsonObject => Self::json(&json!({ "type": "object" }), Strictness::Enforced),
            Format::JsonSchema { schema, strictness } => Self::json(schema, *strictness),
            Format::Regex(regex) => Self::regex(regex),
            Format::Lark(text) => {
                check_size("the grammar", text.len(), MAX_TEXT)?;
                lark::check(text)?;
                Ok(Self::lark(text.clone(), Vec::new(), Vec::new()))
            }
            Format::Choice(choices) => Self::choice(choices),
        }
    }

    fn json(schema: &Value, strictness: Strictness) -> Result<Self> {
        let prepared = prepare(schema, strictness, "the JSON schema")?;
        let schema = with_options(prepared.schema, strictness);
        let key = format!("json\n{schema}");
        let schemas = vec![(String::new(), schema)];
        let (loosened, exclusive) = (prepared.loosened, prepared.exclusive);
        Ok(Self(Arc::new(Parts { lark: None, schemas, key, loosened, exclusive })))
    }

    fn regex(regex: &str) -> Result<Self> {
        check_size("the regular expression", regex.len(), MAX_REGEX)?;
        if let Err(why) = super::schema::check_pattern(regex) {
            let quoted = shortened(regex.to_owned(), LONGEST_QUOTE);
            return Err(Error::new(
                ErrorKind::InvalidArguments,
                format!("the regular expression {quoted:?} cannot be enforced: {why}"),
            ));
        }
        Ok(Self::lark(format!("start: {}\n", lark::regex(regex)), Vec::new(), Vec::new()))
    }

    fn choice(choices: &[String]) -> Result<Self> {
        check_size("the choices", choices.iter().map(|choice| choice.len() + 4).sum(), MAX_TEXT)?;
        if choices.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidArguments,
                "there are no choices: name at least one text that the answer may be",
            ));
        }
        Ok(Self::lark(lark::choice(choices), Vec::new(), Vec::new()))
    }

    /// A grammar in Lark whose rules refer to `schemas` by `@name`.
    pub(super) fn lark(text: String, schemas: Vec<(String, Value)>, loosened: Vec<String>) -> Self {
        let mut key = format!("lark\n{text}");
        for (name, schema) in &schemas {
            key += &format!("\n@{name} {schema}");
        }
        Self(Arc::new(Parts { lark: Some(text), schemas, key, loosened, exclusive: Vec::new() }))
    }

    /// The same grammar, which says where its schemas have a `oneOf`.
    pub(super) fn with_exclusive(self, exclusive: Vec<String>) -> Self {
        match Arc::try_unwrap(self.0) {
            Ok(parts) => Self(Arc::new(Parts { exclusive, ..parts })),
            Err(shared) => Self(shared),
        }
    }

    /// The grammar of what this one allows, with something in Lark before it.
    pub(super) fn behind(&self, before: &str) -> Self {
        let Parts { lark, schemas, loosened, exclusive, .. } = &*self.0;
        // Only grammars of a format get here: they are Lark alone, or one schema alone.
        let body = match lark {
            Some(text) => Value::from(text.as_str()),
            None => schemas.first().map_or(Value::Null, |(_, schema)| schema.clone()),
        };
        Self::lark(format!("start: {before} @body\n"), vec![("body".into(), body)], loosened.clone())
            .with_exclusive(exclusive.clone())
    }

    /// What of a lenient schema is not enforced.
    pub fn loosened(&self) -> &[String] {
        &self.0.loosened
    }

    /// Where its schemas have a `oneOf`.
    pub(super) fn exclusive(&self) -> &[String] {
        &self.0.exclusive
    }

    /// The grammar's text, which tells it from others.
    pub(super) fn key(&self) -> &str {
        &self.0.key
    }

    /// For the compiler.
    pub(super) fn top_level(&self) -> TopLevelGrammar {
        let named = |(name, part): &(String, Value)| GrammarWithLexer {
            name: Some(name.clone()).filter(|name| !name.is_empty()),
            json_schema: Some(part.clone()).filter(|part| !part.is_string()),
            lark_grammar: part.as_str().map(str::to_owned),
        };
        let lark = self.0.lark.iter().map(|text| GrammarWithLexer::from_lark(text.clone()));
        TopLevelGrammar { grammars: lark.chain(self.0.schemas.iter().map(named)).collect(), max_tokens: None }
    }
}

/// A prepared schema with what the compiler is to do about blanks and escapes.
pub(super) fn with_options(schema: Value, strictness: Strictness) -> Value {
    let lenient = strictness == Strictness::Lenient;
    let options = json!({
        "whitespace_pattern": BLANKS,
        "json_allowed_escapes": ESCAPES,
        "coerce_one_of": lenient,
        "lenient": lenient,
    });
    let mut map = match schema {
        Value::Object(map) => map,
        // Nothing else than true gets here.
        _ => serde_json::Map::new(),
    };
    map.insert("x-guidance".into(), options);
    Value::Object(map)
}

fn check_size(what: &str, bytes: usize, most: usize) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    let message = format!("{what}: {bytes} bytes, and {most} are the most");
    Err(Error::new(ErrorKind::InvalidArguments, message))
}
