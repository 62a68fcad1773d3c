//! Grammars that would take all time or memory.

use std::time::{Duration, Instant};

use serde_json::json;
use whin::ErrorKind;
use whin::constrain::{Format, Grammar};

use super::walks::seedling;

/// Regular expressions.
fn expressions() -> Vec<(&'static str, Format)> {
    let schema = Format::json_schema;
    vec![
        ("nested repeats", Format::Regex("((a{1,1000}){1,1000}){1,1000}".into())),
        ("repeats of choices", Format::Regex("(a|b|ab|ba){1,100000}".into())),
        ("repeats in a pattern", schema(json!({ "pattern": "^((x{1,1000}){1,1000})$" }))),
        ("an exponential automaton", Format::Regex("(a|b)*a(a|b){200}".into())),
        (
            "patterns together",
            schema(
                json!({ "allOf": (1..40).map(|n| json!({ "pattern": format!("a.{{{n}}}b") })).collect::<Vec<_>>() }),
            ),
        ),
        ("nested groups", Format::Regex("(".repeat(30_000) + &")".repeat(30_000))),
        ("a long regex", Format::Regex("a".repeat(1 << 20))),
    ]
}

/// Schemas that hold much.
fn large_schemas() -> Vec<(&'static str, Format)> {
    let schema = Format::json_schema;
    let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "items": inner }));
    let names = |count: usize| {
        (0..count).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect::<serde_json::Map<_, _>>()
    };
    vec![
        ("deep schemas", schema(deep(60))),
        ("very deep schemas", schema(deep(1000))),
        ("a deep constant", schema(json!({ "const": (0..120).fold(json!(1), |inner, _| json!([inner])) }))),
        (
            "many properties",
            schema(json!({ "type": "object", "properties": names(10_000), "additionalProperties": false })),
        ),
        ("many optional properties", schema(json!({ "type": "object", "properties": names(1_000) }))),
        ("patterns of a format", schema(json!({ "format": "uri", "pattern": "(.a|.b|.c)*".repeat(2000) }))),
        (
            "a huge enum",
            schema(json!({ "enum": (0..50_000).map(|n| format!("value {n}")).collect::<Vec<_>>() })),
        ),
        ("a huge choice", Format::Choice((0..50_000).map(|n| format!("value {n}")).collect())),
        ("a larger choice", Format::Choice((0..500_000).map(|n| format!("value {n}")).collect())),
        (
            "huge counts",
            schema(json!({ "type": "array", "items": {}, "minItems": 1_000_000, "maxItems": 1_000_000 })),
        ),
        ("huge lengths", schema(json!({ "type": "string", "minLength": 999_999, "maxLength": 1_000_000 }))),
    ]
}

/// Schemas whose parts refer to each other, or meet.
fn winding_schemas() -> Vec<(&'static str, Format)> {
    let schema = Format::json_schema;
    let chain: serde_json::Map<_, _> = (0..2000)
        .map(|n| (format!("{n}"), json!({ "items": { "$ref": format!("#/$defs/{}", n + 1) } })))
        .collect();
    let doubling: serde_json::Map<_, _> = (0..30)
        .map(|n| {
            let next = json!({ "$ref": format!("#/$defs/{}", n + 1) });
            (format!("{n}"), if n == 29 { json!({}) } else { json!({ "allOf": [next, next] }) })
        })
        .collect();
    vec![
        ("long names", schema(json!({ "properties": { ("n".repeat(1 << 21)): {} } }))),
        ("a chain of references", schema(json!({ "$ref": "#/$defs/0", "$defs": chain }))),
        ("doubling references", schema(json!({ "$ref": "#/$defs/0", "$defs": doubling }))),
        (
            "products of unions",
            schema(
                json!({ "allOf": (0..20).map(|n| json!({ "anyOf": [{ "minimum": n }, { "maximum": n }, { "minLength": n }] })).collect::<Vec<_>>() }),
            ),
        ),
    ]
}

