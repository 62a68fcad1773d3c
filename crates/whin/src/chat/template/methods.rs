//! The methods of Python's strings, dictionaries and lists that templates call. None of them changes its object: those
//! that would are refused, as transformers refuses them.

use std::sync::Arc;

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::python::{MAX_TEXT, Text, charge, invalid, quoted, type_name};

/// The arguments of a call, by place or by name.
pub(super) struct Args<'a> {
    method: &'a str,
    positional: &'a [Value],
    named: Option<Kwargs>,
}

impl<'a> Args<'a> {
    pub(super) fn new(method: &'a str, args: &'a [Value]) -> Result<Self, Error> {
        match args.split_last() {
            Some((last, positional)) if last.is_kwargs() => {
                Ok(Self { method, positional, named: Some(Kwargs::try_from(last.clone())?) })
            }
            _ => Ok(Self { method, positional: args, named: None }),
        }
    }

    /// The argument at `index`, or with that `name`.
    pub(super) fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        if let Some(value) = self.positional.get(index) {
            return Ok(Some(value.clone()));
        }
        match &self.named {
            Some(named) if named.has(name) => named.get(name).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn text(&self, index: usize, name: &str) -> Result<Arc<str>, Error> {
        match self.get(index, name)? {
            Some(value) => value.to_str().ok_or_else(|| {
                let found = type_name(&value);
                invalid(format!("{}() takes a str as argument {}, not {found}", self.method, index + 1))
            }),
            None => Err(invalid(format!("{}() lacks its argument {}", self.method, index + 1))),
        }
    }

    /// As [`Self::text`]; none where it is absent or None.
    pub(super) fn optional_text(&self, index: usize, name: &str) -> Result<Option<Arc<str>>, Error> {
        match self.get(index, name)? {
            Some(value) if !value.is_none() => self.text(index, name).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn integer(&self, index: usize, name: &str) -> Result<Option<i64>, Error> {
        match self.get(index, name)? {
            Some(value) if value.is_none() => Ok(None),
            Some(value) => match (value.kind(), value.as_i64()) {
                (ValueKind::Bool, _) => Ok(Some(i64::from(value.is_true()))),
                (ValueKind::Number, Some(integer)) if value.is_integer() => Ok(Some(integer)),
                _ => Err(invalid(format!("{}() takes an int, not {}", self.method, type_name(&value)))),
            },
            None => Ok(None),
        }
    }

    pub(super) fn flag(&self, index: usize, name: &str) -> Result<bool, Error> {
        Ok(self.get(index, name)?.is_some_and(|value| value.is_true()))
    }

    /// That there are no arguments beyond the first `most`, nor with names that nobody asked for.
    pub(super) fn finish(self, most: usize) -> Result<(), Error> {
        if self.positional.len() > most {
            let found = self.positional.len();
            return Err(invalid(format!("{}() takes at most {most} arguments, not {found}", self.method)));
        }
        self.named.map_or(Ok(()), |named| named.assert_all_used())
    }
}

/// Calls `method` of `value`.
///
/// # Errors
/// `UnknownMethod` where Python's type has none of that name, or none that templates need.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if changes_its_object(value.kind(), method) {
        let kind = type_name(value);
        return Err(invalid(format!("access to attribute '{method}' of '{kind}' object is unsafe.")));
    }
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            charge(state, text.len())?;
            string(state, text, method, args)
        }
        ValueKind::Map => dictionary(state, value, method, args),
        ValueKind::Seq => list(state, value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn changes_its_object(kind: ValueKind, method: &str) -> bool {
    match kind {
        ValueKind::Map => matches!(method, "clear" | "pop" | "popitem" | "setdefault" | "update"),
        ValueKind::Seq => {
            matches!(method, "append" | "clear" | "pop" | "reverse" | "insert" | "sort" | "extend" | "remove")
        }
        _ => false,
    }
}

fn dictionary(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Args::new(method, args)?;
    charge(state, value.len().unwrap_or(0) * 8)?;
    if method == "get" {
        let Some(key) = args.get(0, "key")? else {
            return Err(invalid("get expected at least 1 argument, got 0"));
        };
        let key = super::operators::counted(state, key)?;
        let default = args.get(1, "default")?;
        args.finish(2)?;
        let found = value.as_object().and_then(|object| object.get_value(&key));
        return Ok(found.or(default).unwrap_or_else(|| Value::from(())));
    }
    if !matches!(method, "keys" | "values" | "items" | "copy") {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    args.finish(0)?;
    let mut found = Vec::new();
    for key in value.try_iter()?.checked() {
        let key = key?;
        match method {
            "keys" => found.push(key),
            "values" => found.push(value.get_item(&key)?),
            "items" => {
                let item = value.get_item(&key)?;
                found.push(Value::from(Tuple::from([key, item])));
            }
            _ => return Ok(value.clone()),
        }
    }
    Ok(Value::from(found))
}

fn list(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Args::new(method, args)?;
    charge(state, value.len().unwrap_or(0) * 32)?;
    match method {
        "count" | "index" => {
            let Some(wanted) = args.get(0, "value")? else {
                return Err(invalid(format!("{method} expected at least 1 argument, got 0")));
            };
            args.finish(1)?;
            let wanted = super::operators::counted(state, wanted)?;
            let value = &super::operators::counted(state, value.clone())?;
            let mut count = 0;
            for (index, item) in value.try_iter()?.checked().enumerate() {
                if item? == wanted {
                    if method == "index" {
                        return Ok(Value::from(index));
                    }
                    count += 1;
                }
            }
            match method {
                "count" => Ok(Value::from(count)),
                _ => Err(invalid("the value is not in the list")),
            }
        }
        "copy" => {
            args.finish(0)?;
            Ok(value.clone())
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn string(state: &mut State, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    if method == "format" {
        refuse_wide_fields(text)?;
        args.iter().try_for_each(|arg| super::operators::counted(state, arg.clone()).map(drop))?;
        return format(FormatStyle::StrFormat, text, args).map(Value::from);
    }
    let args = Args::new(method, args)?;
    if let Some(value) = cases_and_classes(text, method) {
        args.finish(0)?;
        return Ok(value);
    }
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let chars = args.optional_text(0, "chars")?;
            args.finish(1)?;
            let (left, right) = (method != "rstrip", method != "lstrip");
            Ok(Value::from(strip(text, chars.as_deref(), left, right)))
        }
        "split" | "rsplit" => {
            let separator = args.optional_text(0, "sep")?;
            let most = args.integer(1, "maxsplit")?.and_then(|most| usize::try_from(most).ok());
            args.finish(2)?;
            split(state, text, separator.as_deref(), most, method == "rsplit")
        }
        "splitlines" => {
            let keep = args.flag(0, "keepends")?;
            args.finish(1)?;
            Ok(Value::from(lines(text, keep).into_iter().map(Value::from).collect::<Vec<_>>()))
        }
        "replace" => {
            let (old, new) = (args.text(0, "old")?, args.text(1, "new")?);
            let count = args.integer(2, "count")?;
            args.finish(3)?;
            replace(state, text, &old, &new, count).map(Value::from)
        }
        "join" => {
            let Some(items) = args.get(0, "iterable")? else {
                return Err(invalid("str.join() takes exactly one argument (0 given)"));
            };
            args.finish(1)?;
            join(state, text, &items)
        }
        "removeprefix" | "removesuffix" | "partition" | "rpartition" | "center" | "ljust" | "rjust"
        | "zfill" => ends_and_fields(state, text, method, args),
        _ => search(text, method, &args),
    }
}

/// The methods that cut a text at one place, or fill it up.
fn ends_and_fields(state: &State, text: &str, method: &str, args: Args) -> Result<Value, Error> {
    match method {
        "removeprefix" | "removesuffix" => {
            let affix = args.text(0, "affix")?;
            args.finish(1)?;
            let rest = match method {
                "removeprefix" => text.strip_prefix(&*affix),
                _ => text.strip_suffix(&*affix),
            };
            Ok(Value::from(rest.unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let separator = args.text(0, "sep")?;
            args.finish(1)?;
            partition(text, &separator, method == "rpartition")
        }
        _ => {
            let width = args.integer(0, "width")?.unwrap_or(0);
            let fill = args.optional_text(1, "fillchar")?;
            args.finish(2)?;
            pad(state, text, method, width, fill.as_deref())
        }
    }
}

/// The methods without arguments.
fn cases_and_classes(text: &str, method: &str) -> Option<Value> {
    let all = |is: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(is));
    Some(match method {
        "upper" => Value::from(text.to_uppercase()),
        "lower" => Value::from(text.to_lowercase()),
        "capitalize" => Value::from(capitalize(text)),
        "title" => Value::from(title(text)),
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

/// Whether `text` has some letter of the one case, and none of the other.
pub(super) fn is_cased(text: &str, one: fn(char) -> bool, other: fn(char) -> bool) -> bool {
    text.chars().any(one) && !text.chars().any(other)
}

/// What Python counts as white space.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    let goes = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
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

fn split(
    state: &State,
    text: &str,
    separator: Option<&str>,
    most: Option<usize>,
    from_the_right: bool,
) -> Result<Value, Error> {
    let Some(separator) = separator else {
        return Ok(split_at_spaces(text, most, from_the_right).into_iter().map(Value::from).collect());
    };
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let limit = most.map_or(usize::MAX, |most| most.saturating_add(1));
    // Each piece takes more than the separator that ends it.
    charge(state, text.matches(separator).take(limit).count() * 32)?;
    let mut pieces: Vec<Value> = match from_the_right {
        false => text.splitn(limit, separator).map(Value::from).collect(),
        true => text.rsplitn(limit, separator).map(Value::from).collect(),
    };
    if from_the_right {
        pieces.reverse();
    }
    Ok(Value::from(pieces))
}

fn split_at_spaces(text: &str, most: Option<usize>, from_the_right: bool) -> Vec<&str> {
    let most = most.unwrap_or(usize::MAX);
    let mut pieces = Vec::new();
    let mut rest = strip(text, None, !from_the_right, from_the_right);
    while !rest.is_empty() && pieces.len() < most {
        let cut = if from_the_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(at) = cut else { break };
        let after = at + rest[at..].chars().next().map_or(0, char::len_utf8);
        let (piece, remaining) =
            if from_the_right { (&rest[after..], &rest[..at]) } else { (&rest[..at], &rest[after..]) };
        pieces.push(piece);
        rest = strip(remaining, None, !from_the_right, from_the_right);
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    if from_the_right {
        // What is left over when the splits are used up keeps the blanks on its other side only.
        pieces.reverse();
    }
    pieces
}

/// `str.splitlines`.
pub(super) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let ends = matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        );
        if !ends {
            continue;
        }
        let mut next = at + c.len_utf8();
        if c == '\r' && chars.next_if(|(_, c)| *c == '\n').is_some() {
            next += 1;
        }
        lines.push(&text[start..if keep_ends { next } else { at }]);
        start = next;
    }
    if start < text.len() {
        lines.push(&text[start..]);
    }
    lines
}

pub(super) fn replace(
    state: &State,
    text: &str,
    old: &str,
    new: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let found = text.matches(old).take(most).count();
    charge(state, text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(text.replacen(old, new, most))
}

fn partition(text: &str, separator: &str, from_the_right: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let cut = if from_the_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match cut {
        Some((before, after)) => [before, separator, after],
        None if from_the_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn join(state: &State, separator: &str, items: &Value) -> Result<Value, Error> {
    let mut out = Text::new(state);
    for (index, item) in items.try_iter()?.checked().enumerate() {
        let item = item?;
        let Some(item) = item.as_str() else {
            let found = type_name(&item);
            return Err(invalid(format!("sequence item {index}: expected str instance, {found} found")));
        };
        out.push(if index > 0 { separator } else { "" })?;
        out.push(item)?;
    }
    out.finish().map(Value::from)
}

/// `text` in the middle of a field, or at one of its sides.
pub(super) fn pad(
    state: &State,
    text: &str,
    method: &str,
    width: i64,
    fill: Option<&str>,
) -> Result<Value, Error> {
    let fill = if method == "zfill" { "0" } else { fill.unwrap_or(" ") };
    if fill.chars().count() != 1 {
        return Err(invalid("The fill character must be exactly one character long"));
    }
    let length = text.chars().count();
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(length);
    charge(state, text.len().saturating_add(missing.saturating_mul(fill.len())))?;
    let left = match method {
        "ljust" => 0,
        // Where the two sides cannot be alike, Python looks at the width too.
        "center" => missing / 2 + (missing & (length + missing) & 1),
        _ => missing,
    };
    let (sign, digits) = match method == "zfill" && text.starts_with(['+', '-']) {
        true => text.split_at(1),
        false => ("", text),
    };
    Ok(Value::from(format!("{sign}{}{digits}{}", fill.repeat(left), fill.repeat(missing - left))))
}

/// The methods that look for a part of the text.
fn search(text: &str, method: &str, args: &Args) -> Result<Value, Error> {
    if !matches!(method, "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count") {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    let (text, before) = window(text, args.integer(1, "start")?, args.integer(2, "end")?);
    if let "startswith" | "endswith" = method {
        return affix(text, method, args);
    }
    let wanted = args.text(0, "sub")?;
    if method == "count" {
        return Ok(Value::from(text.map_or(0, |text| text.matches(&*wanted).count())));
    }
    let found = text.and_then(|text| {
        let at = if method.starts_with('r') { text.rfind(&*wanted) } else { text.find(&*wanted) };
        at.map(|at| before + text[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if method.ends_with("find") => Ok(Value::from(-1)),
        None => Err(invalid("substring not found")),
    }
}

/// The characters from `start` to `end`, and how many are before them; none where the start is behind the end.
fn window(text: &str, start: Option<i64>, end: Option<i64>) -> (Option<&str>, usize) {
    if start.is_none() && end.is_none() {
        return (Some(text), 0);
    }
    let length = text.chars().count() as i64;
    let place = |index: i64| if index < 0 { (index + length).max(0) } else { index };
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(length)).min(length));
    if start > end {
        return (None, 0);
    }
    let byte = |index: i64| text.char_indices().nth(index as usize).map_or(text.len(), |(at, _)| at);
    (Some(&text[byte(start)..byte(end)]), start as usize)
}

fn affix(text: Option<&str>, method: &str, args: &Args) -> Result<Value, Error> {
    let fits = |affix: &str| {
        text.is_some_and(
            |text| if method == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) },
        )
    };
    let Some(wanted) = args.get(0, "affix")? else {
        return Err(invalid(format!("{method} expected at least 1 argument, got 0")));
    };
    if !wanted.is_tuple() {
        return Ok(Value::from(fits(&args.text(0, "affix")?)));
    }
    for affix in wanted.try_iter()?.checked() {
        let affix = affix?;
        match affix.as_str() {
            Some(affix) if fits(affix) => return Ok(Value::from(true)),
            Some(_) => {}
            None => {
                let found = type_name(&affix);
                return Err(invalid(format!("tuple for {method} must only contain str, not {found}")));
            }
        }
    }
    Ok(Value::from(false))
}

/// Refuses a format whose width or precision has more than four digits.
pub(super) fn refuse_wide_fields(format: &str) -> Result<(), Error> {
    let widest = format.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if widest > 4 && format.len() < MAX_TEXT && has_wide_field(format) {
        return Err(invalid(format!("the format {} asks for too wide a field", quoted(format))));
    }
    Ok(())
}

/// Whether a number of more than four digits stands between a brace or a per cent sign and the end of its field.
fn has_wide_field(format: &str) -> bool {
    format.split(['{', '%']).skip(1).any(|field| {
        let spec: &str = field.split(['}', ' ']).next().unwrap_or(field);
        spec.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 4)
    })
}
