//! Enforced formats: whatever is drawn from the allowed tokens is an answer of the form that was asked for.

#[allow(dead_code)]
mod walks;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use walks::{Walker, qwen3, seedling};
use whin::ErrorKind;
use whin::constrain::{Format, Grammar, Strictness};

/// Schemas of all that is enforced.
fn schemas() -> Vec<Value> {
    vec![
        json!(true),
        json!({ "type": "object" }),
        json!({ "type": ["string", "null"], "maxLength": 5 }),
        json!({ "type": "object", "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 20 },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "tags": { "type": "array", "items": { "enum": ["a", "b\"\\", "ü", 3, null, 0.5] }, "minItems": 1, "maxItems": 3 },
        }, "required": ["name", "tags"], "additionalProperties": false }),
        json!({ "type": "object", "properties": { "a": { "type": "integer" } } }),
        json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a", "z"],
            "additionalProperties": { "type": "boolean" }, "maxProperties": 4 }),
        json!({ "type": "object", "patternProperties": { "^x": { "type": "integer" } }, "additionalProperties": false,
            "minProperties": 1 }),
        json!({ "type": "object", "additionalProperties": { "type": "null" }, "minProperties": 1 }),
        json!({ "$defs": { "node": { "type": "object", "properties": {
            "value": { "type": "integer", "minimum": -5, "exclusiveMaximum": 5 },
            "next": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] },
        }, "required": ["value", "next"], "additionalProperties": false } }, "$ref": "#/$defs/node" }),
        json!({ "type": "object", "properties": { "children": { "type": "array", "items": { "$ref": "#" }, "maxItems": 2 } },
            "additionalProperties": false }),
        json!({ "definitions": { "a/b~c %": { "type": "string", "enum": ["found"] } },
            "$ref": "#/definitions/a~1b~0c%20%25" }),
        json!({ "prefixItems": [{ "type": "integer" }, { "type": "boolean" }], "items": false, "type": "array", "minItems": 1 }),
        json!({ "type": "array", "items": [{ "const": 1 }, { "const": "x" }], "additionalItems": { "const": null },
            "minItems": 2, "maxItems": 4 }),
        json!({ "type": "string", "pattern": "^[a-z]{2,5}\\d+$" }),
        json!({ "type": "string", "pattern": "b+c" , "maxLength": 6 }),
        json!({ "type": "string", "pattern": "^(\\+|a|\\/|\\p{Greek})+$" , "maxLength": 6 }),
        json!({ "type": "string", "format": "date" }),
        json!({ "type": "string", "format": "date-time" }),
        json!({ "type": "string", "format": "time" }),
        json!({ "type": "string", "format": "uuid" }),
        json!({ "type": "string", "format": "ipv4" }),
        json!({ "type": "string", "format": "ipv6" }),
        json!({ "type": "string", "format": "email", "maxLength": 30 }),
        json!({ "type": "string", "format": "duration" }),
        json!({ "type": "number", "minimum": -1.25, "maximum": 3.5 }),
        json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.001 }),
        json!({ "type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 0 }),
        json!({ "type": "number", "minimum": 0, "exclusiveMinimum": true }),
        json!({ "type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 10 }),
        json!({ "type": "integer", "multipleOf": 7 }),
        json!({ "type": "integer", "minimum": -9007199254740992i64, "maximum": 9007199254740992i64 }),
        json!({ "const": { "b": [1, 2.5, { "a": null }], "a": "\n\t\u{8}\u{c}\r é 😀" } }),
        json!({ "enum": [-0.5, 1e-7, 123456.789, 1e15, "1", true, [], {}] }),
        json!({ "oneOf": [{ "type": "object", "properties": { "kind": { "const": "a" }, "x": { "type": "integer" } },
            "required": ["kind", "x"] }, { "type": "object", "properties": { "kind": { "const": "b" } }, "required": ["kind"] }],
            "discriminator": { "propertyName": "kind" } }),
        json!({ "oneOf": [{ "type": "integer" }, { "type": "string", "maxLength": 3 }, { "type": "null" }] }),
        json!({ "allOf": [{ "properties": { "a": { "type": "integer" } }, "required": ["a"] },
            { "properties": { "a": { "maximum": 3 }, "b": { "type": "boolean" } }, "required": ["b"] }], "type": "object" }),
        json!({ "allOf": [{ "$ref": "#/$defs/base" }], "type": "object", "properties": { "own": { "type": "null" } },
            "required": ["own"], "$defs": { "base": { "type": "object", "properties": { "id": { "type": "integer" } },
            "required": ["id"] } } }),
        json!({ "anyOf": [{ "required": ["a"] }, { "required": ["b"] }], "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } }, "additionalProperties": false }),
        json!({ "type": "string", "nullable": true, "title": "T", "x-note": [1], "maxLength": 2 }),
        json!({ "minLength": 2, "maxLength": 3, "minimum": 1, "maximum": 2, "maxItems": 1 }),
        json!({ "type": "object", "properties": { "const": { "type": "integer" }, "$ref": { "type": "null" },
            "x-guidance": { "const": 1 } }, "required": ["const", "$ref", "x-guidance"] }),
    ]
}

fn validator(schema: &Value) -> impl Fn(&str) -> bool + use<> {
    // Draft 2020-12 knows neither these nor the older spellings that stand for them.
    let mut modern = schema.clone();
    if let Some(map) = modern.as_object_mut() {
        if map.get("nullable").is_some() {
            map.insert("type".into(), json!(["string", "null"]));
        }
        if map.get("exclusiveMinimum") == Some(&json!(true)) {
            map.insert("exclusiveMinimum".into(), map["minimum"].clone());
        }
        if map.get("items").is_some_and(Value::is_array) {
            let items =
                map.insert("items".into(), map["additionalItems"].clone()).expect("a schema of this test");
            map.insert("prefixItems".into(), items);
        }
    }
    let options = jsonschema::options().should_validate_formats(true);
    let validator =
        options.with_draft(jsonschema::Draft::Draft202012).build(&modern).expect("a schema of this test");
    move |text| serde_json::from_str(text).is_ok_and(|value: Value| validator.is_valid(&value))
}

fn check_schemas(walker: &Walker, count: u64) {
    for schema in schemas() {
        let matcher = walker.matcher(&Format::json_schema(schema.clone()));
        let accepts = validator(&schema);
        println!("{schema}");
        let texts = walker.walks(&matcher, count, &accepts);
        assert!(texts.iter().all(|text| accepts(text)), "{schema}");
    }
}

#[test]
fn schemas_are_obeyed_with_the_demo_tokenizer() {
    check_schemas(&seedling(), 60);
}

#[test]
fn schemas_are_obeyed_with_a_large_tokenizer() {
    check_schemas(&qwen3(), 6);
}

fn kind_and_text(format: &Format) -> (ErrorKind, String) {
    let error = Grammar::new(format).expect_err("a refusal");
    (error.kind(), error.to_string())
}

#[test]
fn regexes_choices_and_grammars_are_obeyed() {
    let walker = seedling();
    for regex in [
        r"[a-z]{2,5}\d+",
        "a*",
        "(?i)yes|no",
        r"\p{Lu}\w{0,9} (is|was) [^\n]{0,9}\.",
        "a/b\\\\/\"",
        "é+|😀",
        "\n|(?s:.)x",
        "",
    ] {
        let matcher = walker.matcher(&Format::Regex(regex.into()));
        let whole = regex::Regex::new(&format!("^(?:{regex})$")).unwrap();
        let texts = walker.walks(&matcher, 60, &|text| whole.is_match(text));
        assert!(texts.iter().all(|text| whole.is_match(text)), "{regex}");
    }
    let choices = ["", "a", "ab", "\"\\\n\u{7f}", "ünï", "</s>", "(a|b)"].map(String::from);
    let matcher = walker.matcher(&Format::Choice(choices.to_vec()));
    let is_choice = |text: &str| choices.iter().any(|choice| choice == text);
    let texts = walker.walks(&matcher, 400, &is_choice);
    assert!(choices.iter().all(|choice| texts.contains(choice)), "{texts:?}");
    let mut only_end = walker.matcher(&Format::Choice(vec![String::new()]));
    assert!(only_end.is_over());

    let lark = "start: item (\",\" item)*\nitem: NAME \"=\" /[0-9]{1,3}/\nNAME: \"a\"..\"c\"";
    let matcher = walker.matcher(&Format::Lark(lark.into()));
    let whole = regex::Regex::new("^[a-c]=[0-9]{1,3}(,[a-c]=[0-9]{1,3})*$").unwrap();
    let texts = walker.walks(&matcher, 60, &|text| whole.is_match(text));
    assert!(texts.iter().all(|text| whole.is_match(text)));
}

#[test]
fn special_tokens_come_only_where_a_grammar_names_them() {
    let walker = seedling();
    let call = walker.tokenizer.token_to_id("<|im_start|>").unwrap();
    let mut matcher =
        walker.matcher(&Format::Lark(format!("start: \"a\" <|im_start|> \"b\" <[{call}]> /x?/")));
    for (text, marker) in [("a", true), ("b", true)] {
        assert!(!walker.allowed(matcher.mask().unwrap()).contains(&call));
        assert!(matcher.accept_text(text));
        assert_eq!(walker.allowed(matcher.mask().unwrap()), [call]);
        assert!(marker && !matcher.is_accepting());
        assert!(!matcher.accept_text("<|im_start|>"), "its spelling is no token");
        matcher.accept(call).unwrap();
    }
    assert!(matcher.is_accepting() && !matcher.is_over());
    assert!(matcher.accept(call).is_err());
}

#[test]
fn text_from_elsewhere_fits_or_changes_nothing() {
    let walker = seedling();
    let mut matcher =
        walker.matcher(&Format::json_schema(json!({ "type": "array", "items": { "const": "é" } })));
    assert!(!matcher.accept_text("[\"e"));
    assert!(matcher.accept_text("[\""));
    assert!(matcher.accept_text(""));
    let before = matcher.mask().unwrap().to_vec();
    assert!(!matcher.accept_text("é\" ]x"));
    assert_eq!(matcher.mask().unwrap(), before);
    assert!(matcher.accept_text("é\" ]"));
    assert!(matcher.is_over());
    assert!(!matcher.accept_text(" "));
}

#[test]
fn sentencepiece_tokens_that_open_a_text_lose_their_space() {
    let json = include_bytes!("fixtures/metaspace-tokenizer.json");
    let walker = Walker::new(json, &["</s>"]);
    let schema = json!({ "type": "object", "properties": { "a b": { "type": "string", "maxLength": 4 } },
        "required": ["a b"], "additionalProperties": false });
    for format in [
        Format::Regex("[a-z]{1,4}( [a-z]{1,4})?".into()),
        Format::Regex(" ?[Hh]ello".into()),
        Format::json_schema(schema),
    ] {
        let matcher = walker.matcher(&format);
        let accepts: Box<dyn Fn(&str) -> bool> = match &format {
            Format::Regex(regex) => {
                let whole = regex::Regex::new(&format!("^(?:{regex})$")).unwrap();
                Box::new(move |text| whole.is_match(text))
            }
            _ => Box::new(|text| text.is_empty() || serde_json::from_str::<Value>(text).is_ok()),
        };
        walker.walks(&matcher, 60, &*accepts);
    }
    // "▁c" opens a text as "c"; where text has come before, it brings its space.
    let (spaced, bare) =
        (walker.tokenizer.token_to_id("▁c").unwrap(), walker.tokenizer.token_to_id("c").unwrap());
    let mut matcher = walker.matcher(&Format::Regex("c".into()));
    let first = walker.allowed(matcher.mask().unwrap());
    assert!(first.contains(&spaced) && first.contains(&bare), "{first:?}");
    matcher.go_on();
    let later = walker.allowed(matcher.mask().unwrap());
    assert!(!later.contains(&spaced) && later.contains(&bare), "{later:?}");
}

#[test]
fn what_cannot_be_enforced_is_refused_by_name_and_place() {
    let table = [
        (json!({ "uniqueItems": true }), "#: \"uniqueItems\""),
        (json!({ "properties": { "a/b": { "not": {} } } }), "#/properties/a~1b: \"not\""),
        (json!({ "if": {}, "then": {}, "else": {} }), "#: \"if\""),
        (json!({ "items": { "contains": {} } }), "#/items: \"contains\""),
        (json!({ "minContains": 1 }), "minContains"),
        (json!({ "maxContains": 1 }), "maxContains"),
        (json!({ "propertyNames": {} }), "propertyNames"),
        (json!({ "dependentSchemas": {} }), "dependentSchemas"),
        (json!({ "dependentRequired": {} }), "dependentRequired"),
        (json!({ "dependencies": {} }), "dependencies"),
        (json!({ "unevaluatedProperties": false }), "unevaluatedProperties"),
        (json!({ "unevaluatedItems": false }), "unevaluatedItems"),
        (json!({ "$dynamicRef": "#a" }), "$dynamicRef"),
        (json!({ "$recursiveRef": "#" }), "$recursiveRef"),
        (json!({ "$vocabulary": {} }), "$vocabulary"),
        (json!({ "items": { "$id": "http://example.com/" } }), "#/items: \"$id\""),
        (json!({ "maxlength": 3 }), "maxlength"),
        (json!({ "format": "iri" }), "\"format\" cannot be enforced as \"iri\""),
        (json!({ "format": "unknown" }), "\"unknown\""),
        (json!({ "type": "integer", "format": "date" }), "on what is no string"),
        (json!({ "pattern": "a(?=b)" }), "look-around"),
        (json!({ "pattern": "(a)\\1" }), "backreferences"),
        (json!({ "patternProperties": { "(?!a)": {} } }), "look-around"),
        (json!({ "const": 9007199254740993u64 }), "9007199254740993 is more than 2^53"),
        (json!({ "minimum": 0.1234567890123 }), "#: \"minimum\""),
        (json!({ "exclusiveMinimum": 0, "maximum": 0.5 }), "#: \"exclusiveMinimum\""),
        (json!({ "minimum": -0.5, "maximum": 0, "exclusiveMaximum": true }), "#: \"exclusiveMaximum\""),
        (json!({ "multipleOf": 0 }), "not more than 0"),
        (json!({ "multipleOf": 1001 }), "remainders"),
        (json!({ "multipleOf": 0.07 }), "remainders"),
        (json!({ "enum": ["\u{1}"] }), "U+0001"),
        (json!({ "properties": { "\u{7f}": {} } }), "U+007F"),
        (json!({ "minProperties": 3, "required": ["a"] }), "minProperties"),
        (json!({ "maxLength": 10_000_000 }), "more than 1000000"),
        (json!({ "prefixItems": [], "items": [{}] }), "beside \"prefixItems\""),
    ];
    for (schema, part) in table {
        let (kind, text) = kind_and_text(&Format::json_schema(schema.clone()));
        assert_eq!(kind, ErrorKind::InvalidArguments);
        assert!(text.contains(part) && text.contains("cannot be enforced"), "{schema}: {text}");
        let lenient = Format::JsonSchema { schema, strictness: Strictness::Lenient };
        assert!(!Grammar::new(&lenient).unwrap().loosened().is_empty());
    }
    // All are told at once.
    let (_, text) = kind_and_text(&Format::json_schema(json!({ "not": {}, "items": { "contains": {} } })));
    assert!(text.contains("not") && text.contains("contains"), "{text}");
}

#[test]
fn what_is_no_schema_is_refused_even_leniently() {
    let table = [
        (json!(3), "#: a schema is an object or a boolean"),
        (json!({ "properties": [] }), "#/properties: must be an object"),
        (json!({ "type": "any" }), "#/type"),
        (json!({ "type": [] }), "#/type"),
        (json!({ "required": true }), "#/required: must be a list of names"),
        (json!({ "enum": [] }), "at least one value"),
        (json!({ "anyOf": [] }), "at least one schema"),
        (json!({ "allOf": {} }), "a list of schemas"),
        (json!({ "minLength": -1 }), "whole number"),
        (json!({ "minLength": 1.5 }), "whole number"),
        (json!({ "minimum": "1" }), "must be a number"),
        (json!({ "pattern": 1 }), "must be a text"),
        (json!({ "nullable": 1 }), "true or false"),
        (json!({ "$ref": "#/$defs/missing" }), "is not found"),
        (json!({ "$ref": "other.json" }), "is not found"),
        (json!({ "$ref": "http://example.com/schema" }), "is not found"),
        (json!({ "$ref": "#" }), "no finite value"),
        (json!(false), "no finite value"),
        (
            json!({ "type": "object", "properties": { "a": { "$ref": "#" } }, "required": ["a"] }),
            "no finite value",
        ),
        (
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
            "no finite value",
        ),
        (json!({ "type": "array", "items": { "$ref": "#" }, "minItems": 1 }), "no finite value"),
    ];
    for (schema, part) in table {
        for strictness in [Strictness::Enforced, Strictness::Lenient] {
            let (kind, text) = kind_and_text(&Format::JsonSchema { schema: schema.clone(), strictness });
            assert_eq!(kind, ErrorKind::InvalidArguments);
            assert!(text.contains(part), "{schema}: {text}");
        }
    }
    for format in [Format::Choice(vec![]), Format::Regex("(".into()), Format::Regex("a(?!b)".into())] {
        assert_eq!(kind_and_text(&format).0, ErrorKind::InvalidArguments);
    }
}

#[test]
fn strict_objects_have_all_properties_and_no_others() {
    let walker = seedling();
    let schema = json!({ "type": "object", "properties": {
        "b": { "type": "integer" }, "a": { "type": "object", "properties": { "c": { "type": "null" } } } } });
    let format = Format::JsonSchema { schema, strictness: Strictness::Strict };
    let texts = walker.walks(&walker.matcher(&format), 60, &|_| true);
    for text in texts {
        let value: Value = serde_json::from_str(&text).unwrap();
        let names: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(value["a"], json!({ "c": null }));
    }
    let open = json!({ "type": "object", "properties": {}, "additionalProperties": true });
    let (_, text) = kind_and_text(&Format::JsonSchema { schema: open, strictness: Strictness::Strict });
    assert!(text.contains("#/additionalProperties: must be false"), "{text}");
}

/// Grammars that would take all time or memory.
fn hostile() -> Vec<(&'static str, Format)> {
    let schema = Format::json_schema;
    let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "items": inner }));
    let names = |count: usize| {
        (0..count).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect::<serde_json::Map<_, _>>()
    };
    let chain: serde_json::Map<_, _> = (0..2000)
        .map(|n| (format!("{n}"), json!({ "items": { "$ref": format!("#/$defs/{}", n + 1) } })))
        .collect();
    let doubling: serde_json::Map<_, _> = (0..30)
        .map(|n| {
            let next = json!({ "$ref": format!("#/$defs/{}", n + 1) });
            (format!("{n}"), if n == 29 { json!({}) } else { json!({ "allOf": [next, next] }) })
        })
        .collect();
    let rules: String = (0..9000).map(|n| format!("r{n}: r{}\n", n + 1)).collect();
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
        ("deep schemas", schema(deep(60))),
        ("very deep schemas", schema(deep(1000))),
        ("a deep constant", schema(json!({ "const": (0..120).fold(json!(1), |inner, _| json!([inner])) }))),
        (
            "many properties",
            schema(json!({ "type": "object", "properties": names(10_000), "additionalProperties": false })),
        ),
        ("many optional properties", schema(json!({ "type": "object", "properties": names(1_000) }))),
        ("patterns of a format", schema(json!({ "format": "uri", "pattern": "(.a|.b|.c)*".repeat(2000) }))),
        ("intersections", Format::Lark(format!("start: T\nT: {}/x/", "/.*a.*/ & ".repeat(40)))),
        ("negations", Format::Lark(format!("start: T\nT: {}/x/", "~/.*a.*/ ".repeat(40)))),
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
        ("long names", schema(json!({ "properties": { ("n".repeat(1 << 21)): {} } }))),
        ("a chain of references", schema(json!({ "$ref": "#/$defs/0", "$defs": chain }))),
        ("doubling references", schema(json!({ "$ref": "#/$defs/0", "$defs": doubling }))),
        (
            "products of unions",
            schema(
                json!({ "allOf": (0..20).map(|n| json!({ "anyOf": [{ "minimum": n }, { "maximum": n }, { "minLength": n }] })).collect::<Vec<_>>() }),
            ),
        ),
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
    for (name, format) in hostile() {
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

#[test]
fn compiled_grammars_are_kept_within_bounds_and_shared() {
    let walker = seedling();
    let compile = |n: usize| walker.matcher(&Format::Regex(format!("[a-z]{{1,{n}}}")));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (1..40).for_each(|n| drop(compile(n + thread))));
        }
    });
    assert_eq!(walker.grammars.count(), 42);
    (1..200).for_each(|n| drop(compile(n)));
    assert_eq!(walker.grammars.count(), 64);

    let schema =
        json!({ "type": "object", "properties": { "text": { "enum": (0..3000).collect::<Vec<_>>() } } });
    let started = Instant::now();
    drop(walker.matcher(&Format::json_schema(schema.clone())));
    let first = started.elapsed();
    let started = Instant::now();
    drop(walker.matcher(&Format::json_schema(schema)));
    assert!(started.elapsed() < first / 2, "{:?} after {first:?}", started.elapsed());
}

