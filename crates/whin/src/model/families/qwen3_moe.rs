//! Qwen3 with a mixture of experts: a window in all layers or in none.
//!
//! Keys, defaults and arithmetic are those of `Qwen3MoeConfig` and `modeling_qwen3_moe.py` in transformers 5.17.

use serde_json::json;
use whin_kernels::Span;

use super::dense::{DEFAULTS, Defaults, Dense, FULL, Kind, POSITIONS, SLIDING, fixed, layer_types};
use super::experts;
use crate::model::config::Fields;
use crate::model::spec::{Bias, Spec};

const QWEN3_MOE: Defaults = Defaults {
    vocab: 151_936,
    width: 2048,
    inner: 6144,
    layers: 24,
    kv_heads: Some(4),
    max_positions: 32_768,
    ..DEFAULTS
};

const EXPERTS: experts::Defaults =
    experts::Defaults { count: 128, top_k: 8, inner: 768, shared: None, renormalised: false };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &QWEN3_MOE);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.attention.qk_norm = Some(Span::Head);
    // Published files have both from their relatives: no expert for all rows, and norms of queries and keys.
    fixed(config, "shared_expert_intermediate_size", &json!(0));
    fixed(config, "use_qk_norm", &json!(true));
    let experts = experts::read(config, &dense, &EXPERTS);
    let kinds = windows(config, &dense);
    let mut spec = dense.spec(config, &kinds);
    experts::place(config, experts.as_ref(), &mut spec);
    spec
}

fn windows(config: &mut Fields<'_>, dense: &Dense) -> Vec<Kind> {
    let used = config.flag("use_sliding_window", false);
    let window = match config.get("sliding_window") {
        _ if !used => None,
        None => Some(4096),
        Some(_) => config.integer_or_null("sliding_window", 1, POSITIONS),
    };
    // Older files have it from the models without experts, and the class ignores it.
    config.integer("max_window_layers", 28, 0, POSITIONS);
    let all = if window.is_some() { SLIDING } else { FULL };
    let types = layer_types(config, dense.layers, &[FULL, SLIDING]);
    if types.is_some_and(|types| types.iter().any(|name| *name != all)) {
        config.refuse("layer_types", &format!("{all} for all layers, as sliding_window has it"));
    }
    vec![Kind { window, turns: true }; dense.layers]
}
