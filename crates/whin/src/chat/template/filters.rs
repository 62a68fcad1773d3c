//! Filters and tests where the template engine's own differ from Jinja's, and the functions that transformers adds.

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State};

use super::clock::Clock;
use super::methods::{self, Args};
use super::operators;
use super::python::{
    JsonStyle, Text, as_float, charge, dumps, from_float, invalid, is_own_number, str_of, type_name,
};
use super::value::Range;
use super::{casing, collections, markup, operands};

/// The longest range, as in Jinja's sandbox.
const MAX_RANGE: u64 = 100_000;

/// What `raise_exception` was called with.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Makes the environment Jinja's and transformers'.
pub(super) fn add(env: &mut Environment<'static>, clock: Clock) {
    env.add_filter("tojson", tojson);
    env.add_filter("join", join);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("round", round);
    env.add_filter("replace", replace);
    env.add_filter("indent", indent);
    env.add_filter("center", |state: &State, value: &Value, width: Option<i64>| {
        methods::pad(state, &str_of(state, value)?, "center", width.unwrap_or(80), None)
    });
    env.add_filter("wordcount", wordcount);
    env.add_filter("truncate", truncate);
    env.add_filter("format", |state: &mut State, value: &Value, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        methods::charge_format(state, value.as_str().unwrap_or_default(), '%', &args)?;
        minijinja::filters::format(state, value, Rest(args.into_iter().map(ValueOrKwargs::from).collect()))
    });
    env.add_filter("map", |state: &mut State, value: Value, args: Rest<ValueOrKwargs>| {
        let args = counted_all(state, args)?;
        minijinja::filters::map(state, value, args)
    });
    env.add_filter("sum", sum);
    // Jinja does not have these.
    ["bool", "chain", "lines", "pprint", "split", "zip"].iter().for_each(|name| env.remove_filter(name));
    env.add_filter("whin_each", each);
    markup::add(env);
    collections::add(env);
    env.add_filter("dictsort", dictsort);
    env.add_filter("count", length);
    env.add_filter("length", length);
    add_tests(env);
    env.remove_global("debug");
    env.add_function("raise_exception", |state: &State, message: &Value| -> Result<Value, Error> {
        let message = str_of(state, message)?;
        Err(invalid(message.clone()).with_source(Raised(message)))
    });
    env.add_function("strftime_now", move |state: &State, format: &str| {
        charge(state, format.len().saturating_mul(16))?;
        clock.format(format)
    });
    env.add_function("range", range);
    env.add_function(operators::COUNTED, operands::counted);
    env.add_function(operators::STORED, operands::stored);
    env.add_function(operators::ADD, operands::add);
    env.add_function(operators::CONCAT, operands::concat);
}

fn add_tests(env: &mut Environment<'static>) {
    add_comparisons(env);
    let is_int = |value: &Value| value.is_integer() || type_name(value) == "int";
    env.add_test("integer", move |value: &Value| value.kind() != ValueKind::Bool && is_int(value));
    env.add_test("float", |value: &Value| as_float(value).is_some());
    env.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool) || is_own_number(value)
    });
    // Whatever has a length and takes subscripts, and so strings, dictionaries and even undefined values.
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    env.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable | ValueKind::Undefined
        )
    });
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain && !is_own_number(value));
    env.add_test("lower", |state: &State, value: &Value| {
        let text = str_of(state, value)?;
        Ok::<_, Error>(casing::is_cased(&text, char::is_lowercase, char::is_uppercase))
    });
    env.add_test("upper", |state: &State, value: &Value| {
        let text = str_of(state, value)?;
        Ok::<_, Error>(casing::is_cased(&text, char::is_uppercase, char::is_lowercase))
    });
}

