//! Phi-3 and Phi-4: fused projections, a share of each head turns.
//!
//! Keys, defaults and arithmetic are those of `Phi3Config` and `modeling_phi3.py` in transformers 5.17.

use serde_json::json;

use super::dense::{self, DEFAULTS, Defaults, Dense, Kind, POSITIONS};
use crate::model::config::Fields;
use crate::model::names::{self, Names};
use crate::model::rope_parameters::{self, Dialect};
use crate::model::spec::Spec;

/// Where the tensors are.
pub(super) const NAMES: Names =
    Names { qkv: &["self_attn.qkv_proj"], gate_up: &["mlp.gate_up_proj"], ..names::COMMON };

const PHI3: Defaults = Defaults {
    vocab: 32_064,
    width: 3072,
    inner: 8192,
    max_positions: 4096,
    norm_eps: 1e-5,
    dialect: &LONGROPE,
    partial_rotary: Some(1.0),
    bos: Some(1),
    eos: Some(32_000),
    ..DEFAULTS
};

const LONGROPE: Dialect = Dialect {
    // The last two are older names.
    kinds: &[("default", "default"), ("longrope", "longrope"), ("su", "longrope"), ("yarn", "longrope")],
    original: Some(4096),
    // `prepare_inputs_for_generation` drops the cache there.
    anew: true,
    ..rope_parameters::COMMON
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let dense = Dense::read(config, &PHI3);
    let window = config.integer_or_null("sliding_window", 1, POSITIONS);
    for key in ["full_attn_mod", "interpolate_factor"] {
        dense::fixed(config, key, &json!(1));
    }
    let kinds = vec![Kind { window, turns: true }; dense.layers];
    dense.spec(config, &kinds)
}
