//! Reads rotary embeddings from a config in every spelling that checkpoints use. Knows nothing of what they compute.
//!
//! Follows `RotaryEmbeddingConfigMixin` of transformers 5.17, with one difference: where both `rope_parameters` and
//! `rope_scaling` are present, transformers silently drops the first. Here they are merged, and contradictions refused.

use serde_json::{Map, Value};

use super::config::Fields;
use super::rope::{Rope, Scaling};
use crate::error::shortened;

/// What a family knows about its heads before it reads the rotary embedding.
pub(super) struct Heads<'a> {
    pub head_dim: usize,
    /// `max_position_embeddings`
    pub max_positions: usize,
    /// `rope_theta` where no key names it.
    pub default_theta: f64,
    /// `partial_rotary_factor` where no key names it; none where the family has no such key.
    pub partial: Option<f64>,
    /// The layer types that occur.
    pub layer_types: &'a [&'static str],
    /// How the family's class spells it.
    pub dialect: &'static Dialect,
}

/// What config classes have each in their own way.
pub(super) struct Dialect {
    /// The names of kinds, and which of [`KINDS`] each means.
    pub kinds: &'static [(&'static str, &'static str)],
    /// Keys of dictionaries that change nothing for a text.
    pub harmless: &'static [&'static str],
    /// `original_max_position_embeddings` beside the dictionary where no key names it.
    pub original: Option<usize>,
    /// Whether the model's class runs a text anew that outgrows that length.
    pub anew: bool,
    /// Types of layers that have a base each, a scaling being that of the first alone.
    pub bases: &'static [Base],
}

/// The base of the layers of one type.
pub(super) struct Base {
    pub layer_type: &'static str,
    /// The key beside the dictionary.
    pub key: &'static str,
    /// Where no key names it.
    pub theta: f64,
}

/// As most classes have it.
pub(super) const COMMON: Dialect =
    Dialect { kinds: KINDS, harmless: &[], original: None, anew: false, bases: &[] };

/// The rotary embeddings of a model.
pub(super) struct Ropes {
    pub ropes: Vec<Rope>,
    /// For each of [`Heads::layer_types`] the index of its embedding.
    pub of_type: Vec<usize>,
    /// The longest text that the model is good for.
    pub max_positions: usize,
}

const THETA: (f64, f64) = (1.0 + f64::EPSILON, 1e30);
const FACTOR: (f64, f64) = (1.0, 1e6);

/// All kinds, by the names that they have in most classes.
pub(super) const KINDS: &[(&str, &str)] = &[
    ("default", "default"),
    ("linear", "linear"),
    ("dynamic", "dynamic"),
    ("llama3", "llama3"),
    ("yarn", "yarn"),
    ("longrope", "longrope"),
];

/// All layer types that may name a rotary embedding of their own.
const NESTED: [&str; 2] = ["full_attention", "sliding_attention"];

/// Reads the keys `rope_parameters`, `rope_scaling`, `rope_theta`, `partial_rotary_factor` and
/// `original_max_position_embeddings`.
pub(super) fn read(config: &mut Fields<'_>, heads: &Heads<'_>) -> Ropes {
    if !heads.dialect.bases.is_empty() {
        return read_by_type(config, heads);
    }
    let (prefix, merged) = merge(config);
    let original = config.integer_or_null("original_max_position_embeddings", 2, 1 << 30);
    let mut outer =
        Outer { theta: heads.default_theta, partial: None, original: original.or(heads.dialect.original) };
    if config.get("rope_theta").is_some() {
        outer.theta = config.number("rope_theta", THETA.0, THETA.1);
    }
    outer.partial = partial(config, heads).or(heads.partial);

    let mut ropes = Ropes { ropes: Vec::new(), of_type: Vec::new(), max_positions: heads.max_positions };
    if !NESTED.iter().any(|name| merged.contains_key(*name)) {
        let mut fields = Fields::new(&merged, prefix);
        ropes.add(one(&mut fields, heads, &outer), heads);
        config.absorb(fields);
        ropes.of_type = vec![0; heads.layer_types.len()];
        return ropes;
    }
    let mut fields = Fields::new(&merged, prefix);
    if fields.get("rope_theta").is_some() {
        outer.theta = fields.number("rope_theta", THETA.0, THETA.1);
    }
    for layer_type in heads.layer_types {
        ropes.of_type.push(ropes.ropes.len());
        let Some(Value::Object(map)) = fields.get(layer_type) else {
            fields.refuse(layer_type, "an object with the rotary embedding of these layers");
            continue;
        };
        let inner_prefix = format!("{prefix}{layer_type}.");
        let mut inner = Fields::new(map, &inner_prefix);
        untruncated(&mut inner);
        ropes.add(one(&mut inner, heads, &outer), heads);
        config.absorb(inner);
    }
    fields.refuse_unknown(|key| NESTED.contains(&key));
    config.absorb(fields);
    ropes
}

