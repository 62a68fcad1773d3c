//! Qwen1.5 and Qwen2 with a mixture of experts, beside which one expert works on every row.
//!
//! Keys, defaults and arithmetic are those of `Qwen2MoeConfig` and `modeling_qwen2_moe.py` in transformers 5.17.

use super::dense::{DEFAULTS, Defaults, Dense, POSITIONS};
use super::experts;
use crate::model::config::Fields;
use crate::model::spec::{Bias, Spec};

const QWEN2_MOE: Defaults = Defaults {
    vocab: 151_936,
    width: 2048,
    inner: 5632,
    layers: 24,
    heads: 16,
    kv_heads: Some(16),
    max_positions: 32_768,
    ..DEFAULTS
};

const EXPERTS: experts::Defaults =
    experts::Defaults { count: 60, top_k: 4, inner: 1408, shared: Some(5632), renormalised: false };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &QWEN2_MOE);
    dense.attention.bias = Bias { qkv: config.flag("qkv_bias", true), out: false };
    let experts = experts::read(config, &dense, &EXPERTS);
    let used = config.flag("use_sliding_window", false);
    let window = match config.get("sliding_window") {
        _ if !used => None,
        None => Some(4096),
        Some(_) => config.integer_or_null("sliding_window", 1, POSITIONS),
    };
    let first = config.integer("max_window_layers", 28, 0, POSITIONS);
    // Every second layer below that bound, where the class without experts has all from it on.
    let kinds = dense.kinds(config, window, |layer| layer.is_multiple_of(2) && layer < first);
    let mut spec = dense.spec(config, &kinds);
    experts::place(config, experts.as_ref(), &mut spec);
    spec
}
