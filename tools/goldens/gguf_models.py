"""Writes tiny GGUF files with the answers that transformers gives.

    python gguf_models.py LLAMA_CPP [NAME ...]    # a built llama.cpp: its folders conversion and gguf-py, libggml-base.so

- fixtures/gguf/NAME.gguf for fixtures NAME that exist: the checkpoint as llama.cpp's own converter writes it. Its answers
  are those of the checkpoint. Without names: one of each family.
- fixtures/gguf/types.gguf: a Llama whose matrices are of all types of blocks in turn, quantised by ggml itself, and
  types.safetensors: `prompt`, `logits` (prompt, vocabulary) of transformers on what the `gguf` package makes of them.
"""
import ctypes
import json
import shutil
import sys
import tempfile
from pathlib import Path

LLAMA_CPP = Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[2] / "crates/whin/tests/fixtures"
Type = gguf.GGMLQuantizationType
# Rows of these may have any whole number of 32 inputs, those of the others 256.
SHORT = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.IQ4_NL, Type.MXFP4, Type.F16]
LONG = [Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.BF16, Type.F32, *SHORT]


def guess_further(folder: Path, config: dict):
    """Adds a layer that guesses one token more, which is a copy of the one that attends."""
    tensors = load_file(folder / "model.safetensors")
    layer = f"model.layers.{config['layer_types'].index('full_attention')}."
    copies = {f"mtp.layers.0.{key.removeprefix(layer)}": tensor.clone()
              for key, tensor in tensors.items() if key.startswith(layer)}
    width = config["hidden_size"]
    norms = {f"mtp.{norm}.weight": torch.zeros(width, dtype=torch.bfloat16)
             for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    fc = torch.ones(width, 2 * width, dtype=torch.bfloat16)
    save_file({**tensors, **copies, **norms, "mtp.fc.weight": fc}, folder / "model.safetensors")


def convert(name: str):
    """The checkpoint of a fixture, without a tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder) / name
        shutil.copytree(FIXTURES / name, folder)
        for golden in folder.glob("golden.*"):
            golden.unlink()
        config = json.loads((folder / "config.json").read_text())
        text = config.get("text_config", config)
        vocabulary = text["vocab_size"]

        def set_vocab(model):
            model.gguf_writer.add_tokenizer_model("gpt2")
            model.gguf_writer.add_token_list([f"t{index}" for index in range(vocabulary)])

        known = get_model_class(config["architectures"][0])
        # One file has what is to be left alone.
        ModelBase.no_mtp = known.no_mtp = name != "gguf-qwen3-5"
        if not known.no_mtp:
            guess_further(folder, text)
        # One converter counts tokens here.
        tokens = {f"t{index}": index for index in range(vocabulary)}
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": []}))
        patched = type("Patched", (known,), {"model_arch": known.model_arch, "set_vocab": set_vocab})
        patched(folder, gguf.LlamaFileType.MOSTLY_BF16, FIXTURES / "gguf" / f"{name}.gguf").write()


def quantise(library, numbers: np.ndarray, kind: Type) -> np.ndarray:
    """What ggml makes of a matrix: (outputs, bytes)."""
    numbers = np.ascontiguousarray(numbers, dtype=np.float32)
    if kind in (Type.F32, Type.F16, Type.BF16):
        return gguf.quants.quantize(numbers, kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, inputs = numbers.shape
    out = np.zeros((rows, inputs // block * size), dtype=np.uint8)
    pointer = ctypes.POINTER(ctypes.c_float)
    library.ggml_quantize_chunk(
        ctypes.c_int(kind), numbers.ctypes.data_as(pointer), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0),
        ctypes.c_int64(rows), ctypes.c_int64(inputs), None)
    return out


def paired(numbers: np.ndarray, heads: int) -> np.ndarray:
    """The rows of queries or keys as converters of Llama write them: those that turn together side by side."""
    rows, inputs = numbers.shape
    return numbers.reshape(heads, 2, rows // heads // 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


def unpaired(numbers: np.ndarray, heads: int) -> np.ndarray:
    rows, inputs = numbers.shape
    return numbers.reshape(heads, rows // heads // 2, 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


def types():
    library = ctypes.CDLL(str(LLAMA_CPP / "libggml-base.so"))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    config = LlamaConfig(
        vocab_size=32, hidden_size=256, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=256, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=None, pad_token_id=None, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}, attn_implementation="eager")
    torch.manual_seed(7)
    model = LlamaForCausalLM(config).eval()
    draw = torch.Generator().manual_seed(7)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=draw)
        parameter.data = 1.0 + 0.3 * noise if "norm" in name else 2.0 * noise / parameter.shape[1] ** 0.5
    writer = gguf.GGUFWriter(FIXTURES / "gguf/types.gguf", "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(256)
    writer.add_block_count(4)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(32)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{index}" for index in range(32)])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 4)
    long, short = 0, 0
    for name, parameter in model.named_parameters():
        known = names.get_name(name, try_suffixes=(".weight",))
        numbers = parameter.detach().numpy()
        if numbers.ndim == 1:
            writer.add_tensor(known, numbers)
            continue
        heads = {"q_proj": 2, "k_proj": 1}.get(name.split(".")[-2])
        numbers = paired(numbers, heads) if heads else numbers
        if numbers.shape[1] % 256:
            kind, short = SHORT[short % len(SHORT)], short + 1
        else:
            kind, long = LONG[long % len(LONG)], long + 1
        stored = quantise(library, numbers, kind)
        writer.add_tensor(known, stored, raw_dtype=kind)
        numbers = gguf.quants.dequantize(stored, kind)
        numbers = unpaired(numbers, heads) if heads else numbers
        parameter.data = torch.from_numpy(numbers.copy())
    assert long >= len(LONG) and short >= len(SHORT)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    prompt = torch.randint(32, (40,), generator=draw)
    with torch.inference_mode():
        logits = model(input_ids=prompt[None]).logits[0]
    save_file({"prompt": prompt, "logits": logits.contiguous()}, FIXTURES / "gguf/types.safetensors")


def main(names: list[str]):
    (FIXTURES / "gguf").mkdir(exist_ok=True)
    for name in names:
        convert(name)
    if not names:
        types()


if __name__ == "__main__":
    main(sys.argv[2:])
