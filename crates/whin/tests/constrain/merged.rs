//! What is enforced one by one but not together, and what a schema comes to only where its parts meet.

use serde_json::{Value, json};
use whin::ErrorKind;
use whin::constrain::{Format, Grammar, Strictness};

use super::walks::seedling;
use super::{kind_and_text, validator};

/// A refusal that says `part`.
fn refused(schema: Value, part: &str) {
    let (kind, text) = kind_and_text(&Format::json_schema(schema.clone()));
    assert_eq!(kind, ErrorKind::InvalidArguments);
    assert!(text.contains(part), "{schema}: {text}");
}

#[test]
fn factors_that_meet_are_refused_where_their_multiple_is_large() {
    let factors = |all: &[f64]| all.iter().map(|factor| json!({ "multipleOf": factor })).collect::<Vec<_>>();
    refused(
        json!({ "type": "integer", "allOf": factors(&[837.0, 851.0, 858.0, 253.0]) }),
        "#: \"multipleOf\"",
    );
    refused(json!({ "type": "number", "multipleOf": 0.1, "anyOf": factors(&[0.25, 3.0]) }), "\"multipleOf\"");
    refused(
        json!({ "$defs": { "a": { "type": "integer", "multipleOf": 997 } }, "type": "object",
            "properties": { "x": { "$ref": "#/$defs/a", "multipleOf": 991 } } }),
        "#/properties/x: \"multipleOf\"",
    );
    refused(
        json!({ "type": "array", "items": { "multipleOf": 997 }, "allOf": [{ "prefixItems": [{ "multipleOf": 991 }] }] }),
        "#/prefixItems/0: \"multipleOf\"",
    );
    let lenient = Format::JsonSchema {
        schema: json!({ "type": "number", "multipleOf": 0.1, "anyOf": factors(&[0.25, 3.0]) }),
        strictness: Strictness::Lenient,
    };
    assert!(Grammar::new(&lenient).unwrap().loosened()[0].contains("multipleOf"));
}

#[test]
fn exclusive_bounds_that_meet_others_are_refused_or_kept() {
    let part = "\"exclusiveMinimum\" cannot be enforced at a whole number";
    refused(json!({ "type": "number", "allOf": [{ "exclusiveMinimum": 0 }, { "maximum": 0.5 }] }), part);
    refused(
        json!({ "$ref": "#/$defs/p", "maximum": 0.5, "$defs": { "p": { "type": "number", "exclusiveMinimum": 0 } } }),
        part,
    );
    let either = json!([{ "exclusiveMinimum": 0 }, { "type": "null" }]);
    refused(json!({ "type": "number", "maximum": 0.5, "anyOf": either }), part);
    let bounded = json!({ "items": { "maximum": 0.5 } });
    refused(json!({ "type": "array", "items": { "exclusiveMinimum": 0 }, "allOf": [bounded] }), "#/items: ");
    refused(
        json!({ "type": "number", "minimum": 0.5, "allOf": [{ "exclusiveMaximum": 1 }] }),
        "\"exclusiveMaximum\"",
    );
}

/// Every pair of bounds, each in a schema of its own, and numbers on both sides of them.
#[test]
fn numbers_keep_within_bounds_that_meet() {
    let walker = seedling();
    let bounds = [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 3.0];
    let (mut kept, mut refused) = (0, 0);
    for (lower, upper) in bounds.iter().flat_map(|lower| bounds.iter().map(move |upper| (*lower, *upper))) {
        for keywords in [["exclusiveMinimum", "maximum"], ["minimum", "exclusiveMaximum"]] {
            let schema =
                json!({ "type": "number", "allOf": [{ (keywords[0]): lower }, { (keywords[1]): upper }] });
            let accepts = validator(&schema);
            let grammar = Grammar::new(&Format::json_schema(schema.clone()));
            let Ok(matcher) = grammar.and_then(|grammar| walker.grammars.compile(&grammar)) else {
                refused += 1;
                continue;
            };
            kept += 1;
            for number in
                bounds.iter().flat_map(|bound| [-0.25, -0.001, 0.0, 0.001, 0.25].map(|step| bound + step))
            {
                let text = number.to_string();
                let mut matcher = matcher.clone();
                let accepted = matcher.accept_text(&text) && matcher.is_accepting();
                assert!(!accepted || accepts(&text), "{text} for {schema}");
            }
        }
    }
    assert!(kept > 20 && refused > 20, "{kept} {refused}");
}

