//! Values as Python prints them: `str`, `repr` and `json.dumps`. Knows nothing of templates beyond their values.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::value::{BigInt, Float, Range};

/// Nested values deeper than this are refused: printing them recurses.
const MAX_DEPTH: usize = 200;

/// The longest text that one step may make, in bytes.
pub(super) const MAX_TEXT: usize = 16 << 20;

/// An operation that cannot be done, in Jinja's or Python's words.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Pays for `bytes` of text that is about to be made or looked at.
///
/// # Errors
/// When the work that one rendering may do is used up, or the text would be too long.
pub(super) fn charge(state: &State, bytes: usize) -> Result<(), Error> {
    if bytes > MAX_TEXT {
        return Err(invalid(format!("a text of {bytes} bytes is more than the {MAX_TEXT} that are allowed")));
    }
    state.consume_fuel(bytes as u64 / 64 + 1)
}

/// Text that is paid for while it grows.
pub(super) struct Text<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    text: String,
    owed: usize,
}

impl<'a, 'template, 'env> Text<'a, 'template, 'env> {
    pub(super) fn new(state: &'a State<'template, 'env>) -> Self {
        Self { state, text: String::new(), owed: 0 }
    }

    pub(super) fn push(&mut self, piece: &str) -> Result<(), Error> {
        // An empty piece costs too: it took a step to get here.
        self.owed += piece.len() + 24;
        if self.owed >= 1024 {
            if self.text.len() + piece.len() > MAX_TEXT {
                return charge(self.state, self.text.len() + piece.len());
            }
            charge(self.state, self.owed)?;
            self.owed = 0;
        }
        self.text.push_str(piece);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<String, Error> {
        charge(self.state, self.owed.max(self.text.len().saturating_sub(MAX_TEXT)))?;
        Ok(self.text)
    }
}

/// `str(value)`.
pub(super) fn str_of(state: &State, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => {
            charge(state, text.len())?;
            Ok(text.to_owned())
        }
        None if value.is_undefined() => Ok(String::new()),
        None => repr_of(state, value),
    }
}

/// `repr(value)`.
pub(super) fn repr_of(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = Text::new(state);
    write_repr(&mut out, value, 0)?;
    out.finish()
}

fn write_repr(out: &mut Text, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::Undefined => out.push("Undefined"),
        ValueKind::String => {
            let (open, close) = if value.is_safe() { ("Markup(", ")") } else { ("", "") };
            out.push(open)?;
            quote(value.as_str().unwrap_or_default(), &mut |piece| out.push(piece))?;
            out.push(close)
        }
        ValueKind::Number => out.push(&number(value)),
        ValueKind::Seq | ValueKind::Iterable if value.downcast_object_ref::<Range>().is_some() => {
            out.push(&value.to_string())
        }
        ValueKind::Seq | ValueKind::Iterable => write_sequence(out, value, depth),
        ValueKind::Map => {
            out.push("{")?;
            for (index, key) in value.try_iter()?.checked().enumerate() {
                let key = key?;
                out.push(if index > 0 { ", " } else { "" })?;
                write_repr(out, &key, depth + 1)?;
                out.push(": ")?;
                write_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push("}")
        }
        ValueKind::Plain if !is_own_number(value) && value.to_string().contains("::") => {
            out.push("<function>")
        }
        // None, True, False, numbers of our own.
        _ => out.push(&value.to_string()),
    }
}

fn write_sequence(out: &mut Text, value: &Value, depth: usize) -> Result<(), Error> {
    let (open, close) = if value.is_tuple() { ("(", ")") } else { ("[", "]") };
    out.push(open)?;
    let mut count = 0;
    for item in value.try_iter()?.checked() {
        out.push(if count > 0 { ", " } else { "" })?;
        write_repr(out, &item?, depth + 1)?;
        count += 1;
    }
    if count == 1 && value.is_tuple() {
        out.push(",")?;
    }
    out.push(close)
}

fn too_deep() -> Error {
    invalid(format!("a value is nested more than {MAX_DEPTH} levels deep"))
}

/// `repr` of a number of the template engine.
pub(super) fn number(value: &Value) -> String {
    match as_float(value) {
        Some(float) => float_repr(float),
        None => value.to_string(),
    }
}

/// The number, if it is a float and no integer.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    if let Some(Float(float)) = value.downcast_object_ref() {
        return Some(*float);
    }
    let is_float = value.is_number() && !value.is_integer();
    if is_float { f64::try_from(value.clone()).ok() } else { None }
}

/// A float as a value of the engine, in a form that the engine prints as Python does.
pub(super) fn from_float(float: f64) -> Value {
    let plain = Value::from(float);
    if plain.to_string() == float_repr(float) { plain } else { Value::from_object(Float(float)) }
}

/// `repr` of a float: the shortest digits that give it back, with an exponent from 1e16 on and below 1e-4.
pub(super) fn float_repr(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let mut plain = format!("{float}");
        if !plain.contains('.') {
            plain.push_str(".0");
        }
        return plain;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `repr` of a string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    // It never fails.
    let _ = quote(text, &mut |piece| {
        out.push_str(piece);
        Ok(())
    });
    out
}

