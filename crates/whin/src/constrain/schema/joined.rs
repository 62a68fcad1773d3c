//! Patterns that must hold together. The compiler follows all their alternatives in all combinations, in steps that it
//! does not interrupt.

use std::collections::HashMap;

use serde_json::Value;

/// Combinations of alternatives.
const MOST: f64 = 1e5;

/// Whether the patterns that hold for the same text, anywhere in a schema, have few enough alternatives together.
pub(super) fn is_bearable(root: &Value, definitions: &[Value]) -> bool {
    let mut weights = Weights { definitions, known: HashMap::new(), most: 1.0 };
    weights.of(root);
    (0..definitions.len()).for_each(|index| _ = weights.definition(index));
    weights.most <= MOST
}

/// About how many alternatives the regular expression has at any place.
pub(in crate::constrain) fn alternatives(pattern: &str) -> f64 {
    let codes = pattern.matches("\\x{").count(); // no repetitions
    1.0 + (pattern.matches(['|', '*', '+', '?', '{', '[']).count() - codes) as f64
}

struct Weights<'a> {
    definitions: &'a [Value],
    known: HashMap<usize, f64>,
    most: f64,
}

impl Weights<'_> {
    /// The combinations of what `schema` says about a text by itself.
    fn of(&mut self, schema: &Value) -> f64 {
        let Some(map) = schema.as_object() else { return 1.0 };
        let mut product = 1.0;
        for (keyword, value) in map {
            product *= match (keyword.as_str(), value) {
                ("pattern", Value::String(pattern)) => alternatives(pattern),
                ("format", _) => 30.0,
                ("$ref", Value::String(pointer)) => {
                    let index = pointer.strip_prefix("#/$defs/").and_then(|index| index.parse().ok());
                    index.map_or(1.0, |index| self.definition(index))
                }
                ("allOf", Value::Array(all)) => all.iter().map(|one| self.of(one)).product(),
                ("anyOf" | "oneOf", Value::Array(any)) => {
                    any.iter().map(|one| self.of(one)).fold(1.0, f64::max)
                }
                // These are about other texts.
                ("properties" | "patternProperties", Value::Object(map)) => {
                    map.values().for_each(|one| _ = self.of(one));
                    1.0
                }
                ("prefixItems", Value::Array(items)) => {
                    items.iter().for_each(|one| _ = self.of(one));
                    1.0
                }
                ("items" | "additionalProperties", one) => {
                    self.of(one);
                    1.0
                }
                _ => 1.0,
            };
        }
        // One pattern by itself is followed step by step.
        if product > self.most && self.joins(map) {
            self.most = product;
        }
        product
    }

    fn joins(&self, map: &serde_json::Map<String, Value>) -> bool {
        map.contains_key("allOf")
            || map.contains_key("$ref")
            || map.contains_key("anyOf")
            || map.contains_key("format")
    }

    fn definition(&mut self, index: usize) -> f64 {
        if let Some(weight) = self.known.get(&index) {
            return *weight;
        }
        // Within itself it counts once.
        self.known.insert(index, 1.0);
        let definitions = self.definitions;
        let weight = definitions.get(index).map_or(1.0, |one| self.of(one));
        self.known.insert(index, weight);
        weight
    }
}
