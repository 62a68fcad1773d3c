//! Where the tensors of a model are in a checkpoint, and in which order they hold their rows.

use std::sync::Arc;

use super::inventory::{Destination, Shape};
use super::spec::{Attention, Delta, Mixer, Spec};

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
    /// The projections of the delta rule, each with how many of its sections it holds: queries, keys, values, gates, `b`
    /// and `a`.
    pub delta: &'static [(&'static str, usize)],
    /// In which order these projections have their rows.
    pub delta_order: DeltaOrder,
    /// The convolution of the delta rule.
    pub delta_taps: &'static str,
    /// The tensor, not a module, of its rates.
    pub delta_rates: &'static str,
    /// Whether that holds rates with a minus before them, rather than their logarithms.
    pub rates_negated: bool,
    /// Whether taps are stored as (channels, taps), rather than with an axis between.
    pub taps_flat: bool,
    /// The tensor, not a module, of what is added to `a`.
    pub delta_time_bias: &'static str,
    /// The norm of what it finds.
    pub delta_norm: &'static str,
    /// The projection of what it finds.
    pub delta_output: &'static str,
    /// The projection to gates and inputs of a gated convolution.
    pub conv: &'static str,
    /// That convolution.
    pub conv_taps: &'static str,
    /// The projection of what it finds.
    pub conv_output: &'static str,
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
    /// A tensor of the first of the layers that guess further tokens, where those stand behind the others.
    pub further: Option<&'static str>,
    /// What begins the names of tensors that are for other than text.
    pub ignored: &'static [&'static str],
}

/// In which order tensors of the delta rule have what belongs to its heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOrder {
    /// All queries, all keys and so on; value heads of one key head stand together.
    Kinds,
    /// What belongs to each key head together: its query, its key, its values and so on.
    Groups,
    /// That of `b` and `a` alone.
    ScoreGroups,
    /// All queries, all keys and so on; of value heads first one of each key head, then the next of each.
    Turns,
}

/// What the numbers of a vector stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Themselves.
    Plain,
    /// What they exceed one by.
    OnesOff,
    /// Themselves, as their logarithms.
    Logarithms,
    /// Themselves, with a minus before them.
    Negated,
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
    /// The tensors with the gates of all experts, and with what these multiply, where those stand apart; else empty.
    pub all_apart: &'static [&'static str],
    /// What ends the names of tensors of all experts, and of their biases.
    pub all_ends: [&'static str; 2],
    /// Whether those of all experts hold (experts, inputs, outputs) rather than (experts, outputs, inputs).
    pub turned: Turned,
    /// Whether their outputs are gates in turn with what these multiply, rather than all gates first.
    pub in_turn: bool,
    /// Of the expert for every row, the projections to the gate and to what it multiplies.
    pub shared_gate_up: &'static [&'static str],
    /// The projection back of that expert.
    pub shared_down: &'static str,
    /// The projection to its share.
    pub shared_gate: &'static str,
}

/// Whether matrices stand transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// They never do.
    No,
    /// They always do.
    Yes,
    /// They do unless their shape is that of matrices that do not.
    Unless,
}

/// As most classes of transformers have it.
pub const EXPERTS: ExpertNames = ExpertNames {
    router: "mlp.gate",
    gate_up: ["mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"],
    down: "mlp.experts.{}.down_proj",
    all_gate_up: "mlp.experts.gate_up_proj",
    all_down: "mlp.experts.down_proj",
    all_apart: &[],
    all_ends: ["", "_bias"],
    turned: Turned::No,
    in_turn: false,
    shared_gate_up: &["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"],
    shared_down: "mlp.shared_expert.down_proj",
    shared_gate: "mlp.shared_expert_gate",
};

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
    delta: &[
        ("linear_attn.in_proj_qkv", 3),
        ("linear_attn.in_proj_z", 1),
        ("linear_attn.in_proj_b", 1),
        ("linear_attn.in_proj_a", 1),
    ],
    delta_order: DeltaOrder::Kinds,
    delta_taps: "linear_attn.conv1d",
    delta_rates: "linear_attn.A_log",
    rates_negated: false,
    taps_flat: false,
    delta_time_bias: "linear_attn.dt_bias",
    delta_norm: "linear_attn.norm",
    delta_output: "linear_attn.out_proj",
    conv: "conv.in_proj",
    conv_taps: "conv.conv",
    conv_output: "conv.out_proj",
    output: "self_attn.o_proj",
    mixer_post_norm: "post_attention_layernorm",
    feed_forward_norm: "post_attention_layernorm",
    gate_up: &["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
    experts: EXPERTS,
    feed_forward_post_norm: "post_feedforward_layernorm",
    ones_off: false,
    pairs_adjacent: false,
    further: None,
    ignored: &[],
};

