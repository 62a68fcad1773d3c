"""Writes crates/whin/tests/fixtures/rope.json: rotary frequencies as transformers computes them.

Run from the root of the repository with transformers 5.17 and torch installed:

    python tools/goldens/rope.py > crates/whin/tests/fixtures/rope.json

Each case holds the config, the length of the text (`span`, null for the frequencies at construction), the inverse
frequencies, the factor of cosine and sine, and cosine and sine at a few positions. All numbers are float32, written
so that reading them back as float32 is exact.
"""

import json

import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

POSITIONS = [0, 1, 7, 1000, 40959]

RAMP = [1.0 + 0.05 * i for i in range(8)]
CASES = [
    ("default", {"rope_theta": 1000000.0}, None),
    ("old default theta", {}, None),
    ("linear", {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.5}}, None),
    ("dynamic, short", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}}, 100),
    ("dynamic, long", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}}, 70001),
    (
        "llama3",
        {
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
        None,
    ),
    (
        "yarn",
        {
            "rope_theta": 1000000,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        },
        None,
    ),
    (
        "yarn, mscale, no truncation",
        {
            "head_dim": 64,
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "yarn",
                "factor": 40.0,
                "original_max_position_embeddings": 4096,
                "mscale": 0.707,
                "mscale_all_dim": 1.5,
                "beta_fast": 24,
                "beta_slow": 2,
                "truncate": False,
            },
        },
        None,
    ),
    (
        "yarn, own attention factor, factor from the lengths",
        {
            "rope_parameters": {
                "rope_theta": 150000.0,
                "rope_type": "yarn",
                "factor": None,
                "original_max_position_embeddings": 8192,
                "attention_factor": 1.25,
            },
        },
        None,
    ),
    (
        "longrope, short",
        {
            "head_dim": 16,
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "longrope", "short_factor": RAMP, "long_factor": [3 * f for f in RAMP]},
        },
        4096,
    ),
    (
        "longrope, long",
        {
            "head_dim": 16,
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "longrope", "short_factor": RAMP, "long_factor": [3 * f for f in RAMP]},
        },
        4097,
    ),
]


def case(name, keys, span):
    config = Qwen3Config(max_position_embeddings=40960, **json.loads(json.dumps(keys)))
    rope = Qwen3RotaryEmbedding(config)
    if span is not None:  # lets the module choose its frequencies for a text of this length
        rope(torch.zeros(1), torch.arange(span)[None])
    inv_freq, factor = rope.inv_freq, rope.attention_scaling
    angles = torch.tensor(POSITIONS).float()[:, None] * inv_freq.float()[None]
    return {
        "name": name,
        "config": {"model_type": "qwen3", "max_position_embeddings": 40960, **keys},
        "span": span,
        "inv_freq": inv_freq.tolist(),
        "factor": float(factor),
        "positions": POSITIONS,
        "cos": (angles.cos() * factor).flatten().tolist(),
        "sin": (angles.sin() * factor).flatten().tolist(),
    }


print("[\n" + ",\n".join(json.dumps(case(*c)) for c in CASES) + "\n]")
