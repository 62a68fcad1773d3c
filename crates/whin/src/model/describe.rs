//! What the layers of a model are, for people and for programs.

use std::ops::Range;

use serde_json::{Value, json};
use whin_kernels::{Gating, Span};

use super::rope::{Rope, Scaling};
use super::spec::{Attention, Delta, Experts, FeedForward, Gated, Layer, Mixer, ShortConv, Spec};

/// Layers that are the same, and what they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    /// Their numbers, from 0, in runs of neighbours.
    pub numbers: Vec<Range<usize>>,
    /// What carries information from position to position.
    pub mixer: String,
    /// What works on each position by itself.
    pub feed_forward: String,
    /// Norms and arrangement, where they are not before both parts in turn.
    pub arrangement: String,
    /// The same as one JSON object.
    pub json: Value,
}

impl Spec {
    /// The layers, those that are the same together, in the order of the first of each.
    pub fn describe(&self) -> Vec<Layers> {
        let mut groups: Vec<(&Layer, Vec<Range<usize>>)> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            match groups.iter_mut().find(|(known, _)| *known == layer) {
                Some((_, numbers)) => match numbers.last_mut() {
                    Some(run) if run.end == index => run.end += 1,
                    _ => numbers.push(index..index + 1),
                },
                None => groups.push((layer, std::iter::once(index..index + 1).collect())),
            }
        }
        groups.into_iter().map(|(layer, numbers)| self.layers(layer, numbers)).collect()
    }

    fn layers(&self, layer: &Layer, numbers: Vec<Range<usize>>) -> Layers {
        let (mixer, mixer_json) = match &layer.mixer {
            Mixer::Attention(attention) => self.attention(attention),
            Mixer::Delta(delta) => self::delta(delta),
            Mixer::ShortConv(conv) => short_conv(conv),
        };
        let (feed_forward, feed_forward_json) = match &layer.feed_forward {
            FeedForward::Gated(gated) => self::gated(gated),
            FeedForward::Experts(experts) => self::experts(experts),
        };
        let arrangement = arrangement(layer);
        let runs: Vec<[usize; 2]> = numbers.iter().map(|run| [run.start, run.end - 1]).collect();
        let json = json!({
            "layers": runs,
            "mixer": mixer_json,
            "feed_forward": feed_forward_json,
            "norms_before": layer.norms.before,
            "norms_after": layer.norms.after,
            "parallel": layer.parallel,
        });
        Layers { numbers, mixer, feed_forward, arrangement, json }
    }

    fn attention(&self, attention: &Attention) -> (String, Value) {
        let Attention { heads, kv_heads, head_dim, bias, window, softcap, sinks, gated, .. } = *attention;
        let rope = attention.rope.map(|rope| &self.ropes[rope]);
        let mut parts = vec![match window {
            Some(window) => format!("attention within {window} tokens"),
            None => "attention".to_owned(),
        }];
        parts.push(if heads == kv_heads {
            format!("{heads} heads of {head_dim}")
        } else {
            format!("{heads} heads of {head_dim}, {kv_heads} of keys and values")
        });
        parts.push(rope.map_or("no rotation".to_owned(), |rope| describe_rope(rope, head_dim)));
        match attention.qk_norm {
            Some(Span::Head) => parts.push("norms of heads".to_owned()),
            Some(Span::Projection) => parts.push("norms of queries and keys".to_owned()),
            None => {}
        }
        let switches = [(bias.qkv || bias.out, "bias"), (sinks, "sinks"), (gated, "gated result")];
        parts.extend(switches.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()));
        parts.extend(softcap.map(|cap| format!("scores capped at {cap}")));
        let json = json!({
            "kind": "attention",
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "window": window,
            "rope": rope.map(|rope| json!({
                "theta": rope.theta, "scaling": scaling(rope), "dims": 2 * rope.pairs,
            })),
            "scale": attention.scale,
            "softcap": softcap,
            "qk_norm": attention.qk_norm.map(|span| match span { Span::Head => "head", Span::Projection => "projection" }),
            "bias": { "qkv": bias.qkv, "out": bias.out },
            "sinks": sinks,
            "gated": gated,
        });
        (parts.join(", "), json)
    }
}

