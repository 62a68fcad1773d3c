//! Cohere 2: both parts of a layer side by side, centred norms, and layers that see everything do not turn.
//!
//! Keys, defaults and arithmetic are those of `Cohere2Config` and `modeling_cohere2.py` in transformers 5.17.

use serde_json::json;

use super::dense::{self, DEFAULTS, Defaults, Dense, Kind, POSITIONS};
use crate::model::config::Fields;
use crate::model::names::{self, Names};
use crate::model::spec::{Bias, Spec};

/// Where the tensors are.
pub(super) const NAMES: Names = Names { pairs_adjacent: true, ..names::COMMON };

const COHERE2: Defaults = Defaults {
    vocab: 256_000,
    width: 8192,
    inner: 22_528,
    layers: 40,
    heads: 64,
    max_positions: 8192,
    norm_eps: 1e-5,
    norm_eps_key: "layer_norm_eps",
    tied: true,
    bos: Some(5),
    eos: Some(255_001),
    ..DEFAULTS
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &COHERE2);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.parallel = true;
    let logit_scale = dense::number(config, "logit_scale", 0.0625, (0.0, 1e6)) as f32;
    let pattern = config.integer("sliding_window_pattern", 4, 1, POSITIONS);
    let kinds = dense.sliding(config, |layer| !(layer + 1).is_multiple_of(pattern));
    let turning = |kind: Kind| Kind { turns: kind.window.is_some(), ..kind };
    let kinds: Vec<_> = kinds.into_iter().map(turning).collect();
    let spec = dense.spec(config, &kinds);
    what_older_files_say(config, pattern, spec.tied);
    Spec { norm_centred: true, logit_scale, ..spec }
}

/// Keys of another program, which the class does not have: they may say what the model is, nothing else.
fn what_older_files_say(config: &mut Fields<'_>, pattern: usize, tied: bool) {
    for (key, value) in [
        ("layer_switch", json!(pattern)),
        ("order_of_interleaved_layers", json!("local_attn_first")),
        ("position_embedding_type", json!("rope_gptj")),
        ("rotary_pct", json!(1)),
        ("use_embedding_sharing", json!(tied)),
        ("use_gated_activation", json!(true)),
        ("use_parallel_block", json!(true)),
        ("use_qk_norm", json!(false)),
    ] {
        dense::fixed(config, key, &value);
    }
    // How a training was spread over devices.
    config.get("use_parallel_embedding");
}
