//! The functions that stand for operators whose work the engine does not count: sums pay for what they make before they make
//! it, and what is compared, ordered or used as a key is paid for before. Knows nothing of a template's source.

use minijinja::value::{Rest, Tuple, Value, ValueKind};
use minijinja::{Error, State};

use super::python::{Text, as_float, charge, from_float, invalid, str_of, type_name};

/// How deep a value may be nested that is compared.
const MAX_DEPTH: usize = 200;

/// A value that is about to be compared, or looked up: pays for all that is in it.
pub(super) fn counted(state: &State, value: Value) -> Result<Value, Error> {
    walk(state, &value, Walk { times: 1, stored: false }, 0)?;
    Ok(value)
}

/// A list of the values that are about to be ordered, which looks at each of them a few times.
pub(super) fn ordered(state: &State, value: Value) -> Result<Value, Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String) {
        return Ok(value);
    }
    let mut items = Vec::new();
    for item in super::filters::each(state, &value)?.try_iter()?.checked() {
        state.consume_fuel(1)?;
        items.push(item?);
    }
    let list = Value::from(items);
    let times = u64::from(list.len().unwrap_or(0).checked_ilog2().unwrap_or(0)) + 1;
    walk(state, &list, Walk { times, stored: false }, 0)?;
    Ok(list)
}

/// A value that is about to be put into a namespace, which may hold no other one, and nothing that encloses one.
pub(super) fn stored(state: &State, value: Value) -> Result<Value, Error> {
    walk(state, &value, Walk { times: 1, stored: true }, 0)?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Walk {
    /// How often a text is looked at.
    times: u64,
    /// Whether it looks for what a namespace must not hold.
    stored: bool,
}

fn walk(state: &State, value: &Value, how: Walk, depth: usize) -> Result<(), Error> {
    if how.stored && holds_unseen(value) {
        return Err(invalid("a namespace cannot hold another one, a macro or a loop here"));
    }
    if let Some(text) = value.as_str() {
        let work = text.len() as u64 / 64;
        return if how.stored || work == 0 { Ok(()) } else { state.consume_fuel(work * how.times) };
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Err(invalid(format!(
            "a value that is looked through is nested more than {MAX_DEPTH} levels deep"
        )));
    }
    for item in value.try_iter()?.checked() {
        let item = item?;
        state.consume_fuel(1)?;
        if value.kind() == ValueKind::Map {
            walk(state, &value.get_item(&item)?, how, depth + 1)?;
        }
        walk(state, &item, how, depth + 1)?;
    }
    Ok(())
}

/// Whether a value holds others without showing them: a namespace, a macro, a loop, or an object of another kind.
fn holds_unseen(value: &Value) -> bool {
    let is_engines = |name: &str| ["Namespace", "Macro", "Loop"].iter().any(|end| name.ends_with(end));
    match value.kind() {
        ValueKind::Plain => !super::python::is_own_number(value),
        _ => value.as_object().is_some_and(|object| is_engines(object.type_name())),
    }
}

/// `a + b + …`.
pub(super) fn add(state: &State, operands: Rest<Value>) -> Result<Value, Error> {
    let mut operands = operands.0.into_iter();
    let mut sum = operands.next().unwrap_or_default();
    let mut texts: Option<Text> = None;
    for operand in operands {
        let safe = operand.is_safe() || (texts.is_none() && sum.is_safe());
        match (&mut texts, operand.as_str()) {
            (Some(texts), Some(text)) if !safe => texts.push(text)?,
            (None, Some(text)) if !safe && sum.as_str().is_some() => {
                let mut joined = Text::new(state);
                joined.push(sum.as_str().unwrap_or_default())?;
                joined.push(text)?;
                texts = Some(joined);
            }
            _ => {
                if let Some(texts) = texts.take() {
                    sum = Value::from(texts.finish()?);
                }
                sum = two(state, &sum, &operand)?;
            }
        }
    }
    texts.map_or(Ok(sum), |texts| texts.finish().map(Value::from))
}

/// The sum of two texts of which one is markup: the other is escaped.
fn markup(state: &State, parts: [&Value; 2]) -> Result<Value, Error> {
    let mut out = Text::new(state);
    for part in parts {
        match (part.is_safe(), part.as_str().unwrap_or_default()) {
            (true, text) => out.push(text)?,
            (false, text) => super::markup::push_escaped(&mut out, text)?,
        }
    }
    out.finish().map(Value::from_safe_string)
}

fn two(state: &State, left: &Value, right: &Value) -> Result<Value, Error> {
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if let Some(value) = [left, right].into_iter().find(|value| value.is_undefined()) {
        return Err(super::filters::undefined(value));
    }
    if left.as_str().is_some() && right.as_str().is_some() {
        return markup(state, [left, right]);
    }
    if is_list(left) && is_list(right) && left.is_tuple() == right.is_tuple() {
        let mut items = Vec::new();
        for value in [left, right] {
            charge(state, value.len().unwrap_or(0).saturating_mul(32))?;
            for item in value.try_iter()?.checked() {
                items.push(item?);
            }
        }
        return Ok(if left.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) });
    }
    if let (Some(a), Some(b)) = (whole(left), whole(right)) {
        return a.checked_add(b).map(Value::from).ok_or_else(|| invalid("the sum has more than 128 bits"));
    }
    if let (Some(a), Some(b)) = (number(left), number(right)) {
        return Ok(from_float(a + b));
    }
    let (a, b) = (type_name(left), type_name(right));
    Err(match left.kind() {
        ValueKind::String => invalid(format!("can only concatenate str (not \"{b}\") to str")),
        _ => invalid(format!("unsupported operand type(s) for +: '{a}' and '{b}'")),
    })
}

fn whole(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    as_float(value).or_else(|| whole(value).map(|whole| whole as f64))
}

/// `a ~ b ~ …`.
pub(super) fn concat(state: &State, operands: Rest<Value>) -> Result<String, Error> {
    let mut out = Text::new(state);
    for operand in operands.0 {
        match operand.as_str() {
            Some(text) => out.push(text)?,
            None => out.push(&str_of(state, &operand)?)?,
        }
    }
    out.finish()
}