/// The tests that compare, which pay for what they look at first.
fn add_comparisons(env: &mut Environment<'static>) {
    type Holds = fn(&Value, &Value) -> bool;
    let comparisons: [(&[&'static str], Holds); 6] = [
        (&["eq", "equalto", "=="], |a, b| a == b),
        (&["ne", "!="], |a, b| a != b),
        (&["lt", "lessthan", "<"], |a, b| a < b),
        (&["le", "<="], |a, b| a <= b),
        (&["gt", "greaterthan", ">"], |a, b| a > b),
        (&["ge", ">="], |a, b| a >= b),
    ];
    for (names, holds) in comparisons {
        for name in names {
            env.add_test(*name, move |state: &State, a: Value, b: Value| {
                Ok::<_, Error>(holds(&operands::counted(state, a)?, &operands::counted(state, b)?))
            });
        }
    }
    ["startingwith", "endingwith"].iter().for_each(|name| env.remove_test(name));
    env.add_test("in", |state: &State, item: Value, container: Value| {
        let (item, container) = (operands::counted(state, item)?, operands::counted(state, container)?);
        contains(state, &item, &container)
    });
}

/// Python's `item in container`.
fn contains(state: &State, item: &Value, container: &Value) -> Result<bool, Error> {
    if let Some(text) = container.as_str() {
        charge(state, text.len())?;
        let item = item.as_str();
        let item = item.ok_or_else(|| invalid("'in <string>' requires string as left operand"))?;
        return Ok(text.contains(item));
    }
    if container.kind() == ValueKind::Map {
        return Ok(container.as_object().is_some_and(|object| object.get_value(item).is_some()));
    }
    for other in container.try_iter()?.checked() {
        if other? == *item {
            return Ok(true);
        }
    }
    Ok(false)
}

fn tojson(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let args = Args::new("tojson", &args)?;
    let mut style = JsonStyle { ensure_ascii: args.flag(0, "ensure_ascii")?, ..JsonStyle::default() };
    if let Some(indent) = args.get(1, "indent")?.filter(|indent| !indent.is_none()) {
        style.indent = Some(match indent.as_str() {
            Some(indent) => indent.to_owned(),
            None => spaces(state, args.integer(1, "indent")?.unwrap_or(0))?,
        });
        style.item_separator = ",".to_owned();
    }
    if let Some(separators) = args.get(2, "separators")?.filter(|separators| !separators.is_none()) {
        let pair: Vec<Value> = separators.try_iter()?.take(3).collect();
        let [Some(item), Some(key)] = [0, 1].map(|index| pair.get(index).and_then(|value| value.as_str()))
        else {
            return Err(invalid("separators must be two strings"));
        };
        (style.item_separator, style.key_separator) = (item.to_owned(), key.to_owned());
    }
    style.sort_keys = args.flag(3, "sort_keys")?;
    args.finish(4)?;
    dumps(state, value, &style)
}

fn spaces(state: &State, count: i64) -> Result<String, Error> {
    let count = usize::try_from(count).unwrap_or(0);
    charge(state, count)?;
    Ok(" ".repeat(count))
}

fn join(state: &mut State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let args = Args::new("join", &args)?;
    let separator = args.get(0, "d")?.map_or(Ok(String::new()), |separator| str_of(state, &separator))?;
    let attribute = args.get(1, "attribute")?;
    args.finish(2)?;
    let items = attributes(state, value, attribute)?;
    let items = each(state, &items)?;
    let mut out = Text::new(state);
    for (index, item) in items.try_iter()?.checked().enumerate() {
        out.push(if index > 0 { &separator } else { "" })?;
        out.push(&str_of(state, &item?)?)?;
    }
    out.finish()
}

/// Python's `int`, by way of `float` where a text is none; the default where that fails too.
fn int(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let args = Args::new("int", &args)?;
    let default = args.get(0, "default")?.unwrap_or_else(|| Value::from(0));
    let base = args.integer(1, "base")?.unwrap_or(10);
    args.finish(2)?;
    if value.is_undefined() {
        return Err(undefined(value));
    }
    if value.kind() == ValueKind::Bool {
        return Ok(Value::from(i64::from(value.is_true())));
    }
    if value.is_integer() || type_name(value) == "int" {
        return Ok(value.clone());
    }
    if let Some(text) = value.as_str() {
        charge(state, text.len())?;
        if let Some(integer) = parse_integer(text, base) {
            return Ok(Value::from(integer));
        }
    }
    let float = as_float(value).or_else(|| value.as_str().and_then(parse_float));
    match float {
        // Floats of this size are whole numbers, but need not fit the engine's integers.
        Some(float) if float.abs() < 1e38 => Ok(Value::from(float as i128)),
        _ => Ok(default),
    }
}

fn parse_integer(text: &str, base: i64) -> Option<i128> {
    let text = methods::strip(text, None, true, true);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lowered = digits.to_ascii_lowercase();
    let prefixed =
        |prefix: &str| lowered.strip_prefix(prefix).map(|rest| rest.strip_prefix('_').unwrap_or(rest));
    let (digits, radix) = match (base, prefixed("0x"), prefixed("0o"), prefixed("0b")) {
        (0 | 16, Some(digits), _, _) => (digits, 16),
        (0 | 8, _, Some(digits), _) => (digits, 8),
        (0 | 2, _, _, Some(digits)) => (digits, 2),
        (0, ..) => (&*lowered, 10),
        (2..=36, ..) => (&*lowered, base as u32),
        _ => return None,
    };
    let is_spaced_well =
        !digits.starts_with(['_', '+', '-']) && !digits.ends_with('_') && !digits.contains("__");
    let signed = format!("{}{}", if negative { "-" } else { "" }, digits.replace('_', ""));
    i128::from_str_radix(&signed, radix).ok().filter(|_| is_spaced_well)
}

fn parse_float(text: &str) -> Option<f64> {
    let text = methods::strip(text, None, true, true);
    let is_spaced_well = text.split('_').all(|part| !part.is_empty());
    let is_number = text.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
    text.replace('_', "").parse().ok().filter(|_| is_number && (is_spaced_well || !text.contains('_')))
}

/// What an operation on an undefined value fails with.
pub(super) fn undefined(value: &Value) -> Error {
    // The engine names the variable in the message of an attribute.
    value.get_attr("x").err().unwrap_or_else(|| invalid("the value is undefined"))
}

fn float(value: &Value, default: Option<Value>) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(undefined(value));
    }
    let found = match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => as_float(value).or_else(|| f64::try_from(value.clone()).ok()),
        ValueKind::String => value.as_str().and_then(parse_float),
        _ => as_float(value),
    };
    Ok(found.map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), from_float))
}

