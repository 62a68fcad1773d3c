//! What families have in common: sizes, attention with a gated feed-forward part in every layer, and types of layers.

use std::collections::HashMap;

use serde_json::Value;
use whin_kernels::Activation;

use crate::checkpoint::Storage;
use crate::model::config::Fields;
use crate::model::names;
use crate::model::rope_parameters::{self, Dialect, Heads, Ropes};
use crate::model::spec::{Attention, Bias, FeedForward, Gated, Layer, Mixer, Norms, Spec};

/// Bounds of sizes. With them no product or sum over the weights comes near 2⁶⁴.
pub(super) const SIZE: usize = 1 << 20;
const VOCAB: usize = 1 << 24;
const LAYERS: usize = 1 << 12;
pub(super) const POSITIONS: usize = 1 << 30;

pub(super) const FULL: &str = "full_attention";
pub(super) const SLIDING: &str = "sliding_attention";

/// What the config class of a family assumes where a key is missing.
pub(super) struct Defaults {
    pub vocab: usize,
    pub width: usize,
    pub inner: usize,
    pub layers: usize,
    pub heads: usize,
    /// As many as `heads` without a value.
    pub kv_heads: Option<usize>,
    /// `width / heads` without a value.
    pub head_dim: Option<usize>,
    pub max_positions: usize,
    pub norm_eps: f64,
    /// The key of `norm_eps`.
    pub norm_eps_key: &'static str,
    pub theta: f64,
    /// How the rotary embedding is spelled.
    pub dialect: &'static Dialect,
    /// The share of a head that turns; none where the class knows no such thing.
    pub partial_rotary: Option<f64>,
    pub activation: &'static str,
    /// The key of the activation's name.
    pub activation_key: &'static str,
    pub tied: bool,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
}

/// The most usual values.
pub(super) const DEFAULTS: Defaults = Defaults {
    vocab: 32_000,
    width: 4096,
    inner: 11_008,
    layers: 32,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    max_positions: 2048,
    norm_eps: 1e-6,
    norm_eps_key: "rms_norm_eps",
    theta: 10_000.0,
    dialect: &rope_parameters::COMMON,
    partial_rotary: None,
    activation: "silu",
    activation_key: "hidden_act",
    tied: false,
    bos: None,
    eos: None,
};

/// A model all of whose layers have the same shape.
pub(super) struct Dense {
    defaults: &'static Defaults,
    storage: Storage,
    pub vocab: usize,
    pub width: usize,
    pub layers: usize,
    pub max_positions: usize,
    pub norm_eps: f64,
    /// Without window and rotation.
    pub attention: Attention,
    pub gated: Gated,
    pub norms: Norms,
    pub parallel: bool,
}

/// What differs between layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    pub window: Option<usize>,
    pub turns: bool,
}

impl Kind {
    /// The type whose rotation the layer has.
    fn name(self) -> &'static str {
        if self.window.is_some() { SLIDING } else { FULL }
    }
}

impl Dense {
    /// Reads sizes, heads and activation. No bias, no norm of heads, and scores divided by the root of `head_dim`.
    pub fn read(config: &mut Fields<'_>, defaults: &'static Defaults) -> Self {
        let storage = super::read_common(config);
        let width = config.integer("hidden_size", defaults.width, 1, SIZE);
        Self {
            defaults,
            storage,
            vocab: config.integer("vocab_size", defaults.vocab, 1, VOCAB),
            width,
            layers: config.integer("num_hidden_layers", defaults.layers, 1, LAYERS),
            max_positions: config.integer("max_position_embeddings", defaults.max_positions, 1, POSITIONS),
            norm_eps: norm_eps(config, defaults.norm_eps_key, defaults.norm_eps),
            attention: attention(config, defaults, width),
            gated: Gated {
                inner: config.integer("intermediate_size", defaults.inner, 1, SIZE),
                activation: activation(config, defaults.activation_key, defaults.activation),
                bias: false,
            },
            norms: Norms { before: true, after: false },
            parallel: false,
        }
    }

    /// Reads the rotary embeddings of layers of these kinds.
    pub fn ropes(&self, config: &mut Fields<'_>, kinds: &[Kind]) -> Ropes {
        let types = types(kinds);
        let heads = Heads {
            head_dim: self.attention.head_dim,
            max_positions: self.max_positions,
            default_theta: self.defaults.theta,
            partial: self.defaults.partial_rotary,
            layer_types: &types,
            dialect: self.defaults.dialect,
        };
        rope_parameters::read(config, &heads)
    }

    /// The model with layers of these kinds.
    pub fn spec(self, config: &mut Fields<'_>, kinds: &[Kind]) -> Spec {
        let ropes = self.ropes(config, kinds);
        self.spec_with(config, kinds, ropes)
    }

