//! The text part of Qwen3.5: Qwen3-Next without experts, with the projections of the delta rule in tensors of their own,
//! and positions of three axes, which are equal for text and turn heads as one axis does.
//!
//! Keys, defaults and arithmetic are those of `Qwen3_5TextConfig` and `modeling_qwen3_5.py` in transformers 5.17.

use super::dense::{DEFAULTS, Defaults, Dense};
use super::{qwen_vl, qwen3_next};
use crate::model::config::Fields;
use crate::model::names::{COMMON, Names};
use crate::model::spec::Spec;

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
