//! What the template engine reads otherwise than Jinja, rewritten.

use std::borrow::Cow;

use minijinja::{Error, ErrorKind};

/// The longest line, in bytes, and the most lines: the engine counts both in 16 bits.
const MAX_LINE: usize = 60_000;

/// The longest tag, in bytes.
const MAX_TAG: usize = 32 << 10;

/// The most signs, `not` and opening brackets in a row.
const MAX_SIGNS: usize = 100;

/// Replaces `{% generation %}`, which transformers adds to Jinja, by `{% with %}`, and its end likewise: both only open a
/// scope. Keeps the line end behind `{% raw %}`, which Jinja does not take away. Checks what loops walk over. Text, comments
/// and strings stay as they are.
///
/// # Errors
/// Where lines or tags are so long that the engine could not read them, or would take too long to.
pub(super) fn for_the_engine(source: &str) -> Result<String, Error> {
    if source.split('\n').any(|line| line.len() > MAX_LINE) || source.matches('\n').count() > MAX_LINE {
        return Err(too_long(format!("a line of more than {MAX_LINE} bytes, or more lines than that")));
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let end = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |end| end + 2),
            Some(b'{') => end_of_tag(tag, "}}"),
            Some(b'%') if word(tag) == "raw" => end_of_raw(tag),
            Some(b'%') => end_of_tag(tag, "%}"),
            _ => 1,
        };
        let (tag, behind) = tag.split_at(end);
        let is_code = word(tag) != "raw" && !tag.starts_with("{#");
        if is_code {
            check(tag)?;
        }
        let tag = &*if is_code { with_joined_lines(tag) } else { Cow::Borrowed(tag) };
        match word(tag) {
            "" if tag.starts_with("{{") => out.push_str(&with_tuple(tag)),
            "block" => out.push_str(&without_name(tag, "with")),
            "endblock" => out.push_str(&without_name(tag, "endwith")),
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "for" => out.push_str(&with_checked_iterable(tag)),
            "raw" => out.push_str(&with_line_end(tag)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

fn too_long(what: String) -> Error {
    Error::new(ErrorKind::SyntaxError, format!("{what}, which is more than is allowed"))
}

/// The engine's parser descends with every sign and every `not` in a row, and builds trees as deep as a tag is long.
fn check(tag: &str) -> Result<(), Error> {
    if tag.len() > MAX_TAG {
        return Err(too_long(format!("a tag of more than {MAX_TAG} bytes")));
    }
    let mut in_a_row = 0;
    let tag = without_strings(tag);
    for word in tag.split_whitespace().flat_map(|word| word.split_inclusive(['-', '+', '('])) {
        in_a_row = if matches!(word, "not" | "-" | "+" | "(" | "not(") { in_a_row + 1 } else { 0 };
        if in_a_row > MAX_SIGNS {
            return Err(too_long(format!("more than {MAX_SIGNS} signs in a row")));
        }
    }
    Ok(())
}

/// Lines in strings go on behind a stroke.
fn with_joined_lines(tag: &str) -> Cow<'_, str> {
    if !tag.contains("\\\n") {
        return Cow::Borrowed(tag);
    }
    let mut out = String::with_capacity(tag.len());
    let mut chars = tag.chars();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => match chars.next() {
                Some('\n') => {}
                escaped => out.extend([c].into_iter().chain(escaped)),
            },
            (Some(open), c) => {
                quote = quote.filter(|_| c != open);
                out.push(c);
            }
            (None, c) => {
                quote = matches!(c, '"' | '\'').then_some(c);
                out.push(c);
            }
        }
    }
    Cow::Owned(out)
}

/// A tag with all its strings empty.
fn without_strings(tag: &str) -> String {
    let (mut quote, mut escaped) = (None, false);
    tag.chars()
        .filter(|&c| match quote {
            Some(_) if escaped => {
                escaped = false;
                false
            }
            Some(open) => {
                escaped = c == '\\';
                quote = quote.filter(|_| c != open);
                c == open
            }
            None => {
                quote = matches!(c, '"' | '\'').then_some(c);
                true
            }
        })
        .collect()
}

