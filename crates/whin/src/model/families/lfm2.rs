//! LFM2: gated short convolutions in most layers, attention in the others.
//!
//! Keys, defaults and arithmetic are those of `Lfm2Config` and `modeling_lfm2.py` in transformers 5.17.

use serde_json::Value;
use whin_kernels::{Activation, Span};

use super::dense::{DEFAULTS, Defaults, Dense, FULL, SIZE, fixed, layer_types};
use super::qwen3_next::TAPS;
use crate::model::config::Fields;
use crate::model::names::{COMMON, Names};
use crate::model::spec::{Mixer, ShortConv, Spec};

/// A convolution, as `layer_types` calls it.
const CONV: &str = "conv";

const LFM2: Defaults = Defaults {
    vocab: 65_536,
    width: 2560,
    inner: 12_288,
    kv_heads: Some(8),
    max_positions: 128_000,
    norm_eps: 1e-5,
    norm_eps_key: "norm_eps",
    theta: 1_000_000.0,
    tied: true,
    bos: Some(1),
    eos: Some(2),
    ..DEFAULTS
};

pub(super) const NAMES: Names = Names {
    norm: "embedding_norm",
    mixer_norm: "operator_norm",
    q_norm: "self_attn.q_layernorm",
    k_norm: "self_attn.k_layernorm",
    output: "self_attn.out_proj",
    feed_forward_norm: "ffn_norm",
    gate_up: &["feed_forward.w1", "feed_forward.w3"],
    down: "feed_forward.w2",
    ..COMMON
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &LFM2);
    dense.attention.qk_norm = Some(Span::Head);
    dense.gated.inner = inner(config, dense.gated.inner);
    if dense.gated.activation != Activation::Silu {
        config.refuse("hidden_act", "silu, or no such key");
    }
    repeated(config, &dense);
    let conv =
        ShortConv { taps: config.integer("conv_L_cache", 3, 1, TAPS), bias: config.flag("conv_bias", false) };
    let convolves = conv_layers(config, dense.layers);
    let kinds = dense.all_full();
    let mut spec = dense.spec(config, &kinds);
    // An older key for the same, which wins.
    spec.tied = config.flag("tie_embedding", spec.tied);
    for (layer, convolves) in spec.layers.iter_mut().zip(convolves) {
        if convolves {
            layer.mixer = Mixer::ShortConv(conv.clone());
        }
    }
    spec
}

/// The inner width of the feed-forward part, where two thirds of `intermediate_size` may be meant.
fn inner(config: &mut Fields<'_>, intermediate: usize) -> usize {
    // An older key for the same, which wins.
    let asked = config.integer("block_ff_dim", intermediate, 1, SIZE);
    let multiple = config.integer("block_multiple_of", 256, 1, SIZE);
    let multiplier = match config.get("block_ffn_dim_multiplier") {
        None => Some(1.0),
        Some(_) => config.number_or_null("block_ffn_dim_multiplier", 1e-6, 1e6),
    };
    if !config.flag("block_auto_adjust_ff_dim", true) {
        return asked;
    }
    let third = (2.0 * asked as f64 / 3.0) as usize;
    let inner = multiplier.map_or(third, |multiplier| {
        let scaled = (multiplier * third as f64) as usize;
        scaled.saturating_add(multiple - 1) / multiple * multiple
    });
    if !(1..=SIZE).contains(&inner) {
        let accepted = format!("an inner width from 1 to {SIZE} after its adjustment, which gives {inner}");
        config.refuse("intermediate_size", &accepted);
    }
    inner.clamp(1, SIZE)
}

/// Which layers convolve: as `layer_types` says, else all but those in `full_attn_idxs`, else none.
fn conv_layers(config: &mut Fields<'_>, count: usize) -> Vec<bool> {
    let full = match config.get("full_attn_idxs") {
        None | Some(Value::Null) => None,
        Some(Value::Array(indices)) => indices.iter().map(Value::as_u64).collect(),
        Some(_) => Some(Vec::new()),
    };
    let is_list = matches!(config.get("full_attn_idxs"), None | Some(Value::Null | Value::Array(_)));
    let is_given = matches!(config.get("full_attn_idxs"), Some(Value::Array(_)));
    if !is_list || (is_given && full.is_none()) {
        config.refuse("full_attn_idxs", "a list of numbers of layers, or null");
    }
    match layer_types(config, count, &[CONV, FULL]) {
        Some(types) => types.iter().map(|name| *name == CONV).collect(),
        None => {
            let convolves = |layer: u64| full.as_ref().is_some_and(|full: &Vec<u64>| !full.contains(&layer));
            (0..count as u64).map(convolves).collect()
        }
    }
}

/// Keys of the first files, which transformers does not read: they must say the same again.
fn repeated(config: &mut Fields<'_>, dense: &Dense) {
    for (key, name, size) in [
        ("block_dim", "hidden_size", dense.width),
        ("conv_dim", "hidden_size", dense.width),
        ("conv_dim_out", "hidden_size", dense.width),
        ("num_heads", "num_attention_heads", dense.attention.heads),
    ] {
        let found = config.integer_or_null(key, 1, SIZE);
        if found.is_some_and(|found| found != size) {
            config.refuse(key, &format!("the same as {name} ({size}), or no such key"));
        }
    }
    for key in ["block_norm_eps", "rms_norm_eps"] {
        let found = config.number_or_null(key, 1e-30, 1.0);
        if found.is_some_and(|found| found != dense.norm_eps) {
            config.refuse(key, &format!("the same as norm_eps ({}), or no such key", dense.norm_eps));
        }
    }
    for key in ["block_use_swiglu", "use_pos_enc"] {
        fixed(config, key, &Value::Bool(true));
    }
    // How weights were drawn before training.
    for key in
        ["block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init"]
    {
        config.get(key);
    }
}