/// As GGUF files have those of experts.
const GGUF_EXPERTS: ExpertNames = ExpertNames {
    router: "ffn_gate_inp",
    all_down: "ffn_down_exps",
    all_apart: &["ffn_gate_exps", "ffn_up_exps"],
    all_ends: [".weight", ".bias"],
    shared_gate_up: &["ffn_gate_shexp", "ffn_up_shexp"],
    shared_down: "ffn_down_shexp",
    shared_gate: "ffn_gate_inp_shexp",
    ..EXPERTS
};

/// As GGUF files have it. Norms have had their ones added, and the head is simply there or not.
pub const GGUF: Names = Names {
    prefixes: &[""],
    heads: &["output"],
    embedding: "token_embd",
    norm: "output_norm",
    layer: "blk.{}.",
    mixer_norm: "attn_norm",
    qkv: &["attn_q", "attn_k", "attn_v"],
    q_norm: "attn_q_norm",
    k_norm: "attn_k_norm",
    sinks: "attn_sinks.weight",
    delta: &[("attn_qkv", 3), ("attn_gate", 1), ("ssm_beta", 1), ("ssm_alpha", 1)],
    delta_taps: "ssm_conv1d",
    delta_rates: "ssm_a",
    rates_negated: true,
    taps_flat: true,
    delta_time_bias: "ssm_dt.bias",
    delta_norm: "ssm_norm",
    delta_output: "ssm_out",
    conv: "shortconv.in_proj",
    conv_taps: "shortconv.conv",
    conv_output: "shortconv.out_proj",
    output: "attn_output",
    mixer_post_norm: "post_attention_norm",
    feed_forward_norm: "ffn_norm",
    gate_up: &["ffn_gate", "ffn_up"],
    down: "ffn_down",
    feed_forward_post_norm: "post_ffw_norm",
    experts: GGUF_EXPERTS,
    further: Some("nextn.eh_proj.weight"),
    // Frequencies are read with the metadata.
    ignored: &["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"],
    ..COMMON
};

impl Names {
    /// The tensors of a weight, without the prefix, and which of them holds each of its sections. None for the projections
    /// of experts, of which [`ExpertNames`] tells.
    pub fn tensors(&self, spec: &Spec, to: Destination, shape: &Shape) -> (Vec<String>, Vec<usize>) {
        use Destination as To;
        let own = |layer: usize, modules: &[&str], last: &str| {
            let layer = self.layer(layer);
            modules.iter().map(|module| format!("{layer}{module}{last}")).collect()
        };
        let weight = |layer, modules: &[&str]| own(layer, modules, ".weight");
        let bias = |layer, modules: &[&str]| own(layer, modules, ".bias");
        let of_delta: Vec<&str> = self.delta.iter().map(|(module, _)| *module).collect();
        let of_conv = [self.conv];
        let inputs = |layer| if is_delta(spec, layer) { &of_delta[..] } else { &of_conv };
        let taps = |layer| if is_delta(spec, layer) { self.delta_taps } else { self.conv_taps };
        let output = |layer: usize| match &spec.layers[layer].mixer {
            Mixer::Attention(_) => self.output,
            Mixer::Delta(_) => self.delta_output,
            Mixer::ShortConv(_) => self.conv_output,
        };
        let tensors = match to {
            To::Embedding => vec![format!("{}.weight", self.embedding)],
            To::Norm => vec![format!("{}.weight", self.norm)],
            // Of several names one is there.
            To::Head => self.heads.iter().take(1).map(|head| format!("{head}.weight")).collect(),
            To::MixerNorm(layer) => weight(layer, &[self.mixer_norm]),
            To::Qkv(layer) => weight(layer, self.qkv),
            To::QkvBias(layer) => bias(layer, self.qkv),
            To::QNorm(layer) => weight(layer, &[self.q_norm]),
            To::KNorm(layer) => weight(layer, &[self.k_norm]),
            To::Sinks(layer) => own(layer, &[self.sinks], ""),
            To::Inputs(layer) => weight(layer, inputs(layer)),
            To::InputsBias(layer) => bias(layer, inputs(layer)),
            To::Taps(layer) => weight(layer, &[taps(layer)]),
            To::TapsBias(layer) => bias(layer, &[taps(layer)]),
            To::Rates(layer) => own(layer, &[self.delta_rates], ""),
            To::TimeBias(layer) => own(layer, &[self.delta_time_bias], ""),
            To::DeltaNorm(layer) => weight(layer, &[self.delta_norm]),
            To::Output(layer) => weight(layer, &[output(layer)]),
            To::OutputBias(layer) => bias(layer, &[output(layer)]),
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
        };
        let holders = self.holders(spec, to, (tensors.len(), shape.sections.len()));
        (tensors, holders)
    }

