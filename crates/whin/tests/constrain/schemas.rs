//! Schemas of all that is enforced.

use serde_json::{Value, json};

pub fn all() -> Vec<Value> {
    [containers(), texts_and_numbers(), combined(), merged_numbers()].concat()
}

/// Objects and arrays.
fn containers() -> Vec<Value> {
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
    ]
}

/// Texts and numbers.
fn texts_and_numbers() -> Vec<Value> {
    vec![
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
    ]
}

/// Constants, and schemas of several parts.
fn combined() -> Vec<Value> {
    vec![
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

/// Bounds and factors of several schemas that hold for the same number.
fn merged_numbers() -> Vec<Value> {
    vec![
        json!({ "type": "number", "allOf": [{ "exclusiveMinimum": 0 }, { "maximum": 2.5 }] }),
        json!({ "type": "number", "allOf": [{ "exclusiveMinimum": 0.5 }, { "maximum": 0.75 }] }),
        json!({ "type": "integer", "allOf": [{ "exclusiveMinimum": 0 }, { "maximum": 1.5 }] }),
        json!({ "$defs": { "p": { "type": "number", "exclusiveMaximum": 10 } }, "$ref": "#/$defs/p", "minimum": 3 }),
        json!({ "type": "number", "maximum": 3, "anyOf": [{ "exclusiveMinimum": 1.5 }, { "exclusiveMaximum": 0 }] }),
        json!({ "type": "integer", "allOf": [{ "multipleOf": 6 }, { "multipleOf": 8 }], "minimum": 0, "maximum": 1000 }),
        json!({ "type": "object", "properties": { "a": { "type": "integer", "multipleOf": 2 } }, "required": ["a"],
            "allOf": [{ "properties": { "a": { "multipleOf": 5, "minimum": 1 } } }], "additionalProperties": false }),
    ]
}
