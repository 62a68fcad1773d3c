//! Filters and functions over lists and dictionaries, which pay for what they look at before they do. Knows nothing of
//! texts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State};

use super::filters::{each, undefined};
use super::methods::Args;
use super::operands;
use super::python::{charge, invalid, type_name};

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("list", list);
    for name in ["default", "d"] {
        env.add_filter(name, default);
    }
    env.add_filter("sort", |state: &State, value: Value, args: Rest<ValueOrKwargs>| {
        let named = named(args, "sort", &["reverse", "case_sensitive", "attribute"])?;
        minijinja::filters::sort(state, operands::ordered(state, value)?, named)
    });
    env.add_filter("unique", |state: &State, value: Value, args: Rest<ValueOrKwargs>| {
        let named = named(args, "unique", &["case_sensitive", "attribute"])?;
        minijinja::filters::unique(state, operands::ordered(state, value)?, named)
    });
    env.add_filter("min", |state: &State, value: Value, args: Rest<ValueOrKwargs>| {
        let named = named(args, "min", &["case_sensitive", "attribute"])?;
        minijinja::filters::min(state, operands::ordered(state, value)?, named)
    });
    env.add_filter("max", |state: &State, value: Value, args: Rest<ValueOrKwargs>| {
        let named = named(args, "max", &["case_sensitive", "attribute"])?;
        minijinja::filters::max(state, operands::ordered(state, value)?, named)
    });
    env.add_filter("groupby", |state: &State, value: Value, by: Option<&str>, named: Kwargs| {
        minijinja::filters::groupby(operands::ordered(state, value)?, by, named)
    });
    env.add_function("dict", dict);
    env.add_function("cycler", |items: Rest<Value>| match items.is_empty() {
        true => Err(invalid("at least one item has to be provided")),
        false => Ok(Value::from_object(Cycler { items: items.0, at: AtomicUsize::new(0) })),
    });
    env.add_function("joiner", |separator: Option<Value>| {
        let separator = separator.unwrap_or_else(|| Value::from(", "));
        Value::from_object(Joiner { separator, used: AtomicBool::new(false) })
    });
}

/// Arguments by place with the names that they have in Jinja: the engine takes them by name only.
fn named(args: Rest<ValueOrKwargs>, filter: &str, names: &[&str]) -> Result<Kwargs, Error> {
    let args = args.into_values();
    let args = Args::new(filter, &args)?;
    let mut given = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if let Some(value) = args.get(index, name)? {
            given.push((*name, value));
        }
    }
    args.finish(names.len())?;
    Ok(given.into_iter().collect())
}

fn list(state: &State, value: Value) -> Result<Value, Error> {
    minijinja::filters::list(state, each(state, &value)?)
}

fn default(value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let args = Args::new("default", &args)?;
    let other = args.get(0, "default_value")?.unwrap_or_else(|| Value::from(""));
    let lax = args.flag(1, "boolean")?;
    args.finish(2)?;
    Ok(if value.is_undefined() || lax && !value.is_true() { other } else { value })
}

/// `dict(mapping or pairs, name=value, …)`.
fn dict(state: &State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let mut entries = Vec::new();
    let args = args.into_values();
    let places = args.iter().filter(|arg| !arg.is_kwargs()).count();
    if places > 1 {
        return Err(invalid(format!("dict expected at most 1 argument, got {places}")));
    }
    for arg in &args {
        if arg.is_undefined() {
            return Err(undefined(arg));
        }
        charge(state, arg.len().unwrap_or(0).saturating_mul(64))?;
        for item in each(state, arg)?.try_iter()?.checked() {
            let item = item?;
            if arg.kind() == ValueKind::Map {
                let value = arg.get_item(&item)?;
                entries.push((item, value));
                continue;
            }
            let mut pair = each(state, &item)?.try_iter()?;
            let (Some(key), Some(value), None) = (pair.next(), pair.next(), pair.next()) else {
                return Err(invalid("each element of a dictionary that is updated must be a pair"));
            };
            entries.push((operands::counted(state, key)?, value));
        }
    }
    Ok(Value::from_pairs(entries))
}

/// What `cycler(…)` gives.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Cycler {
    fn current(&self) -> Option<Value> {
        self.items.get(self.at.load(Ordering::Relaxed)).cloned()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if key.as_str()? == "current" { self.current() } else { None }
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        _: &[Value],
    ) -> Result<Value, Error> {
        let at = self.at.load(Ordering::Relaxed);
        match method {
            "next" => {
                let found = self.current();
                self.at.store((at + 1) % self.items.len().max(1), Ordering::Relaxed);
                Ok(found.unwrap_or_default())
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<cycler>")
    }
}

/// What `joiner(…)` gives: nothing when it is called first, the separator later.
#[derive(Debug)]
struct Joiner {
    separator: Value,
    used: AtomicBool,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        if !args.is_empty() {
            return Err(invalid(format!("a joiner takes no {}", type_name(&args[0]))));
        }
        let used = self.used.swap(true, Ordering::Relaxed);
        Ok(if used { self.separator.clone() } else { Value::from("") })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<joiner>")
    }
}
