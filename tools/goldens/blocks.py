"""Writes gguf-types.gguf: rows in every type of numbers that is read, each beside the f32 that the Python package gguf
makes of them. A tensor NAME has its answers in NAME.expected.

Rows are quantised by the package where it can do that; the last rows of each type, and all of those that it can only
read, are blocks of random bytes whose scales are numbers.
"""
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

FIXTURE = Path(__file__).parents[2] / "crates/whin/tests/fixtures/gguf-types.gguf"
COLS = 256
# Where the f16 numbers of a block stand.
HALVES = {
    Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.IQ4_NL: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.MXFP4: [],
}
QUANTISED = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.MXFP4]
random = np.random.default_rng(6)


def weights(rows):
    """Rows as weights are, one of zeros and one with an outlier among them."""
    rows = random.normal(0, 0.02, (rows, COLS)).astype(np.float32)
    rows[0, :64] = 0
    rows[-1, 7] = -3
    return rows


def blocks(dtype, rows):
    """Random blocks: every code and every scale occurs, and scales are large, small, negative, subnormal and zero."""
    numbers, size = GGML_QUANT_SIZES[dtype]
    data = random.integers(0, 256, (rows * COLS // numbers, size), np.uint8)
    odd = np.array([0.0, -0.0, 6e-8, -3e-6, 65504.0, -1.0], np.float16)
    for at in HALVES[dtype]:
        scales = random.normal(0, 0.1, len(data)).astype(np.float16)
        odds = random.random(len(data)) < 0.2
        scales[odds] = random.choice(odd, odds.sum())
        data[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, -1)


def main():
    writer = GGUFWriter(FIXTURE, "none")

    def add(name, stored, dtype, expected, shape=None):
        shape = shape or expected.shape
        writer.add_tensor(name, stored.reshape(*shape[:-1], -1), raw_dtype=dtype)
        writer.add_tensor(f"{name}.expected", expected.reshape(shape))

    for dtype in HALVES:
        rows = [quants.quantize(weights(2), dtype)] if dtype in QUANTISED else []
        stored = np.concatenate([*rows, blocks(dtype, 6)])
        add(dtype.name, stored, dtype, quants.dequantize(stored, dtype))
    stored = blocks(Type.Q4_K, 6)
    add("experts", stored, Type.Q4_K, quants.dequantize(stored, Type.Q4_K), (2, 3, COLS))
    plain = weights(2)
    add("BF16", quants.quantize(plain, Type.BF16), Type.BF16, quants.dequantize(quants.quantize(plain, Type.BF16), Type.BF16))
    writer.add_tensor("F16", plain.astype(np.float16))
    writer.add_tensor("F16.expected", plain.astype(np.float16).astype(np.float32))
    double = random.normal(0, 1, (2, 33))
    writer.add_tensor("F64", double)
    writer.add_tensor("F64.expected", double.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
