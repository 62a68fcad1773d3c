//! The values of single keywords: which of them are enforced to the letter.

use regex_syntax::hir::{Hir, HirKind};
use serde_json::{Map, Number, Value, json};

use super::quoted;

/// What is wrong with a value.
pub(super) enum Flaw {
    /// It is no value of this keyword.
    Wrong(String),
    /// It cannot be enforced; the text goes on from `"keyword" cannot be enforced`.
    Unsupported(String),
}

/// The largest whole number up to which f64 holds every one.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Digits that an f64 always keeps.
const MAX_DIGITS: usize = 15;

/// Digits after the point.
const MAX_PLACES: i64 = 12;

/// The largest count for items and properties.
const LARGEST_COUNT: u64 = 1_000_000;

/// The largest length of a text: the compiler keeps some states for each character.
const LARGEST_LENGTH: u64 = 16_384;

/// Characters of a pattern, with its repetitions written out: the compiler keeps a state or more for each.
const LARGEST_PATTERN: u64 = 16_000;

/// The remainders that are kept apart for `multipleOf`.
const LARGEST_FACTOR: f64 = 1000.0;

/// Digits after the point for `multipleOf`: the compiler computes remainders in 32 bits.
const MAX_FACTOR_PLACES: i64 = 8;

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Formats that the compiler knows and enforces. It has others, under the names of [`exact_format`], which let a
/// 29th of February pass in any year.
const FORMATS: [&str; 7] = ["duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Checks the value of a keyword that holds no schema.
pub(super) fn check(keyword: &str, value: &Value) -> Result<(), Flaw> {
    let wrong = |what: &str| Err(Flaw::Wrong(format!("must be {what}, not {}", quoted(value))));
    match keyword {
        "type" => {
            let kinds = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            let fine = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
            if kinds.is_empty() || !kinds.iter().all(fine) {
                return wrong("one or several of null, boolean, integer, number, string, array, object");
            }
        }
        "required" => {
            if !value.as_array().is_some_and(|names| names.iter().all(Value::is_string)) {
                return wrong("a list of names");
            }
            let mut names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            return names.try_for_each(text).map_err(because);
        }
        "enum" if value.as_array().is_none_or(Vec::is_empty) => {
            return wrong("a list of at least one value");
        }
        "enum" | "const" => return constant(value).map_err(because),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            let Some(count) = value.as_u64() else { return wrong("a whole number, 0 or more") };
            let most = if keyword.ends_with("Length") { LARGEST_LENGTH } else { LARGEST_COUNT };
            if count > most {
                return Err(because(format!("{count} is more than {most}")));
            }
        }
        "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => {}
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            let Value::Number(number) = value else { return wrong("a number") };
            let fine = if keyword == "multipleOf" { factor(number) } else { exact(number) };
            return fine.map_err(because);
        }
        "pattern" if !value.is_string() => return wrong("a text"),
        "format" => {
            let Some(text) = value.as_str() else { return wrong("a text") };
            if !FORMATS.contains(&text) && exact_format(text).is_none() {
                return Err(Flaw::Unsupported(format!(" as {}: unknown", quoted(value))));
            }
        }
        "uniqueItems" | "nullable" if !value.is_boolean() => return wrong("true or false"),
        "uniqueItems" if value == &Value::Bool(true) => return Err(Flaw::Unsupported(String::new())),
        _ => {}
    }
    Ok(())
}

fn because(why: String) -> Flaw {
    Flaw::Unsupported(format!(": {why}"))
}

/// Whether every text and number within a constant can be asked for exactly.
fn constant(value: &Value) -> Result<(), String> {
    match value {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::Number(number) => exact(number),
        Value::String(string) => text(string),
        Value::Array(values) => values.iter().try_for_each(constant),
        Value::Object(map) => {
            map.iter().try_for_each(|(name, value)| text(name).and_then(|()| constant(value)))
        }
    }
}

/// Whether `text` can be spelt in JSON without `\u`, which is not allowed in answers: with it, a name could be written
/// in two ways, and pass for another.
pub(super) fn text(text: &str) -> Result<(), String> {
    let fine = |char: char| char >= ' ' && char != '\x7f' || "\u{8}\t\n\u{c}\r".contains(char);
    match text.chars().find(|&char| !fine(char)) {
        None => Ok(()),
        Some(char) => {
            Err(format!("{} holds the control character U+{:04X}", quoted(&json!(text)), char as u32))
        }
    }
}

/// Whether the compiler, which computes in f64 and prints decimals, gets `number` right.
fn exact(number: &Number) -> Result<(), String> {
    let value = number.as_f64().filter(|value| value.abs() <= LARGEST_EXACT);
    let kept = value.map(|value| decimal(&format!("{value:e}")));
    let asked = decimal(number.as_str());
    let short = asked.1 >= 0 || asked.0.len() <= MAX_DIGITS + 1 && asked.1 >= -MAX_PLACES;
    if kept.as_ref() == Some(&asked) && short {
        return Ok(());
    }
    Err(format!(
        "{number} is more than 2^53, has more than {MAX_DIGITS} digits, or more than {MAX_PLACES} behind the point"
    ))
}

