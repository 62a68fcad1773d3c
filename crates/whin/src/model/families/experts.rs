//! What families with mixtures of experts have in common: how many experts there are, and which layers have them.

use serde_json::Value;
use whin_kernels::{Gating, Shares};

use super::dense::{Dense, POSITIONS, SIZE};
use crate::model::config::Fields;
use crate::model::spec::{Experts, FeedForward, Gated, Shared, Spec};

/// Bounds of the experts of a layer, of the numbers between all their products, and of the experts of all layers.
const COUNT: usize = 1 << 12;
const INNER: usize = 1 << 24;
const IN_ALL: usize = 1 << 16;

/// What the config class of a family assumes where a key is missing.
pub(super) struct Defaults {
    pub count: usize,
    pub top_k: usize,
    pub inner: usize,
    /// Of the expert for every row; none where the family has no such.
    pub shared: Option<usize>,
}

/// Reads the experts; none where `num_experts` is zero. `num_local_experts` is another name of that key.
pub(super) fn read(config: &mut Fields<'_>, dense: &Dense, defaults: &Defaults) -> Option<Experts> {
    let count = count(config, "num_experts", (defaults.count, 0), dense.layers);
    let inner = config.integer("moe_intermediate_size", defaults.inner, 1, SIZE);
    let shared = defaults.shared.map(|inner| Shared {
        gated: Gated {
            inner: config.integer("shared_expert_intermediate_size", inner, 1, SIZE),
            ..dense.gated.clone()
        },
        row_gate: true,
    });
    let renormalised = config.flag("norm_topk_prob", false);
    let top_k = top_k(config, defaults.top_k, count);
    check_inner(config, "moe_intermediate_size", count, inner);
    (count > 0).then_some(Experts {
        count,
        top_k,
        inner,
        gating: Gating::Plain(dense.gated.activation),
        shares: if renormalised { Shares::OfChosen } else { Shares::OfAll },
        bias: false,
        router_bias: false,
        shared,
    })
}

/// How many experts a layer has, under either of two names.
pub(super) fn count(
    config: &mut Fields<'_>,
    name: &'static str,
    (default, least): (usize, usize),
    layers: usize,
) -> usize {
    let other = if name == "num_experts" { "num_local_experts" } else { "num_experts" };
    let named = config.get(other).and_then(Value::as_u64).and_then(|value| usize::try_from(value).ok());
    let count = config.integer(name, named.map_or(default, |value| value.min(COUNT)), least, COUNT);
    if config.get(other).is_some() && config.integer(other, count, least, COUNT) != count {
        config.refuse(other, &format!("the same as {name} ({count}), which it is another name of"));
    }
    if count.saturating_mul(layers) > IN_ALL {
        config.refuse(name, &format!("at most {IN_ALL} experts in all {layers} layers"));
    }
    count
}

/// How many experts work on a row.
pub(super) fn top_k(config: &mut Fields<'_>, default: usize, count: usize) -> usize {
    let top_k = config.integer("num_experts_per_tok", default, 1, COUNT);
    if count > 0 && top_k > count {
        config.refuse("num_experts_per_tok", &format!("at most the number of experts ({count})"));
    }
    top_k
}

/// Refuses experts whose inner numbers are too many together; `key` gives those of each.
pub(super) fn check_inner(config: &mut Fields<'_>, key: &str, count: usize, inner: usize) {
    if count.saturating_mul(inner) > INNER {
        config.refuse(key, &format!("at most {INNER} numbers in all {count} experts"));
    }
}

/// Puts experts into every `decoder_sparse_step`-th layer that `mlp_only_layers` does not name.
pub(super) fn place(config: &mut Fields<'_>, experts: Option<&Experts>, spec: &mut Spec) {
    let step = config.integer("decoder_sparse_step", 1, 1, POSITIONS);
    let dense: Option<Vec<u64>> = match config.get("mlp_only_layers") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(layers)) => layers.iter().map(Value::as_u64).collect(),
        Some(_) => None,
    };
    let dense = dense.unwrap_or_else(|| {
        config.refuse("mlp_only_layers", "a list of indices of layers, or null");
        Vec::new()
    });
    let Some(experts) = experts else { return };
    for (index, layer) in spec.layers.iter_mut().enumerate() {
        if (index + 1).is_multiple_of(step) && !dense.contains(&(index as u64)) {
            layer.feed_forward = FeedForward::Experts(experts.clone());
        }
    }
}
