//! JSON as values of the template engine, with the numbers that the engine itself would print otherwise than Python.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, Value};
use serde_json::Value as Json;

use super::python::{float_repr, from_float};

/// A float whose printing needs an exponent, or that is infinite.
#[derive(Debug)]
pub(super) struct Float(pub(super) f64);

/// The digits of an integer of more than 128 bits.
#[derive(Debug)]
pub(super) struct BigInt(String);

/// What `range` gives.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) start: i64,
    pub(super) stop: i64,
    pub(super) step: i64,
}

impl Object for Float {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        self.0.partial_cmp(&other.downcast_ref::<Self>()?.0)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&float_repr(self.0))
    }
}

impl Object for BigInt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Range {
    pub(super) fn len(&self) -> u64 {
        let (from, to) = if self.step > 0 { (self.start, self.stop) } else { (self.stop, self.start) };
        if from >= to { 0 } else { (from.abs_diff(to) - 1) / self.step.unsigned_abs() + 1 }
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let index = u64::try_from(key.as_i64()?).ok()?;
        let within = index < self.len();
        // The product stays between start and stop.
        within.then(|| Value::from(self.start.wrapping_add((index as i64).wrapping_mul(self.step))))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.len() as usize)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            1 => write!(f, "range({}, {})", self.start, self.stop),
            step => write!(f, "range({}, {}, {step})", self.start, self.stop),
        }
    }
}

/// `json` as Python's `json.loads` would read it: whole numbers exactly, others as floats.
pub(super) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(bool) => Value::from(*bool),
        Json::Number(number) => from_number(&number.to_string()),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(entries) => {
            Value::from_pairs(entries.iter().map(|(key, value)| (key.as_str(), from_json(value))))
        }
    }
}

fn from_number(spelled: &str) -> Value {
    if spelled.contains(['.', 'e', 'E']) {
        return from_float(spelled.parse().unwrap_or(f64::NAN));
    }
    if let Ok(whole) = spelled.parse::<i64>() {
        return Value::from(whole);
    }
    match (spelled.parse::<i128>(), spelled.parse::<u128>()) {
        (Ok(whole), _) => Value::from(whole),
        (_, Ok(whole)) => Value::from(whole),
        _ => Value::from_object(BigInt(spelled.to_owned())),
    }
}
