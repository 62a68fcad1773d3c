//! The names that tensors of plain transformers have in GGUF files, and those that they are claimed by.

/// What stands in both for all of the model.
const WHOLE: &[(&str, &str)] = &[
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];

/// What stands behind `blk.N.`, and behind `model.layers.N.`; the ends `.weight` and `.bias` are the same.
const IN_LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The name by which the tensor `name` is claimed: its own, where it is none of these.
pub(super) fn claimed(name: &str) -> String {
    if let Some((_, known)) = WHOLE.iter().find(|(own, _)| *own == name) {
        return (*known).to_owned();
    }
    let layer = || {
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (stem, end) = rest.rsplit_once('.')?;
        let (_, known) = IN_LAYER.iter().find(|(own, _)| *own == stem)?;
        Some(format!("model.layers.{layer}.{known}.{end}"))
    };
    layer().unwrap_or_else(|| name.to_owned())
}
