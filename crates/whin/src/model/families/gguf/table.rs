//! The architectures of GGUF files that are known: what each is called in `config.json`, which keys its metadata may
//! have and what these are called there, and how its tensors differ from those of transformers.
//!
//! Names are those of `llama-arch.cpp` in llama.cpp; what converters do to keys and tensors is in its folder
//! `conversion`.

use super::{Reading, derive};
use crate::Result;
use crate::model::names::{DeltaOrder, GGUF, Names};

/// One architecture.
pub(super) struct Architecture {
    /// `general.architecture`
    pub name: &'static str,
    /// `model_type`
    pub model_type: &'static str,
    /// Beyond [`COMMON`], which they replace where they have the same name.
    pub keys: &'static [Key],
    /// Switches of the config that are on where a layer has a tensor of this name.
    pub switches: &'static [(&'static str, &'static str)],
    /// Adds what follows from other keys.
    pub derive: fn(&mut Reading<'_>) -> Result<()>,
    /// Where its tensors are.
    pub names: Names,
}

/// A key of the metadata, without the name of the architecture, and what becomes of it.
pub(super) type Key = (&'static str, To);

#[derive(Clone, Copy)]
pub(super) enum To {
    /// The whole number under this key of the config; a list with one number for each layer must have one value.
    Integer(&'static str),
    /// The number under this key.
    Number(&'static str),
    /// The whole number under this key, which must be there: no class default stands for what a file means without it.
    Needed(&'static str),
    /// The number under this key, which must be there.
    NeededNumber(&'static str),
    /// Only this number does what is done without the key.
    Only(f64),
    /// Read by a function, or of no effect on what is computed.
    Known,
}

use To::{Integer, Known, Needed, NeededNumber, Number, Only};

/// Keys of every architecture.
pub(super) const COMMON: &[Key] = &[
    ("block_count", Known),
    ("context_length", Needed("max_position_embeddings")),
    ("embedding_length", Integer("hidden_size")),
    ("feed_forward_length", Integer("intermediate_size")),
    ("vocab_size", Known),
    ("tensor_data_layout", Known),
    ("attention.causal", Only(1.0)),
    ("attention.head_count", Integer("num_attention_heads")),
    ("attention.head_count_kv", Integer("num_key_value_heads")),
    ("attention.key_length", Known),
    ("attention.value_length", Known),
    ("attention.layer_norm_rms_epsilon", NeededNumber("rms_norm_eps")),
    ("pooling_type", Only(0.0)),
    ("rope.dimension_count", Known),
    ("rope.freq_base", Known),
    ("rope.scale_linear", Known),
    ("rope.scaling.attn_factor", Known),
    ("rope.scaling.factor", Known),
    ("rope.scaling.finetuned", Known),
    ("rope.scaling.original_context_length", Known),
    ("rope.scaling.type", Known),
    ("rope.scaling.yarn_attn_factor", Known),
    ("rope.scaling.yarn_beta_fast", Known),
    ("rope.scaling.yarn_beta_slow", Known),
    ("rope.scaling.yarn_ext_factor", Known),
    ("rope.scaling.yarn_log_multiplier", Known),
];

const EXPERTS: &[Key] = &[
    ("expert_count", Integer("num_experts")),
    ("expert_used_count", Integer("num_experts_per_tok")),
    ("expert_feed_forward_length", Integer("moe_intermediate_size")),
    ("expert_shared_feed_forward_length", Integer("shared_expert_intermediate_size")),
];

const QWEN_MOE: &[Key] = &[
    ("expert_count", Needed("num_experts")),
    ("expert_used_count", Needed("num_experts_per_tok")),
    EXPERTS[2],
    EXPERTS[3],
];

const LLAMA: &[Key] = &[
    ("expert_count", Integer("num_local_experts")),
    ("expert_used_count", Integer("num_experts_per_tok")),
    ("expert_feed_forward_length", Integer("intermediate_size")),
];

const GPT_OSS: &[Key] = &[
    ("expert_count", Needed("num_local_experts")),
    ("expert_used_count", Needed("num_experts_per_tok")),
    LLAMA[2],
    WINDOW[0],
    WINDOW[1],
    WINDOW[2],
];

const WINDOW: &[Key] = &[
    ("attention.sliding_window", Known),
    ("attention.sliding_window_pattern", Known),
    ("rope.freq_base_swa", Known),
];

const GEMMA: &[Key] = &[
    WINDOW[0],
    WINDOW[1],
    WINDOW[2],
    ("attn_logit_softcapping", Number("attn_logit_softcapping")),
    ("final_logit_softcapping", Number("final_logit_softcapping")),
];

const GRANITE: &[Key] = &[
    ("attention.scale", Number("attention_multiplier")),
    ("embedding_scale", Number("embedding_multiplier")),
    ("residual_scale", Number("residual_multiplier")),
    ("logit_scale", NeededNumber("logits_scaling")),
    ("rope.scaling.finetuned", Only(1.0)),
];

const COHERE: &[Key] = &[
    WINDOW[0],
    WINDOW[1],
    WINDOW[2],
    ("attention.layer_norm_epsilon", NeededNumber("layer_norm_eps")),
    ("attention.layer_norm_rms_epsilon", Known),
    ("logit_scale", NeededNumber("logit_scale")),
];

const LFM: &[Key] = &[
    ("attention.head_count_kv", Known),
    ("attention.layer_norm_rms_epsilon", NeededNumber("norm_eps")),
    ("shortconv.l_cache", Needed("conv_L_cache")),
];

const LINEAR: &[Key] = &[
    EXPERTS[0],
    EXPERTS[1],
    EXPERTS[2],
    EXPERTS[3],
    ("attention.recurrent_layers", Known),
    ("full_attention_interval", Known),
    ("nextn_predict_layers", Known),
    // Texts have one position for all sections.
    ("rope.dimension_sections", Known),
    ("ssm.conv_kernel", Needed("linear_conv_kernel_dim")),
    ("ssm.state_size", Needed("linear_key_head_dim")),
    ("ssm.group_count", Needed("linear_num_key_heads")),
    ("ssm.time_step_rank", Needed("linear_num_value_heads")),
    ("ssm.inner_size", Known),
];

const BIAS: &[(&str, &str)] = &[("attention_bias", "attn_q.bias")];
const BIASES: &[(&str, &str)] = &[("attention_bias", "attn_q.bias"), ("mlp_bias", "ffn_gate.bias")];

/// Rows of queries and keys that turn together stand side by side: 0, d/2, 1, d/2 + 1 …
const PAIRED: Names = Names { pairs_adjacent: true, ..GGUF };
const FUSED: Names = Names { qkv: &["attn_qkv"], ..HALF_FUSED };
const HALF_FUSED: Names = Names { gate_up: &["ffn_up"], ..GGUF };
/// The norm behind attention is the one before the feed-forward part.
const POST: Names = Names { feed_forward_norm: "post_attention_norm", ..GGUF };

const NEXT: Names = Names {
    delta: &[("attn_qkv", 3), ("attn_gate", 1), ("ssm_ba", 2)],
    delta_order: DeltaOrder::ScoreGroups,
    ..POST
};
const TURNS: Names = Names { delta_order: DeltaOrder::Turns, ..POST };
const SHORT_CONV: Names = Names { norm: "token_embd_norm", ..GGUF };

type Derive = fn(&mut Reading<'_>) -> Result<()>;

const fn known(
    (name, model_type): (&'static str, &'static str),
    keys: &'static [Key],
    switches: &'static [(&'static str, &'static str)],
    derive: Derive,
    names: Names,
) -> Architecture {
    Architecture { name, model_type, keys, switches, derive, names }
}

/// All that are known. Whether the family can run is for the families to say.
pub(super) const ARCHITECTURES: &[Architecture] = &[
    known(("llama", "llama"), LLAMA, BIASES, derive::llama, PAIRED),
    known(("mistral3", "mistral"), &[("attention.temperature_scale", Known)], &[], derive::mistral3, PAIRED),
    known(("smollm3", "smollm3"), &[], BIASES, derive::smollm3, PAIRED),
    known(("granite", "granite"), GRANITE, BIASES, derive::granite, PAIRED),
    known(("qwen2", "qwen2"), &[], &[], derive::nothing, GGUF),
    known(("qwen3", "qwen3"), &[], BIAS, derive::nothing, GGUF),
    known(("qwen2moe", "qwen2_moe"), QWEN_MOE, &[], derive::qwen2moe, GGUF),
    known(("qwen3moe", "qwen3_moe"), QWEN_MOE, BIAS, derive::qwen3moe, GGUF),
    known(("gemma2", "gemma2"), GEMMA, BIAS, derive::gemma2, GGUF),
    known(("gemma3", "gemma3_text"), GEMMA, BIAS, derive::gemma3, GGUF),
    known(("phi3", "phi3"), WINDOW, &[], derive::phi3, FUSED),
    known(("olmo2", "olmo2"), WINDOW, BIAS, derive::olmo2, GGUF),
    // Their own pairs stand side by side in transformers, too.
    known(("glm4", "glm4"), &[], BIAS, derive::nothing, Names { pairs_adjacent: true, ..HALF_FUSED }),
    known(("cohere2", "cohere2"), COHERE, BIAS, derive::cohere2, PAIRED),
    known(("gpt-oss", "gpt_oss"), GPT_OSS, BIAS, derive::gpt_oss, POST),
    known(("lfm2", "lfm2"), LFM, &[], derive::lfm2, SHORT_CONV),
    known(("qwen3next", "qwen3_next"), LINEAR, BIAS, derive::linear, NEXT),
    known(("qwen35", "qwen3_5_text"), LINEAR, BIAS, derive::linear, TURNS),
    known(("qwen35moe", "qwen3_5_moe_text"), LINEAR, BIAS, derive::linear, TURNS),
];
