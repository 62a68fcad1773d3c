//! SmolLM3: some layers do not turn queries and keys. Yang et al., arXiv:2501.18795.
//!
//! Keys, defaults and arithmetic are those of `SmolLM3Config` and `modeling_smollm3.py` in transformers 5.17.

use serde_json::Value;

use super::dense::{DEFAULTS, Defaults, Dense, Kind, POSITIONS};
use super::llama;
use crate::model::config::Fields;
use crate::model::spec::Spec;

const SMOLLM3: Defaults = Defaults {
    vocab: 128_256,
    width: 2048,
    layers: 36,
    heads: 16,
    kv_heads: Some(4),
    max_positions: 32_768,
    theta: 2_000_000.0,
    tied: true,
    bos: Some(128_000),
    eos: Some(128_001),
    ..DEFAULTS
};

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &SMOLLM3);
    llama::biases(config, &mut dense);
    let turns = turns(config, dense.layers);
    let window = match config.flag("use_sliding_window", false) {
        true => config.integer_or_null("sliding_window", 1, POSITIONS),
        false => config.get("sliding_window").and(None),
    };
    // The class keeps it without a use.
    config.get("max_window_layers");
    let kinds = dense.kinds(config, window, |layer| !turns[layer]);
    let kinds: Vec<_> = kinds.into_iter().zip(turns).map(|(kind, turns)| Kind { turns, ..kind }).collect();
    dense.spec(config, &kinds)
}

/// Of each layer whether it turns queries and keys.
fn turns(config: &mut Fields<'_>, layers: usize) -> Vec<bool> {
    let interval = config.integer("no_rope_layer_interval", 4, 1, POSITIONS);
    let by_interval = || (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect();
    let list = match config.get("no_rope_layers") {
        None | Some(Value::Null) => return by_interval(),
        Some(Value::Array(list)) if list.len() >= layers => list.as_slice(),
        Some(_) => &[],
    };
    let turns = |value: &Value| value.as_u64().filter(|number| *number < 2).map(|number| number == 1);
    let found: Option<Vec<_>> = list.iter().take(layers).map(turns).collect();
    found.filter(|list| list.len() == layers).unwrap_or_else(|| {
        let accepted = format!("a list of num_hidden_layers ({layers}) ones and zeros, or null");
        config.refuse("no_rope_layers", &accepted);
        by_interval()
    })
}
