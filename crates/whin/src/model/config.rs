//! `config.json`: turned into a [`Spec`], or refused with every problem that it has. Knows JSON and how problems are
//! told; which keys there are is the families' business.

use serde_json::{Map, Value};

use super::families;
use super::spec::Spec;
use crate::error::shortened;
use crate::{Error, ErrorKind, Result};

/// No config comes near this; a longer one could only be meant to cost memory.
const LONGEST: usize = 1 << 20;

/// More problems than this are counted, not listed.
const MOST_LISTED: usize = 50;

/// Reads `config.json`.
///
/// # Errors
/// `invalid_checkpoint` where the bytes are no JSON object; `unsupported_architecture` with one line for each key that
/// asks for something that cannot be computed.
pub fn read(config_json: &[u8]) -> Result<Spec> {
    let broken = |what: String| Error::new(ErrorKind::InvalidCheckpoint, format!("config.json {what}"));
    if config_json.len() > LONGEST {
        return Err(broken(format!("is longer than {LONGEST} bytes")));
    }
    let value: Value = serde_json::from_slice(config_json)
        .map_err(|error| broken(format!("is not valid JSON: {error}; fetch the file again")))?;
    let Value::Object(map) = &value else {
        return Err(broken(format!("holds {}, not a JSON object", shown(&value))));
    };
    let mut fields = Fields::new(map, "");
    let spec = families::read(&mut fields);
    match spec {
        Some(spec) if fields.problems.is_empty() => Ok(spec),
        _ => Err(refusal(&fields.problems)),
    }
}

fn refusal(problems: &[String]) -> Error {
    let mut message = String::from("this checkpoint asks for what cannot run here; config.json:");
    for problem in problems.iter().take(MOST_LISTED) {
        message.push_str("\n  - ");
        message.push_str(problem);
    }
    if problems.len() > MOST_LISTED {
        message.push_str(&format!("\n  and {} more", problems.len() - MOST_LISTED));
    }
    Error::new(ErrorKind::UnsupportedArchitecture, message)
}

/// A value as it stands in a message, cut where it is long.
pub(crate) fn shown(value: &Value) -> String {
    shortened(value.to_string(), 100)
}

/// The keys of one JSON object. Each read that finds something unusable notes a problem and goes on with a stand-in,
/// so that one pass finds all of them.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    prefix: &'a str,
    read: Vec<&'static str>,
    repeated: Vec<&'a str>,
    /// One line for each problem: key, value, what would be accepted.
    pub problems: Vec<String>,
}

impl<'a> Fields<'a> {
    /// `prefix` stands before the keys in messages: `rope_parameters.`
    pub fn new(map: &'a Map<String, Value>, prefix: &'a str) -> Self {
        Self { map, prefix, read: Vec::new(), repeated: Vec::new(), problems: Vec::new() }
    }

    /// The value of `key`, which counts as read from now on.
    pub fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.read.push(key);
        self.map.get(key)
    }

    /// Notes that `key` has an unusable value; `accepted` is a noun phrase.
    pub fn refuse(&mut self, key: &str, accepted: &str) {
        let found = self.map.get(key).map_or("missing".to_owned(), shown);
        let key = shortened(key.to_owned(), 100);
        self.problems.push(format!("{}{key} is {found}; accepted: {accepted}", self.prefix));
    }

    /// Counts keys as read that `inner` has with the same values.
    pub fn pass_repeated(&mut self, inner: &Map<String, Value>) {
        let repeated = self.map.iter().filter(|(key, value)| inner.get(*key) == Some(value));
        self.repeated.extend(repeated.map(|(key, _)| key.as_str()));
    }

    /// Takes over the problems of an inner object.
    pub fn absorb(&mut self, inner: Fields<'_>) {
        self.problems.extend(inner.problems);
    }

    /// A whole number from `least` to `most`, or `default` where the key is missing.
    pub fn integer(&mut self, key: &'static str, default: usize, least: usize, most: usize) -> usize {
        match self.get(key) {
            None => default,
            Some(value) => whole(value, least, most).unwrap_or_else(|| {
                self.refuse(key, &format!("a whole number from {least} to {most}"));
                default
            }),
        }
    }

    /// Like [`Self::integer`], with null and a missing key as none.
    pub fn integer_or_null(&mut self, key: &'static str, least: usize, most: usize) -> Option<usize> {
        match self.get(key) {
            None | Some(Value::Null) => None,
            Some(value) => whole(value, least, most).or_else(|| {
                self.refuse(key, &format!("a whole number from {least} to {most}, or null"));
                None
            }),
        }
    }

    /// A number between `least` and `most`, none where the key is missing or null.
    pub fn number_or_null(&mut self, key: &'static str, least: f64, most: f64) -> Option<f64> {
        match self.get(key) {
            None | Some(Value::Null) => None,
            Some(value) => real(value, least, most).or_else(|| {
                self.refuse(key, &format!("a number from {least} to {most}"));
                None
            }),
        }
    }

    /// A number between `least` and `most` that may not be missing.
    pub fn number(&mut self, key: &'static str, least: f64, most: f64) -> f64 {
        let found = self.get(key).and_then(|value| real(value, least, most));
        found.unwrap_or_else(|| {
            self.refuse(key, &format!("a number from {least} to {most}"));
            least
        })
    }

    /// A switch, or `default` where the key is missing.
    pub fn flag(&mut self, key: &'static str, default: bool) -> bool {
        match self.get(key) {
            None => default,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.refuse(key, "true or false");
                default
            }
        }
    }

    /// Token ids below `vocab`: a number, a list of numbers, or none for null and a missing key.
    pub fn tokens(&mut self, key: &'static str, vocab: usize) -> Vec<u32> {
        let Some(value) = self.get(key) else { return Vec::new() };
        token_ids(value, vocab).unwrap_or_else(|| {
            self.refuse(key, &format!("token ids below vocab_size ({vocab}): a number, a list, or null"));
            Vec::new()
        })
    }

    /// Notes every key that was neither read nor is `harmless`.
    ///
    /// Null, false and empty values pass: the classes of transformers write out what is unset or off, for their
    /// relatives' sake, and the reference ignores a key that the family's class does not have. Everything else asks
    /// for something; it may change the arithmetic in a way that this program does not know of, so it is refused.
    pub fn refuse_unknown(&mut self, harmless: impl Fn(&str) -> bool) {
        for (key, value) in self.map {
            let unset = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(items) => items.is_empty(),
                Value::Object(items) => items.is_empty(),
                Value::String(text) => text.is_empty(),
                Value::Bool(true) | Value::Number(_) => false,
            };
            if !unset
                && !harmless(key)
                && !self.read.contains(&key.as_str())
                && !self.repeated.contains(&key.as_str())
            {
                self.refuse(key, "no such key, since it may change what the model computes");
            }
        }
    }
}

fn whole(value: &Value, least: usize, most: usize) -> Option<usize> {
    let number = usize::try_from(value.as_u64()?).ok()?;
    (least..=most).contains(&number).then_some(number)
}

fn real(value: &Value, least: f64, most: f64) -> Option<f64> {
    value.as_f64().filter(|number| (least..=most).contains(number))
}

/// The ids of a number, a list of numbers or null; none where one is not a whole number below `vocab`.
pub(crate) fn token_ids(value: &Value, vocab: usize) -> Option<Vec<u32>> {
    let id = |value: &Value| {
        let id = u32::try_from(value.as_u64()?).ok()?;
        ((id as usize) < vocab).then_some(id)
    };
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => items.iter().map(id).collect(),
        _ => id(value).map(|id| vec![id]),
    }
}