    /// Which of so many tensors holds each of so many sections.
    fn holders(&self, spec: &Spec, to: Destination, (tensors, sections): (usize, usize)) -> Vec<usize> {
        use Destination as To;
        match to {
            _ if tensors == 1 => vec![0; sections],
            // The gates stand among the queries.
            To::Qkv(_) | To::QkvBias(_) => (0..sections).map(|section| section % tensors).collect(),
            To::Inputs(layer) if is_delta(spec, layer) => {
                let counts = self.delta.iter().enumerate();
                counts.flat_map(|(tensor, (_, count))| std::iter::repeat_n(tensor, *count)).collect()
            }
            _ => (0..sections).collect(),
        }
    }

    /// What the numbers of a vector stand for.
    pub fn stored(&self, to: Destination) -> Stored {
        use Destination as To;
        match to {
            To::MixerNorm(_)
            | To::QNorm(_)
            | To::KNorm(_)
            | To::MixerPostNorm(_)
            | To::FeedForwardNorm(_)
            | To::FeedForwardPostNorm(_)
            | To::Norm
                if self.ones_off =>
            {
                Stored::OnesOff
            }
            To::Rates(_) if self.rates_negated => Stored::Negated,
            To::Rates(_) => Stored::Logarithms,
            _ => Stored::Plain,
        }
    }

    /// Whether the tensor `name` is of layer number `first` or of one behind it.
    pub fn is_from(&self, first: usize, name: &str) -> bool {
        let behind = self.layer.split_once("{}").and_then(|(before, _)| name.strip_prefix(before));
        let number = behind.and_then(|behind| behind.split('.').next()?.parse::<usize>().ok());
        number.is_some_and(|number| number >= first)
    }

    /// What stands before the names of a layer's tensors.
    pub fn layer(&self, layer: usize) -> String {
        self.layer.replace("{}", &layer.to_string())
    }

    /// For each section of a weight the rows, in the order in which the model wants them, of the tensor that holds it;
    /// none where all tensors one below the other are in order.
    pub fn order(&self, spec: &Spec, to: Destination, shape: &Shape) -> Option<Vec<Arc<[u32]>>> {
        use Destination as To;
        match (to, &spec.layers.get(layer_of(to)?)?.mixer) {
            (To::Qkv(_) | To::QkvBias(_), Mixer::Attention(attention)) => {
                let pairs = match attention.rope.filter(|_| self.pairs_adjacent) {
                    Some(rope) => spec.ropes[rope].pairs,
                    None => 0,
                };
                (pairs > 0 || attention.gated).then(|| self.heads_in_order(attention, pairs, shape))
            }
            (To::Inputs(_), Mixer::Delta(delta)) => match self.delta_order {
                DeltaOrder::Kinds => None,
                DeltaOrder::Groups => Some(groups_in_order(delta)),
                DeltaOrder::ScoreGroups => Some(score_groups_in_order(delta)),
                DeltaOrder::Turns => Some(turns_in_order(delta)),
            },
            (To::Taps(_), Mixer::Delta(delta)) if self.delta_order == DeltaOrder::Turns => {
                let channels = turns_in_order(delta);
                Some(vec![channels[..3].iter().flat_map(|part| part.iter().copied()).collect()])
            }
            (To::Rates(_) | To::TimeBias(_), Mixer::Delta(delta))
                if self.delta_order == DeltaOrder::Turns =>
            {
                Some(vec![turns(delta, 1, 0)])
            }
            _ => None,
        }
    }

    /// The columns of a weight's tensor in the order in which the model wants them, and how many of them move together;
    /// none where they are in order.
    pub fn columns(&self, spec: &Spec, to: Destination) -> Option<(Arc<[u32]>, usize)> {
        match (to, &spec.layers.get(layer_of(to)?)?.mixer) {
            (Destination::Output(_), Mixer::Delta(delta)) if self.delta_order == DeltaOrder::Turns => {
                Some((turns(delta, 1, 0), delta.value_dim))
            }
            _ => None,
        }
    }

