//! gpt-oss: windows in every second layer, heads with sinks, and experts with biases and clamped gates.
//!
//! Keys, defaults and arithmetic are those of `GptOssConfig` and `modeling_gpt_oss.py` in transformers 5.17.

use serde_json::{Map, Value, json};
use whin_kernels::{Activation, Gating, Shares};

use super::dense::{DEFAULTS, Defaults, Dense, Kind, POSITIONS};
use super::experts;
use crate::model::config::Fields;
use crate::model::names::{self, ExpertNames, Names, Turned};
use crate::model::rope_parameters::Ropes;
use crate::model::spec::{Bias, Experts, FeedForward, Spec};

const GPT_OSS: Defaults = Defaults {
    vocab: 201_088,
    width: 2880,
    inner: 2880,
    layers: 36,
    heads: 64,
    kv_heads: Some(8),
    head_dim: Some(64),
    max_positions: 131_072,
    norm_eps: 1e-5,
    theta: 150_000.0,
    ..DEFAULTS
};

/// Where its tensors are.
pub(super) const NAMES: Names = Names { experts: EXPERTS, ..names::COMMON };

const EXPERTS: ExpertNames =
    ExpertNames { router: "mlp.router", turned: Turned::Yes, in_turn: true, ..names::EXPERTS };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &GPT_OSS);
    if dense.gated.activation != Activation::Silu {
        config.refuse(
            "hidden_act",
            "silu, since the gates of this family are always clamped ones of that kind",
        );
    }
    let bias = config.flag("attention_bias", true);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.attention.sinks = true;
    let experts = experts(config, &dense);
    let window = match config.get("sliding_window") {
        None => Some(128),
        Some(_) => config.integer_or_null("sliding_window", 1, POSITIONS),
    };
    let kinds = dense.kinds(config, window, |layer| layer.is_multiple_of(2));
    // The length of the first texts in training, which rope_scaling says again.
    config.integer("initial_context_length", 4096, 1, POSITIONS);
    let ropes = ropes(config, &dense, &kinds);
    let mut spec = dense.spec_with(config, &kinds, ropes);
    for layer in &mut spec.layers {
        layer.feed_forward = FeedForward::Experts(experts.clone());
    }
    spec
}

fn experts(config: &mut Fields<'_>, dense: &Dense) -> Experts {
    let count = experts::count(config, "num_local_experts", (128, 1), dense.layers);
    let top_k = experts::top_k(config, 4, count);
    if config.get("experts_per_token").is_some_and(|other| other.as_u64() != Some(top_k as u64)) {
        config.refuse("experts_per_token", &format!("the same as num_experts_per_tok ({top_k})"));
    }
    let inner = dense.gated.inner;
    experts::check_inner(config, "intermediate_size", count, inner);
    let limit = match config.get("swiglu_limit") {
        None => 7.0,
        Some(_) => config.number("swiglu_limit", 1e-3, 1e6),
    };
    Experts {
        count,
        top_k,
        inner,
        gating: Gating::Clamped { limit: limit as f32 },
        shares: Shares::OfChosen,
        bias: true,
        router_bias: true,
        shared: None,
    }
}

/// The rotary embedding that is asked for, or else the class's own.
fn ropes(config: &mut Fields<'_>, dense: &Dense, kinds: &[Kind]) -> Ropes {
    let asked =
        ["rope_parameters", "rope_scaling"].map(|key| config.get(key).filter(|value| !value.is_null()));
    if asked.iter().any(Option::is_some) {
        return dense.ropes(config, kinds);
    }
    let yarn = json!({
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
        "original_max_position_embeddings": 4096,
    });
    let mut map = Map::from_iter([("rope_parameters".to_owned(), yarn)]);
    if let Some(theta) = config.get("rope_theta") {
        map.insert("rope_theta".to_owned(), Value::clone(theta));
    }
    let mut fields = Fields::new(&map, "");
    let ropes = dense.ropes(&mut fields, kinds);
    config.absorb(fields);
    ropes
}
