//! Qwen3-Next: the gated delta rule in most layers, gated attention in the others; experts in most of both.
//!
//! Keys, defaults and arithmetic are those of `Qwen3NextConfig` and `modeling_qwen3_next.py` in transformers 5.17.

use serde_json::Value;
use whin_kernels::Span;

use super::dense::{DEFAULTS, Defaults, Dense, FULL, SIZE, fixed, layer_types};
use super::experts;
use crate::model::config::Fields;
use crate::model::names::{COMMON, DeltaOrder, Names};
use crate::model::spec::{Bias, Delta, Mixer, Spec};

/// The delta rule, as `layer_types` calls it.
const LINEAR: &str = "linear_attention";

/// Convolutions of more positions than any model has would only cost memory.
pub(super) const TAPS: usize = 64;

const QWEN3_NEXT: Defaults = Defaults {
    vocab: 151_936,
    width: 2048,
    inner: 5632,
    layers: 48,
    heads: 16,
    kv_heads: Some(2),
    head_dim: Some(256),
    max_positions: 32_768,
    partial_rotary: Some(0.25),
    ..DEFAULTS
};

const EXPERTS: experts::Defaults =
    experts::Defaults { count: 512, top_k: 10, inner: 512, shared: Some(512), renormalised: true };

/// Queries, keys and values stand in groups, one for each key head.
pub(super) const NAMES: Names = Names {
    delta: &[("linear_attn.in_proj_qkvz", 4), ("linear_attn.in_proj_ba", 2)],
    delta_order: DeltaOrder::Groups,
    ones_off: true,
    ignored: &["mtp."],
    ..COMMON
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let dense = Dense::read(config, &QWEN3_NEXT);
    let experts = experts::read(config, &dense, &EXPERTS);
    let mut spec = hybrid(config, dense);
    experts::place(config, experts.as_ref(), &mut spec);
    spec
}

/// A model of both mixers, of which `dense` says what they have in common.
pub(super) fn hybrid(config: &mut Fields<'_>, mut dense: Dense) -> Spec {
    known(config);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.attention.qk_norm = Some(Span::Head);
    dense.attention.gated = true;
    let delta = delta(config, &dense);
    let linear = linear_layers(config, dense.layers);
    let kinds = dense.all_full();
    let mut spec = dense.spec(config, &kinds);
    for (layer, is_linear) in spec.layers.iter_mut().zip(linear) {
        if is_linear {
            layer.mixer = Mixer::Delta(delta.clone());
        }
    }
    spec
}

/// Keys that change nothing for a text, or must say what the model is anyway.
fn known(config: &mut Fields<'_>) {
    // Gates of attention are what the class always has.
    fixed(config, "attn_output_gate", &Value::Bool(true));
    // States are in f32, whatever they were trained in; heads that predict further tokens are left aside.
    for key in ["mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"] {
        config.get(key);
    }
}

/// The heads of the delta rule.
fn delta(config: &mut Fields<'_>, dense: &Dense) -> Delta {
    let delta = Delta {
        key_heads: config.integer("linear_num_key_heads", 16, 1, SIZE),
        value_heads: config.integer("linear_num_value_heads", 32, 1, SIZE),
        key_dim: config.integer("linear_key_head_dim", 128, 1, SIZE),
        value_dim: config.integer("linear_value_head_dim", 128, 1, SIZE),
        taps: config.integer("linear_conv_kernel_dim", 4, 1, TAPS),
        // The same key as that of the feed-forward part.
        activation: dense.gated.activation,
    };
    let Delta { key_heads, value_heads, key_dim, value_dim, .. } = delta;
    if !value_heads.is_multiple_of(key_heads) {
        config.refuse("linear_num_value_heads", &format!("a multiple of linear_num_key_heads ({key_heads})"));
    }
    for (key, heads, dim) in
        [("linear_num_key_heads", key_heads, key_dim), ("linear_num_value_heads", value_heads, value_dim)]
    {
        if heads.saturating_mul(dim) > SIZE {
            config.refuse(key, &format!("at most {SIZE} numbers in all heads of {dim}"));
        }
    }
    delta
}

/// Which layers have the delta rule: as `layer_types` says, else all but each `full_attention_interval`th.
fn linear_layers(config: &mut Fields<'_>, count: usize) -> Vec<bool> {
    let interval = match config.get("full_attention_interval") {
        None | Some(Value::Null) => 4,
        Some(_) => config.integer("full_attention_interval", 4, 1, SIZE),
    };
    // As files from before the types had common names have them.
    let known = [LINEAR, FULL, "mamba", "conv", "attention"];
    match layer_types(config, count, &known) {
        Some(types) => types.iter().map(|name| ![FULL, "attention"].contains(name)).collect(),
        None => (1..=count).map(|layer| !layer.is_multiple_of(interval)).collect(),
    }
}
