"""Writes crates/whin/tests/fixtures/class-defaults.json: what the config class of each family assumes.

Run from the root of the repository with transformers 5.17 installed:

    python tools/goldens/defaults.py > crates/whin/tests/fixtures/class-defaults.json

A row for each model_type of text, with sizes, scales, ends, and for each layer its window (null for none) and the base of
its rope (null where it does not turn).
"""
import json

from transformers import CONFIG_MAPPING

FAMILIES = ["cohere2", "gemma2", "gemma3_text", "glm4", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3",
            "smollm3"]


def row(name):
    config = CONFIG_MAPPING[name]()
    get = lambda key, default=None: getattr(config, key, default)
    layers = range(config.num_hidden_layers)
    head_dim = get("head_dim") or config.hidden_size // config.num_attention_heads
    window = get("sliding_window") if get("use_sliding_window", True) else None
    types = get("layer_types") or [("sliding" if window else "full") + "_attention"] * len(layers)
    slides = [kind == "sliding_attention" for kind in types]
    turns = get("no_rope_layers") or (slides if name == "cohere2" else [True] * len(layers))
    rope = lambda kind: config.rope_parameters.get(kind, config.rope_parameters)
    eos = config.eos_token_id
    scale = config.query_pre_attn_scalar ** -0.5 if name.startswith("gemma") else get("attention_multiplier", head_dim ** -0.5)
    return {
        "model_type": name, "vocab": config.vocab_size, "width": config.hidden_size, "inner": config.intermediate_size,
        "heads": config.num_attention_heads, "kv_heads": config.num_key_value_heads, "head_dim": head_dim,
        "max_positions": config.max_position_embeddings, "norm_eps": get("rms_norm_eps", get("layer_norm_eps")),
        "activation": get("hidden_activation", get("hidden_act")), "tied": config.tie_word_embeddings,
        "bos": config.bos_token_id, "eos": eos if isinstance(eos, list) else [eos] if eos is not None else [],
        "scale": scale, "softcap": get("attn_logit_softcapping"), "logit_softcap": get("final_logit_softcapping"),
        "embedding_scale": config.hidden_size ** 0.5 if name.startswith("gemma") else get("embedding_multiplier", 1.0),
        "residual_scale": get("residual_multiplier", 1.0),
        "logit_scale": get("logit_scale", 1 / get("logits_scaling", 1.0)),
        "pairs": int(head_dim * rope(types[0]).get("partial_rotary_factor", 1.0)) // 2,
        "windows": [window if slides[layer] else None for layer in layers],
        "thetas": [rope(types[layer])["rope_theta"] if turns[layer] else None for layer in layers],
    }


print("[\n" + ",\n".join(json.dumps(row(name)) for name in FAMILIES) + "\n]")