/// Reads a dictionary for each of [`Dialect::bases`], or the older keys beside it: a base each, and `rope_scaling` for the
/// first.
fn read_by_type(config: &mut Fields<'_>, heads: &Heads<'_>) -> Ropes {
    let mut ropes = Ropes { ropes: Vec::new(), of_type: Vec::new(), max_positions: heads.max_positions };
    let mut outer = Outer { theta: 0.0, partial: partial(config, heads).or(heads.partial), original: None };
    let mut all = Map::new();
    join(config, "rope_parameters", &mut all);
    let mut fields = Fields::new(&all, "rope_parameters.");
    let mut found = Vec::new();
    for (index, base) in heads.dialect.bases.iter().enumerate() {
        let mut merged = match fields.get(base.layer_type) {
            Some(Value::Object(map)) => map.clone(),
            None | Some(Value::Null) => Map::new(),
            Some(_) => {
                fields
                    .refuse(base.layer_type, "an object with the rotary embedding of these layers, or null");
                Map::new()
            }
        };
        if index == 0 {
            join(config, "rope_scaling", &mut merged);
        }
        outer.theta = match config.get(base.key) {
            None => base.theta,
            Some(_) => config.number(base.key, THETA.0, THETA.1),
        };
        let prefix = format!("rope_parameters.{}.", base.layer_type);
        let mut inner = Fields::new(&merged, &prefix);
        untruncated(&mut inner);
        found.push(one(&mut inner, heads, &outer));
        config.absorb(inner);
    }
    fields.refuse_unknown(|_| false);
    config.absorb(fields);
    for layer_type in heads.layer_types {
        let bases = heads.dialect.bases.iter().zip(&found);
        let rope = bases.filter(|(base, _)| base.layer_type == *layer_type).map(|(_, rope)| rope).next();
        ropes.of_type.push(ropes.ropes.len());
        ropes.add(rope.unwrap_or(&found[0]).clone(), heads);
    }
    ropes
}

/// Refuses what the reference looks for beside the types of layers alone, and what therefore has no effect there.
fn untruncated(inner: &mut Fields<'_>) {
    if inner.get("truncate") == Some(&Value::Bool(false)) {
        inner.refuse("truncate", "true: what a type of layers has of this is not read by transformers");
    }
}

/// What stands beside the rope dictionary.
struct Outer {
    theta: f64,
    /// The share of a head that turns, if any is named.
    partial: Option<f64>,
    original: Option<usize>,
}

impl Ropes {
    fn add(&mut self, rope: Rope, heads: &Heads<'_>) {
        // Dynamic scaling counts from the declared length. For yarn it ought to be the stretched length already, but
        // a published recipe leaves it as it was. The other kinds declare the stretched length.
        let stretched = match rope.scaling {
            Scaling::Dynamic { factor, original } | Scaling::Yarn { factor, original, .. } => {
                ((factor * original as f64) as usize).min(1 << 30)
            }
            _ => 0,
        };
        self.max_positions = self.max_positions.max(stretched).max(heads.max_positions);
        self.ropes.push(rope);
    }
}

/// The union of `rope_parameters` and `rope_scaling`, and what to call it.
fn merge(config: &mut Fields<'_>) -> (&'static str, Map<String, Value>) {
    let mut merged = Map::new();
    join(config, "rope_parameters", &mut merged);
    let prefix = if merged.is_empty() { "rope_scaling." } else { "rope_parameters." };
    join(config, "rope_scaling", &mut merged);
    (if merged.is_empty() { "rope_parameters." } else { prefix }, merged)
}