fn round(value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let args = Args::new("round", &args)?;
    let precision = args.integer(0, "precision")?.unwrap_or(0).clamp(-400, 400) as i32;
    let method = args.optional_text(1, "method")?;
    args.finish(2)?;
    let number = match value.kind() {
        ValueKind::Number | ValueKind::Bool => f64::try_from(value.clone()).ok(),
        _ => as_float(value),
    };
    let Some(number) = number else {
        return Err(invalid(format!("type {} doesn't define __round__ method", type_name(value))));
    };
    let scale = 10f64.powi(precision);
    let rounded = match method.as_deref().unwrap_or("common") {
        "common" if as_float(value).is_none() && precision >= 0 => return int_of(value),
        "common" if precision >= 0 && number.is_finite() => {
            // Formatting rounds the exact number, and halves to even, as Python does.
            format!("{number:.*}", precision as usize).parse().unwrap_or(number)
        }
        // No number is so large that anything is left of it.
        "common" if precision < -308 => 0.0,
        "common" => (number * scale).round_ties_even() / scale,
        "ceil" => (number * scale).ceil() / scale,
        "floor" => (number * scale).floor() / scale,
        _ => return Err(invalid("method must be common, ceil or floor")),
    };
    if as_float(value).is_none() && method.as_deref().unwrap_or("common") == "common" {
        return Ok(Value::from(rounded as i128));
    }
    Ok(from_float(rounded))
}

fn int_of(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Bool => Ok(Value::from(i64::from(value.is_true()))),
        _ => Ok(value.clone()),
    }
}

fn replace(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let args = Args::new("replace", &args)?;
    let (Some(old), Some(new)) = (args.get(0, "old")?, args.get(1, "new")?) else {
        return Err(invalid("replace takes what to replace, and what to put in its place"));
    };
    let count = args.integer(2, "count")?;
    args.finish(3)?;
    let (text, old, new) = (str_of(state, value)?, str_of(state, &old)?, str_of(state, &new)?);
    methods::replace(state, &text, &old, &new, count)
}

fn indent(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let args = Args::new("indent", &args)?;
    let width = match args.get(0, "width")? {
        Some(width) if width.as_str().is_some() => width.as_str().unwrap_or_default().to_owned(),
        _ => spaces(state, args.integer(0, "width")?.unwrap_or(4))?,
    };
    let (first, blank) = (args.flag(1, "first")?, args.flag(2, "blank")?);
    args.finish(3)?;
    let Some(text) = value.as_str() else {
        return Err(invalid(format!("indent takes a str, not {}", type_name(value))));
    };
    let text = format!("{text}\n");
    let mut out = Text::new(state);
    for (index, line) in methods::lines(state, &text, false)?.into_iter().enumerate() {
        out.push(if index > 0 { "\n" } else { "" })?;
        let indented = if index == 0 { first } else { blank || !line.is_empty() };
        out.push(if indented { &width } else { "" })?;
        out.push(line)?;
    }
    out.finish()
}

