//! Qwen3, dense: grouped-query attention with normalised query and key heads, gated feed-forward.
//!
//! Keys, defaults and arithmetic are those of `Qwen3Config` and `modeling_qwen3.py` in transformers 5.17.

use whin_kernels::Span;

use super::dense::{DEFAULTS, Defaults, Dense, Kind, POSITIONS};
use crate::model::config::Fields;
use crate::model::spec::{Bias, Spec};

const QWEN3: Defaults = Defaults {
    vocab: 151_936,
    inner: 22_016,
    kv_heads: Some(32),
    // Not hidden_size / heads where it is missing.
    head_dim: Some(128),
    max_positions: 32_768,
    ..DEFAULTS
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &QWEN3);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.attention.qk_norm = Some(Span::Head);
    let kinds = windows(config, &dense);
    dense.spec(config, &kinds)
}

/// The layers, of which those from `max_window_layers` on slide where `layer_types` does not say.
pub(super) fn windows(config: &mut Fields<'_>, dense: &Dense) -> Vec<Kind> {
    windows_from(config, dense, 28)
}

/// The same with another `max_window_layers` where the key is missing.
pub(super) fn windows_from(config: &mut Fields<'_>, dense: &Dense, first: usize) -> Vec<Kind> {
    let used = config.flag("use_sliding_window", false);
    let window = match config.get("sliding_window") {
        _ if !used => None,
        None => Some(4096),
        Some(_) => config.integer_or_null("sliding_window", 1, POSITIONS),
    };
    let first = config.integer("max_window_layers", first, 0, POSITIONS);
    dense.kinds(config, window, |layer| layer >= first)
}