#[test]
fn what_cannot_end_is_refused_wherever_its_parts_stand() {
    let tree = json!({ "type": "object", "required": ["kids"],
        "properties": { "kids": { "type": "array", "items": { "$ref": "#/$defs/T" }, "minItems": 1 } } });
    let chain = json!({ "type": "object", "required": ["b"], "allOf": [{ "properties": { "b": { "$ref": "#/$defs/A" } } }] });
    let pattern = json!({ "type": "object", "required": ["x"], "patternProperties": { "^x": { "$ref": "#/$defs/n" } },
        "additionalProperties": false });
    let typeless = json!({ "allOf": [{ "required": ["b"] }, { "type": "object" }],
        "properties": { "b": { "$ref": "#/$defs/A" } } });
    let endless = [
        json!({ "type": "object", "anyOf": [{ "properties": { "x": { "$ref": "#" } }, "required": ["x"] }] }),
        json!({ "$defs": { "A": chain }, "$ref": "#/$defs/A" }),
        json!({ "$defs": { "n": pattern }, "$ref": "#/$defs/n" }),
        json!({ "$defs": { "T": tree }, "anyOf": [{ "$ref": "#/$defs/T" }, { "type": "null" }] }),
        json!({ "$defs": { "A": typeless }, "$ref": "#/$defs/A" }),
        json!({ "$defs": { "T": tree }, "type": "object", "properties": { "a": { "$ref": "#/$defs/T" } } }),
        json!({ "$defs": { "T": tree }, "type": "array", "items": { "$ref": "#/$defs/T" } }),
        json!({ "$defs": { "A": { "type": "array", "allOf": [{ "minItems": 1 }, { "items": { "$ref": "#/$defs/A" } }] } },
            "$ref": "#/$defs/A" }),
        json!({ "anyOf": [{ "$ref": "#" }, { "type": "null" }] }),
    ];
    for schema in endless {
        refused(schema, "no finite value fits");
    }
}

#[test]
fn recursion_that_can_end_is_enforced() {
    let walker = seedling();
    let list = json!({ "anyOf": [{ "type": "object", "required": ["n"], "additionalProperties": false,
        "properties": { "n": { "$ref": "#/$defs/n" } } }, { "type": "null" }] });
    let named = json!({ "type": "object", "properties": { "x": { "type": "null" }, "y": { "$ref": "#/$defs/n" } },
        "required": ["x"], "patternProperties": { "^z[0-9]$": { "$ref": "#/$defs/n" } }, "additionalProperties": false });
    let impossible = json!({ "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": { "a": { "type": "integer", "maximum": 9, "minimum": 0 }, "b": false } });
    for schema in [
        json!({ "$defs": { "n": list }, "$ref": "#/$defs/n" }),
        json!({ "$defs": { "n": named }, "$ref": "#/$defs/n" }),
        impossible,
    ] {
        let accepts = validator(&schema);
        let texts = walker.walks(&walker.matcher(&Format::json_schema(schema)), 40, &accepts);
        assert!(texts.iter().all(|text| accepts(text)));
    }
}

#[test]
fn required_names_are_declared_in_strict_schemas_and_count_once() {
    let walker = seedling();
    let schema =
        json!({ "type": "object", "properties": { "a": { "type": "null" } }, "required": ["a", "zz"] });
    let (_, text) = kind_and_text(&Format::JsonSchema { schema, strictness: Strictness::Strict });
    assert!(text.contains("#/required: \"zz\" is not in \"properties\""), "{text}");
    let twice = |least: u64| {
        json!({ "type": "object", "properties": { "a": { "type": "null" } }, "required": ["a", "a"], "minProperties": least,
            "patternProperties": { "^b$": { "type": "null" } }, "additionalProperties": false })
    };
    refused(twice(3), "beyond the 1 names");
    let texts = walker.walks(&walker.matcher(&Format::json_schema(twice(2))), 10, &|_| true);
    for text in texts {
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, json!({ "a": null, "b": null }), "{text}");
    }
}

#[test]
fn one_of_several_is_named_where_it_cannot_be_told() {
    let walker = seedling();
    let schema = json!({ "type": "object", "properties": { "a": { "oneOf": [
        { "type": "number", "maximum": 3 }, { "type": "number", "minimum": 2 }] } } });
    let grammar = Grammar::new(&Format::json_schema(schema.clone())).unwrap();
    let error = walker.grammars.compile(&grammar).err().unwrap().to_string();
    assert!(error.contains("#/properties/a/oneOf") && !error.contains("coerce"), "{error}");
    let lenient = Format::JsonSchema { schema, strictness: Strictness::Lenient };
    let grammar = Grammar::new(&lenient).unwrap();
    assert!(grammar.loosened()[0].contains("#/properties/a/oneOf"), "{:?}", grammar.loosened());
    walker.grammars.compile(&grammar).unwrap();
}

#[test]
fn patterns_are_those_of_javascript() {
    let walker = seedling();
    refused(json!({ "pattern": "(?i)a" }), "#: \"pattern\" cannot be enforced as \"(?i)a\"");
    refused(json!({ "patternProperties": { "\\Aa": {} } }), "JavaScript has no escape");
    for (pattern, good, bad) in [
        ("^[[a]$", "\"[\"", "\"b\""),
        ("^[\\w&&x]$", "\"&\"", "\"-\""),
        ("^\\s$", "\"\u{feff}\"", "\"\u{85}\""),
        ("^.$", "\"\u{85}\"", "\"\u{2028}\""),
    ] {
        let schema = json!({ "type": "string", "pattern": pattern });
        let matcher = walker.matcher(&Format::json_schema(schema.clone()));
        let fits = |text: &str| {
            let mut matcher = matcher.clone();
            matcher.accept_text(text) && matcher.is_accepting()
        };
        assert!(fits(good) && !fits(bad), "{pattern}");
    }
}
