//! The methods of Python's strings, dictionaries and lists that templates call. None of them changes its object: those
//! that would are refused, as transformers refuses them.

use std::sync::Arc;

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::casing::{cases_and_classes, expand_tabs};
use super::python::{MAX_TEXT, Text, charge, invalid, quoted, repr_of, type_name};

/// What a piece of a text takes in a list, in bytes: as a slice, and as a value.
const PIECE: usize = 48;

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
    if method == super::operators::MEASURE {
        // The engine has charged for it.
        return if value.is_undefined() { Err(super::filters::undefined(value)) } else { Ok(value.clone()) };
    }
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            charge(state, text.len())?;
            if !value.is_safe() {
                return string(state, text, method, args);
            }
            let mut args = args.to_vec();
            if let ("replace", Some(new)) =
                (method, args.get_mut(1).filter(|new| !new.is_safe() && !new.is_kwargs()))
            {
                *new = Value::from_safe_string(super::markup::escaped(state, new)?);
            }
            string(state, text, method, &args).map(safe)
        }
        ValueKind::Map => dictionary(state, value, method, args),
        ValueKind::Seq => list(state, value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// What a method of markup gives is markup again, and so is each of a list.
fn safe(found: Value) -> Value {
    if let Some(text) = found.as_str() {
        return Value::from_safe_string(text.to_owned());
    }
    match (found.kind(), found.try_iter()) {
        (ValueKind::Seq, Ok(items)) if found.is_tuple() => {
            Value::from(Tuple::from(items.map(safe).collect::<Vec<_>>()))
        }
        (ValueKind::Seq, Ok(items)) => Value::from(items.map(safe).collect::<Vec<_>>()),
        _ => found,
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
        let key = super::operands::counted(state, key)?;
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
            let wanted = super::operands::counted(state, wanted)?;
            let value = &super::operands::counted(state, value.clone())?;
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
        charge_format(state, text, '{', args)?;
        return format(FormatStyle::StrFormat, text, args).map(Value::from);
    }
    let args = Args::new(method, args)?;
    if matches!(method, "upper" | "lower" | "capitalize" | "title" | "swapcase" | "casefold") {
        charge_case(state, text)?;
    }
    if let Some(value) = cases_and_classes(text, method) {
        args.finish(0)?;
        return Ok(value);
    }
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let chars = args.optional_text(0, "chars")?;
            args.finish(1)?;
            charge(state, chars.as_ref().map_or(0, |chars| chars.len()))?;
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
            Ok(Value::from(lines(state, text, keep)?.into_iter().map(Value::from).collect::<Vec<_>>()))
        }
        "expandtabs" => {
            let size = args.integer(0, "tabsize")?.unwrap_or(8);
            args.finish(1)?;
            expand_tabs(state, text, size)
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
        _ => search(state, text, method, &args),
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

/// What Python counts as white space.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Characters to look up: a bit for each where they are many.
enum CharSet<'t> {
    Few(&'t str),
    Many(Vec<u64>),
}

impl<'t> CharSet<'t> {
    fn new(chars: &'t str) -> Self {
        if chars.len() <= 64 {
            return Self::Few(chars);
        }
        let mut bits = vec![0; u32::from(char::MAX) as usize / 64 + 1];
        for c in chars.chars().map(|c| u32::from(c) as usize) {
            bits[c / 64] |= 1 << (c % 64);
        }
        Self::Many(bits)
    }

    fn contains(&self, c: char) -> bool {
        let at = u32::from(c) as usize;
        match self {
            Self::Few(chars) => chars.contains(c),
            Self::Many(bits) => bits[at / 64] & (1 << (at % 64)) != 0,
        }
    }
}

pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    let set = chars.map(CharSet::new);
    let goes = |c: char| set.as_ref().map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
}

fn split(
    state: &State,
    text: &str,
    separator: Option<&str>,
    most: Option<usize>,
    from_the_right: bool,
) -> Result<Value, Error> {
    let Some(separator) = separator else {
        let blanks =
            text.split(is_space).filter(|piece| !piece.is_empty()).take(most.unwrap_or(usize::MAX)).count();
        charge(state, blanks.saturating_mul(PIECE))?;
        let pieces = split_at_spaces(text, most, from_the_right);
        return Ok(Value::from(pieces.into_iter().map(Value::from).collect::<Vec<_>>()));
    };
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let limit = most.map_or(usize::MAX, |most| most.saturating_add(1));
    // Each piece takes more than the separator that ends it.
    charge(state, text.matches(separator).take(limit).count().saturating_mul(PIECE))?;
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
pub(super) fn lines<'t>(state: &State, text: &'t str, keep_ends: bool) -> Result<Vec<&'t str>, Error> {
    charge(state, text.chars().filter(|c| ends_line(*c)).count().saturating_mul(PIECE))?;
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !ends_line(c) {
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
    Ok(lines)
}

fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
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
fn search(state: &State, text: &str, method: &str, args: &Args) -> Result<Value, Error> {
    if !matches!(method, "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count") {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    let (text, before) = window(text, args.integer(1, "start")?, args.integer(2, "end")?);
    if let "startswith" | "endswith" = method {
        return affix(state, text, method, args);
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

fn affix(state: &State, text: Option<&str>, method: &str, args: &Args) -> Result<Value, Error> {
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
        charge(state, affix.as_str().map_or(0, str::len).min(text.map_or(0, str::len)))?;
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

/// Pays for the letters of a text in another case: some become three.
pub(super) fn charge_case(state: &State, text: &str) -> Result<(), Error> {
    charge(state, if text.is_ascii() { text.len() } else { text.len().saturating_mul(3) })
}

/// Pays for all that a format could make of `args`: each of its fields, which begin with `mark`, the longest of them.
pub(super) fn charge_format(state: &State, format: &str, mark: char, args: &[Value]) -> Result<(), Error> {
    let mut longest = 0;
    for arg in args {
        longest = longest.max(match arg.as_str() {
            Some(text) => text.len(),
            None => repr_of(state, arg)?.len(),
        });
    }
    let widest =
        format.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<usize>().ok()).max();
    let fields = format.matches(mark).count();
    let field = longest.max(widest.unwrap_or(0).min(WIDEST)).saturating_add(8);
    charge(state, format.len().saturating_add(fields.saturating_mul(field)))
}

/// The widest field of a format.
const WIDEST: usize = 9999;

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