/// Arguments that may be printed or looked up, paid for.
fn counted_all(state: &State, args: Rest<ValueOrKwargs>) -> Result<Rest<ValueOrKwargs>, Error> {
    let counted =
        args.into_values().into_iter().map(|arg| operands::counted(state, arg).map(ValueOrKwargs::from));
    Ok(Rest(counted.collect::<Result<_, _>>()?))
}

fn sum(state: &mut State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let args = Args::new("sum", &args)?;
    let attribute = args.get(0, "attribute")?;
    let start = args.get(1, "start")?.unwrap_or_else(|| Value::from(0));
    args.finish(2)?;
    let items = attributes(state, value, attribute)?;
    let mut sum = start;
    for item in items.try_iter()?.checked() {
        state.consume_fuel(1)?;
        sum = operands::add(state, Rest(vec![sum, item?]))?;
    }
    Ok(sum)
}

/// The values, or those of one attribute of each.
fn attributes(state: &mut State, value: &Value, attribute: Option<Value>) -> Result<Value, Error> {
    match attribute {
        Some(attribute) if !attribute.is_none() => {
            let by = [("attribute", attribute)].into_iter().collect::<Kwargs>();
            state.apply_filter("map", &[value.clone(), Value::from(by)])
        }
        _ => Ok(value.clone()),
    }
}

/// What a loop walks over.
pub(super) fn each(state: &State, value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            Err(invalid(format!("'{}' object is not iterable", type_name(value))))
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            charge(state, text.len().saturating_mul(32))?;
            Ok(Value::from(text.chars().map(Value::from).collect::<Vec<_>>()))
        }
        _ => Ok(value.clone()),
    }
}

fn dictsort(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let args = Args::new("dictsort", &args)?;
    let case_sensitive = args.flag(0, "case_sensitive")?;
    let by = args.optional_text(1, "by")?;
    let place = match by.as_deref().unwrap_or("key") {
        "key" => 0,
        "value" => 1,
        _ => return Err(invalid("You can only sort by either \"key\" or \"value\"")),
    };
    let reverse = args.flag(2, "reverse")?;
    args.finish(3)?;
    if value.kind() != ValueKind::Map {
        return Err(invalid(format!("'{}' object has no attribute 'items'", type_name(value))));
    }
    let mut pairs = Vec::new();
    for key in value.try_iter()?.checked() {
        let key = key?;
        // Sorting looks at each pair a few times.
        charge(state, 512)?;
        let pair = [key.clone(), value.get_item(&key)?];
        let sorted_by = match pair[place].as_str() {
            Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
            _ => pair[place].clone(),
        };
        pairs.push((operands::counted(state, sorted_by)?, pair));
    }
    pairs.sort_by(|a, b| if reverse { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) });
    Ok(Value::from(pairs.into_iter().map(|(_, pair)| Value::from(Tuple::from(pair))).collect::<Vec<_>>()))
}

fn wordcount(state: &State, value: &Value) -> Result<usize, Error> {
    let text = str_of(state, value)?;
    Ok(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count())
}

fn truncate(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let args = Args::new("truncate", &args)?;
    let length = args.integer(0, "length")?.unwrap_or(255);
    let kill_words = args.flag(1, "killwords")?;
    let end = args.optional_text(2, "end")?;
    let end = end.as_deref().unwrap_or("...");
    let leeway = args.integer(3, "leeway")?.unwrap_or(5);
    args.finish(4)?;
    let text = str_of(state, value)?;
    let kept = length - end.chars().count() as i64;
    if kept < 0 || leeway < 0 {
        return Err(invalid(format!("expected length >= {}, got {length}", end.chars().count())));
    }
    if text.chars().count() as i64 <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let kept: String = text.chars().take(kept as usize).collect();
    let kept = if kill_words { &kept } else { kept.rsplit_once(' ').map_or(&*kept, |(words, _)| words) };
    Ok(format!("{kept}{end}"))
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| invalid(format!("object of type '{}' has no len()", type_name(value))))
}

fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, stop) = second.map_or((0, first), |stop| (first, stop));
    let range = Range { start, stop, step: step.unwrap_or(1) };
    if range.step == 0 {
        return Err(invalid("range() arg 3 must not be zero"));
    }
    if range.len() > MAX_RANGE {
        let message =
            format!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE}).");
        return Err(invalid(message));
    }
    Ok(Value::from_object(range))
}