/// The first word of a block tag.
fn word(tag: &str) -> &str {
    let Some(inside) = tag.strip_prefix("{%") else { return "" };
    let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside).trim_start();
    let end = inside.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(inside.len());
    &inside[..end]
}

/// Where a tag ends, whose strings and brackets may hold the closing mark.
fn end_of_tag(tag: &str, mark: &str) -> usize {
    let bytes = tag.as_bytes();
    let (mut at, mut quote, mut depth) = (2, None, 0);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if depth == 0 && bytes[at..].starts_with(mark.as_bytes()) => return at + 2,
            (None, b'{' | b'[' | b'(') => depth += 1,
            (None, b'}' | b']' | b')') => depth = i32::max(depth - 1, 0),
            (None, _) => {}
        }
        at += 1;
    }
    bytes.len()
}

fn end_of_raw(tag: &str) -> usize {
    let mut at = 2;
    while let Some(next) = tag[at..].find("{%") {
        at += next;
        if word(&tag[at..]) == "endraw" {
            return at + end_of_tag(&tag[at..], "%}");
        }
        at += 2;
    }
    tag.len()
}

/// A loop over `(…) | whin_each`, a filter that refuses what Python does not iterate over, and has texts as lists.
fn with_checked_iterable(tag: &str) -> String {
    let Some(inside) = tag.strip_suffix("%}") else { return tag.to_owned() };
    let inside = inside.strip_suffix(['-', '+']).unwrap_or(inside);
    let words = top_level_words(inside);
    let Some(&(_, iterable)) = words.iter().find(|(word, _)| *word == "in") else { return tag.to_owned() };
    let behind = words.iter().find(|(word, at)| *at > iterable && matches!(*word, "if" | "recursive"));
    let end = behind.map_or(inside.len(), |(word, at)| at - word.len());
    if iterable > end || tag[iterable..end].trim().is_empty() {
        return tag.to_owned();
    }
    // The line ends inside stay where they are, for the line numbers of errors.
    format!("{} ({}) | whin_each {}", &tag[..iterable], &tag[iterable..end], &tag[end..])
}

/// A tag that prints several values, with brackets around them: a tuple.
fn with_tuple(tag: &str) -> String {
    let Some(inside) = tag.strip_prefix("{{").and_then(|inside| inside.strip_suffix("}}")) else {
        return tag.to_owned();
    };
    let opening = inside.len() - inside.strip_prefix(['-', '+']).unwrap_or(inside).len();
    let closing =
        inside[opening..].strip_suffix(['-', '+']).map_or(inside.len(), |rest| opening + rest.len());
    let printed = &inside[opening..closing];
    match has_top_level_comma(printed) {
        true => format!("{{{{{}({printed}){}}}}}", &inside[..opening], &inside[closing..]),
        false => tag.to_owned(),
    }
}

