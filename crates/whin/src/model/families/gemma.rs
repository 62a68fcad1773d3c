//! Gemma 2 and the text part of Gemma 3: norms before and behind both parts, windows in most layers.
//!
//! Keys, defaults and arithmetic are those of `Gemma2Config`, `Gemma3TextConfig` and their models in transformers 5.17.

use serde_json::{Value, json};
use whin_kernels::Span;

use super::dense::{self, DEFAULTS, Defaults, Dense, FULL, POSITIONS, SLIDING};
use crate::model::config::{Fields, shown};
use crate::model::names::{self, Names};
use crate::model::rope_parameters::{self, Base, Dialect};
use crate::model::spec::{Bias, Norms, Spec};

/// Where both find their tensors.
pub(super) const NAMES: Names =
    Names { feed_forward_norm: "pre_feedforward_layernorm", ones_off: true, ..names::COMMON };

const GEMMA2: Defaults = Defaults {
    vocab: 256_000,
    width: 2304,
    inner: 9216,
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    head_dim: Some(256),
    max_positions: 8192,
    activation: "gelu_pytorch_tanh",
    activation_key: "hidden_activation",
    tied: true,
    bos: Some(2),
    eos: Some(1),
    ..DEFAULTS
};

const GEMMA3: Defaults =
    Defaults { vocab: 262_208, max_positions: 131_072, dialect: &LOCAL_AND_GLOBAL, ..GEMMA2 };

const LOCAL_AND_GLOBAL: Dialect = Dialect {
    bases: &[
        Base { layer_type: FULL, key: "rope_theta", theta: 1_000_000.0 },
        Base { layer_type: SLIDING, key: "rope_local_base_freq", theta: 10_000.0 },
    ],
    ..rope_parameters::COMMON
};

/// Reads the config of a Gemma 2, noting problems in it.
pub(super) fn read2(config: &mut Fields<'_>) -> Spec {
    let mut dense = read_common(config, &GEMMA2);
    dense.attention.softcap = dense::optional(config, "attn_logit_softcapping", Some(50.0));
    // The window by an older name, which published files have beside it.
    let window = config.get("sliding_window").cloned().unwrap_or(json!(4096));
    dense::fixed(config, "sliding_window_size", &window);
    let kinds = dense.sliding(config, |layer| layer.is_multiple_of(2));
    let softcap = dense::optional(config, "final_logit_softcapping", Some(30.0));
    scaled(Spec { logit_softcap: softcap, ..dense.spec(config, &kinds) })
}

/// Reads the config of the text part of a Gemma 3, noting problems in it.
pub(super) fn read3(config: &mut Fields<'_>) -> Spec {
    let mut dense = read_common(config, &GEMMA3);
    dense.attention.qk_norm = Some(Span::Head);
    // The class has the key, the model does not cap scores.
    dense::optional(config, "attn_logit_softcapping", None);
    let pattern = config.integer("sliding_window_pattern", 6, 1, POSITIONS);
    let kinds = dense.sliding(config, |layer| !(layer + 1).is_multiple_of(pattern));
    let softcap = dense::optional(config, "final_logit_softcapping", None);
    scaled(Spec { logit_softcap: softcap, ..dense.spec(config, &kinds) })
}

fn read_common(config: &mut Fields<'_>, defaults: &'static Defaults) -> Dense {
    let mut dense = Dense::read(config, defaults);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.norms = Norms { before: true, after: true };
    let scalar = dense::number(config, "query_pre_attn_scalar", 256.0, (1e-6, 1e9));
    dense.attention.scale = scalar.powf(-0.5) as f32;
    if !matches!(config.get("use_bidirectional_attention"), None | Some(Value::Null | Value::Bool(false))) {
        config.refuse("use_bidirectional_attention", "false, since a text is continued from its left alone");
    }
    // An older name, beside which files have the one that counts.
    if let Some(old) = config.get("hidden_act")
        && dense::activation(config, "hidden_act", defaults.activation) != dense.gated.activation
    {
        let accepted = format!("no {} beside {}, which counts", shown(old), defaults.activation_key);
        config.refuse("hidden_act", &accepted);
    }
    dense
}

/// With the embedding times the root of the width.
fn scaled(spec: Spec) -> Spec {
    Spec { embedding_scale: (spec.width as f64).sqrt() as f32, ..spec }
}
