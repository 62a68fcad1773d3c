//! Keywords that the compiler gets wrong, or cannot follow, once those of several parts hold together.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Case, Clash, Part, Types, list, map};

/// Properties that may be left out of one object: the compiler keeps several ways to go on for each.
const MAX_OPTIONAL: usize = 400;

/// Patterns of names in one object: the compiler compares each with each.
const MAX_PATTERNS: usize = 32;

/// Bytes of these patterns.
const MAX_PATTERN_BYTES: usize = 2000;

/// The least common multiple of several `multipleOf`, which is the number of remainders to keep apart.
const LARGEST_MULTIPLE: u64 = 1000;

/// What is wrong with the cases of one spot, each thing once.
pub(super) fn check(cases: &[Case<'_>], place: &dyn Fn() -> String) -> Option<Clash> {
    for case in cases {
        if let Some(why) = too_large(case) {
            return Some(Clash::Hard(format!("{}: {why}", place())));
        }
    }
    let why = cases.iter().filter(|case| case.len() > 1).find_map(|case| inexact(case))?;
    Some(Clash::Soft(format!("{}: {why}", place())))
}

fn too_large(case: &[Part<'_>]) -> Option<String> {
    let patterns: BTreeSet<&str> = names(case, "patternProperties").collect();
    let bytes: usize = patterns.iter().map(|pattern| pattern.len()).sum();
    if patterns.len() > MAX_PATTERNS || patterns.len() > 1 && bytes > MAX_PATTERN_BYTES {
        return Some(format!(
            "\"patternProperties\" has {} patterns of {bytes} bytes together, and {MAX_PATTERNS} of \
             {MAX_PATTERN_BYTES} are the most",
            patterns.len()
        ));
    }
    let declared: BTreeSet<&str> = names(case, "properties").collect();
    if declared.len() <= MAX_OPTIONAL {
        return None;
    }
    let required: BTreeSet<&str> =
        case.iter().flat_map(|part| list(part, "required")).filter_map(Value::as_str).collect();
    let optional = declared.difference(&required).count();
    (optional > MAX_OPTIONAL).then(|| {
        format!("{optional} properties that are not in \"required\", and {MAX_OPTIONAL} are the most")
    })
}

fn names<'a>(case: &'a [Part<'_>], keyword: &'a str) -> impl Iterator<Item = &'a str> {
    case.iter().flat_map(move |part| map(part, keyword)).map(|(name, _)| name.as_str())
}

/// What the compiler would take for something else.
fn inexact(case: &[Part<'_>]) -> Option<String> {
    let types = Types::of(case);
    let factors: BTreeSet<String> =
        case.iter().filter_map(|part| part.get("multipleOf")).map(Value::to_string).collect();
    if factors.len() > 1 && types.any_other && common_multiple(&factors).is_none() {
        let all: Vec<&str> = factors.iter().map(String::as_str).collect();
        return Some(format!(
            "\"multipleOf\" cannot be enforced as {} at once, but for whole numbers with a common multiple of at \
             most {LARGEST_MULTIPLE}",
            super::super::shortened(all.join(" and "), super::super::LONGEST_QUOTE)
        ));
    }
    let lower = bound(case, ["minimum", "exclusiveMinimum"], f64::max, |one, other| one >= other);
    let upper = bound(case, ["maximum", "exclusiveMaximum"], f64::min, |one, other| one <= other);
    let ((lower, exclusive_lower), (upper, exclusive_upper)) = (lower?, upper?);
    if !types.number || upper - lower >= 1.0 {
        return None;
    }
    let keyword = match () {
        () if exclusive_lower && lower.fract() == 0.0 => "exclusiveMinimum",
        () if exclusive_upper && upper.fract() == 0.0 => "exclusiveMaximum",
        () => return None,
    };
    Some(format!(
        "\"{keyword}\" cannot be enforced at a whole number, with the other bound less than 1 away, where several \
         schemas hold together"
    ))
}

/// The bound of all parts, and whether it is an exclusive one.
fn bound(
    case: &[Part<'_>],
    [inclusive, exclusive]: [&str; 2],
    tighter: fn(f64, f64) -> f64,
    holds: fn(f64, f64) -> bool,
) -> Option<(f64, bool)> {
    let all = |keyword: &str| case.iter().filter_map(|part| part.get(keyword)?.as_f64()).reduce(tighter);
    match (all(inclusive), all(exclusive)) {
        (Some(with), Some(without)) if holds(without, with) => Some((without, true)),
        (Some(with), _) => Some((with, false)),
        (None, Some(without)) => Some((without, true)),
        (None, None) => None,
    }
}

/// The least common multiple of whole numbers, if it is small enough.
fn common_multiple(factors: &BTreeSet<String>) -> Option<u64> {
    factors.iter().try_fold(1_u64, |all, factor| {
        let factor = factor.parse::<u64>().ok().filter(|factor| (1..=LARGEST_MULTIPLE).contains(factor))?;
        let (mut one, mut other) = (all, factor);
        while other != 0 {
            (one, other) = (other, one % other);
        }
        Some(all / one * factor).filter(|multiple| *multiple <= LARGEST_MULTIPLE)
    })
}