/// Adds what the object `key` holds. A contradiction to what is there already is refused.
fn join(config: &mut Fields<'_>, key: &'static str, merged: &mut Map<String, Value>) {
    match config.get(key) {
        None | Some(Value::Null) => {}
        Some(Value::Object(map)) => {
            for (inner, value) in map {
                match merged.insert(inner.clone(), value.clone()) {
                    Some(earlier) if !same(&earlier, value) => {
                        let inner = shortened(inner.clone(), 100);
                        let accepted = format!("the same {inner} as in rope_parameters, or one of the two");
                        config.refuse(key, &accepted);
                    }
                    _ => {}
                }
            }
        }
        Some(_) => config.refuse(key, "an object or null"),
    }
}

/// Whether two values mean the same: numbers by value, 10000 being 10000.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// One rotary embedding from its dictionary.
fn one(fields: &mut Fields<'_>, heads: &Heads<'_>, outer: &Outer) -> Rope {
    let theta = match fields.get("rope_theta") {
        None => outer.theta,
        Some(_) => fields.number("rope_theta", THETA.0, THETA.1),
    };
    let part = partial(fields, heads).or(outer.partial).unwrap_or(1.0);
    let turned = (heads.head_dim as f64 * part) as usize;
    if part < 1.0 && (turned < 2 || !turned.is_multiple_of(2)) {
        fields.refuse("partial_rotary_factor", "a share of the head that is an even number of at least 2");
    }
    let pairs = (turned / 2).max(1);
    let scaling = match kind(fields, heads.dialect) {
        Some("linear") => Scaling::Linear { factor: fields.number("factor", FACTOR.0, FACTOR.1) },
        Some("dynamic") => {
            if pairs < 2 {
                fields.refuse("rope_type", "default, as dynamic needs a head_dim of at least 4");
            }
            let factor = fields.number("factor", FACTOR.0, FACTOR.1);
            Scaling::Dynamic { factor, original: heads.max_positions }
        }
        Some("llama3") => llama3(fields, heads, outer),
        Some("yarn") => yarn(fields, heads, outer),
        Some("longrope") => longrope(fields, heads, outer, pairs),
        Some("default") => Scaling::Default,
        // An unknown kind is one problem already; its other keys would only add noise.
        _ => return Rope { pairs, theta, scaling: Scaling::Default },
    };
    fields.refuse_unknown(|key| heads.dialect.harmless.contains(&key));
    Rope { pairs, theta, scaling }
}

/// The share of a head that turns.
fn partial(fields: &mut Fields<'_>, heads: &Heads<'_>) -> Option<f64> {
    if heads.partial.is_some() {
        return fields.number_or_null("partial_rotary_factor", f64::MIN_POSITIVE, 1.0);
    }
    if fields.number_or_null("partial_rotary_factor", f64::MIN, f64::MAX).is_some_and(|part| part != 1.0) {
        fields.refuse("partial_rotary_factor", "1: the whole head turns in this family");
    }
    None
}

