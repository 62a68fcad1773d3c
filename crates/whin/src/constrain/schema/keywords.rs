//! What each keyword of JSON Schema is to us. Names are those of draft 2020-12, older drafts and OpenAPI 3.0.

/// What is done with a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    /// Enforced, at least with some values.
    Known,
    /// Says nothing about what is valid.
    Annotation,
    /// An annotation at the root; elsewhere it changes what references mean.
    Root,
    /// Not enforced.
    Unsupported,
}

/// What `keyword` is. Names that begin with `x-` are extensions, which say nothing by convention.
pub(super) fn kind(keyword: &str) -> Keyword {
    match keyword {
        "type"
        | "enum"
        | "const"
        | "$ref"
        | "anyOf"
        | "allOf"
        | "oneOf"
        | "properties"
        | "patternProperties"
        | "additionalProperties"
        | "required"
        | "minProperties"
        | "maxProperties"
        | "items"
        | "prefixItems"
        | "additionalItems"
        | "minItems"
        | "maxItems"
        | "uniqueItems"
        | "minLength"
        | "maxLength"
        | "pattern"
        | "format"
        | "minimum"
        | "maximum"
        | "exclusiveMinimum"
        | "exclusiveMaximum"
        | "multipleOf"
        | "nullable" => Keyword::Known,
        // Definitions are looked at where something points at them. `discriminator` only helps to find the branch of
        // an `anyOf` or `oneOf`, which is enforced by itself.
        "title" | "description" | "default" | "examples" | "example" | "deprecated" | "readOnly"
        | "writeOnly" | "$comment" | "$schema" | "$defs" | "definitions" | "$anchor" | "$dynamicAnchor"
        | "contentEncoding" | "contentMediaType" | "contentSchema" | "discriminator" | "externalDocs"
        | "xml" => Keyword::Annotation,
        "$id" | "id" => Keyword::Root,
        _ if keyword.starts_with("x-") => Keyword::Annotation,
        _ => Keyword::Unsupported,
    }
}
