//! Enforced formats: whatever is drawn from the allowed tokens is an answer of the form that was asked for.

#[allow(dead_code)]
mod walks;

#[path = "constrain/hostile.rs"]
mod hostile;
#[path = "constrain/merged.rs"]
mod merged;
#[path = "constrain/schemas.rs"]
mod schemas;

use std::time::Instant;

use serde_json::{Value, json};
use walks::{Walker, qwen3, seedling};
use whin::ErrorKind;
use whin::constrain::{Format, Grammar, Strictness};

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
    for schema in schemas::all() {
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
        (json!({ "multipleOf": 1e-9 }), "remainders"),
        (json!({ "enum": ["\u{1}"] }), "U+0001"),
        (json!({ "properties": { "\u{7f}": {} } }), "U+007F"),
        (json!({ "minProperties": 3, "required": ["a"] }), "minProperties"),
        (json!({ "maxLength": 10_000_000 }), "more than 16384"),
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
    let grammar = Grammar::new(&Format::json_schema(schema)).unwrap();
    let time = || {
        let started = Instant::now();
        drop(walker.grammars.compile(&grammar).unwrap());
        started.elapsed()
    };
    let first = time();
    let again = (0..5).map(|_| time()).min().unwrap();
    assert!(again < first / 2, "{again:?} after {first:?}");
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