/// Grammars in Lark.
fn larks() -> Vec<(&'static str, Format)> {
    let rules: String = (0..9000).map(|n| format!("r{n}: r{}\n", n + 1)).collect();
    vec![
        ("intersections", Format::Lark(format!("start: T\nT: {}/x/", "/.*a.*/ & ".repeat(40)))),
        ("negations", Format::Lark(format!("start: T\nT: {}/x/", "~/.*a.*/ ".repeat(40)))),
        ("nested rules", Format::Lark(format!("start: r0\n{rules}r9000: \"a\""))),
        (
            "nested groups in Lark",
            Format::Lark(format!("start: {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000))),
        ),
        ("an ambiguous grammar", Format::Lark("start: a\na: a a a | \"x\" | \"\"".into())),
        ("left recursion", Format::Lark("start: start | start \"a\" | \"b\"".into())),
        ("a rule of itself", Format::Lark("start: start".into())),
        ("no rules", Format::Lark(String::new())),
        (
            "bounded repeats of repeats",
            Format::Lark("start: a{0,100000}\na: b~1000..100000\nb: \"x\"".into()),
        ),
    ]
}

/// The most memory that this process has had, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[test]
fn hostile_grammars_end_soon_and_without_harm() {
    let walker = seedling();
    for (name, format) in [expressions(), large_schemas(), winding_schemas(), larks()].concat() {
        let started = Instant::now();
        let outcome = Grammar::new(&format).and_then(|grammar| walker.grammars.compile(&grammar));
        let compiled = started.elapsed();
        let steps = outcome.and_then(|mut matcher| {
            // What compiles may still be costly to follow.
            for _ in 0..50 {
                let mask = matcher.mask()?;
                let Some(id) = walker.allowed(mask).first().copied() else { break };
                matcher.accept(id)?;
            }
            Ok(())
        });
        println!(
            "{name}: compiled in {compiled:?}, followed in {:?}: {steps:?}",
            started.elapsed() - compiled
        );
        assert!(compiled < Duration::from_secs(3), "{name}: {compiled:?}");
        assert!(started.elapsed() < Duration::from_secs(6), "{name}: {:?}", started.elapsed());
        if let Err(error) = steps {
            assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{name}: {error}");
        }
    }
    // Other tests of this process take some of it.
    if let Some(peak) = peak_memory() {
        assert!(peak < 800 << 20, "{peak} bytes");
    }
}

/// What would only turn out to be too large once an answer has gone some way.
#[test]
fn what_is_too_large_to_be_followed_is_refused_at_once() {
    let schema = Format::json_schema;
    let names = |count: usize, before: &str| {
        (0..count)
            .map(|n| (format!("{before}{n}$"), json!({ "type": "null" })))
            .collect::<serde_json::Map<_, _>>()
    };
    let halves = json!([{ "properties": names(300, "a") }, { "properties": names(300, "b") }]);
    let table = [
        (schema(json!({ "type": "object", "properties": names(900, "p") })), "900 properties that are not"),
        (schema(json!({ "type": "object", "allOf": halves })), "600 properties that are not"),
        (schema(json!({ "type": "object", "patternProperties": names(900, "^p") })), "900 patterns"),
        (schema(json!({ "type": "string", "minLength": 20_000 })), "20000 is more than"),
        (schema(json!({ "type": "string", "pattern": "^([a-z]{1,20} ?){1,2000}$" })), "written out"),
        (Format::Regex("([a-z]{1,20} ?){1,2000}".into()), "written out"),
    ];
    for (format, part) in table {
        let started = Instant::now();
        let error = Grammar::new(&format).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::InvalidArguments);
        assert!(error.to_string().contains(part), "{error}");
        assert!(started.elapsed() < Duration::from_secs(2), "{part}: {:?}", started.elapsed());
    }
}

/// Formats at the bounds, and answers that are long.
#[test]
fn what_is_accepted_at_the_bounds_can_be_followed() {
    let walker = seedling();
    let names = |count: usize, before: &str| {
        (0..count)
            .map(|n| (format!("{before}{n}$"), json!({ "type": "null" })))
            .collect::<serde_json::Map<_, _>>()
    };
    let object =
        |properties| json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let text = json!({ "type": "string", "minLength": 15_000, "maxLength": 16_384 });
    let all: Vec<String> = (0..400).map(|n| format!("\"p{n}$\": null")).collect();
    let table = [
        (Format::json_schema(object(names(400, "p"))), format!("{{{}}}", all.join(", "))),
        (
            Format::json_schema(json!({ "type": "object", "patternProperties": names(32, "^p"),
                "additionalProperties": false })),
            format!("{{{}}}", all[..32].join(", ").replace('$', "")),
        ),
        (Format::json_schema(text), format!("\"{}\"", "é😀\\n".repeat(5400))),
        (Format::Regex("[a-zé]{1,16000}".into()), "aé".repeat(8000)),
    ];
    for (format, answer) in table {
        let started = Instant::now();
        let mut matcher = walker.matcher(&format);
        let chars: Vec<char> = answer.chars().collect();
        for part in chars.chunks(chars.len().div_ceil(300)) {
            matcher.mask().unwrap();
            let part: String = part.iter().collect();
            assert!(matcher.accept_text(&part), "{part:?} of {format:?}");
        }
        assert!(matcher.is_accepting(), "{format:?}");
        println!("{:?}", started.elapsed());
    }
}

/// Lexers grow with what they read, long after they were compiled.
#[test]
fn grammars_that_have_grown_are_forgotten() {
    let walker = seedling();
    let format = |n: usize| {
        Format::json_schema(json!({ "type": "string", "pattern": format!("[a-e]*a.{{{}}}", 60 + n) }))
    };
    (0..64).for_each(|n| drop(walker.matcher(&format(n))));
    assert_eq!(walker.grammars.count(), 64);
    for n in 0..12 {
        let mut matcher = walker.matcher(&format(n));
        for step in 0..100 {
            let Ok(mask) = matcher.mask() else { break };
            let allowed = walker.allowed(mask);
            let Some(&id) = allowed.get((step * 7919 + n * 104_729) % allowed.len().max(1)) else { break };
            if walker.eos.contains(&id) || matcher.accept(id).is_err() {
                break;
            }
        }
    }
    drop(walker.matcher(&format(63)));
    assert!(walker.grammars.count() < 64);
}
