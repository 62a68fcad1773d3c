//! Filters that give texts and keep what they know of markup: a text that is marked as safe escapes what is added to it, as
//! MarkupSafe does. Knows nothing of other values.

use minijinja::value::Value;
use minijinja::{Environment, Error, State};

use super::casing;
use super::methods;
use super::python::{Text, charge, str_of};

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("string", |state: &State, value: &Value| {
        if value.is_safe() { Ok(value.clone()) } else { str_of(state, value).map(Value::from) }
    });
    env.add_filter("safe", |state: &State, value: &Value| {
        if value.is_safe() { Ok(value.clone()) } else { str_of(state, value).map(Value::from_safe_string) }
    });
    for name in ["escape", "e"] {
        env.add_filter(name, |state: &State, value: &Value| match value.is_safe() {
            true => Ok(value.clone()),
            false => escaped(state, value).map(Value::from_safe_string),
        });
    }
    env.add_filter("forceescape", |state: &State, value: &Value| {
        escaped(state, value).map(Value::from_safe_string)
    });
    env.add_filter("title", |state: &State, value: &Value| title(state, value));
    env.add_filter("capitalize", |state: &State, value: &Value| cased(state, value, casing::capitalize));
    env.add_filter("upper", |state: &State, value: &Value| cased(state, value, str::to_uppercase));
    env.add_filter("lower", |state: &State, value: &Value| cased(state, value, str::to_lowercase));
    env.add_filter("trim", |state: &State, value: &Value, chars: Option<&str>| {
        let text = str_of(state, value)?;
        charge(state, chars.map_or(0, str::len))?;
        Ok::<_, Error>(like(value, methods::strip(&text, chars, true, true).to_owned()))
    });
}

/// A text that is safe where `original` is.
pub(super) fn like(original: &Value, text: String) -> Value {
    if original.is_safe() { Value::from_safe_string(text) } else { Value::from(text) }
}

/// A text in another case, which may take three times as much.
fn cased(state: &State, value: &Value, change: fn(&str) -> String) -> Result<Value, Error> {
    let text = str_of(state, value)?;
    methods::charge_case(state, &text)?;
    Ok(like(value, change(&text)))
}

/// Words begin behind blanks, hyphens and opening brackets.
fn title(state: &State, value: &Value) -> Result<String, Error> {
    let text = str_of(state, value)?;
    methods::charge_case(state, &text)?;
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        let separates = methods::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
        match in_word && !separates {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
        in_word = !separates;
    }
    Ok(out)
}

/// The text with entities for what HTML reads otherwise.
pub(super) fn escaped(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = Text::new(state);
    push_escaped(&mut out, &str_of(state, value)?)?;
    out.finish()
}

pub(super) fn push_escaped(out: &mut Text, text: &str) -> Result<(), Error> {
    for piece in text.split_inclusive(['&', '<', '>', '\'', '"']) {
        let (plain, escaped) = match piece.as_bytes().last() {
            Some(b'&') => (1, "&amp;"),
            Some(b'<') => (1, "&lt;"),
            Some(b'>') => (1, "&gt;"),
            Some(b'\'') => (1, "&#39;"),
            Some(b'"') => (1, "&#34;"),
            _ => (0, ""),
        };
        out.push(&piece[..piece.len() - plain])?;
        out.push(escaped)?;
    }
    Ok(())
}