fn delta(delta: &Delta) -> (String, Value) {
    let Delta { key_heads, value_heads, key_dim, value_dim, taps, activation } = *delta;
    let text = format!(
        "gated delta rule, {value_heads} heads of {key_dim} by {value_dim}, {key_heads} of queries and keys, convolution of \
         {taps}"
    );
    let json = json!({
        "kind": "delta",
        "key_heads": key_heads,
        "value_heads": value_heads,
        "key_dim": key_dim,
        "value_dim": value_dim,
        "taps": taps,
        "activation": format!("{activation:?}").to_lowercase(),
    });
    (text, json)
}

fn short_conv(conv: &ShortConv) -> (String, Value) {
    let bias = if conv.bias { ", bias" } else { "" };
    let json = json!({ "kind": "short_conv", "taps": conv.taps, "bias": conv.bias });
    (format!("gated convolution of {}{bias}", conv.taps), json)
}

fn experts(experts: &Experts) -> (String, Value) {
    let Experts { count, top_k, inner, gating, shares, bias, router_bias, .. } = *experts;
    let gating = match gating {
        Gating::Plain(activation) => format!("{activation:?}").to_lowercase(),
        Gating::Clamped { limit, .. } => format!("clamped swish at {limit}"),
    };
    let mut text = format!("{top_k} of {count} experts, {gating}, {inner}");
    if bias {
        text.push_str(", bias");
    }
    let shared = experts.shared.as_ref().map(|shared| {
        let (one, json) = gated(&shared.gated);
        let weighed = if shared.row_gate { "weighed " } else { "" };
        text.push_str(&format!(", and one {weighed}for all ({one})"));
        json!({ "gated": json, "row_gate": shared.row_gate })
    });
    let json = json!({
        "kind": "experts",
        "count": count,
        "top_k": top_k,
        "inner": inner,
        "gating": gating,
        "shares": format!("{shares:?}").to_lowercase(),
        "bias": bias,
        "router_bias": router_bias,
        "shared": shared,
    });
    (text, json)
}

fn gated(gated: &Gated) -> (String, Value) {
    let activation = format!("{:?}", gated.activation).to_lowercase();
    let bias = if gated.bias { ", bias" } else { "" };
    let json = json!({ "kind": "gated", "inner": gated.inner, "activation": activation, "bias": gated.bias });
    (format!("gated {activation}, {}{bias}", gated.inner), json)
}

fn describe_rope(rope: &Rope, head_dim: usize) -> String {
    let scaling = match scaling(rope) {
        "default" => String::new(),
        name => format!(" {name}"),
    };
    let part =
        if 2 * rope.pairs == head_dim { String::new() } else { format!(" of {} numbers", 2 * rope.pairs) };
    format!("rope{scaling} {}{part}", rope.theta)
}

/// As `rope_type` of config.json names it.
fn scaling(rope: &Rope) -> &'static str {
    match rope.scaling {
        Scaling::Default => "default",
        Scaling::Linear { .. } => "linear",
        Scaling::Dynamic { .. } => "dynamic",
        Scaling::Llama3 { .. } => "llama3",
        Scaling::Yarn { .. } => "yarn",
        Scaling::LongRope { .. } => "longrope",
    }
}

fn arrangement(layer: &Layer) -> String {
    let norms = match (layer.norms.before, layer.norms.after) {
        (true, false) => "",
        (true, true) => "norms before and after",
        (false, true) => "norms after",
        (false, false) => "no norms",
    };
    match (norms, layer.parallel) {
        (norms, false) => norms.to_owned(),
        ("", true) => "side by side".to_owned(),
        (norms, true) => format!("side by side, {norms}"),
    }
}
