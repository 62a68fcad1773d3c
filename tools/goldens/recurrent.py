"""The tiny checkpoints of families with recurrent layers. Their prompts are shorter and longer than the 64 positions that
transformers puts together in the delta rule."""
from cases import Case

# Width 24, two to four layers, four query heads that share two key-value heads.
BASE = dict(
    vocab_size=48, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
# Each key head of 8 has two value heads of 12.
DELTA = dict(
    **BASE, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
    linear_value_head_dim=12, rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
)
LINEAR, FULL = "linear_attention", "full_attention"
MIXED = {"num_hidden_layers": 3, "layer_types": [LINEAR, FULL, LINEAR]}
# As many value heads as key heads, of other sizes, and other functions.
OTHERS = dict(
    linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=10, linear_value_head_dim=6,
    linear_conv_kernel_dim=2, attention_bias=True, hidden_act="gelu", rms_norm_eps=0.05,
)
OTHERS_OFF = [{"hidden_act": "silu"}, {"rms_norm_eps": 1e-6}]
# Four experts, of which two work on a row, and one for every row.
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12)
# No layer with experts.
NO_EXPERTS = {"mlp_only_layers": [0, 1, 2, 3], **EXPERTS}


def case(model: str, base: dict, name: str, note: str, config: dict, **more) -> Case:
    return Case(name, note, config, model=model, base=base, greedy=24, **more)


def first_spelling(saved: dict):
    """As the first files of the family spell it."""
    saved.update(
        full_attn_idxs=[1], block_ff_dim=saved.pop("intermediate_size"), block_dim=24, conv_dim=24, conv_dim_out=24,
        block_norm_eps=saved["norm_eps"], block_use_swiglu=True, num_heads=4, use_pos_enc=True, conv_use_xavier_init=True,
        block_mlp_init_scale=1.0, block_out_init_scale=1.0, block_use_xavier_init=True, tie_embedding=False,
        rope_theta=saved.pop("rope_parameters")["rope_theta"], torch_dtype=saved.pop("dtype"),
    )
    del saved["layer_types"], saved["tie_word_embeddings"]


def lfm2() -> list[Case]:
    adjusted = {"intermediate_size": 48, "block_multiple_of": 8}
    return [
        case("lfm2", BASE, "lfm2", "Convolutions around attention; the inner width is 48 · 2/3, and tied.",
             {**adjusted, "num_hidden_layers": 3, "layer_types": ["conv", FULL, "conv"]}, prompt=40),
        case("lfm2", BASE, "lfm2-first", "Biases, four taps, a multiplier of 1.3, in the spelling of the first files.",
             {**adjusted, "full_attn_idxs": [1], "conv_bias": True, "conv_L_cache": 4, "block_ffn_dim_multiplier": 1.3,
              "tie_word_embeddings": False, "norm_eps": 0.05, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
             spell=first_spelling, prompt=30, without={"norm_eps": 1e-6}),
        case("lfm2", BASE, "lfm2-plain", "One convolution, of one position; the inner width as it is written.",
             {"block_auto_adjust_ff_dim": False, "conv_L_cache": 1, "full_attn_idxs": [1]}),
    ]


def qwen3_next() -> list[Case]:
    return [
        case("qwen3_next", DELTA, "qwen3-next", "Three layers of the delta rule and one of attention, without experts.",
             {**NO_EXPERTS, "num_hidden_layers": 4}, prompt=40),
        case("qwen3_next", DELTA, "qwen3-next-types", "Other sizes and functions; a head of its own.",
             {**MIXED, **NO_EXPERTS, **OTHERS}, prompt=90, without=OTHERS_OFF),
        case("qwen3_next", DELTA, "qwen3-next-experts", "Experts in two layers, whose shares come to one.",
             {"layer_types": [LINEAR, FULL], **EXPERTS}, prompt=66, without={"norm_topk_prob": False}),
    ]


def qwen3_5() -> list[Case]:
    sections = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 0, 0], "mrope_interleaved": True}
    text = {**DELTA, "full_attention_interval": 2}
    return [
        case("qwen3_5_text", DELTA, "qwen3-5-text", "Every second layer attends; tied.",
             {"full_attention_interval": 2, "tie_word_embeddings": True, "rope_parameters": sections}, prompt=100),
        case("qwen3_5_text", DELTA, "qwen3-5-text-types", "Other sizes and functions; half of each head turns.",
             {**MIXED, **OTHERS, "rope_parameters": {**DELTA["rope_parameters"], "partial_rotary_factor": 0.5}},
             prompt=40, without=[*OTHERS_OFF, {"rope_parameters": DELTA["rope_parameters"]}]),
        case("qwen3_5", {}, "qwen3-5", "The text part of a checkpoint for images.",
             {"text_config": {**text, "rope_parameters": sections},
              "vision_config": dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=24,
                                    num_position_embeddings=16, patch_size=4),
              "image_token_id": 44, "video_token_id": 45, "vision_start_token_id": 46, "vision_end_token_id": 47},
             is_text=False, prompt=66),
        case("qwen3_5_moe_text", {key: value for key, value in DELTA.items() if key != "intermediate_size"},
             "qwen3-5-moe-text", "Experts in every layer.", {"full_attention_interval": 2, **EXPERTS}, prompt=40),
    ]


def gguf() -> list[Case]:
    """What the other cases have that GGUF files can say."""
    three = dict(
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=10, linear_value_head_dim=6,
        linear_conv_kernel_dim=2, attention_bias=True, rms_norm_eps=0.05, **MIXED)
    half = {"rope_parameters": {**DELTA["rope_parameters"], "partial_rotary_factor": 0.5}}
    off = {"rms_norm_eps": 1e-6}
    return [
        case("lfm2", BASE, "gguf-lfm2", "Four taps, and an inner width as it is written.",
             {"block_auto_adjust_ff_dim": False, "layer_types": [FULL, "conv"], "conv_L_cache": 4, "norm_eps": 0.05},
             prompt=30, without={"norm_eps": 1e-5}),
        case("qwen3_5_text", DELTA, "gguf-qwen3-5", "Three value heads for a key head, biases, and half of each head turns.",
             {**three, **half}, prompt=40, without=[off, {"rope_parameters": DELTA["rope_parameters"]}]),
        case("qwen3_next", DELTA, "gguf-qwen3-next", "The same, with experts in all layers.",
             {**three, **half, **EXPERTS}, prompt=40, without=[off, {"rope_parameters": DELTA["rope_parameters"]}]),
    ]


RECURRENT = gguf() + lfm2() + qwen3_next() + qwen3_5()
