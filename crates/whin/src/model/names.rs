//! Where the tensors of a model are in a checkpoint, and in which order they hold their rows.

use std::sync::Arc;

use super::inventory::{Destination, Shape};
use super::spec::{Mixer, Spec};

/// How checkpoints of a family name their tensors. Names of modules are without `.weight` or `.bias`; several make one
/// weight, one below the other, each one of its sections, while one alone holds all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// What stands before all names but the head's: the first with which the embedding is there.
    pub prefixes: &'static [&'static str],
    /// Names of the head, of which one is there.
    pub heads: &'static [&'static str],
    /// The token embedding.
    pub embedding: &'static str,
    /// The norm before the head.
    pub norm: &'static str,
    /// What stands before the names of layer `{}`.
    pub layer: &'static str,
    /// The norm before the mixer, and in a layer whose parts stand side by side before both.
    pub mixer_norm: &'static str,
    /// The projections to queries, keys and values.
    pub qkv: &'static [&'static str],
    /// The norm of queries.
    pub q_norm: &'static str,
    /// The norm of keys.
    pub k_norm: &'static str,
    /// The tensor, not a module, of the scores that stand for no position.
    pub sinks: &'static str,
    /// The projection of the attention's result.
    pub output: &'static str,
    /// The norm behind the mixer.
    pub mixer_post_norm: &'static str,
    /// The norm before the feed-forward part.
    pub feed_forward_norm: &'static str,
    /// The projections to the gate and to what it multiplies.
    pub gate_up: &'static [&'static str],
    /// The projection back.
    pub down: &'static str,
    /// What stands in for those in layers with a mixture of experts.
    pub experts: ExpertNames,
    /// The norm behind the feed-forward part.
    pub feed_forward_post_norm: &'static str,
    /// Whether norms are stored as what they exceed one by.
    pub ones_off: bool,
    /// Whether the two numbers of a pair that turns stand side by side, rather than half of what turns apart.
    pub pairs_adjacent: bool,
    /// What begins the names of tensors that are for other than text.
    pub ignored: &'static [&'static str],
}

/// How checkpoints of a family name the tensors of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertNames {
    /// The projection to the scores of the experts.
    pub router: &'static str,
    /// The projections of expert `{}` to its gate and to what that multiplies.
    pub gate_up: [&'static str; 2],
    /// The projection back of expert `{}`.
    pub down: &'static str,
    /// The tensor, not a module, with the gates of all experts and what they multiply.
    pub all_gate_up: &'static str,
    /// The tensor with the projections back of all experts.
    pub all_down: &'static str,
    /// Whether those of all experts hold (experts, inputs, outputs), gates in turn with what they multiply, rather than
    /// (experts, outputs, inputs), all gates first.
    pub turned: bool,
    /// Of the expert for every row, the projections to the gate and to what it multiplies.
    pub shared_gate_up: &'static [&'static str],
    /// The projection back of that expert.
    pub shared_down: &'static str,
    /// The projection to its share.
    pub shared_gate: &'static str,
}

/// As most classes of transformers have it.
pub const EXPERTS: ExpertNames = ExpertNames {
    router: "mlp.gate",
    gate_up: ["mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"],
    down: "mlp.experts.{}.down_proj",
    all_gate_up: "mlp.experts.gate_up_proj",
    all_down: "mlp.experts.down_proj",
    turned: false,
    shared_gate_up: &["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"],
    shared_down: "mlp.shared_expert.down_proj",
    shared_gate: "mlp.shared_expert_gate",
};

/// As classes have it that multiply with the matrices of all experts from the right.
pub const TURNED_EXPERTS: ExpertNames = ExpertNames { router: "mlp.router", turned: true, ..EXPERTS };

