"""The table of tiny checkpoints: one case for each option that changes a Qwen3 model's arithmetic. Those of other
families are in families.py.

A case says what the model is (keyword arguments of its config class), how its `config.json` spells that, and which
change would take the option away again; `make.py` proves that this last change moves the logits.
"""
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from quantised import Quantised

# Width 24, two layers, four query heads of 16 that share two key-value heads: small, and no size equals another.
BASE = dict(
    vocab_size=96, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=256, tie_word_embeddings=True,
    rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
)


@dataclass
class Case:
    name: str
    note: str
    config: dict = field(default_factory=dict)
    # Rewrites the saved config.json in place: the spelling under test.
    spell: Callable[[dict], None] = lambda saved: None
    # Configuration changes that switch the option off, or several of them, each of an option of its own; None where
    # there is nothing to switch off.
    without: dict | list[dict] | None = None
    prompt: int = 24
    dtype: torch.dtype = torch.bfloat16
    shard_size: str = "1GB"
    # Smallest gap between the two best logits of a greedy step, in standard deviations of the logits.
    margin: float = 0.02
    # How the projections are quantised.
    quantised: Quantised | None = None
    # The model_type.
    model: str = "qwen3"
    # Whether the class of the model is for text alone.
    is_text: bool = True
    base: dict = field(default_factory=lambda: BASE)
    # How many tokens are decoded.
    greedy: int = 16

    def arguments(self, **changes) -> dict:
        return {**self.base, **self.config, **changes}


def drop(*keys: str):
    def spell(saved):
        for key in keys:
            del saved[key]
    return spell


def put(**values):
    return lambda saved: saved.update(values)


def old_rope(scaling: dict | None, theta: float = 10_000.0):
    """Spells the rotary options as before transformers 5: `rope_theta` and `rope_scaling` side by side."""
    def spell(saved):
        del saved["rope_parameters"]
        saved["rope_theta"] = theta
        saved["rope_scaling"] = scaling
        saved["torch_dtype"] = saved.pop("dtype")
    return spell


def rope(rope_type: str, theta: float = 10_000.0, **options) -> dict:
    return {"rope_parameters": {"rope_type": rope_type, "rope_theta": theta, **options}}