/// `rope_type`, or `type` as it was once called. None, with a problem noted, where it is unknown.
fn kind(fields: &mut Fields<'_>, dialect: &Dialect) -> Option<&'static str> {
    let meaning = |value: &Value| {
        let found = dialect.kinds.iter().find(|(name, _)| value.as_str() == Some(*name));
        found.map(|(_, kind)| *kind)
    };
    let (new, old) = (fields.get("rope_type"), fields.get("type"));
    let key = if new.is_some() { "rope_type" } else { "type" };
    if new.is_some() && old.is_some() && new != old && new.and_then(meaning) != old.and_then(meaning) {
        fields.refuse("type", "the same as rope_type");
    }
    let Some(value) = new.or(old) else { return Some("default") };
    let kind = meaning(value);
    if kind.is_none() {
        let names: Vec<_> = dialect.kinds.iter().map(|(name, _)| *name).collect();
        fields.refuse(key, &format!("one of {}", names.join(", ")));
    }
    kind
}

/// The length of the texts of the first training. A key beside the dictionary wins, as in the reference.
fn original(fields: &mut Fields<'_>, heads: &Heads<'_>, outer: &Outer) -> usize {
    let inner = fields.integer("original_max_position_embeddings", heads.max_positions, 2, 1 << 30);
    outer.original.unwrap_or(inner).max(2)
}

fn llama3(fields: &mut Fields<'_>, heads: &Heads<'_>, outer: &Outer) -> Scaling {
    let factor = fields.number("factor", FACTOR.0, FACTOR.1);
    let low = fields.number("low_freq_factor", 1e-6, 1e6);
    let high = fields.number("high_freq_factor", 1e-6, 1e6);
    let both = ["low_freq_factor", "high_freq_factor"].iter().all(|key| fields.get(key).is_some());
    if both && high <= low {
        fields.refuse("high_freq_factor", "a number above low_freq_factor");
    }
    Scaling::Llama3 { factor, low, high, original: original(fields, heads, outer) }
}

fn yarn(fields: &mut Fields<'_>, heads: &Heads<'_>, outer: &Outer) -> Scaling {
    let original = original(fields, heads, outer);
    // Null is a factor that follows from the two lengths; a missing one is an error in the reference, too.
    let factor = match fields.get("factor") {
        Some(Value::Null) => heads.max_positions as f64 / original as f64,
        _ => fields.number("factor", FACTOR.0, FACTOR.1),
    };
    let given = fields.number_or_null("attention_factor", 1e-6, 1e6);
    // Zero stands for unset in all four: the reference asks Python for their truth.
    let mut set = |key| fields.number_or_null(key, 0.0, 1e6).filter(|number| *number != 0.0);
    let (mscale, all) = (set("mscale"), set("mscale_all_dim"));
    let (beta_fast, beta_slow) = (set("beta_fast").unwrap_or(32.0), set("beta_slow").unwrap_or(1.0));
    let truncate = fields.flag("truncate", true);
    let sharpened = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
    let attention = given.unwrap_or_else(|| match (mscale, all) {
        (Some(mscale), Some(all)) => sharpened(mscale) / sharpened(all),
        _ => sharpened(1.0),
    });
    let attention = attention * further(fields, given);
    Scaling::Yarn { factor, original, beta_fast, beta_slow, truncate, attention }
}

/// `attn_factor`, which multiplies the factor of attention that follows from the lengths. transformers leaves it out, with a
/// warning; vLLM and llama.cpp take it into account, and a published model sets it so that both come to one.
fn further(fields: &mut Fields<'_>, given: Option<f64>) -> f64 {
    let Some(further) = fields.number_or_null("attn_factor", 1e-6, 1e6) else { return 1.0 };
    if given.is_some() && further != 1.0 {
        fields.refuse("attn_factor", "1 or no such key beside attention_factor");
    }
    further
}

fn longrope(fields: &mut Fields<'_>, heads: &Heads<'_>, outer: &Outer, pairs: usize) -> Scaling {
    let original = original(fields, heads, outer);
    let factor = fields.number_or_null("factor", FACTOR.0, FACTOR.1);
    let given = fields.number_or_null("attention_factor", 1e-6, 1e6);
    let short = divisors(fields, "short_factor", pairs);
    let long = divisors(fields, "long_factor", pairs);
    let factor = factor.unwrap_or(heads.max_positions as f64 / original as f64);
    let attention = given.unwrap_or_else(|| {
        if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() }
    });
    Scaling::LongRope { short, long, original, anew: heads.dialect.anew, attention }
}

/// A list of one positive number for each pair.
fn divisors(fields: &mut Fields<'_>, key: &'static str, pairs: usize) -> Vec<f64> {
    let positive = |value: &Value| value.as_f64().filter(|number| (1e-6..=1e6).contains(number));
    let list = match fields.get(key) {
        Some(Value::Array(items)) => items.iter().map(positive).collect::<Option<Vec<f64>>>(),
        _ => None,
    };
    list.filter(|list| list.len() == pairs).unwrap_or_else(|| {
        fields.refuse(key, &format!("a list of {pairs} positive numbers, one for each pair of a head"));
        vec![1.0; pairs]
    })
}
