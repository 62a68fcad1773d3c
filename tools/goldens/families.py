"""Tiny checkpoints of all families but the one of cases.py: at least two sets of options each."""
from cases import Case, drop, put

# Width 24, four query heads of 8 that share two key-value heads, ids of special tokens within the vocabulary.
BASE = dict(
    vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=256, pad_token_id=None, bos_token_id=1, eos_token_id=2,
)
SLIDING, FULL = "sliding_attention", "full_attention"
# One factor for each of the four frequencies of a head, and for each of two.
SHORT, LONG = [1.0, 1.2, 1.5, 2.0], [1.3, 2.7, 6.0, 9.5]


def case(name, note, model, config=None, **more) -> Case:
    """A case of text, from which None removes a size that the class derives."""
    base = {key: value for key, value in {**BASE, **(config or {})}.items() if (config or {}).get(key, 0) != "derived"}
    return Case(name, note, {}, model=model, base=base, greedy=24, **more)


def both(*spells):
    def spell(saved):
        for one in spells:
            one(saved)
    return spell


def rope(rope_type="default", theta=10_000.0, **options) -> dict:
    return {"rope_parameters": {"rope_type": rope_type, "rope_theta": theta, **options}}


def old_rope(scaling, theta):
    """As before transformers 5: `rope_theta` and `rope_scaling` side by side."""
    return both(drop("rope_parameters"), put(rope_theta=theta, rope_scaling=scaling))


