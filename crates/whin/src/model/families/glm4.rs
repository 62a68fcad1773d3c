//! GLM-4: norms before and behind both parts, and neighbours in half of each head turn together.
//!
//! Keys, defaults and arithmetic are those of `Glm4Config` and `modeling_glm4.py` in transformers 5.17.

use serde_json::Value;

use super::dense::{DEFAULTS, Defaults, Dense};
use crate::model::config::Fields;
use crate::model::names::{self, Names};
use crate::model::spec::{Bias, Norms, Spec};

/// Where the tensors are.
pub(super) const NAMES: Names = Names {
    mixer_post_norm: "post_self_attn_layernorm",
    gate_up: &["mlp.gate_up_proj"],
    feed_forward_post_norm: "post_mlp_layernorm",
    pairs_adjacent: true,
    ..names::COMMON
};

const GLM4: Defaults = Defaults {
    vocab: 151_552,
    inner: 13_696,
    layers: 40,
    kv_heads: Some(2),
    head_dim: Some(128),
    max_positions: 131_072,
    norm_eps: 1.5625e-7,
    partial_rotary: Some(0.5),
    ..DEFAULTS
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &GLM4);
    dense.attention.bias = Bias { qkv: config.flag("attention_bias", true), out: false };
    dense.norms = Norms { before: true, after: true };
    let kinds = dense.all_full();
    let mut spec = dense.spec(config, &kinds);
    if matches!(config.get("eos_token_id"), None | Some(Value::Null)) {
        spec.eos = [151_329, 151_336, 151_338].into_iter().filter(|id| (*id as usize) < spec.vocab).collect();
    }
    spec
}
