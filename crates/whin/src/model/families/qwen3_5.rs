//! The text part of Qwen3.5: Qwen3-Next with experts in every layer or in none, with the projections of the delta rule in
//! tensors of their own, and positions of three axes, which are equal for text and turn heads as one axis does.
//!
//! Keys, defaults and arithmetic are those of `Qwen3_5TextConfig`, `Qwen3_5MoeTextConfig` and their models in
//! transformers 5.17.

use serde_json::Value;

use super::dense::{DEFAULTS, Defaults, Dense, fixed};
use super::{experts, qwen_vl, qwen3_next};
use crate::model::config::Fields;
use crate::model::names::{COMMON, Names};
use crate::model::spec::{FeedForward, Spec};

const QWEN3_5: Defaults = Defaults {
    vocab: 248_320,
    inner: 12_288,
    heads: 16,
    kv_heads: Some(4),
    head_dim: Some(256),
    max_positions: 32_768,
    dialect: &qwen_vl::AXES,
    partial_rotary: Some(0.25),
    ..DEFAULTS
};

const MOE: Defaults = Defaults { width: 2048, layers: 40, kv_heads: Some(2), ..QWEN3_5 };

const EXPERTS: experts::Defaults =
    experts::Defaults { count: 256, top_k: 8, inner: 512, shared: Some(512), renormalised: true };

pub(super) const NAMES: Names = Names {
    prefixes: &["model.language_model.", "model.", ""],
    ones_off: true,
    ignored: &["mtp.", "model.visual.", "visual."],
    ..COMMON
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let dense = Dense::read(config, &QWEN3_5);
    qwen3_next::hybrid(config, dense)
}

/// The same of one with experts.
pub(super) fn read_moe(config: &mut Fields<'_>) -> Spec {
    let dense = Dense::read(config, &MOE);
    fixed(config, "norm_topk_prob", &Value::Bool(true));
    let experts = experts::read(config, &dense, &EXPERTS);
    if experts.is_none() {
        config.refuse("num_experts", "at least 1");
    }
    let mut spec = qwen3_next::hybrid(config, dense);
    for layer in &mut spec.layers {
        layer.feed_forward = experts.clone().map_or(layer.feed_forward.clone(), FeedForward::Experts);
    }
    spec
}
