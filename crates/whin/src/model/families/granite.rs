//! Granite: the plain form with multipliers of embedding, scores, residuals and logits.
//!
//! Keys, defaults and arithmetic are those of `GraniteConfig` and `modeling_granite.py` in transformers 5.17.

use super::dense::{self, DEFAULTS, Defaults, Dense};
use super::llama;
use crate::model::config::Fields;
use crate::model::spec::Spec;

const GRANITE: Defaults = Defaults { bos: Some(1), eos: Some(2), ..DEFAULTS };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &GRANITE);
    llama::biases(config, &mut dense);
    let mut multiplier = |key, least| dense::number(config, key, 1.0, (least, 1e6));
    let embedding_scale = multiplier("embedding_multiplier", 0.0) as f32;
    let residual_scale = multiplier("residual_multiplier", 0.0) as f32;
    let logit_scale = multiplier("logits_scaling", 1e-6).recip() as f32;
    // Stands for the root of head_dim, not beside it.
    dense.attention.scale = multiplier("attention_multiplier", 0.0) as f32;
    let kinds = dense.all_full();
    Spec { embedding_scale, residual_scale, logit_scale, ..dense.spec(config, &kinds) }
}
