#!/usr/bin/env python3
"""Writes the seeds of the corpus: small files of every kind, sound ones and each sort of hostile one."""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
SEPARATOR = b"\n---\n"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(data, (dict, list)):
        data = json.dumps(data, ensure_ascii=False)
    if isinstance(data, str):
        data = data.encode()
    (folder / f"seed-{name}").write_bytes(data)


def several(target, name, *files):
    files = [json.dumps(f, ensure_ascii=False) if isinstance(f, (dict, list)) else f for f in files]
    write(target, name, SEPARATOR.join(f.encode() if isinstance(f, str) else f for f in files))


def encodings(target, text):
    """What any JSON file may come as."""
    data = text.encode()
    write(target, "bom", b"\xef\xbb\xbf" + data)
    write(target, "utf16", b"\xff\xfe" + text.encode("utf-16-le"))
    write(target, "nul", data + b"\0")
    write(target, "trailing", data + b" {}")
    write(target, "cut", data[: len(data) // 2])
    write(target, "deep", b"[" * 2000)
    write(target, "deep-objects", b'{"a":' * 500 + b"0" + b"}" * 500)
    write(target, "empty", b"")
    write(target, "git-lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    write(target, "bad-utf8", data.replace(b'"', b'"\xff', 1))
    write(target, "huge-number", '{"a": 1e999999999, "b": ' + "9" * 400 + "}")


# model.safetensors

SIZES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1}


def product(shape):
    size = 1
    for dim in shape:
        size *= dim
    return size


def safetensors(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensors(entries, metadata=None):
    """Sound entries, one behind the other, with data."""
    header, end = ({"__metadata__": metadata} if metadata else {}), 0
    for name, dtype, shape in entries:
        size = SIZES[dtype] * product(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    return safetensors(header, bytes(i * 7 % 64 for i in range(end)))


TINY = [
    ("model.embed_tokens.weight", [4, 4]),
    ("model.layers.0.input_layernorm.weight", [4]),
    ("model.layers.0.self_attn.q_proj.weight", [4, 4]),
    ("model.layers.0.self_attn.k_proj.weight", [2, 4]),
    ("model.layers.0.self_attn.v_proj.weight", [2, 4]),
    ("model.layers.0.self_attn.q_norm.weight", [2]),
    ("model.layers.0.self_attn.k_norm.weight", [2]),
    ("model.layers.0.self_attn.o_proj.weight", [4, 4]),
    ("model.layers.0.post_attention_layernorm.weight", [4]),
    ("model.layers.0.mlp.gate_proj.weight", [4, 4]),
    ("model.layers.0.mlp.up_proj.weight", [4, 4]),
    ("model.layers.0.mlp.down_proj.weight", [4, 4]),
    ("model.norm.weight", [4]),
]


def fp8(scale):
    entries = []
    for name, shape in TINY:
        is_matrix = name.endswith("_proj.weight")
        entries.append((name, "F8_E4M3" if is_matrix else "BF16", shape))
        if is_matrix:
            entries.append(scale(name, shape))
    return entries


def header():
    one = lambda place, dtype="F32", shape=(1,): {"dtype": dtype, "shape": list(shape), "data_offsets": place}
    write("header", "tiny", tensors([(n, "BF16", s) for n, s in TINY], {"format": "pt"}))
    write("header", "tiny-f32-bare", tensors([(n.removeprefix("model."), "F32", s) for n, s in TINY]))
    write("header", "tiny-blocks", tensors(fp8(lambda n, s: (n + "_scale_inv", "F32", [s[0] // 2, s[1] // 2]))
          + [("model.layers.0.mlp.up_proj.input_scale", "F32", [1])]))
    write("header", "tiny-rows", tensors(fp8(lambda n, s: (n + "_scale", "BF16", [s[0], 1]))))
    write("header", "tiny-one", tensors(fp8(lambda n, s: (n + "_scale", "F16", []))))
    write("header", "tiny-head", tensors([(n, "F16", s) for n, s in TINY] + [("lm_head.weight", "F16", [4, 4])]))
    write("header", "gptq", tensors([("a.qweight", "U8", [2]), ("a.g_idx", "U8", [2])]))
    write("header", "pair", safetensors({"a": one([0, 4]), "b": one([4, 8])}, bytes(8)))
    write("header", "overlap", safetensors({"a": one([0, 4]), "b": one([2, 6])}, bytes(6)))
    write("header", "hole", safetensors({"a": one([0, 4]), "b": one([5, 9])}, bytes(9)))
    write("header", "beyond", safetensors({"a": one([0, 4]), "b": one([4, 2**63])}, bytes(8)))
    write("header", "backwards", safetensors({"a": one([8, 4])}, bytes(8)))
    write("header", "left-over", safetensors({"a": one([0, 4])}, bytes(9)))
    write("header", "duplicate", safetensors(b'{"a":%b,"a":%b}' % ((json.dumps(one([0, 4])).encode(),) * 2), bytes(4)))
    write("header", "dtype", safetensors({"a": one([0, 4], "F31")}, bytes(4)))
    write("header", "overflow", safetensors({"a": one([0, 0], "F32", [2**32, 2**32])}))
    write("header", "overflow-bits", safetensors({"a": one([0, 0], "F32", [2**61, 0, 2**61])}))
    write("header", "no-rows", safetensors({"a": one([0, 0], "F32", [2**40, 0]), "b": one([0, 0], "I8", [0, 2**40])}))
    write("header", "scalar", safetensors({"a": one([0, 8], "F64", [])}, bytes(8)))
    write("header", "nibbles", safetensors({"a": one([0, 1], "F4", [2, 1]), "b": one([1, 4], "F6_E2M3", [4])}, bytes(4)))
    write("header", "ranks", safetensors({"a": one([0, 1], "U8", [1] * 17)}, bytes(1)))
    write("header", "huge-dimension", safetensors(b'{"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}}', bytes(4)))
    write("header", "float-dimension", safetensors(b'{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}', bytes(4)))
    write("header", "extra-key", safetensors({"a": {**one([0, 4]), "x": 1}}, bytes(4)))
    write("header", "metadata-number", safetensors({"__metadata__": {"a": 1}}))
    write("header", "metadata-twice", safetensors(b'{"__metadata__":{},"__metadata__":{}}'))
    write("header", "spaces", safetensors(b"{}" + b" " * 30))
    write("header", "announces-100mb", safetensors(b"{}", length=100_000_000))
    write("header", "announces-too-much", safetensors(b"{}", length=100_000_001))
    write("header", "announces-all", safetensors(b"{}", length=2**64 - 1))
    write("header", "announces-none", safetensors(b"{}", length=0))
    write("header", "short", b"\x02\0\0\0\0\0\0")
    write("header", "list", safetensors(b"[]"))
    write("header", "nul", safetensors(b"{}\0\0"))
    write("header", "bom", safetensors(b"\xef\xbb\xbf{}"))
    write("header", "utf16", safetensors("{}".encode("utf-16")))
    write("header", "escaped", safetensors(rb'{"\u0061\ud83d\ude42":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"))
    write("header", "surrogate", safetensors(rb'{"\ud83d":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"))
    write("header", "deep", safetensors(b'{"a":' + b"[" * 2000))
    write("header", "long-name", safetensors({"a" * 4097: one([0, 4])}, bytes(4)))
    write("header", "git-lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    write("header", "infinite-scale", safetensors(
        {"model.norm.weight": one([0, 1], "I8", [1]), "model.norm.weight_scale": one([1, 3], "BF16", [1])}, b"\1\x80\x7f"))


# A GGUF file, or its parts

BLOCKS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
          "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q6_K": (14, 256, 210),
          "IQ2_XS": (17, 256, 74), "IQ4_NL": (20, 32, 18), "I8": (24, 1, 1), "BF16": (30, 1, 2), "MXFP4": (39, 32, 17)}
VALUES = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"),
          "bool": (7, "<B"), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}


def string(text):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text


def value(of):
    """Text, a list of texts, (type, number), or (type, numbers)."""
    if isinstance(of, bytes):
        return of
    if isinstance(of, str):
        return struct.pack("<I", 8) + string(of)
    if isinstance(of, list):
        return struct.pack("<IIQ", 9, 8, len(of)) + b"".join(map(string, of))
    (kind, form), what = VALUES[of[0]], of[1]
    if isinstance(what, list):
        return struct.pack("<IIQ", 9, kind, len(what)) + b"".join(struct.pack(form, item) for item in what)
    return struct.pack("<I", kind) + struct.pack(form, what)


def gguf_file(keys, entries, version=3, magic=b"GGUF", alignment=32, counts=None, shift=0):
    """Tensors as (name, type, shape), the outputs first, one behind the other, with data."""
    header, data = b"", b""
    for name, dtype, shape in entries:
        code, numbers, size = BLOCKS[dtype]
        header += string(name) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", dim) for dim in reversed(shape))
        header += struct.pack("<IQ", code, len(data) + shift)
        size = product(shape) // numbers * size
        data += bytes(i * 7 % 61 for i in range(size))
        data += bytes(-len(data) % alignment)
    tensors, pairs = counts or (len(entries), len(keys))
    head = magic + struct.pack("<IQQ", version, tensors, pairs)
    head += b"".join(string(key) + value(of) for key, of in keys.items()) + header
    return head + bytes(-len(head) % alignment) + data


GGUF_KEYS = {
    "general.architecture": "qwen3", "qwen3.block_count": ("u32", 1), "qwen3.context_length": ("u32", 64),
    "qwen3.embedding_length": ("u32", 32), "qwen3.feed_forward_length": ("u32", 32),
    "qwen3.attention.head_count": ("u32", 2), "qwen3.attention.head_count_kv": ("u32", 1),
    "qwen3.attention.key_length": ("u32", 16), "qwen3.attention.value_length": ("u32", 16),
    "qwen3.attention.layer_norm_rms_epsilon": ("f32", 1e-6), "qwen3.rope.freq_base": ("f32", 1e6),
    "tokenizer.ggml.tokens": ["a", "b", "c", b"\xff"], "tokenizer.ggml.eos_token_id": ("u32", 3),
}


def gguf_tensors(matrix, vector="F32"):
    matrix = iter(matrix * 9 if isinstance(matrix, list) else [matrix] * 9)
    return [("token_embd.weight", next(matrix), [4, 32]), ("output_norm.weight", vector, [32])] + [
        (f"blk.0.{name}.weight", vector if len(shape) == 1 else next(matrix), shape) for name, shape in [
            ("attn_norm", [32]), ("attn_q", [32, 32]), ("attn_k", [16, 32]), ("attn_v", [16, 32]),
            ("attn_q_norm", [16]), ("attn_k_norm", [16]), ("attn_output", [32, 32]), ("ffn_norm", [32]),
            ("ffn_gate", [32, 32]), ("ffn_up", [32, 32]), ("ffn_down", [32, 32])]]


def gguf():
    tiny = gguf_tensors("Q4_0")
    with_keys = lambda more, entries=tiny, **how: gguf_file({**GGUF_KEYS, **more}, entries, **how)
    one = lambda *entries, **how: gguf_file({"general.architecture": "qwen3"}, list(entries), **how)
    yarn = {"qwen3.rope.scaling.type": "yarn", "qwen3.rope.scaling.factor": ("f32", 2.0),
            "qwen3.rope.scaling.original_context_length": ("u32", 32)}
    write("gguf", "tiny", with_keys({"general.name": "a", "general.alignment": ("u32", 32)}))
    write("gguf", "tiny-v2", with_keys({}, version=2))
    write("gguf", "tiny-blocks", with_keys({}, gguf_tensors(["Q8_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4", "BF16", "F16"])))
    write("gguf", "tiny-yarn", with_keys(yarn))
    baked = with_keys({}, tiny + [("rope_freqs.weight", "F32", [8])])
    write("gguf", "tiny-baked", baked[:-32] + struct.pack("<8f", *range(1, 9)))
    write("gguf", "tiny-lists", with_keys({"qwen3.feed_forward_length": ("i32", [32]), "qwen3.attention.head_count_kv": ("u64", [1])}))
    write("gguf", "tiny-head", with_keys({}, tiny + [("output.weight", "Q8_0", [4, 32])]))
    parts = [{"split.no": ("u16", no), "split.count": ("u16", 2), "split.tensors.count": ("i32", len(tiny))} for no in (0, 1)]
    split = [gguf_file({**GGUF_KEYS, **parts[0]}, tiny[:6]), gguf_file(parts[1], tiny[6:])]
    write("gguf", "tiny-split", SEPARATOR.join(split))
    write("gguf", "split-missing", split[0])
    write("gguf", "split-backwards", SEPARATOR.join(split[::-1]))
    write("gguf", "split-twice", SEPARATOR.join([split[0], split[0]]))
    write("gguf", "unknown-key", with_keys({"qwen3.odd": ("f32", 1.0)}))
    write("gguf", "architecture", with_keys({"general.architecture": "mamba"}))
    write("gguf", "adapter", with_keys({"general.type": "adapter"}))
    write("gguf", "wrong-types", with_keys({"qwen3.block_count": "one", "qwen3.rope.freq_base": ("bool", 1)}))
    write("gguf", "no-heads", with_keys({"qwen3.attention.head_count": ("u32", 0)}))
    write("gguf", "many-layers", with_keys({"qwen3.block_count": ("u64", 2**64 - 1)}))
    write("gguf", "negative", with_keys({"qwen3.context_length": ("i64", -1)}))
    write("gguf", "no-number", with_keys({"qwen3.rope.freq_base": ("f32", float("nan"))}))
    write("gguf", "vocabulary", with_keys({"tokenizer.ggml.eos_token_id": ("u32", 2**32 - 1)}))
    write("gguf", "hybrid", gguf_file({"general.architecture": "lfm2", **{k.replace("qwen3", "lfm2"): v for k, v in GGUF_KEYS.items() if k[0] == "q"},
          "lfm2.attention.head_count_kv": ("i32", [0]), "lfm2.shortconv.l_cache": ("u32", 3)}, tiny))
    write("gguf", "windows", gguf_file({"general.architecture": "gemma3", **{k.replace("qwen3", "gemma3"): v for k, v in GGUF_KEYS.items() if k[0] == "q"},
          "gemma3.attention.sliding_window": ("u32", 8), "gemma3.attention.sliding_window_pattern": ("bool", [1, 0])}, tiny))
    write("gguf", "empty", b"")
    write("gguf", "none", gguf_file({}, []))
    write("gguf", "magic", one(magic=b"GGML"))
    write("gguf", "version-1", one(version=1))
    write("gguf", "big-endian", one(version=3 << 24))
    write("gguf", "git-lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    write("gguf", "announces-tensors", one(counts=(2**64 - 1, 1)))
    write("gguf", "announces-keys", one(counts=(0, 2**64 - 1)))
    write("gguf", "long-text", gguf_file({"a": struct.pack("<IQ", 8, 2**64 - 8)}, []))
    write("gguf", "long-list", gguf_file({"a": struct.pack("<IIQ", 9, 8, 2**63)}, []))
    write("gguf", "nested", gguf_file({"a": struct.pack("<IIQ", 9, 9, 1) * 200}, []))
    write("gguf", "bools", gguf_file({"a": ("bool", 2), "b": ("bool", [0, 1, 255])}, []))
    for alignment in (0, 3):
        write("gguf", f"alignment-{alignment}", with_keys({"general.alignment": ("u32", alignment)}))
    write("gguf", "unaligned", one(("a", "F32", [8]), shift=4))
    write("gguf", "beyond", one(("a", "F32", [8]), shift=2**63))
    write("gguf", "overlap", one(("a", "F32", [8]), ("b", "F32", [8])).replace(b"b" + struct.pack("<IQIQ", 1, 8, 0, 32), b"b" + struct.pack("<IQIQ", 1, 8, 0, 0)))
    write("gguf", "twice", one(("a", "F32", [8]), ("a", "F32", [8])))
    write("gguf", "overflow", one(("a", "F32", [1])).replace(struct.pack("<IQIQ", 1, 1, 0, 0), struct.pack("<IQQIQ", 2, 2**32, 2**32, 0, 0)))
    write("gguf", "no-rows", one(("a", "F32", [0, 2**62]), ("b", "Q8_0", [2**61, 0])))
    write("gguf", "odd-rows", one(("a", "Q8_0", [2, 16])))
    write("gguf", "other-type", with_keys({}, tiny + [("a", "IQ2_XS", [256]), ("b", "I8", [3])]))
    write("gguf", "ranks", one(("a", "F32", [1, 2, 3, 4]), ("b", "Q6_K", [2, 2, 256]), ("c", "F32", [])))


# model.safetensors.index.json

def index():
    sound = {"metadata": {"total_size": 2}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    encodings("index", json.dumps(sound))
    write("index", "sound", sound)
    write("index", "one-file", {"weight_map": {"a": "1.safetensors"}})
    write("index", "missing", {"weight_map": {"a": "1.safetensors", "c": "3.safetensors"}})
    write("index", "lacks", {"weight_map": {"a": "1.safetensors", "c": "1.safetensors"}})
    write("index", "swapped", {"weight_map": {"a": "2.safetensors", "b": "1.safetensors"}})
    names = ["../1.safetensors", "/etc/passwd", "", ".", "..", "a\0b", "C:\\x", "sub/1.safetensors", "model.safetensors.index.json"]
    for number, name in enumerate(names):
        write("index", f"path-{number}", {"weight_map": {"a": name}})
    write("index", "no-tensors", {"weight_map": {}})
    write("index", "no-map", {"metadata": {}})
    write("index", "list", [["a", "1.safetensors"]])
    write("index", "number", {"weight_map": {"a": 1}})
    write("index", "duplicate", '{"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}, "weight_map": {}}')
    write("index", "long-name", {"weight_map": {"a" * 4097: "1.safetensors"}})
    write("index", "many-files", {"weight_map": {f"t{i}": f"f{i}" for i in range(40)}})


# config.json

BASE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": [2, 3], "head_dim": 16, "hidden_act": "silu", "hidden_size": 64,
    "intermediate_size": 96, "max_position_embeddings": 4096, "max_window_layers": 1, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": True, "use_sliding_window": False, "vocab_size": 1000,
}


def config():
    with_keys = lambda **keys: {**BASE, **keys}
    rope = lambda **keys: with_keys(rope_parameters={"rope_theta": 10000.0, **keys})
    encodings("config", json.dumps(BASE))
    write("config", "base", BASE)
    write("config", "least", {"model_type": "qwen3"})
    write("config", "other-family", {"model_type": "llama", "architectures": ["LlamaForCausalLM"]})
    write("config", "windows", with_keys(use_sliding_window=True, sliding_window=128,
                                         layer_types=["full_attention", "sliding_attention"]))
    write("config", "linear", rope(rope_type="linear", factor=4.0))
    write("config", "dynamic", rope(type="dynamic", factor=2.5))
    write("config", "llama3", rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=1024))
    write("config", "yarn", with_keys(rope_scaling={"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5,
                                                    "original_max_position_embeddings": 1024, "truncate": False}))
    write("config", "yarn-null", rope(rope_type="yarn", factor=None, beta_fast=1e-6, beta_slow=1e6,
                                      original_max_position_embeddings=2**30))
    write("config", "longrope", with_keys(original_max_position_embeddings=1024, rope_scaling={
        "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.0, 1.5, 2, 3, 4, 8, 16, 1e6]}))
    write("config", "nested-ropes", with_keys(use_sliding_window=True, sliding_window=64, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}))
    write("config", "contradiction", with_keys(rope_parameters={"factor": 2}, rope_scaling={"factor": 3, "type": "linear"}))
    write("config", "dynamic-extreme", rope(rope_type="dynamic", factor=1e6, rope_theta=1e30))
    write("config", "local-and-global", {"model_type": "gemma3_text", "num_hidden_layers": 7, "sliding_window_pattern": 3,
                                         "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})
    write("config", "some-turn", {"model_type": "smollm3", "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1, 1],
                                  "use_sliding_window": True, "sliding_window": 64})
    write("config", "adjacent", {"model_type": "glm4", "partial_rotary_factor": 0.25, "num_hidden_layers": 2})
    text = {"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None, "vocab_size": 100}
    write("config", "text-part", {"model_type": "mistral3", "text_config": text, "vision_config": {"image_size": 2**70},
                                  "eos_token_id": 7, "tie_word_embeddings": True, "vocab_size": 100})
    write("config", "text-part-flat", {"model_type": "qwen2_vl", "num_hidden_layers": 2, "rope_scaling": {
        "type": "mrope", "mrope_section": [16, 24, 24]}, "vision_config": {}})
    write("config", "text-part-deep", {"model_type": "llava", "text_config": {"model_type": "llava", "text_config": text}})
    write("config", "fp8", with_keys(quantization_config={
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head"], "scale_fmt": "ue8m0"}))
    write("config", "fp8-odd", with_keys(quantization_config={"quant_method": "fp8", "weight_block_size": [0, 2**64]}))
    write("config", "gptq", with_keys(quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128}))
    write("config", "mlx", with_keys(quantization_config={"bits": 4, "group_size": 64}))
    write("config", "largest", with_keys(vocab_size=2**24, hidden_size=2**20, intermediate_size=2**20, head_dim=2,
                                         num_attention_heads=2**19, num_key_value_heads=2**19, num_hidden_layers=512,
                                         max_position_embeddings=2**30))
    write("config", "wide-head", with_keys(head_dim=2**17, num_attention_heads=1, num_key_value_heads=1))
    write("config", "zeros", {key: 0 if isinstance(value, int) else value for key, value in BASE.items()})
    write("config", "negative", with_keys(hidden_size=-1, vocab_size=-(2**63), head_dim=1.5))
    write("config", "too-large", with_keys(hidden_size=2**64, num_hidden_layers=2**32, rms_norm_eps=1e300))
    write("config", "strings", {key: str(value) for key, value in BASE.items()})
    write("config", "nulls", {key: None for key in BASE})
    write("config", "lists", {key: [value] for key, value in BASE.items()})
    write("config", "unknown", with_keys(**{f"key_{i}": i for i in range(60)}))
    write("config", "long-key", with_keys(**{"k" * 3000: 1}))
    write("config", "duplicate", '{"model_type": "qwen3", "vocab_size": 10, "vocab_size": "x"}')
    write("config", "tokens", with_keys(eos_token_id=[-1, 1e3, 2**40, "2"], bos_token_id=[]))


# generation_config.json, tokenizer_config.json, tokenizer.json

def generation():
    names = {"eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": False},
             "added_tokens_decoder": {"0": {"content": "<s>"}, "3": {"content": "</s>", "special": True}}}
    added = {"version": "1.0", "added_tokens": [{"id": 3, "content": "</s>", "special": True}], "model": {}}
    encodings("generation", '{"eos_token_id": [1, 2], "do_sample": true, "temperature": 0.6}')
    several("generation", "ids", {"eos_token_id": [1, 2, 1], "pad_token_id": 3})
    several("generation", "listed", {"eos_token_id": 1}, names)
    several("generation", "looked-up", {}, {"eos_token": "</s>"}, added)
    several("generation", "escaped", "{}", r'{"eos_token": "<\/s>", "model_max_length": 1e30}', added)
    several("generation", "no-such-token", "{}", {"eos_token": "x"}, added)
    several("generation", "past", {"eos_token_id": 4})
    several("generation", "past-listed", "{}", {"eos_token": "a", "added_tokens_decoder": {"4294967295": {"content": "a"}}})
    several("generation", "negative", {"eos_token_id": [-1]})
    several("generation", "huge", '{"eos_token_id": 18446744073709551616}')
    several("generation", "bad-key", "{}", {"eos_token": "a", "added_tokens_decoder": {"+3": {"content": "a"}}})
    several("generation", "bad-names", "{}", {"eos_token": ["</s>"]})
    several("generation", "duplicate", '{"eos_token_id": 1, "eos_token_id": 2}', '{"eos_token": "a", "eos_token": "b"}')
    several("generation", "list", "[1]", "[]")
    several("generation", "broken-tokenizer", "{}", {"eos_token": "</s>"}, "{")
    several("generation", "deep", "{}", '{"eos_token": ' + "[" * 1000)
    several("generation", "nul", "{}", {"eos_token": "\0", "added_tokens_decoder": {"0": {"content": "\0"}}})


# manifest.json of the load cache, and its weights

def weights():
    """All weights of the tiny model as int4 with the embedding as int8, and where they end."""
    vector = lambda name, size: (name, "f32", [size], 64)
    layer = lambda name, shape: (f"layers.0.{name}", "int4", shape, 576)
    parts = [
        ("embedding", "int8", [4, 4], 1152), vector("layers.0.mixer_norm", 4), layer("qkv", [8, 4]),
        vector("layers.0.q_norm", 2), vector("layers.0.k_norm", 2), layer("output", [4, 4]),
        vector("layers.0.feed_forward_norm", 4), layer("gate_up", [8, 4]), layer("down", [4, 4]), vector("norm", 4),
    ]
    entries, offset = [], 4096
    for name, kind, shape, size in parts:
        entries.append({"name": name, "kind": kind, "shape": shape, "offset": offset, "size": size, "xxh3": "right"})
        offset += size
    return entries, offset


def cache():
    entries, end = weights()
    sound = {"format": 2, "subject": "right", "checkpoint": "right", "sources": "right",
             "data": "weights-0123456789abcdef.bin", "size": "right", "weights": entries}
    data = b"H" + bytes(i % 251 for i in range(end - 4096))
    change = lambda **keys: {**sound, **keys}
    entry = lambda **keys: change(weights=[{**entries[0], **keys}, *entries[1:]])
    encodings("cache", json.dumps(sound))
    several("cache", "sound", sound, data)
    stamp = {"modified": 2**70, "changed": [-1, 0], "file": None}
    several("cache", "witness", sound, data, {"manifest": "0" * 64, "files": {"config.json": stamp}})
    several("cache", "witness-broken", sound, data, '{"manifest": "", "files": {"config.json": ' + "[" * 1000)
    several("cache", "none", change(weights=[]), b"H")
    several("cache", "head", sound, b"x" * end)
    several("cache", "short", sound, data[:-1])
    several("cache", "long", sound, data + b"x")
    several("cache", "no-data", sound)
    several("cache", "format", change(format=1), data)
    several("cache", "format-huge", change(format=2**40), data)
    several("cache", "subject", change(subject={"quantiser": 1}), data)
    several("cache", "no-sources", change(sources=[]), data)
    several("cache", "other-sources", change(sources=[{"name": "../config.json", "size": 1, "sample": "", "blake3": ""}]), data)
    several("cache", "unknown-key", change(more=1), data)
    for number, name in enumerate(["../x", "/etc/passwd", "manifest.json", "", "weights-.bin", "weights-ffffffffffffffff.bin"]):
        several("cache", f"name-{number}", change(data=name), data)
    several("cache", "size", change(size=2**64 - 1), data)
    several("cache", "size-zero", change(size=0, weights=[]), b"")
    several("cache", "offset", entry(offset=2**64 - 512), data)
    several("cache", "overlap", change(weights=[entries[0], {**entries[1], "offset": 4096}, *entries[2:]]), data)
    several("cache", "missing", change(weights=entries[:-1]), data[:-64])
    several("cache", "other-place", change(weights=[*entries[:2], {**entries[2], "name": "layers.0.gate_up"}, *entries[3:]]), data)
    several("cache", "other-kind", change(weights=[*entries[:2], {**entries[2], "kind": "int8"}, *entries[3:]]), data)
    several("cache", "empty-weight", change(weights=[{**entries[0], "size": 0}, *({**e, "offset": e["offset"] - 1152} for e in entries[1:])]), data[:-1152])
    several("cache", "unaligned", entry(size=513), data)
    several("cache", "wraps", change(weights=[{**entries[0], "size": 2**64 - 4096}, {**entries[1], "offset": 0}]), data)
    several("cache", "checksum", entry(xxh3="0" * 16), data)
    several("cache", "kind", entry(kind="int3"), data)
    several("cache", "shape", entry(shape=[2**32, 2**32]), data)
    several("cache", "twice", change(weights=[entries[0], {**entries[0], "offset": 5248}]), data[:2305])
    several("cache", "negative", entry(offset=-1), data)


# tokenizer.json

def tokenizer():
    added = lambda id, content, **keys: {"id": id, "content": content, "single_word": False, "lstrip": False,
                                         "rstrip": False, "normalized": False, "special": True, **keys}
    bpe = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "é": 5, "<0x0A>": 6},
           "merges": [["a", "b"], ["Ġ", "a"]], "unk_token": "a"}
    piece = {"type": "WordPiece", "vocab": {"[UNK]": 0, "hello": 1, "##s": 2, "a": 3}, "unk_token": "[UNK]",
             "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    words = {"type": "WordLevel", "vocab": {"[UNK]": 0, "Hello": 1, ",": 2}, "unk_token": "[UNK]"}
    unigram = {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
               "vocab": [["<unk>", 0.0], ["▁", -2.5], ["▁a", -1.25], ["b", -3.0], ["<0x0A>", -9.5]]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    split = lambda regex, behavior="Isolated": {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior,
                                                "invert": False}
    replace = lambda pattern, content: {"type": "Replace", "pattern": {"String": pattern}, "content": content}
    sequence = lambda key, *parts: {"type": "Sequence", key: list(parts)}
    whole = lambda model, **parts: {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                                    "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
                                    "model": model, **parts}
    encodings("tokenizer", json.dumps(whole(bpe)))
    write("tokenizer", "qwen", whole(bpe, added_tokens=[added(7, "<s>"), added(8, "<think>", special=False)],
          normalizer={"type": "NFC"}, pre_tokenizer=sequence("pretokenizers", split(r"(?i:'s|'t)|\p{L}+|\s+(?!\S)|\s+"),
          byte_level), post_processor=byte_level, decoder=byte_level))
    write("tokenizer", "llama", whole(bpe, normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
          replace(" ", "▁")), decoder=sequence("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0})))
    write("tokenizer", "bert", whole(piece, normalizer={"type": "BertNormalizer", "clean_text": True,
          "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, pre_tokenizer={"type": "BertPreTokenizer"},
          post_processor={"type": "BertProcessing", "sep": ["[UNK]", 0], "cls": ["a", 3]},
          decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}))
    write("tokenizer", "t5", whole(unigram, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="},
          pre_tokenizer=meta, decoder=meta))
    write("tokenizer", "words", whole(words, normalizer=sequence("normalizers", {"type": "Strip", "strip_left": True,
          "strip_right": True}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Nmt"}),
          pre_tokenizer=sequence("pretokenizers", {"type": "Whitespace"}, {"type": "Punctuation", "behavior": "Isolated"},
          {"type": "Digits", "individual_digits": True}), post_processor={"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "[UNK]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
          "special_tokens": {"[UNK]": {"id": "[UNK]", "ids": [0], "tokens": ["[UNK]"]}}}))
    write("tokenizer", "ctc", whole(words, decoder={"type": "CTC", "pad_token": "[UNK]", "word_delimiter_token": "|",
          "cleanup": True}, pre_tokenizer={"type": "UnicodeScripts"}))
    write("tokenizer", "bpe-prefix", whole({**bpe, "continuing_subword_prefix": "##"}))
    write("tokenizer", "bpe-decoder", whole({**bpe, "end_of_word_suffix": "</w>"},
          decoder={"type": "BPEDecoder", "suffix": "</w>"}, pre_tokenizer={"type": "WhitespaceSplit"}))
    write("tokenizer", "fixed", whole(bpe, pre_tokenizer=sequence("pretokenizers", {"type": "FixedLength", "length": 3},
          {"type": "CharDelimiterSplit", "delimiter": "a"})))
    write("tokenizer", "fixed-zero", whole(bpe, pre_tokenizer={"type": "FixedLength", "length": 0}))
    write("tokenizer", "old-merges", whole({**bpe, "merges": ["a b", "Ġ a"]}))
    write("tokenizer", "foreign-merge", whole({**bpe, "merges": [["a", "x"]]}))
    write("tokenizer", "huge-id", whole({**words, "vocab": {"[UNK]": 4294967295, "a": 2097151}}))
    write("tokenizer", "holes", whole({**words, "vocab": {"[UNK]": 9, "a": 5}}))
    write("tokenizer", "same-id", whole({**words, "vocab": {"[UNK]": 0, "a": 0}}))
    write("tokenizer", "negative-id", whole({**words, "vocab": {"[UNK]": -1}}))
    write("tokenizer", "duplicate", json.dumps(whole(bpe)).replace('"b": 1', '"b": 1, "b": 3'))
    write("tokenizer", "added-elsewhere", whole(bpe, added_tokens=[added(50, "<s>")]))
    write("tokenizer", "added-empty", whole(bpe, added_tokens=[added(7, ""), added(8, "a", single_word=True, lstrip=True)]))
    write("tokenizer", "added-normalized", whole(bpe, normalizer={"type": "Lowercase"},
          added_tokens=[added(7, "HELLO", normalized=True, rstrip=True, special=False)]))
    write("tokenizer", "growing", whole(bpe, normalizer=sequence("normalizers", *[replace("a", "aa")] * 16)))
    write("tokenizer", "growing-bytes", whole(bpe, pre_tokenizer=sequence("pretokenizers", *[byte_level] * 16)))
    write("tokenizer", "growing-decoder", whole(bpe, decoder=sequence("decoders", *[replace("a", "aa")] * 16)))
    write("tokenizer", "growing-template", whole(bpe, post_processor={"type": "TemplateProcessing",
          "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 100, "pair": [{"Sequence": {"id": "A", "type_id": 0}},
          {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {}}))
    write("tokenizer", "nothing-replaced", whole(bpe, normalizer={"type": "Replace", "pattern": {"Regex": ""}, "content": "x"}))
    write("tokenizer", "backtracking", whole(bpe, pre_tokenizer=split("(a*)*(a*)*c")))
    write("tokenizer", "regex", whole(bpe, pre_tokenizer=split("(?<=a)(?:(a+)+){1000}\\1$", "MergedWithPrevious")))
    write("tokenizer", "bad-regex", whole(bpe, pre_tokenizer=split("(?<a")))
    write("tokenizer", "dropout", whole({**bpe, "dropout": 0.9}, truncation={"direction": "Right", "max_length": 1,
          "strategy": "LongestFirst", "stride": 0}, padding={"strategy": {"Fixed": 1000000}, "direction": "Left",
          "pad_to_multiple_of": 8, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}))
    write("tokenizer", "strip-huge", whole(bpe, decoder=sequence("decoders", {"type": "Fuse"},
          {"type": "Strip", "content": "a", "start": 18446744073709551615, "stop": 0})))
    write("tokenizer", "nested-sequences", whole(bpe, normalizer=sequence("normalizers", sequence("normalizers",
          sequence("normalizers", {"type": "NFD"}))), decoder=sequence("decoders", sequence("decoders", {"type": "Fuse"}))))
    write("tokenizer", "unk-outside", whole({**unigram, "unk_id": 99}))
    write("tokenizer", "scores", whole({**unigram, "vocab": [["a", 1e308], ["", -1e308], ["b", 0]], "unk_id": None}))
    write("tokenizer", "no-version", {"model": bpe})
    write("tokenizer", "null-model", whole(None))
    write("tokenizer", "charsmap", whole(unigram, normalizer={"type": "Precompiled",
          "precompiled_charsmap": "CAAAAAEAAAD/////YQBiAA=="}))


# chat_template.jinja, and a conversation

CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def template():
    talk = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}
    several("template", "chatml", CHATML, talk)
    write("template", "every-part", """{% macro f(x) %}{{ x|tojson }}{% endmacro %}{% set ns = namespace(n=0) %}
{% for m in messages if m.role != 'x' %}{% set ns.n = ns.n + 1 %}{% if loop.index0 > 90 %}{% break %}{% endif %}
{{ loop.index }}{{ f(m) }}{{ m.content|default('', true)|trim|upper }}{% for c in m.tool_calls or [] %}{{ c.function.name }}
{{ c.function.arguments.items()|list }}{% endfor %}{% else %}none{% endfor %}{{ ns.n }}{{ strftime_now('%Y') }}""")
    write("template", "qwen-like", """{% for message in messages[::-1] %}{% set i = messages|length - 1 - loop.index0 %}
{% if message.role == 'user' and message.content is string and not(message.content.startswith('<tool_response>')
 and message.content.endswith('</tool_response>')) %}{{ i }}{% endif %}{% endfor %}
{{ messages[-1].content.split('</think>')[-1].lstrip('\\n') }}{% if enable_thinking is defined and enable_thinking is false %}x{% endif %}""")
    write("template", "loops", "{% for i in range(20) %}{% for j in range(i) %}{{ i * j ~ ' ' }}{% endfor %}{% endfor %}")
    for name, text in {
        "endless": "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% endfor %}",
        "doubling": "{% set ns = namespace(s='aaaaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "repeat": "{{ 'x' * 1000000000000 }}",
        "list-repeat": "{{ [1] * 1000000000000 }}",
        "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "two-macros": "{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "deep-brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "deep-lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
        "deep-ifs": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "deep-not": "{{ " + "not " * 4000 + "1 }}",
        "deep-minus": "{{ " + "-" * 4000 + "1 }}",
        "deep-filters": "{{ 1" + "|string" * 4000 + " }}",
        "long-sum": "{{ 1" + " + 1" * 4000 + " }}",
        "center": "{{ 'a'.center(10000000000) }}",
        "format": "{{ '%1000000000d' % 1 }}{{ '{:>1000000000}'.format(1) }}",
        "replace": "{% set ns = namespace(s='a' * 1000) %}{% for i in range(9) %}{% set ns.s = ns.s.replace('a', 'a' * 1000) %}{% endfor %}",
        "join": "{{ (['a' * 100000] * 100000)|join('b' * 100000) }}",
        "power": "{{ 10 ** 1000000000 }}{{ 2 ** 2 ** 2 ** 2 ** 2 ** 2 }}",
        "range": "{{ range(0, 100000000000)|list }}",
        "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}{{ cycler.__init__.__globals__ }}{{ self._TemplateReference__context }}",
        "attributes": "{{ messages|map(attribute='__class__')|list }}{{ messages|attr('__init__') }}",
        "include": "{% include '/etc/passwd' %}",
        "import": "{% from '/etc/passwd' import x %}",
        "extends": "{% extends '../../config.json' %}",
        "raises": "{{ raise_exception('No: ' ~ messages|length) }}",
        "unclosed": "{% for m in messages %}{{ m",
        "unknown": "{{ x|nosuchfilter }}{% nosuchtag %}",
        "slices": "{{ 'abc'[::0] }}{{ 'abc'[::-1] }}{{ messages[-5:99999999999] }}",
        "division": "{{ 1 // 0 }}{{ 1 % 0 }}{{ 1 / 0 }}",
        "numbers": "{{ 1e400 }}{{ 9223372036854775807 + 1 }}{{ -9223372036854775808 // -1 }}{{ 1e308 * 10 }}",
        "clock": "{{ strftime_now('%' * 100000) }}{{ strftime_now('%9999999Y%Q%') }}",
        "empty": "",
        "bad-utf8": b"{{ '\xff' }}",
        "self-append": "{% set l = [] %}{% for i in range(10) %}{{ l.append(l) }}{% endfor %}{{ l }}",
        "indent": "{{ ('a\\n' * 100000)|indent(100000) }}{{ messages|tojson(indent=1000000000) }}",
        "groupby": "{{ range(100000)|groupby('x') }}{{ range(99999)|batch(1)|list }}",
        "recursive-loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "blocks": "{% set x %}" * 2000 + "{% endset %}" * 2000,
        "generation": "{% generation %}{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% endfor %}{% endgeneration %}",
    }.items():
        write("template", name, text)
    for name, talk in {
        "no-messages": {"messages": []},
        "odd-messages": {"messages": [1, None, [], {"role": 3}, {"role": "wizard"}]},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]}]},
        "image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "bad-arguments": {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "tool_calls": [
            {"function": {"name": "f", "arguments": "{"}}, {"function": {"arguments": None}}, {}]}]},
        "shadow": {"messages": [{"role": "user", "content": ""}], "kwargs": {"messages": [], "range": 1}},
        "kwargs": {"messages": [{"role": "user", "content": ""}], "kwargs": {"enable_thinking": False, "x": {"y": [1.0, 1e-7]}}},
        "continue": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b "}], "continue": True},
        "continue-user": {"messages": [{"role": "user", "content": "a"}], "continue": True},
        "documents": {"messages": [{"role": "user", "content": "a"}], "documents": [{"title": "t", "text": "x"}, 3]},
    }.items():
        several("template", "talk-" + name, CHATML, talk)
    write("template", "talk-deep", (CHATML + "\n---\n").encode() + b'{"messages": [{"role": "user", "content": ' + b"[" * 120 + b"]" * 120 + b"}]}")


# the text of an answer, behind the number of its syntax and the length of its pieces

SYNTAXES = ["harmony", "deepseek", "deepseek-v31", "kimi", "mistral-named", "mistral", "command", "nemotron", "gemma", "seed", "minimax", "glm",
    "coder", "hermes", "granite", "pythonic", "llama", "none"]


def answer():
    call = '{"name": "f", "arguments": {"x": 1.0, "y": "</tool_call> } é"}}'
    for name, kind, text in [
        ("hermes", "hermes", f"<think>\nhm\n</think>\n\nLook:\n<tool_call>\n{call}\n</tool_call>\n<tool_call>{call}"),
        ("coder", "coder", "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=y>\na\nb\n</parameter>\n</function>\n</tool_call>"),
        ("llama", "llama", '{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}'),
        ("llama-tag", "llama", '<|python_tag|>brave_search.call(query="x")'),
        ("mistral", "mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]'),
        ("mistral-args", "mistral-named", '[TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[ARGS]{}'),
        ("pythonic", "pythonic", '[f(x=1, y="a)]"), g(z=[1, None, {"k": True}])]'),
        ("deepseek", "deepseek", "<think>a</think>b<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ("deepseek-v31", "deepseek-v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ("harmony", "harmony", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>"),
        ("thinks", "none", "<think>a<think>b</think>c</think>d<think>e</think>"),
        ("prose", "hermes", "Write <tool_call> and then JSON, as in <tool_call>{x}."),
        ("cut", "hermes", f"<tool_call>\n{call[:40]}"),
        ("nested", "hermes", "<tool_call>" * 30 + call),
        ("deep", "hermes", '<tool_call>{"name": "f", "arguments": ' + '{"a":' * 200 + "1" + "}" * 201),
        ("escapes", "hermes", '<tool_call>{"name": "\\u0066\\ud83d", "arguments": "{\\"x\\": \\"\\\\u00e9\\"}"}</tool_call>'),
        ("empty-name", "hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
        ("wrong-types", "hermes", '<tool_call>{"name": 3, "arguments": []}</tool_call><tool_call>[1]</tool_call>'),
        ("coder-cut", "coder", "<tool_call>\n<function=f>\n<parameter=x>\n1\n</param"),
        ("python-odd", "pythonic", "[f(x=1), 2, g(]"),
        ("harmony-cut", "harmony", "<|channel|>commentary to=functions.f<|message|>{\"x\": "),
        ("mistral-cut", "mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}, {"name"'),
        ("tags-in-tags", "hermes", "<think>" * 3 + "</think>" * 3 + "<tool_</tool_call>"),
        ("blanks", "hermes", " \n\t\n<think>\n\n</think>\n \n a \n"),
        ("nul", "hermes", "\0<think>\0</think>\0"),
        ("empty", "hermes", ""),
        ("kimi", "kimi", '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|><|tool_calls_section_end|>'),
        ("command", "command", '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"x": 1}}]<|END_ACTION|>'),
        ("nemotron", "nemotron", '<TOOLCALL>[{"name": "f", "arguments": {"x": 1}}]</TOOLCALL>'),
        ("gemma", "gemma", '<|tool_call>call:f{x:1,y:<|"|>a}<|"|>,l:[1,{k:null}]}<tool_call|>'),
        ("minimax", "minimax", '<minimax:tool_call>\n<invoke name="f">\n<parameter name="x">1</parameter>\n</invoke>\n</minimax:tool_call>'),
        ("seed", "seed", "<seed:tool_call>\n<function=f>\n<parameter=x>1</parameter>\n</function>\n</seed:tool_call>"),
        ("glm", "glm", "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"),
        ("granite", "granite", '<|tool_call|>[{"name": "f", "arguments": {"x": 1}}]'),
    ]:
        write("answer", name, bytes([SYNTAXES.index(kind), 0]) + text.encode())
    write("answer", "bad-utf8", b"\x0c\x00<tool_call>{\"name\": \"\xff\", \"arguments\": {}}</tool_call>\xf0\x9f")


for make in (header, gguf, index, config, generation, cache, tokenizer, template, answer):
    make()