    /// The same with rotary embeddings that were read, one for each type of `kinds`.
    pub fn spec_with(self, config: &mut Fields<'_>, kinds: &[Kind], ropes: Ropes) -> Spec {
        let Ropes { ropes, of_type, max_positions } = ropes;
        let types = types(kinds);
        let layer = |kind: &Kind| {
            let index = types.iter().position(|name| *name == kind.name()).unwrap_or(0);
            let rope = kind.turns.then(|| of_type.get(index).copied().unwrap_or(0));
            let attention = Attention { window: kind.window, rope, ..self.attention.clone() };
            Layer {
                mixer: Mixer::Attention(attention),
                feed_forward: FeedForward::Gated(self.gated.clone()),
                norms: self.norms,
                parallel: self.parallel,
            }
        };
        Spec {
            // The table of families knows.
            family: "",
            vocab: self.vocab,
            width: self.width,
            max_positions,
            norm_eps: self.norm_eps as f32,
            norm_centred: false,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            logit_softcap: None,
            tied: config.flag("tie_word_embeddings", self.defaults.tied),
            ropes,
            layers: kinds.iter().map(layer).collect(),
            eos: self.tokens(config, "eos_token_id", self.defaults.eos),
            bos: self.tokens(config, "bos_token_id", self.defaults.bos).first().copied(),
            storage: self.storage,
            // And of these too.
            names: names::COMMON,
            native: HashMap::new(),
        }
    }

    /// Token ids, or the one of the class where the key is missing.
    fn tokens(&self, config: &mut Fields<'_>, key: &'static str, default: Option<u32>) -> Vec<u32> {
        match config.get(key) {
            None => default.into_iter().filter(|id| (*id as usize) < self.vocab).collect(),
            Some(_) => config.tokens(key, self.vocab),
        }
    }

    /// Layers that all see everything and turn.
    pub fn all_full(&self) -> Vec<Kind> {
        vec![Kind { window: None, turns: true }; self.layers]
    }

    /// Layers of which those with the window of `sliding_window`, 4096 where the key is missing, are as `layer_types` names
    /// them, or by default as `slides` says of each.
    pub fn sliding(&self, config: &mut Fields<'_>, slides: impl Fn(usize) -> bool) -> Vec<Kind> {
        let window = match config.get("sliding_window") {
            None => Some(4096),
            Some(Value::Null) => {
                let named = !matches!(config.get("layer_types"), None | Some(Value::Null));
                if !named && (0..self.layers).any(&slides) {
                    config.refuse(
                        "sliding_window",
                        "a window, since layers slide where layer_types does not say",
                    );
                }
                None
            }
            Some(_) => Some(config.integer("sliding_window", 4096, 1, POSITIONS)),
        };
        self.kinds(config, window, slides)
    }

    /// Layers as `layer_types` names them, those that slide with this window; by default as `slides` says of each.
    pub fn kinds(
        &self,
        config: &mut Fields<'_>,
        window: Option<usize>,
        slides: impl Fn(usize) -> bool,
    ) -> Vec<Kind> {
        let types = layer_types(config, self.layers, &[FULL, SLIDING]);
        if window.is_none() && types.iter().flatten().any(|name| *name == SLIDING) {
            let accepted = format!(
                "a window, with use_sliding_window true in families that have this switch, since layer_types holds \
                 {SLIDING}"
            );
            config.refuse("sliding_window", &accepted);
        }
        let slides = |layer| types.as_ref().map_or_else(|| slides(layer), |types| types[layer] == SLIDING);
        (0..self.layers).map(|layer| Kind { window: window.filter(|_| slides(layer)), turns: true }).collect()
    }
}

/// The types that occur, in a fixed order.
fn types(kinds: &[Kind]) -> Vec<&'static str> {
    let occurs = |name: &&str| kinds.iter().any(|kind| kind.turns && kind.name() == *name);
    [FULL, SLIDING].into_iter().filter(occurs).collect()
}

/// `layer_types`, of which each is one of `known`; none where it is missing, null, or refused.
pub(super) fn layer_types(
    config: &mut Fields<'_>,
    count: usize,
    known: &[&'static str],
) -> Option<Vec<&'static str>> {
    let types = match config.get("layer_types") {
        None | Some(Value::Null) => return None,
        Some(Value::Array(types)) => types,
        Some(_) => {
            config.refuse("layer_types", "a list of names, or null");
            return None;
        }
    };
    if types.len() != count {
        config.refuse("layer_types", &format!("a list of num_hidden_layers ({count}) names"));
        return None;
    }
    let name = |value: &Value| known.iter().find(|known| Some(**known) == value.as_str()).copied();
    let types: Option<Vec<_>> = types.iter().map(name).collect();
    if types.is_none() {
        config.refuse("layer_types", &format!("a list of {}", known.join(" and ")));
    }
    types
}

