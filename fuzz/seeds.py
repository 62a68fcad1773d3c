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
        ("embedding", "int8", [4, 4], 1152), vector("layers.0.attention_norm", 4), layer("qkv", [8, 4]),
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
    sound = {"format": 1, "subject": "right", "checkpoint": "right", "sources": "right",
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
    several("cache", "format", change(format=2), data)
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


for make in (header, index, config, generation, cache, tokenizer):
    make()


# chat_template.jinja

TEMPLATES = {
    "text": "Hello",
    "roles": "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "subscripts": "{%- for m in messages -%}{{ m['role'] + ': ' + m['content'] | trim }}{%- if not loop.last -%}{{ '\n' }}{%- endif -%}{%- endfor -%}",
    "tools": "{% if tools %}{{ '<tools>' }}{% for t in tools %}{{ t | tojson(indent=2) }}{% endfor %}{{ '</tools>' }}{% endif %}{{ messages[0].content }}",
    "calls": "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{% set f = c.function %}{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v | tojson }}{% endfor %}){% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "namespace": "{% set ns = namespace(last=0, text='') %}{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.last %}{% set ns.last = loop.index0 %}{% endif %}{% set ns.text = ns.text ~ m.role %}{% endfor %}{{ ns.last }}{{ ns.text }}",
    "macro": "{% macro show(m, mark='#') %}{{ mark }}{{ m.content if m.content is string else m.content | tojson }}{{ caller() if caller }}{% endmacro %}{% for m in messages %}{{ show(m) }}{% endfor %}",
    "call": "{% macro box() %}[{{ caller('x') }}]{% endmacro %}{% call(a) box() %}{{ a }}{{ messages | length }}{% endcall %}",
    "think": "{% for m in messages %}{% set c = m.content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ c }}{% endfor %}",
    "raises": "{% if messages[0].role != 'system' %}{{ raise_exception('the system must speak first') }}{% endif %}{{ messages[0].content }}",
    "filters": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(', ') | upper | replace('A', 'b', 1) | indent(2) }}",
    "parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "raw": "{% raw %}\n{{ x }}{% endraw %}{# c #}{{ '{{ x }}' }}",
    "controls": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ loop.cycle('a', 'b') }}{{ m.role }}{% else %}none{% endfor %}",
    "recursive": "{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
    "numbers": "{{ 7 // 2 }}{{ -7 % 3 }}{{ 2 ** 10 }}{{ 1e16 }}{{ '%05d' | format(42) }}{{ 2.675 | round(2) }}{{ '3' | int + 1 }}",
    "operators": "{{ ((1 + 2) * 3 - 4) ~ 'x' ~ [1, 'a'] }}{{ 1 < 2 < 3 and 'a' not in 'bc' or not x }}{{ {'a': 1, ('b'): [2]}['b'][-1:] }}{{ x.y if x is defined else 'z' }}",
    "methods": "{{ ' aXb '.strip().split('X', 1) }}{{ 'abc'.startswith(('a', 'b')) }}{{ '{:>5}'.format('x') }}{{ 'a\nb'.splitlines() | length }}{{ {'items': 1}.items() | list }}",
    "time": "{{ strftime_now('%d %b %Y') }}{% set x %}{{ messages[0].role }}{% endset %}{{ x | length }}",
    "with": "{% with a = messages[0], b = 2 %}{{ a.role }}{{ b }}{% endwith %}{% filter trim %} x {% endfilter %}",
    "loops": "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% endfor %}{% endfor %}{% endfor %}",
    "doubled": "{% set ns = namespace(l=[1], s='x') %}{% for x in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.l == ns.s }}",
    "unclosed": "{% for m in messages %}{{ m",
    "unknown": "{% unknown %}",
    "latin": b"caf\xe9",
    "empty": "",
    "deep": "{{ " + "(" * 500 + ")" * 500 + " }}",
}
for name, text in TEMPLATES.items():
    write("template", name, text)