DEFAULT_ROPE = rope("default")
YARN = dict(factor=4.0, original_max_position_embeddings=64)
# One factor for each of the head's eight frequencies.
SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0]
LONG = [1.0, 1.3, 1.9, 2.7, 4.1, 6.0, 8.0, 9.5]
LONGROPE = rope("longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=32, factor=8.0)


def shapes() -> list[Case]:
    return [
        Case("base", "Tied head, two query heads on each key-value head; config.json as transformers 5 writes it."),
        Case("untied", "A head of its own.", {"tie_word_embeddings": False}),
        Case("head-dim-absent", "Without head_dim a head has 128 values, whatever width and head count say.",
             {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128}, drop("head_dim")),
        Case("head-dim-narrow", "head_dim times heads is less than the width.", {"head_dim": 4}),
        Case("attention-bias", "Biases on q, k, v and o.", {"attention_bias": True}),
        Case("kv-heads-absent", "Without num_key_value_heads there are 32.",
             {"hidden_size": 16, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 4},
             drop("num_key_value_heads")),
        Case("kv-heads-null", "num_key_value_heads null: as many as query heads.",
             {"num_key_value_heads": 4}, put(num_key_value_heads=None)),
        Case("kv-heads-one", "One key-value head for all four query heads.", {"num_key_value_heads": 1}),
        Case("tie-absent", "Without tie_word_embeddings the head is untied.",
             {"tie_word_embeddings": False}, drop("tie_word_embeddings")),
        Case("norm-eps", "A large rms_norm_eps.", {"rms_norm_eps": 0.05}, without={"rms_norm_eps": 1e-6}),
        Case("odd-36", "Width 36, three heads of 12, inner width 50, vocabulary 101.",
             {"vocab_size": 101, "hidden_size": 36, "intermediate_size": 50, "num_attention_heads": 3,
              "num_key_value_heads": 3, "head_dim": 12}),
        Case("odd-35", "Odd everywhere: width 35, six heads of 10 on three, inner width 37, vocabulary 97, three layers.",
             {"vocab_size": 97, "hidden_size": 35, "intermediate_size": 37, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10, "tie_word_embeddings": False}),
    ]


def storage() -> list[Case]:
    return [
        Case("sharded", "Three files and an index.", {"tie_word_embeddings": False}, shard_size="14KB"),
        # An engine may round these weights to bf16, so the greedy margins are wide.
        Case("stored-f32", "Weights stored as F32.", dtype=torch.float32, margin=0.1),
        Case("stored-f16", "Weights stored as F16.", dtype=torch.float16, margin=0.1),
        Case("stored-f64", "Weights stored as F64.", {"intermediate_size": 32, "head_dim": 8},
             dtype=torch.float64, margin=0.1),
        Case("stored-fp8-blocks", "Projections in E4M3 with a BF16 scale for each 128 x 128, partial blocks in both "
             "directions, as Qwen3's FP8 files have them.",
             {"vocab_size": 64, "hidden_size": 132, "intermediate_size": 136, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 1}, margin=0.1,
             quantised=Quantised(torch.float8_e4m3fn, "_scale_inv", torch.bfloat16, (128, 128),
                                 {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                  "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]})),
        Case("stored-fp8-tensor", "Projections in E5M2 with one F32 scale each.", margin=0.1,
             quantised=Quantised(torch.float8_e5m2, "_scale", torch.float32, (None, None),
                                 {"activation_scheme": "static", "quant_method": "fp8"})),
        Case("stored-int8-rows", "Projections in I8 with one F16 scale a row.", margin=0.1,
             quantised=Quantised(torch.int8, "_scale", torch.float16, (1, None), None)),
    ]


def windows() -> list[Case]:
    return [
        Case("window", "Layers from max_window_layers (2 of 4) on see the last 8 positions, their own included.",
             {"num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 8,
              "max_window_layers": 2}, drop("layer_types"), without={"use_sliding_window": False}),
        Case("window-unused", "A sliding_window without use_sliding_window means nothing.",
             {"max_window_layers": 0}, lambda saved: (saved.pop("layer_types"), saved.update(sliding_window=8))),
        Case("layer-types", "Explicit layer_types win over max_window_layers; a window of 5.",
             {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
             without={"layer_types": ["full_attention"] * 3}),
    ]


def rotary() -> list[Case]:
    return [
        Case("rope-theta", "Another base.", rope("default", 500.0), without=DEFAULT_ROPE),
        Case("rope-absent", "No rotary key at all: base 10,000.", {}, drop("rope_parameters")),
        Case("rope-old", "Top-level rope_theta, rope_scaling null, torch_dtype.",
             rope("default", 1_000_000.0), old_rope(None, 1_000_000.0), without=DEFAULT_ROPE),
        Case("rope-old-type", "rope_scaling that says `type` instead of `rope_type`.",
             rope("linear", factor=2.5), old_rope({"type": "linear", "factor": 2.5}), without=DEFAULT_ROPE),
        Case("rope-linear", "Linear scaling.", rope("linear", factor=4.0), without=DEFAULT_ROPE),
        Case("rope-dynamic-prompt", "Dynamic scaling, the prompt already longer than the original 24 positions.",
             {"max_position_embeddings": 24, **rope("dynamic", factor=4.0)}, prompt=40, without=DEFAULT_ROPE),
        Case("rope-dynamic-decode", "Dynamic scaling, the original 28 positions end while decoding; "
             "cached keys keep the rotation they were written with.",
             {"max_position_embeddings": 28, **rope("dynamic", factor=4.0)}, prompt=22, without=DEFAULT_ROPE),
        Case("rope-llama3", "Llama 3.1 scaling; the bands meet inside the head's frequencies.",
             rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
             without=DEFAULT_ROPE),
    ]


def yarn() -> list[Case]:
    def case(name, note, **options):
        return Case(name, note, rope("yarn", **{**YARN, **options}), without=DEFAULT_ROPE)
    without_original = Case("rope-yarn-old", "YaRN in the old spelling; original_max_position_embeddings falls back to "
                            "max_position_embeddings.",
                            rope("yarn", factor=4.0, original_max_position_embeddings=256),
                            old_rope({"type": "yarn", "factor": 4.0}), without=DEFAULT_ROPE)
    return [
        case("rope-yarn", "YaRN with its defaults: scales short prompts too."),
        case("rope-yarn-attention-factor", "YaRN with an explicit attention_factor.", attention_factor=1.5),
        case("rope-yarn-mscale", "YaRN with mscale and mscale_all_dim.", mscale=2.0, mscale_all_dim=0.5),
        case("rope-yarn-mscale-alone", "YaRN with mscale but no mscale_all_dim: both are ignored.", mscale=2.0),
        case("rope-yarn-beta", "YaRN with its own betas and a ramp that is not rounded.",
             beta_fast=6.0, beta_slow=1.5, truncate=False),
        without_original,
    ]


def longrope() -> list[Case]:
    return [
        Case("rope-longrope-short", "LongRoPE, all positions within the original 64.",
             rope("longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=64, factor=4.0),
             without=DEFAULT_ROPE),
        Case("rope-longrope-prompt", "LongRoPE, the prompt longer than the original 32.", LONGROPE, prompt=40,
             without=DEFAULT_ROPE),
        Case("rope-longrope-decode", "LongRoPE, the original 32 positions end while decoding; "
             "cached keys keep the rotation they were written with.", LONGROPE, prompt=26, without=DEFAULT_ROPE),
        Case("rope-longrope-attention-factor", "LongRoPE with an explicit attention_factor and no factor.",
             rope("longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=32,
                  attention_factor=1.3), without=DEFAULT_ROPE),
        Case("rope-longrope-top", "LongRoPE, old spelling: a top-level original_max_position_embeddings wins, and the "
             "factor is max_position_embeddings over it.",
             rope("longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=20),
             lambda saved: (old_rope({"type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                                      "original_max_position_embeddings": 200})(saved),
                            saved.update(original_max_position_embeddings=20)), without=DEFAULT_ROPE),
    ]


def activations() -> list[Case]:
    # The table in activations.json covers every name; these show that the name reaches the right place.
    return [Case(f"act-{name.replace('_', '-')}", f"hidden_act {name}.", {"hidden_act": name}, without={"hidden_act": "silu"})
            for name in ["gelu", "gelu_pytorch_tanh", "quick_gelu", "relu2"]]


def long() -> list[Case]:
    # Caches are kept in blocks of some size, mostly a power of two: these prompts and answers cross such borders.
    def crossing(original: int) -> dict:
        return rope("longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=original,
                    factor=2.0, attention_factor=1.2)
    return [
        Case("long-window", "150 positions; a window of 70 on the outer of three layers.",
             {"vocab_size": 64, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 70,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
             without={"layer_types": ["full_attention"] * 3}, prompt=150),
        Case("long-longrope", "180 positions; LongRoPE, the original 188 positions end while decoding.",
             {"vocab_size": 64, "max_position_embeddings": 376, **crossing(188)}, without=crossing(376), prompt=180),
        Case("long-dynamic", "150 positions; dynamic scaling beyond the original 128, biases on q, k, v and o.",
             {"vocab_size": 64, "attention_bias": True, "max_position_embeddings": 128, **rope("dynamic", factor=4.0)},
             without=DEFAULT_ROPE, prompt=150),
    ]


CASES = shapes() + storage() + windows() + rotary() + yarn() + longrope() + activations() + long()