/// Every pair of bounds, and numbers on both sides of them.
#[test]
fn numbers_keep_within_their_bounds() {
    let walker = seedling();
    let bounds = ["-10.25", "-1.5", "-1", "-0.001", "0", "0.001", "0.5", "1", "1.5", "10", "10.25", "100"];
    let numbers: Vec<String> = bounds
        .iter()
        .flat_map(|bound| {
            let value: f64 = bound.parse().unwrap();
            [0.0, 0.0001, -0.0001, 0.25, -0.25, 1.0, -1.0].map(|step| format!("{}", value + step))
        })
        .chain(["-0", "0.0", "1.0", "-1.0", "1e1", "10.250", "1e-3"].map(String::from))
        .collect();
    for (lower, upper) in bounds.iter().flat_map(|lower| bounds.iter().map(move |upper| (lower, upper))) {
        for keywords in
            [["minimum", "maximum"], ["exclusiveMinimum", "maximum"], ["minimum", "exclusiveMaximum"]]
        {
            let text =
                format!(r#"{{ "type": "number", "{}": {lower}, "{}": {upper} }}"#, keywords[0], keywords[1]);
            let schema: Value = serde_json::from_str(&text).unwrap();
            let accepts = validator(&schema);
            let grammar = Grammar::new(&Format::json_schema(schema));
            let Ok(matcher) = grammar.and_then(|grammar| walker.grammars.compile(&grammar)) else { continue };
            for number in &numbers {
                let mut matcher = matcher.clone();
                let accepted = matcher.accept_text(number) && matcher.is_accepting();
                assert!(!accepted || accepts(number), "{number} for {text}");
            }
        }
    }
}