/// The number that norms add to the mean square.
pub(super) fn norm_eps(config: &mut Fields<'_>, key: &'static str, default: f64) -> f64 {
    match config.get(key) {
        None => default,
        Some(_) => config.number(key, 1e-30, 1.0),
    }
}

/// A number that may be missing.
pub(super) fn number(
    config: &mut Fields<'_>,
    key: &'static str,
    default: f64,
    (least, most): (f64, f64),
) -> f64 {
    match config.get(key) {
        None => default,
        Some(_) => config.number(key, least, most),
    }
}

/// A number that null switches off, and what it is where the key is missing.
pub(super) fn optional(config: &mut Fields<'_>, key: &'static str, default: Option<f64>) -> Option<f32> {
    let found = match config.get(key) {
        None => default,
        Some(_) => config.number_or_null(key, 1e-3, 1e6),
    };
    found.map(|number| number as f32)
}

/// A key that the class does not have, which may only say what the model is anyway.
pub(super) fn fixed(config: &mut Fields<'_>, key: &'static str, value: &Value) {
    let same = |found: &Value| match (found.as_f64(), value.as_f64()) {
        (Some(found), Some(value)) => found == value,
        _ => found == value,
    };
    if config.get(key).is_some_and(|found| !found.is_null() && !same(found)) {
        config.refuse(key, &value.to_string());
    }
}

/// The heads.
fn attention(config: &mut Fields<'_>, defaults: &Defaults, width: usize) -> Attention {
    let heads = config.integer("num_attention_heads", defaults.heads, 1, SIZE);
    let kv_heads = match config.get("num_key_value_heads") {
        Some(Value::Null) => heads,
        _ => config.integer("num_key_value_heads", defaults.kv_heads.unwrap_or(heads), 1, SIZE),
    };
    let head_dim = head_dim(config, defaults.head_dim, width, heads);
    if !heads.is_multiple_of(kv_heads) {
        config.refuse("num_key_value_heads", &format!("a divisor of num_attention_heads ({heads})"));
    }
    if heads.saturating_mul(head_dim) > SIZE {
        config.refuse("num_attention_heads", &format!("at most {SIZE} numbers in all heads of {head_dim}"));
    }
    Attention {
        heads,
        kv_heads,
        head_dim,
        bias: Bias::default(),
        qk_norm: None,
        window: None,
        // As Python computes it: a double, rounded when it meets the scores.
        scale: (head_dim as f64).powf(-0.5) as f32,
        softcap: None,
        sinks: false,
        gated: false,
        rope: None,
    }
}

fn head_dim(config: &mut Fields<'_>, default: Option<usize>, width: usize, heads: usize) -> usize {
    let found = match config.get("head_dim") {
        None => default,
        // A class without a default of its own takes null for a missing key.
        Some(Value::Null) if default.is_none() => None,
        Some(_) => Some(config.integer("head_dim", default.unwrap_or(2), 2, SIZE)),
    };
    let quotient = || {
        if !width.is_multiple_of(heads) || width < 2 * heads {
            config.refuse(
                "hidden_size",
                &format!("a multiple of num_attention_heads ({heads}), or a head_dim"),
            );
        }
        (width / heads).max(2)
    };
    let head_dim = found.unwrap_or_else(quotient);
    if !head_dim.is_multiple_of(2) {
        config.refuse("head_dim", "an even number, since numbers turn in pairs");
    }
    head_dim
}

/// The names of transformers' `ACT2FN` that can be computed. Left out are prelu and xielu, which have
/// trained parameters.
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("quick_gelu", Activation::GeluSigmoid),
    ("gelu_10", Activation::GeluClipped),
    ("relu", Activation::Relu),
    ("relu2", Activation::ReluSquared),
    ("relu6", Activation::Relu6),
    ("leaky_relu", Activation::LeakyRelu),
    ("sigmoid", Activation::Sigmoid),
    ("tanh", Activation::Tanh),
    ("mish", Activation::Mish),
    ("hardswish", Activation::HardSwish),
    ("laplace", Activation::Laplace),
    ("sqrtsoftplus", Activation::SqrtSoftplus),
    ("linear", Activation::Identity),
];

pub(super) fn activation(config: &mut Fields<'_>, key: &'static str, default: &'static str) -> Activation {
    let name = match config.get(key) {
        None => Some(default),
        Some(value) => value.as_str(),
    };
    let known = ACTIVATIONS.iter().find(|(known, _)| Some(*known) == name);
    known.map(|(_, activation)| *activation).unwrap_or_else(|| {
        let names: Vec<_> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        config.refuse(key, &format!("one of {}", names.join(", ")));
        Activation::Silu
    })
}