/// As most classes of transformers have it.
pub const COMMON: Names = Names {
    // The base class saves its tensors without the name of the field that holds it.
    prefixes: &["model.", ""],
    heads: &["lm_head"],
    embedding: "embed_tokens",
    norm: "norm",
    layer: "layers.{}.",
    mixer_norm: "input_layernorm",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    q_norm: "self_attn.q_norm",
    k_norm: "self_attn.k_norm",
    sinks: "self_attn.sinks",
    output: "self_attn.o_proj",
    mixer_post_norm: "post_attention_layernorm",
    feed_forward_norm: "post_attention_layernorm",
    gate_up: &["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
    experts: EXPERTS,
    feed_forward_post_norm: "post_feedforward_layernorm",
    ones_off: false,
    pairs_adjacent: false,
    ignored: &[],
};

impl Names {
    /// The tensors of a weight, without the prefix: one for each section, or one with all. None for the projections of
    /// experts, of which [`ExpertNames`] tells.
    pub fn tensors(&self, to: Destination) -> Vec<String> {
        use Destination as To;
        let own = |layer: usize, modules: &[&str], last: &str| {
            let layer = self.layer(layer);
            modules.iter().map(|module| format!("{layer}{module}{last}")).collect()
        };
        let weight = |layer, modules: &[&str]| own(layer, modules, ".weight");
        let bias = |layer, modules: &[&str]| own(layer, modules, ".bias");
        match to {
            To::Embedding => vec![format!("{}.weight", self.embedding)],
            To::Norm => vec![format!("{}.weight", self.norm)],
            To::Head => self.heads.iter().map(|head| format!("{head}.weight")).collect(),
            To::MixerNorm(layer) => weight(layer, &[self.mixer_norm]),
            To::Qkv(layer) => weight(layer, self.qkv),
            To::QkvBias(layer) => bias(layer, self.qkv),
            To::QNorm(layer) => weight(layer, &[self.q_norm]),
            To::KNorm(layer) => weight(layer, &[self.k_norm]),
            To::Sinks(layer) => own(layer, &[self.sinks], ""),
            To::Output(layer) => weight(layer, &[self.output]),
            To::OutputBias(layer) => bias(layer, &[self.output]),
            To::MixerPostNorm(layer) => weight(layer, &[self.mixer_post_norm]),
            To::FeedForwardNorm(layer) => weight(layer, &[self.feed_forward_norm]),
            To::GateUp(layer) => weight(layer, self.gate_up),
            To::GateUpBias(layer) => bias(layer, self.gate_up),
            To::Down(layer) => weight(layer, &[self.down]),
            To::DownBias(layer) => bias(layer, &[self.down]),
            To::Router(layer) => weight(layer, &[self.experts.router]),
            To::RouterBias(layer) => bias(layer, &[self.experts.router]),
            To::ExpertsGateUp(_) | To::ExpertsGateUpBias(_) | To::ExpertsDown(_) | To::ExpertsDownBias(_) => {
                Vec::new()
            }
            To::SharedGateUp(layer) => weight(layer, self.experts.shared_gate_up),
            To::SharedGateUpBias(layer) => bias(layer, self.experts.shared_gate_up),
            To::SharedDown(layer) => weight(layer, &[self.experts.shared_down]),
            To::SharedDownBias(layer) => bias(layer, &[self.experts.shared_down]),
            To::SharedGate(layer) => weight(layer, &[self.experts.shared_gate]),
            To::FeedForwardPostNorm(layer) => weight(layer, &[self.feed_forward_post_norm]),
        }
    }

    /// Whether what is stored has to be raised by one.
    pub fn is_raised(&self, to: Destination) -> bool {
        use Destination as To;
        self.ones_off
            && matches!(
                to,
                To::MixerNorm(_)
                    | To::QNorm(_)
                    | To::KNorm(_)
                    | To::MixerPostNorm(_)
                    | To::FeedForwardNorm(_)
                    | To::FeedForwardPostNorm(_)
                    | To::Norm
            )
    }

    /// What stands before the names of a layer's tensors.
    pub fn layer(&self, layer: usize) -> String {
        self.layer.replace("{}", &layer.to_string())
    }

    /// For each section of a weight the rows of its tensors in the order in which the model wants them; none where it
    /// is the order of the file.
    pub fn order(&self, spec: &Spec, to: Destination, shape: &Shape) -> Option<Vec<Arc<[u32]>>> {
        use Destination as To;
        let (To::Qkv(layer) | To::QkvBias(layer)) = to else { return None };
        let Mixer::Attention(attention) = &spec.layers[layer].mixer;
        let pairs = spec.ropes[attention.rope.filter(|_| self.pairs_adjacent)?].pairs;
        let sections = shape.sections.iter().enumerate();
        let order = |(section, rows): (usize, &usize)| -> Arc<[u32]> {
            let turned = section < 2; // queries and keys
            let place = |row: usize| match row % attention.head_dim {
                i if turned && i < pairs => row + i,
                i if turned && i < 2 * pairs => row - i + 2 * (i - pairs) + 1,
                _ => row,
            };
            (0..*rows).map(|row| place(row) as u32).collect()
        };
        Some(sections.map(order).collect())
    }
}