fn has_top_level_comma(tag: &str) -> bool {
    let mut depth = 0;
    without_strings(tag).chars().any(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// A block tag of another name and nothing more; its lines stay.
fn without_name(tag: &str, name: &str) -> String {
    let sign = |c: Option<char>| c.filter(|c| matches!(c, '-' | '+')).map_or(String::new(), String::from);
    let (first, last) = (tag.chars().nth(2), tag.strip_suffix("%}").and_then(|tag| tag.chars().last()));
    format!("{{%{} {name} {}{}%}}", sign(first), "\n".repeat(tag.matches('\n').count()), sign(last))
}

/// The words of a block tag outside of strings and brackets, each with the place behind it.
fn top_level_words(tag: &str) -> Vec<(&str, usize)> {
    let mut words = Vec::new();
    let (mut depth, mut quote, mut start, mut escaped) = (0, None, None, false);
    for (at, c) in tag.char_indices().skip(2).chain([(tag.len(), ' ')]) {
        let is_word = c.is_alphanumeric() || c == '_';
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if is_word => start = start.or(Some(at)),
            None => {
                if let Some(start) = start.take()
                    && depth == 0
                {
                    words.push((&tag[start..at], at));
                }
                match c {
                    '\'' | '"' => quote = Some(c),
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth -= 1,
                    _ => {}
                }
            }
        }
    }
    words
}

/// A raw block whose first line end is there twice, since the engine takes one away.
fn with_line_end(tag: &str) -> String {
    let (start, inside) = tag.split_at(end_of_tag(tag, "%}"));
    let doubled = if inside.starts_with('\n') && !start.ends_with("-%}") { "\n" } else { "" };
    format!("{start}{doubled}{inside}")
}

#[cfg(test)]
mod tests {
    use super::for_the_engine;

    #[test]
    fn lines_tags_and_signs_have_limits() {
        let dashes = "-".repeat(200);
        for source in [
            format!("{{{{ '{dashes}' }}}}"),
            format!("{dashes}{{# {dashes} #}}"),
            "{{ -1 - -1 }}".repeat(100),
        ] {
            assert_eq!(for_the_engine(&source).unwrap(), source);
        }
        for source in [
            format!("{{{{ '' {dashes} }}}}"),
            "x".repeat(60_001),
            format!("{{{{ '{}' }}}}", "x".repeat(40_000)),
        ] {
            assert!(for_the_engine(&source).is_err());
        }
    }

    #[test]
    fn only_the_tag_itself_is_rewritten() {
        for (source, rewritten) in [
            ("a{% generation %}b{%- endgeneration -%}c", "a{% with %}b{%- endwith -%}c"),
            ("{% generation %", "{% with %"),
            (
                "{{ '{% generation %}' }}{# {% generation %} #}",
                "{{ '{% generation %}' }}{# {% generation %} #}",
            ),
            (
                "{% raw %}{% generation %}{% endraw %}{%generation%}",
                "{% raw %}{% generation %}{% endraw %}{%with%}",
            ),
            ("{% set generation = 1 %}{{ generation }}", "{% set generation = 1 %}{{ generation }}"),
            ("{% if '%}' == \"\\\"%}\" %}{", "{% if '%}' == \"\\\"%}\" %}{"),
            ("{%- for x in y -%}", "{%- for x in ( y ) | whin_each -%}"),
            (
                "{% for a, b in c['in if'](d if e) if x %}",
                "{% for a, b in ( c['in if'](d if e) ) | whin_each if x %}",
            ),
            ("{%for x in[1]recursive%}", "{%for x in ([1]) | whin_each recursive%}"),
            ("{% for x of y %}{% for x in", "{% for x of y %}{% for x in"),
            ("{% raw %}\na{% endraw %}", "{% raw %}\n\na{% endraw %}"),
            ("{% raw -%}\na{% endraw %}", "{% raw -%}\na{% endraw %}"),
            (
                "{{ {'a': {'b': 1}} ~ '{% for x in y %}' }}{{x}}",
                "{{ {'a': {'b': 1}} ~ '{% for x in y %}' }}{{x}}",
            ),
            (
                "{{ a, b }}{{- 1, -}}{{ f(a, b) }}{{ 'a,' }}",
                "{{( a, b )}}{{-( 1, )-}}{{ f(a, b) }}{{ 'a,' }}",
            ),
            ("{%- block a scoped -%}b{% endblock\na %}", "{%- with -%}b{% endwith \n%}"),
            ("{{ 'a\\\nb' }}{{ 'a\\\\\nb' }}", "{{ 'ab' }}{{ 'a\\\\\nb' }}"),
            ("{% for x in %}", "{% for x in %}"),
            ("generation { %é{", "generation { %é{"),
        ] {
            assert_eq!(for_the_engine(source).unwrap(), rewritten);
        }
    }
}
