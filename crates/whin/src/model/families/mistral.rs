//! Mistral: a window in every layer, or in none.
//!
//! Keys, defaults and arithmetic are those of `MistralConfig` and `modeling_mistral.py` in transformers 5.17.

use super::dense::{DEFAULTS, Defaults, Dense, Kind, POSITIONS};
use crate::model::config::Fields;
use crate::model::spec::Spec;

const MISTRAL: Defaults = Defaults {
    inner: 14_336,
    kv_heads: Some(8),
    max_positions: 131_072,
    bos: Some(1),
    eos: Some(2),
    ..DEFAULTS
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let dense = Dense::read(config, &MISTRAL);
    let window = match config.get("sliding_window") {
        None => Some(4096),
        Some(_) => config.integer_or_null("sliding_window", 1, POSITIONS),
    };
    let kinds = vec![Kind { window, turns: true }; dense.layers];
    dense.spec(config, &kinds)
}
