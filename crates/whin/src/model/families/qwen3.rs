//! Qwen3, dense: grouped-query attention with normalised query and key heads, gated feed-forward.
//!
//! Keys, defaults and arithmetic are those of `Qwen3Config` and `modeling_qwen3.py` in transformers 5.17.

use serde_json::Value;
use whin_kernels::Activation;

use crate::model::config::Fields;
use crate::model::rope_parameters::{self, Heads, Ropes};
use crate::model::spec::{Attention, FeedForward, Gated, Layer, Mixer, Spec};

/// Bounds of sizes. With them no product or sum over the weights comes near 2⁶⁴.
const SIZE: usize = 1 << 20;
const VOCAB: usize = 1 << 24;
const LAYERS: usize = 1 << 12;
const POSITIONS: usize = 1 << 30;

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let storage = super::read_common(config);
    let vocab = config.integer("vocab_size", 151_936, 1, VOCAB);
    let width = config.integer("hidden_size", 4096, 1, SIZE);
    let max_positions = config.integer("max_position_embeddings", 32_768, 1, POSITIONS);
    let norm_eps = match config.get("rms_norm_eps") {
        None => 1e-6,
        Some(_) => config.number("rms_norm_eps", 1e-30, 1.0),
    };
    let attention = attention(config);
    let gated =
        Gated { inner: config.integer("intermediate_size", 22_016, 1, SIZE), activation: activation(config) };
    let windows = windows(config);

    let layer_types: Vec<&'static str> =
        [FULL, SLIDING].into_iter().filter(|name| windows.iter().any(|w| name_of(*w) == *name)).collect();
    let heads = Heads {
        head_dim: attention.head_dim,
        max_positions,
        default_theta: 10_000.0,
        layer_types: &layer_types,
    };
    let Ropes { ropes, of_type, max_positions } = rope_parameters::read(config, &heads);
    let layer = |window: &Option<usize>| {
        let index = layer_types.iter().position(|name| *name == name_of(*window)).unwrap_or(0);
        let rope = of_type.get(index).copied().unwrap_or(0);
        let attention = Attention { window: *window, rope, ..attention.clone() };
        Layer { mixer: Mixer::Attention(attention), feed_forward: FeedForward::Gated(gated.clone()) }
    };
    Spec {
        family: "qwen3",
        vocab,
        width,
        max_positions,
        norm_eps: norm_eps as f32,
        tied: config.flag("tie_word_embeddings", false),
        ropes,
        layers: windows.iter().map(layer).collect(),
        eos: config.tokens("eos_token_id", vocab),
        bos: config.tokens("bos_token_id", vocab).first().copied(),
        storage,
    }
}

fn name_of(window: Option<usize>) -> &'static str {
    if window.is_some() { SLIDING } else { FULL }
}

/// What all layers have in common; window and rope are filled in later.
fn attention(config: &mut Fields<'_>) -> Attention {
    let heads = config.integer("num_attention_heads", 32, 1, SIZE);
    let kv_heads = match config.get("num_key_value_heads") {
        Some(Value::Null) => heads,
        _ => config.integer("num_key_value_heads", 32, 1, SIZE),
    };
    // Not hidden_size / heads where it is missing: the class has a fixed default.
    let head_dim = config.integer("head_dim", 128, 2, SIZE);
    if !heads.is_multiple_of(kv_heads) {
        config.refuse("num_key_value_heads", &format!("a divisor of num_attention_heads ({heads})"));
    }
    if !head_dim.is_multiple_of(2) {
        config.refuse("head_dim", "an even number, since numbers turn in pairs");
    }
    if heads * head_dim > SIZE {
        config.refuse("num_attention_heads", &format!("at most {SIZE} numbers in all heads of {head_dim}"));
    }
    Attention {
        heads,
        kv_heads,
        head_dim,
        bias: config.flag("attention_bias", false),
        qk_norm: true,
        window: None,
        // As Python computes it: a double, rounded when it meets the scores.
        scale: (head_dim as f64).powf(-0.5) as f32,
        rope: 0,
    }
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

fn activation(config: &mut Fields<'_>) -> Activation {
    let name = match config.get("hidden_act") {
        None => Some("silu"),
        Some(value) => value.as_str(),
    };
    let known = ACTIVATIONS.iter().find(|(known, _)| Some(*known) == name);
    known.map(|(_, activation)| *activation).unwrap_or_else(|| {
        let names: Vec<_> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        config.refuse("hidden_act", &format!("one of {}", names.join(", ")));
        Activation::Silu
    })
}

/// The window of each layer.
fn windows(config: &mut Fields<'_>) -> Vec<Option<usize>> {
    let count = config.integer("num_hidden_layers", 32, 1, LAYERS);
    let used = config.flag("use_sliding_window", false);
    let window = match config.get("sliding_window") {
        _ if !used => None,
        None => Some(4096),
        Some(_) => config.integer_or_null("sliding_window", 1, POSITIONS),
    };
    let first = config.integer("max_window_layers", 28, 0, POSITIONS);
    let by_default = || (0..count).map(|layer| window.filter(|_| layer >= first)).collect();
    let types = match config.get("layer_types") {
        None | Some(Value::Null) => return by_default(),
        Some(Value::Array(types)) => types,
        Some(_) => {
            config.refuse("layer_types", "a list of names, or null");
            return by_default();
        }
    };
    if types.len() != count {
        config.refuse("layer_types", &format!("a list of num_hidden_layers ({count}) names"));
    }
    let known = |value: &Value| value.as_str().is_some_and(|name| name == FULL || name == SLIDING);
    if !types.iter().all(known) {
        config.refuse("layer_types", &format!("a list of {FULL} and {SLIDING}"));
    }
    let slides = |value: &Value| value.as_str() == Some(SLIDING);
    if window.is_none() && types.iter().any(slides) {
        let accepted = format!("a window with use_sliding_window true, since layer_types holds {SLIDING}");
        config.refuse("sliding_window", &accepted);
    }
    types.iter().map(|value| window.filter(|_| slides(value))).collect()
}
