//! Whether a schema has a finite value. Recursion that must go on would have an answer run to the end of the window.

use serde_json::{Map, Value};

/// Whether some finite value fits `root`, as far as required members and references decide. `definitions` are what
/// `#/$defs/0`, `#/$defs/1` and so on point at.
pub(super) fn can_end(root: &Value, definitions: &[Value]) -> bool {
    let mut known = Known { root: false, definitions: vec![false; definitions.len()] };
    loop {
        let mut changed = false;
        for (index, definition) in definitions.iter().enumerate() {
            if !known.definitions[index] && known.ends(definition) {
                known.definitions[index] = true;
                changed = true;
            }
        }
        if known.ends(root) {
            // The root may be pointed at, but it is what is asked for.
            return true;
        }
        if !changed {
            return false;
        }
    }
}

/// The schemas of which it is known that they end.
struct Known {
    root: bool,
    definitions: Vec<bool>,
}

impl Known {
    fn ends(&self, schema: &Value) -> bool {
        let Some(map) = schema.as_object() else { return schema != &Value::Bool(false) };
        map.iter().all(|(keyword, value)| match keyword.as_str() {
            "$ref" => self.target_ends(value),
            "allOf" => list(value).iter().all(|one| self.ends(one)),
            "anyOf" | "oneOf" => list(value).iter().any(|one| self.ends(one)),
            _ => true,
        }) && self.a_type_ends(map)
    }

    fn target_ends(&self, pointer: &Value) -> bool {
        let pointer = pointer.as_str().unwrap_or_default();
        match pointer.strip_prefix("#/$defs/").and_then(|index| index.parse::<usize>().ok()) {
            Some(index) => self.definitions.get(index).copied().unwrap_or(false),
            None => self.root,
        }
    }

    fn a_type_ends(&self, map: &Map<String, Value>) -> bool {
        let ends = |kind: &Value| match kind.as_str() {
            Some("object") => self.object_ends(map),
            Some("array") => self.array_ends(map),
            _ => true,
        };
        match map.get("type") {
            None => true,
            Some(Value::Array(kinds)) => kinds.iter().any(ends),
            Some(kind) => ends(kind),
        }
    }

    fn object_ends(&self, map: &Map<String, Value>) -> bool {
        let properties = map.get("properties").and_then(Value::as_object);
        let others = map.get("additionalProperties");
        let patterns =
            map.get("patternProperties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        list(map.get("required").unwrap_or(&Value::Null)).iter().filter_map(Value::as_str).all(|name| {
            match properties.and_then(|properties| properties.get(name)) {
                Some(schema) => self.ends(schema),
                None => patterns || others.is_none_or(|others| self.ends(others)),
            }
        })
    }

    fn array_ends(&self, map: &Map<String, Value>) -> bool {
        let least = map.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let prefix = list(map.get("prefixItems").unwrap_or(&Value::Null));
        let count = usize::try_from(least).unwrap_or(usize::MAX);
        prefix.iter().take(count).all(|one| self.ends(one))
            && (count <= prefix.len() || map.get("items").is_none_or(|items| self.ends(items)))
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
