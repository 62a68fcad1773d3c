//! Pieces of text in `llguidance`'s dialect of Lark.

use super::schema::alternatives;
use crate::{Error, ErrorKind, Result};

/// How deep groups may be nested: the parser calls itself for each.
const MAX_NESTING: usize = 200;

/// Rules and terminals. Each may be made of the next.
const MAX_RULES: usize = 10_000;

/// Alternatives of terminals that are intersected or negated, in all combinations: the compiler follows them in steps that
/// it does not interrupt.
const MAX_COMBINATIONS: f64 = 1e5;

/// `text` as a literal.
pub(super) fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            '\0'..'\x20' | '\x7f' => quoted += &format!("\\u{:04x}", char as u32),
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// A regular expression as a terminal.
pub(super) fn regex(regex: &str) -> String {
    // Two slashes begin a comment.
    if regex.is_empty() {
        return literal("");
    }
    format!("/{}/", llguidance::regex_to_lark(regex, ""))
}

/// A grammar of several texts.
pub(super) fn choice(choices: &[String]) -> String {
    let full: Vec<String> =
        choices.iter().filter(|text| !text.is_empty()).map(|text| literal(text)).collect();
    let empty = full.len() < choices.len();
    match (full.is_empty(), empty) {
        (true, _) => "start: \"\"\n".into(),
        (false, false) => format!("start: CHOICE\nCHOICE: {}\n", full.join(" | ")),
        (false, true) => format!("start: CHOICE | \"\"\nCHOICE: {}\n", full.join(" | ")),
    }
}

/// Refuses what is nested too deep for the parser, which calls itself for each group and each rule within a rule. Texts,
/// regular expressions and comments are passed over.
pub(super) fn check(grammar: &str) -> Result<()> {
    let (mut depth, mut negations, mut rules, mut joints) = (0_usize, 0_usize, 0_usize, 0_i32);
    let mut chars = grammar.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '/' if chars.peek() == Some(&'/') => while chars.next_if(|&char| char != '\n').is_some() {},
            '"' | '/' => {
                while let Some(inner) = chars.next_if(|&inner| inner != char && inner != '\n') {
                    if inner == '\\' {
                        chars.next();
                    }
                }
                chars.next();
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' => rules += 1,
            '&' => joints += 1,
            // What is followed by a number is a repetition.
            '~' if !chars.peek().is_some_and(|char| char.is_ascii_digit() || *char == ' ') => joints += 1,
            _ => {}
        }
        negations = match char {
            '~' => negations + 1,
            ' ' | '\t' | '\n' => negations,
            _ => 0,
        };
        let refuse = |why: String| Err(Error::new(ErrorKind::InvalidArguments, format!("the grammar {why}")));
        if depth > MAX_NESTING || negations > MAX_NESTING {
            return refuse(format!(
                "nests groups more than {MAX_NESTING} deep: give parts of them rules of their own"
            ));
        }
        if rules > MAX_RULES {
            return refuse(format!("has more than {MAX_RULES} rules"));
        }
    }
    if joints > 0 && alternatives(grammar).powi(joints + 1) > MAX_COMBINATIONS {
        return Err(Error::new(
            ErrorKind::InvalidArguments,
            "the grammar intersects or negates too many terminals (&, ~) with too many alternatives",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_hold_any_text() {
        assert_eq!(literal("a\"\\\n\x7f\0é"), "\"a\\\"\\\\\\u000a\\u007f\\u0000é\"");
    }

    #[test]
    fn only_groups_count_as_nesting() {
        let deep = "(".repeat(300);
        assert!(check(&format!("start: {deep}\"a\"")).is_err());
        assert!(check(&"(\n".repeat(300)).is_err());
        assert!(check(&"~ ".repeat(300)).is_err());
        assert!(check(&"a: b\n".repeat(20_000)).is_err());
        assert!(check(&format!("start: \"{deep}\" | /\\/{deep}/ // {deep}")).is_ok());
        assert!(check("start: (\"a\"\n| \"b\")").is_ok());
    }
}