/// The `repr` of a string in pieces.
fn quote(text: &str, push: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
    let quote = if text.contains('\'') && !text.contains('"') { "\"" } else { "'" };
    push(quote)?;
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        let escaped = match c {
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            '\\' => "\\\\".to_owned(),
            c if quote.starts_with(c) => format!("\\{c}"),
            ' '..='~' => continue,
            c if is_printable(c) => continue,
            c => match u32::from(c) {
                code @ ..=0xff => format!("\\x{code:02x}"),
                code @ ..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            },
        };
        push(&text[plain..at])?;
        push(&escaped)?;
        plain = at + c.len_utf8();
    }
    push(&text[plain..])?;
    push(quote)
}

/// `str.isprintable` of one character. Rust escapes the same categories as Python, and besides what combines with the
/// character before it, which a letter in front prevents.
pub(super) fn is_printable(c: char) -> bool {
    let mut pair = String::from("a");
    pair.push(c);
    pair.escape_debug().count() == 2
}

/// How `json.dumps` is to write.
pub(super) struct JsonStyle {
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
    pub(super) ensure_ascii: bool,
}

impl Default for JsonStyle {
    fn default() -> Self {
        Self {
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
            ensure_ascii: false,
        }
    }
}

/// `json.dumps(value)`.
pub(super) fn dumps(state: &State, value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = Text::new(state);
    write_json(&mut out, value, style, 0)?;
    out.finish()
}

fn write_json(out: &mut Text, value: &Value, style: &JsonStyle, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push("null"),
        ValueKind::Bool => out.push(if value.is_true() { "true" } else { "false" }),
        ValueKind::String => write_json_string(out, value.as_str().unwrap_or_default(), style.ensure_ascii),
        ValueKind::Number => out.push(&json_number(value)),
        ValueKind::Plain if is_own_number(value) => out.push(&json_number(value)),
        ValueKind::Seq | ValueKind::Iterable if value.downcast_object_ref::<Range>().is_none() => {
            let mut entries = Vec::new();
            for item in value.try_iter()?.checked() {
                out.push("")?;
                entries.push((None, item?));
            }
            write_entries(out, entries, ("[", "]"), style, depth)
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                out.push("")?;
                entries.push((Some(json_key(&key)?), value.get_item(&key)?));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_entries(out, entries, ("{", "}"), style, depth)
        }
        _ => Err(invalid(format!("Object of type {} is not JSON serializable", type_name(value)))),
    }
}

type Entry = (Option<String>, Value);

fn write_entries(
    out: &mut Text,
    entries: Vec<Entry>,
    (open, close): (&str, &str),
    style: &JsonStyle,
    depth: usize,
) -> Result<(), Error> {
    out.push(open)?;
    let is_empty = entries.is_empty();
    for (index, (key, value)) in entries.into_iter().enumerate() {
        out.push(if index > 0 { &style.item_separator } else { "" })?;
        new_line(out, style, depth + 1)?;
        if let Some(key) = key {
            write_json_string(out, &key, style.ensure_ascii)?;
            out.push(&style.key_separator)?;
        }
        write_json(out, &value, style, depth + 1)?;
    }
    if !is_empty {
        new_line(out, style, depth)?;
    }
    out.push(close)
}

fn new_line(out: &mut Text, style: &JsonStyle, depth: usize) -> Result<(), Error> {
    let Some(indent) = &style.indent else { return Ok(()) };
    out.push("\n")?;
    for _ in 0..depth {
        out.push(indent)?;
    }
    Ok(())
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => Ok(json_number(key)),
        _ => Err(invalid(format!("keys must be str, int, float, bool or None, not {}", type_name(key)))),
    }
}

fn json_number(value: &Value) -> String {
    match as_float(value) {
        Some(float) if float.is_nan() => "NaN".to_owned(),
        Some(float) if float.is_infinite() => if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        _ => number(value),
    }
}

fn write_json_string(out: &mut Text, text: &str, ensure_ascii: bool) -> Result<(), Error> {
    out.push("\"")?;
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        let escaped = match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            '\u{8}' => "\\b".to_owned(),
            '\u{c}' => "\\f".to_owned(),
            c if c < ' ' => format!("\\u{:04x}", u32::from(c)),
            c if ensure_ascii && !(' '..='~').contains(&c) => {
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
            }
            _ => continue,
        };
        out.push(&text[plain..at])?;
        out.push(&escaped)?;
        plain = at + c.len_utf8();
    }
    out.push(&text[plain..])?;
    out.push("\"")
}

pub(super) fn is_own_number(value: &Value) -> bool {
    value.downcast_object_ref::<Float>().is_some() || value.downcast_object_ref::<BigInt>().is_some()
}

/// The name of a value's type in Python.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Seq | ValueKind::Iterable if value.is_tuple() => "tuple",
        ValueKind::Seq => "list",
        ValueKind::Iterable => "generator",
        ValueKind::Map => "dict",
        _ if value.downcast_object_ref::<Float>().is_some() => "float",
        _ if value.downcast_object_ref::<BigInt>().is_some() => "int",
        _ => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_python_prints_them() {
        for (float, printed) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e-7, "1e-07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float_repr(float), printed);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_quotes_them() {
        for (text, printed) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("\n\t\r\\\0\u{7f}\u{a0}\u{ad}", "'\\n\\t\\r\\\\\\x00\\x7f\\xa0\\xad'"),
            ("é😀\u{301}", "'é😀\u{301}'"),
            ("\u{200b}\u{2028}\u{e000}\u{e0041}", "'\\u200b\\u2028\\ue000\\U000e0041'"),
        ] {
            assert_eq!(quoted(text), printed);
        }
    }
}
