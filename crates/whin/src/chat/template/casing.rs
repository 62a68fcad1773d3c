//! The methods of Python's strings that take no arguments: other cases, and questions about characters. Knows nothing of
//! the engine beyond its values.

use minijinja::value::Value;
use minijinja::{Error, State};

use super::methods::is_space;
use super::python::{Text, charge, is_printable};

/// The methods without arguments.
pub(super) fn cases_and_classes(text: &str, method: &str) -> Option<Value> {
    let all = |is: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(is));
    Some(match method {
        "upper" => Value::from(text.to_uppercase()),
        "lower" => Value::from(text.to_lowercase()),
        "capitalize" => Value::from(capitalize(text)),
        "title" => Value::from(title(text)),
        "casefold" => Value::from(text.replace('ß', "ss").replace('ς', "σ").to_lowercase()),
        "istitle" => Value::from(is_title(text)),
        "isprintable" => Value::from(text.chars().all(is_printable)),
        "isidentifier" => Value::from(is_identifier(text)),
        "swapcase" => Value::from(swapcase(text)),
        "isspace" => all(is_space),
        "isdigit" | "isnumeric" | "isdecimal" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isascii" => Value::from(text.is_ascii()),
        "islower" => Value::from(is_cased(text, char::is_lowercase, char::is_uppercase)),
        "isupper" => Value::from(is_cased(text, char::is_uppercase, char::is_lowercase)),
        _ => return None,
    })
}

fn is_identifier(text: &str) -> bool {
    let starts = |c: char| c.is_alphabetic() || c == '_';
    text.starts_with(starts) && text.chars().all(|c| starts(c) || c.is_numeric())
}

/// Whether each word begins with a letter in upper case, and none other is.
fn is_title(text: &str) -> bool {
    let (mut in_word, mut found) = (false, false);
    for c in text.chars() {
        if c.is_uppercase() && in_word || c.is_lowercase() && !in_word {
            return false;
        }
        in_word = c.is_uppercase() || c.is_lowercase();
        found |= in_word;
    }
    found
}

/// `str.expandtabs`.
pub(super) fn expand_tabs(state: &State, text: &str, size: i64) -> Result<Value, Error> {
    let size = usize::try_from(size).unwrap_or(0);
    let mut out = Text::new(state);
    let mut column = 0;
    for piece in text.split_inclusive(['\t', '\n', '\r']) {
        let plain = piece.strip_suffix('\t').unwrap_or(piece);
        out.push(plain)?;
        column = if plain.ends_with(['\n', '\r']) { 0 } else { column + plain.chars().count() };
        if plain.len() < piece.len() && size > 0 {
            let blanks = size - column % size;
            charge(state, blanks)?;
            out.push(&" ".repeat(blanks))?;
            column += blanks;
        }
    }
    out.finish().map(Value::from)
}

/// Whether `text` has some letter of the one case, and none of the other.
pub(super) fn is_cased(text: &str, one: fn(char) -> bool, other: fn(char) -> bool) -> bool {
    text.chars().any(one) && !text.chars().any(other)
}

pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(titlecased).unwrap_or_default();
    first + &chars.as_str().to_lowercase()
}

/// A letter at the start of a word: one that becomes several has only the first of them in upper case.
fn titlecased(c: char) -> String {
    match c {
        'Ǆ' | 'ǅ' | 'ǆ' => return "ǅ".to_owned(),
        'Ǉ' | 'ǈ' | 'ǉ' => return "ǈ".to_owned(),
        'Ǌ' | 'ǋ' | 'ǌ' => return "ǋ".to_owned(),
        'Ǳ' | 'ǲ' | 'ǳ' => return "ǲ".to_owned(),
        _ => {}
    }
    let mut upper = c.to_uppercase();
    let first: String = upper.next().into_iter().collect();
    first + &upper.collect::<String>().to_lowercase()
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        let cased = c.is_lowercase() || c.is_uppercase() || !c.to_uppercase().eq([c]);
        match in_word {
            true => out.extend(c.to_lowercase()),
            false => out.push_str(&titlecased(c)),
        }
        in_word = cased;
    }
    out
}

fn swapcase(text: &str) -> String {
    let swap = |c: char| match c.is_uppercase() {
        true => c.to_lowercase().collect::<String>(),
        false => c.to_uppercase().collect(),
    };
    text.chars().map(swap).collect()
}