/// Sign and digits of a number without zeros at either end, and the power of ten to multiply them with.
fn decimal(text: &str) -> (String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    // Absurd exponents make numbers that are not exact anyway.
    let exponent: i64 = exponent.parse().unwrap_or(i64::from(i32::MAX));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let kept = digits.trim_end_matches('0');
    if kept.is_empty() {
        return ("0".into(), 0);
    }
    let places = fraction.len() as i64 - (digits.len() - kept.len()) as i64;
    (format!("{sign}{kept}"), exponent - places)
}

/// Whether multiples of `number` can be told apart: the compiler keeps one state for each remainder.
fn factor(number: &Number) -> Result<(), String> {
    exact(number)?;
    let value = number.as_f64().unwrap_or(0.0);
    if value <= 0.0 {
        return Err(format!("{number} is not more than 0"));
    }
    // As the compiler makes a whole number of it.
    let (mut whole, mut places) = (value, 0);
    while whole.fract() != 0.0 && places <= MAX_FACTOR_PLACES {
        whole *= 10.0;
        places += 1;
    }
    if places > MAX_FACTOR_PLACES
        || whole > LARGEST_FACTOR
        || decimal(&format!("{whole:e}")).0 != decimal(number.as_str()).0
    {
        return Err(format!("{number} has too many remainders"));
    }
    Ok(())
}

/// Whether `pattern` is a regular expression without what needs backtracking.
pub(in crate::constrain) fn pattern(pattern: &str) -> Result<(), String> {
    match regex_syntax::Parser::new().parse(pattern) {
        Ok(parsed) if size(&parsed) > LARGEST_PATTERN => {
            Err(format!("its repetitions, written out, have more than {LARGEST_PATTERN} characters"))
        }
        Ok(_) => Ok(()),
        Err(error) => {
            let why = match &error {
                regex_syntax::Error::Parse(error) => error.kind().to_string(),
                regex_syntax::Error::Translate(error) => error.kind().to_string(),
                _ => error.to_string(),
            };
            Err(why)
        }
    }
}

/// Characters of a pattern with its repetitions written out. The parser bounds how deep they are nested.
fn size(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.max(1));
            size(&repetition.sub).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => size(&capture.sub),
        HirKind::Concat(all) | HirKind::Alternation(all) => {
            all.iter().fold(0, |sum: u64, one| sum.saturating_add(size(one)))
        }
    }
}

/// The pattern for a format that the compiler would not enforce to the letter.
pub(super) fn exact_format(format: &str) -> Option<String> {
    const DATE: &str = concat!(
        r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
        r"|02-(?:0[1-9]|1[0-9]|2[0-8]))",
        r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
    );
    const TIME: &str = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
    match format {
        "date" => Some(format!("^{DATE}$")),
        "time" => Some(format!("^{TIME}$")),
        "date-time" => Some(format!("^{DATE}T{TIME}$")),
        _ => None,
    }
}

/// The value within `root` at a `#/…` pointer, whose parts may be escaped as in JSON pointers and in addresses.
pub(super) fn resolve<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    let pointer = unescaped(pointer.strip_prefix('#')?)?;
    root.pointer(&pointer)
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Draft 4 has flags beside the bounds; those that came later have bounds of their own.
pub(super) fn modern_bounds(base: &mut Map<String, Value>) {
    for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(Value::Bool(exclusive)) = base.get(flag).cloned() else { continue };
        base.remove(flag);
        if exclusive && let Some(value) = base.remove(bound) {
            base.insert(flag.into(), value);
        }
    }
}

/// The bound that the compiler would take for an inclusive one: a whole number, nearer than 1 to the other bound, for
/// values that need not be whole.
pub(super) fn misread_bound(base: &Map<String, Value>) -> Option<&'static str> {
    let number = |keyword: &str| base.get(keyword).and_then(Value::as_f64);
    let lower = number("exclusiveMinimum").or(number("minimum"))?;
    let upper = number("exclusiveMaximum").or(number("maximum"))?;
    let is_near = |bound: f64| bound.fract() == 0.0 && upper - lower < 1.0;
    if base.get("type").is_some_and(|kind| !may_be(kind, "number")) {
        return None;
    }
    match () {
        () if number("exclusiveMinimum").is_some_and(is_near) => Some("exclusiveMinimum"),
        () if number("exclusiveMaximum").is_some_and(is_near) => Some("exclusiveMaximum"),
        () => None,
    }
}

/// OpenAPI 3.0's `nullable`, which adds to `type` and to nothing else.
pub(super) fn allow_null(base: &mut Map<String, Value>) {
    if let Some(kind) = base.get_mut("type")
        && !may_be(kind, "null")
    {
        let mut kinds = kind.as_array().cloned().unwrap_or_else(|| vec![kind.clone()]);
        kinds.push(json!("null"));
        *kind = Value::Array(kinds);
    }
}

/// Whether the value of a `type` names `name`.
pub(super) fn may_be(kind: &Value, name: &str) -> bool {
    kind == name || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == name))
}
