//! Qwen2 and Qwen2.5: biases on queries, keys and values alone.
//!
//! Keys, defaults and arithmetic are those of `Qwen2Config` and `modeling_qwen2.py` in transformers 5.17.

use super::dense::{DEFAULTS, Defaults, Dense};
use super::qwen3;
use crate::model::config::Fields;
use crate::model::spec::{Bias, Spec};

const QWEN2: Defaults =
    Defaults { vocab: 151_936, inner: 22_016, kv_heads: Some(32), max_positions: 32_768, ..DEFAULTS };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &QWEN2);
    dense.attention.bias = Bias { qkv: true, out: false };
    let kinds = qwen3::windows(config, &dense);
    dense.spec(config, &kinds)
}