    /// Queries, keys, values and gates; of queries and keys the pairs that turn stand side by side.
    fn heads_in_order(&self, attention: &Attention, pairs: usize, shape: &Shape) -> Vec<Arc<[u32]>> {
        let (dim, is_split) = (attention.head_dim, self.qkv.len() > 1);
        let mut first = 0; // in the tensor that holds all
        let order = |(section, rows): (usize, &usize)| -> Arc<[u32]> {
            let turned = section < 2; // queries and keys
            let in_head = |i: usize| match i {
                i if turned && i < pairs => 2 * i,
                i if turned && i < 2 * pairs => 2 * (i - pairs) + 1,
                _ => i,
            };
            // Each head of queries has its gates behind it.
            let head = |head: usize| match section {
                0 if attention.gated => head * 2 * dim,
                3 => head * 2 * dim + dim,
                _ => first + head * dim,
            };
            let rows_in_order = (0..*rows).map(|row| (head(row / dim) + in_head(row % dim)) as u32).collect();
            first += match section {
                _ if is_split => 0,
                0 if attention.gated => 2 * rows,
                _ => *rows,
            };
            rows_in_order
        };
        shape.sections.iter().enumerate().map(order).collect()
    }
}

/// The layer of a weight whose rows or columns may be in another order.
fn layer_of(to: Destination) -> Option<usize> {
    use Destination as To;
    match to {
        To::Qkv(layer)
        | To::QkvBias(layer)
        | To::Inputs(layer)
        | To::Taps(layer)
        | To::Rates(layer)
        | To::TimeBias(layer)
        | To::Output(layer) => Some(layer),
        _ => None,
    }
}

fn is_delta(spec: &Spec, layer: usize) -> bool {
    matches!(spec.layers[layer].mixer, Mixer::Delta(_))
}

/// Where queries, keys, values, gates, `b` and `a` stand in two tensors that hold a group for each key head: its query,
/// its key, the values of its value heads and their gates; and their `b` and their `a`.
fn groups_in_order(delta: &Delta) -> Vec<Arc<[u32]>> {
    let Delta { key_heads, value_heads, key_dim, value_dim, .. } = *delta;
    let of_key = value_heads / key_heads;
    let values = of_key * value_dim;
    let rows = |heads: usize, dim: usize, group: usize, first: usize| -> Arc<[u32]> {
        let in_group = heads / key_heads * dim;
        (0..heads * dim).map(|row| (row / in_group * group + first + row % in_group) as u32).collect()
    };
    let group = 2 * key_dim + 2 * values;
    vec![
        rows(key_heads, key_dim, group, 0),
        rows(key_heads, key_dim, group, key_dim),
        rows(value_heads, value_dim, group, 2 * key_dim),
        rows(value_heads, value_dim, group, 2 * key_dim + values),
        rows(value_heads, 1, 2 * of_key, 0),
        rows(value_heads, 1, 2 * of_key, of_key),
    ]
}

/// The same where only `b` and `a` stand in a tensor with a group for each key head.
fn score_groups_in_order(delta: &Delta) -> Vec<Arc<[u32]>> {
    let mut order = kinds_in_order(delta);
    order.splice(4.., groups_in_order(delta).split_off(4));
    order
}

/// Where queries, keys, values, gates, `b` and `a` stand where value heads of different key heads take turns, and the first
/// three share a tensor.
fn turns_in_order(delta: &Delta) -> Vec<Arc<[u32]>> {
    let mut order = kinds_in_order(delta);
    let values = 2 * delta.widths().0;
    order.splice(
        2..,
        [
            turns(delta, delta.value_dim, values),
            turns(delta, delta.value_dim, 0),
            turns(delta, 1, 0),
            turns(delta, 1, 0),
        ],
    );
    order
}

/// Where they stand one below the other, the first three in one tensor.
fn kinds_in_order(delta: &Delta) -> Vec<Arc<[u32]>> {
    let ((keys, values), heads) = (delta.widths(), delta.value_heads);
    let rows =
        |first: usize, count: usize| -> Arc<[u32]> { (first..first + count).map(|row| row as u32).collect() };
    vec![
        rows(0, keys),
        rows(keys, keys),
        rows(2 * keys, values),
        rows(0, values),
        rows(0, heads),
        rows(0, heads),
    ]
}

/// The rows of value heads that take turns, `dim` each, from row `first` on: those of one key head together.
fn turns(delta: &Delta, dim: usize, first: usize) -> Arc<[u32]> {
    let of_key = delta.value_heads / delta.key_heads;
    let head = |head: usize| head % of_key * delta.key_heads + head / of_key;
    (0..delta.value_heads * dim).map(|row| (first + head(row / dim) * dim + row % dim) as u32).collect()
}
