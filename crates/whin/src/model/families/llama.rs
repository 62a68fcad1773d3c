//! Llama 2 and 3: the plain form that most families vary.
//!
//! Keys, defaults and arithmetic are those of `LlamaConfig` and `modeling_llama.py` in transformers 5.17.

use serde_json::json;

use super::dense::{self, DEFAULTS, Defaults, Dense};
use crate::model::config::Fields;
use crate::model::spec::{Bias, Spec};

const LLAMA: Defaults = Defaults { bos: Some(1), eos: Some(2), ..DEFAULTS };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &LLAMA);
    biases(config, &mut dense);
    // Some files say so.
    dense::fixed(config, "is_llama_config", &json!(true));
    let kinds = dense.all_full();
    dense.spec(config, &kinds)
}

/// The switches of biases in both parts of a layer.
pub(super) fn biases(config: &mut Fields<'_>, dense: &mut Dense) {
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.gated.bias = config.flag("mlp_bias", false);
}