def plain() -> list[Case]:
    scaled = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
    return [
        case("llama-3", "Llama 3.1's rope in the old spelling, heads wider than the width has room for, tied.", "llama",
             {"head_dim": 12, "tie_word_embeddings": True, **rope("llama3", 500_000.0, **scaled)},
             spell=old_rope({"rope_type": "llama3", **scaled}, 500_000.0), without=rope("default", 500_000.0)),
        case("llama-biases", "Biases everywhere, as many key-value heads as heads, head_dim from the width, untied.", "llama",
             {"head_dim": "derived", "num_key_value_heads": None, "attention_bias": True, "mlp_bias": True,
              "rms_norm_eps": 1e-5}, spell=drop("head_dim", "num_key_value_heads")),
        case("qwen2", "Biases on queries, keys and values; another base; tied.", "qwen2",
             {"head_dim": "derived", "tie_word_embeddings": True, **rope(theta=1_000_000.0)},
             spell=old_rope(None, 1_000_000.0), without=rope()),
        case("qwen2-windows", "A window of 8 from layer 1 of 3 on, untied.", "qwen2",
             {"head_dim": "derived", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
             spell=drop("layer_types"), without={"use_sliding_window": False}),
        case("mistral", "A window of 8 in every layer.", "mistral", {"sliding_window": 8},
             without={"sliding_window": None}),
        case("mistral-full", "No window, heads of 12, YaRN, tied.", "mistral",
             {"sliding_window": None, "head_dim": 12, "tie_word_embeddings": True,
              **rope("yarn", factor=4.0, original_max_position_embeddings=64)}, without=rope()),
        case("smollm3", "Every second layer without rope; the class's base; tied.", "smollm3",
             {"no_rope_layer_interval": 2, "head_dim": "derived"}, spell=drop("no_rope_layers", "rope_parameters"),
             without={"no_rope_layer_interval": 4}),
        case("smollm3-layers", "Layers without rope by list, which have a window of 8; biases everywhere; untied.", "smollm3",
             {"no_rope_layers": [0, 1, 0], "use_sliding_window": True, "sliding_window": 8, "attention_bias": True,
              "mlp_bias": True, "tie_word_embeddings": False, **rope(theta=50_000.0)}, spell=drop("layer_types"),
             without=[{"use_sliding_window": False}, {"no_rope_layers": [1, 1, 0]}]),
    ]


def gemma() -> list[Case]:
    nested = {"rope_parameters": {
        FULL: {"rope_type": "yarn", "rope_theta": 50_000.0, "factor": 4.0, "original_max_position_embeddings": 64},
        SLIDING: {"rope_type": "default", "rope_theta": 500.0}}}
    old = {"rope_parameters": {FULL: {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
                               SLIDING: {"rope_type": "default", "rope_theta": 5_000.0}}}
    return [
        case("gemma2", "Soft caps of scores and logits, a query scale of its own, a window of 8 in every second layer.",
             "gemma2", {"sliding_window": 8, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 1.0,
                        "query_pre_attn_scalar": 5}, spell=drop("layer_types"),
             without=[{"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
                      {"query_pre_attn_scalar": 8}, {"sliding_window": 100}]),
        case("gemma2-plain", "No caps, biases, windows by list, another activation, untied.", "gemma2",
             {"sliding_window": 8, "attn_logit_softcapping": None, "final_logit_softcapping": None,
              "query_pre_attn_scalar": 8, "layer_types": [FULL, SLIDING, SLIDING], "attention_bias": True,
              "hidden_activation": "relu", "tie_word_embeddings": False},
             without=[{"layer_types": [FULL] * 3}, {"hidden_activation": "gelu_pytorch_tanh"}]),
        case("gemma3-text", "A window of 8 in two of three layers, local and scaled global rope in the old spelling.",
             "gemma3_text", {"sliding_window": 8, "query_pre_attn_scalar": 8, **old,
                             "layer_types": [SLIDING, SLIDING, FULL]},
             spell=both(drop("layer_types", "rope_parameters"),
                        put(sliding_window_pattern=3, rope_theta=1_000_000, rope_local_base_freq=5_000,
                            rope_scaling={"rope_type": "linear", "factor": 8.0}, cache_implementation="hybrid")),
             without=[{"layer_types": [FULL] * 3},
                      {"rope_parameters": {**old["rope_parameters"], FULL: {"rope_type": "default", "rope_theta": 1e6}}}]),
        case("gemma3-text-nested", "Rope by type of layer, a cap of the logits, biases, another query scale, untied.",
             "gemma3_text", {"sliding_window": 8, "query_pre_attn_scalar": 20, "final_logit_softcapping": 4.0,
                             "layer_types": [FULL, SLIDING, FULL], "attention_bias": True,
                             "tie_word_embeddings": False, **nested},
             without=[{"final_logit_softcapping": None}, {"query_pre_attn_scalar": 8},
                      {"rope_parameters": {**nested["rope_parameters"], SLIDING: nested["rope_parameters"][FULL]}}]),
    ]


def phi() -> list[Case]:
    su = dict(short_factor=SHORT[:2], long_factor=LONG[:2])
    return [
        case("phi3", "Fused projections, a window of 8 in every layer.", "phi3",
             {"head_dim": "derived", "hidden_size": 32, "intermediate_size": 24, "sliding_window": 8, "rms_norm_eps": 1e-5},
             without={"sliding_window": None}),
        case("phi3-longrope", "Half of each head turns; longrope in its oldest spelling, the prompt longer than the first 32 "
             "positions; tied.", "phi3",
             {"head_dim": "derived", "hidden_size": 32, "intermediate_size": 24, "tie_word_embeddings": True,
              "original_max_position_embeddings": 32,
              **rope("longrope", partial_rotary_factor=0.5, original_max_position_embeddings=32, **su)},
             spell=both(old_rope({"type": "su", "original_max_position_embeddings": 32, **su}, 10_000.0),
                        put(partial_rotary_factor=0.5)), prompt=40,
             without=[rope(partial_rotary_factor=0.5), rope("longrope", original_max_position_embeddings=32,
                      short_factor=SHORT, long_factor=LONG)]),
    ]


def others() -> list[Case]:
    scales = dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=2.5)
    ones = dict(embedding_multiplier=1.0, attention_multiplier=8 ** -0.5, residual_multiplier=1.0, logits_scaling=1.0)
    return [
        case("olmo2", "Norms behind both parts and over whole projections; as many key-value heads as heads.", "olmo2",
             {"num_key_value_heads": None, "head_dim": "derived", "num_attention_heads": 3, "rms_norm_eps": 1e-5}),
        case("olmo2-biases", "Two query heads on each key-value head, biases, linear rope, tied.", "olmo2",
             {"attention_bias": True, "tie_word_embeddings": True, **rope("linear", 500_000.0, factor=4.0)},
             without=rope(theta=500_000.0)),
        case("granite", "All four multipliers, tied.", "granite",
             {"head_dim": "derived", "hidden_size": 32, "intermediate_size": 24, "tie_word_embeddings": True, **scales},
             without=[{key: ones[key]} for key in scales]),
        case("granite-biases", "Biases everywhere, the multipliers that the class assumes, untied.", "granite",
             {"head_dim": "derived", "hidden_size": 32, "intermediate_size": 24, "attention_bias": True, "mlp_bias": True},
             spell=drop(*scales), without={"attention_multiplier": 8 ** -0.5}),
        case("glm4", "Neighbours of half a head turn together; norms around both parts; biases on queries, keys and values.",
             "glm4", {"eos_token_id": [2, 3]}, spell=both(drop("attention_bias", "rope_parameters"), put(rope_theta=10_000.0)),
             without=rope(partial_rotary_factor=1.0)),
        case("glm4-whole", "The whole head turns, no biases, another base, tied.", "glm4",
             {"attention_bias": False, "tie_word_embeddings": True, "eos_token_id": [2, 3],
              **rope(theta=500.0, partial_rotary_factor=1.0)}, without=rope(theta=500.0, partial_rotary_factor=0.5)),
        case("cohere2", "Both parts of a layer side by side, centred norms, a window of 8 and rope in two of three layers.",
             "cohere2", {"head_dim": "derived", "hidden_size": 32, "intermediate_size": 24, "sliding_window": 8,
                         "logit_scale": 0.25, "layer_types": [SLIDING, SLIDING, FULL], "layer_norm_eps": 0.05},
             spell=both(drop("layer_types"), put(
                 sliding_window_pattern=3, use_parallel_block=True, use_embedding_sharing=True, rotary_pct=1.0,
                 use_gated_activation=True, use_parallel_embedding=False, use_qk_norm=False, layer_switch=3,
                 position_embedding_type="rope_gptj", order_of_interleaved_layers="local_attn_first",
                 cache_implementation="hybrid")),
             without=[{"layer_types": [SLIDING] * 3}, {"sliding_window": 100}, {"logit_scale": 1.0}, {"layer_norm_eps": 1e-5}]),
        case("cohere2-biases", "Windows by list, biases, two key-value heads, llama3 rope, untied.", "cohere2",
             {"head_dim": "derived", "hidden_size": 32, "intermediate_size": 24, "sliding_window": 12,
              "layer_types": [FULL, SLIDING, SLIDING], "attention_bias": True, "tie_word_embeddings": False,
              **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)},
             without=rope()),
    ]


def gguf() -> list[Case]:
    """What the metadata of GGUF files cannot say is as llama.cpp takes it to be: patterns of layers, scales of queries."""
    ropes = {"rope_parameters": {FULL: {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
                                 SLIDING: {"rope_type": "default", "rope_theta": 10_000.0}}}
    return [
        case("gguf-cohere2", "Every fourth layer sees everything and does not turn.", "cohere2",
             {"head_dim": "derived", "hidden_size": 32, "intermediate_size": 24, "sliding_window": 8,
              "num_hidden_layers": 4, "logit_scale": 0.25}, spell=put(rotary_pct=1.0),
             without={"sliding_window": 100}),
        case("gguf-gemma2", "Every second layer sees everything; the scale of queries is that of heads.", "gemma2",
             {"sliding_window": 8, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 1.0,
              "query_pre_attn_scalar": 8}, without={"sliding_window": 100}),
        case("gguf-gemma3", "Every sixth layer sees everything, with a scaled rope.", "gemma3_text",
             {"sliding_window": 8, "query_pre_attn_scalar": 8, "num_hidden_layers": 7, **ropes},
             without={"sliding_window": 100}),
        case("gguf-smollm3", "Every fourth layer without rope.", "smollm3",
             {"head_dim": "derived", "num_hidden_layers": 4}, without={"no_rope_layer_interval": 2}),
    ]


SIGLIP = dict(model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
              num_attention_heads=2, image_size=16, patch_size=8)


def nested(name, note, model, vision, text, outer=None, **more) -> Case:
    """A case of which text is a part."""
    def spell(saved):
        # The sizes of the part for images are long, and nobody reads them.
        saved["vision_config"] = {key: saved["vision_config"][key] for key in vision if key in saved["vision_config"]}
        also(saved)
    also = more.pop("spell", lambda saved: None)
    config = {"vision_config": vision, "text_config": {**BASE, **text}, **(outer or {})}
    return Case(name, note, {}, spell=spell, model=model, is_text=False, base=config, greedy=24, **more)


def flat(saved):
    """As Qwen2.5-VL was published: without `text_config`."""
    text = saved.pop("text_config")
    for key in ["model_type", "architectures", "layer_types"]:
        text.pop(key, None)
    rope = text.pop("rope_parameters")
    saved.update({key: value for key, value in text.items() if key not in saved})
    saved["rope_theta"] = rope["rope_theta"]
    saved["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}


def multimodal() -> list[Case]:
    qwen = dict(depth=1, hidden_size=8, num_heads=2, patch_size=2, out_hidden_size=24, intermediate_size=8)
    clip = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
    mrope = dict(mrope_section=[2, 1, 1])
    llama = dict(model_type="llama", num_hidden_layers=2)
    return [
        nested("gemma3", "The text part of a Gemma 3 that sees, tied by the class.", "gemma3", SIGLIP,
               dict(model_type="gemma3_text", sliding_window=8, query_pre_attn_scalar=8, num_hidden_layers=2,
                    layer_types=[SLIDING, FULL]), dict(mm_tokens_per_image=1, eos_token_id=[1, 3]),
               spell=drop("tie_word_embeddings")),
        nested("mistral3", "The text part of a Mistral 3 that sees, untied.", "mistral3",
               dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                    head_dim=4, image_size=16, patch_size=8),
               dict(model_type="mistral", sliding_window=None, num_hidden_layers=2, head_dim=12),
               dict(tie_word_embeddings=False)),
        nested("qwen2-5-vl", "The text part of a Qwen2.5-VL, its keys beside those for images.", "qwen2_5_vl",
               dict(qwen, fullatt_block_indexes=[0], window_size=8),
               dict(hidden_size=32, intermediate_size=24, num_hidden_layers=2, **rope(theta=1_000_000.0, **mrope)),
               spell=flat),
        nested("qwen3-vl", "The text part of a Qwen3-VL, tied by the whole.", "qwen3_vl",
               dict(qwen, deepstack_visual_indexes=[0], num_position_embeddings=4),
               dict(num_hidden_layers=2, attention_bias=True, **rope(theta=50_000.0, mrope_interleaved=True, **mrope)),
               dict(tie_word_embeddings=True)),
        nested("qwen3-vl-moe", "The text part of a Qwen3-VL with experts, stored with inputs before outputs; untied.",
               "qwen3_vl_moe", dict(qwen, deepstack_visual_indexes=[0], num_position_embeddings=4),
               dict(num_hidden_layers=2, hidden_size=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                    tie_word_embeddings=False, **rope(theta=50_000.0, mrope_interleaved=True, **mrope)),
               dict(tie_word_embeddings=False)),
        nested("internvl-gpt-oss", "A gpt-oss as text part of an InternVL.", "internvl",
               dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=[16, 16],
                    patch_size=[8, 8]),
               dict(model_type="gpt_oss", num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
                    intermediate_size=16, sliding_window=8, **rope(theta=150_000.0))),
        nested("smolvlm", "The text part of a SmolVLM.", "smolvlm", clip, llama, dict(pad_token_id=0)),
        nested("llava", "The text part of a LLaVA, tied by the text part.", "llava",
               dict(clip, model_type="clip_vision_model", projection_dim=8), dict(llama, tie_word_embeddings=True),
               spell=drop("tie_word_embeddings")),
    ]


FAMILIES = plain() + gemma() + phi() + others() + gguf() + multimodal()
