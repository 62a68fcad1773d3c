"""Writes gguf-configs.json: the metadata that llama.cpp's own converter makes of a config.json, beside that config, for
each architecture that is known.

    python gguf_configs.py LLAMA_CPP    # a checkout of llama.cpp, with its folders conversion and gguf-py

Tensors are there by their shapes, those with frequencies by their numbers. Tokenizers are left out but for a list of
tokens and two ends.
"""
import json
import sys
import tempfile
from pathlib import Path

LLAMA_CPP = Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]

import gguf  # noqa: E402
import torch  # noqa: E402
import transformers as t  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase  # noqa: E402

FIXTURE = Path(__file__).parents[2] / "crates/whin/tests/fixtures/gguf-configs.json"
VOCAB = 96
COMMON = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, eos_token_id=2, bos_token_id=1, pad_token_id=None)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
SHARED = dict(shared_expert_intermediate_size=48, **EXPERTS)
LINEAR = dict(
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=8,
    linear_conv_kernel_dim=4, layer_types=["linear_attention"] * 3 + ["full_attention"], head_dim=16)


def rope(**keys):
    return dict(rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, **keys})


CASES = {
    "llama": (t.LlamaConfig, dict(rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True, tie_word_embeddings=False)),
    "llama-3": (t.LlamaConfig, dict(tie_word_embeddings=True, head_dim=32, **rope(
        rope_type="llama3", rope_theta=500_000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64))),
    "llama-linear": (t.LlamaConfig, rope(rope_type="linear", factor=2.5)),
    "mixtral": (t.MixtralConfig, dict(num_local_experts=4, num_experts_per_tok=2)),
    "mistral": (t.MistralConfig, dict(sliding_window=None, head_dim=32)),
    "ministral3": (t.Ministral3Config, dict(head_dim=16)),
    "smollm3": (t.SmolLM3Config, dict()),
    "granite": (t.GraniteConfig, dict(
        embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22, attention_multiplier=0.0078125)),
    "qwen2": (t.Qwen2Config, dict(tie_word_embeddings=True)),
    "qwen3": (t.Qwen3Config, dict(head_dim=32, attention_bias=True, **rope(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=16.0, attention_factor=1.25))),
    "qwen2moe": (t.Qwen2MoeConfig, SHARED),
    "qwen3moe": (t.Qwen3MoeConfig, dict(head_dim=16, norm_topk_prob=True, **EXPERTS)),
    "gemma2": (t.Gemma2Config, dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=32)),
    "gemma3": (t.Gemma3TextConfig, dict(
        head_dim=16, query_pre_attn_scalar=16, sliding_window=32, num_hidden_layers=7)),
    "gemma3-linear": (t.Gemma3TextConfig, dict(
        head_dim=16, query_pre_attn_scalar=16, sliding_window=32, num_hidden_layers=7, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0}})),
    "phi3": (t.Phi3Config, dict(sliding_window=31, original_max_position_embeddings=256)),
    "phi3-long": (t.Phi3Config, dict(original_max_position_embeddings=64, **rope(
        rope_type="longrope", short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[1.0 + i for i in range(8)],
        original_max_position_embeddings=64))),
    "phi4": (t.Phi3Config, dict(original_max_position_embeddings=256, **rope(partial_rotary_factor=0.75))),
    "olmo2": (t.Olmo2Config, dict(rms_norm_eps=1e-6)),
    "olmo3": (t.Olmo3Config, dict(sliding_window=32)),
    "glm4": (t.Glm4Config, dict(head_dim=16, attention_bias=True, **rope(partial_rotary_factor=0.5))),
    "cohere2": (t.Cohere2Config, dict(sliding_window=32, logit_scale=0.25, num_hidden_layers=8, rotary_pct=1.0)),
    "gpt-oss": (t.GptOssConfig, dict(
        head_dim=16, num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, sliding_window=32,
        layer_types=["sliding_attention", "full_attention"] * 2, **rope(
            rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, rope_theta=150_000.0,
            original_max_position_embeddings=64))),
    "lfm2": (t.Lfm2Config, dict(
        layer_types=["conv", "conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False, conv_L_cache=3,
        norm_eps=1e-5)),
    "qwen3next": (t.Qwen3NextConfig, dict(**SHARED, **LINEAR)),
    "qwen35": (t.Qwen3_5TextConfig, LINEAR),
    "qwen35moe": (t.Qwen3_5MoeTextConfig, dict(**SHARED, **LINEAR)),
}


def set_vocab(model):
    writer = model.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{index}" for index in range(VOCAB)])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)


def convert(folder, file):
    architecture = ModelBase.load_hparams(folder, False)["architectures"][0]
    known = get_model_class(architecture)
    # Layers that guess further tokens are none of transformers'.
    ModelBase.no_mtp = known.no_mtp = True
    if hasattr(known, "Ministral3Model"):
        known.Ministral3Model.set_vocab = set_vocab
        return known(folder, gguf.LlamaFileType.ALL_F32, file).write()
    # One converter counts tokens here.
    tokens = {f"t{index}": index for index in range(VOCAB)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": []}))
    patched = type("Patched", (known,), {"model_arch": known.model_arch, "set_vocab": set_vocab})
    patched(folder, gguf.LlamaFileType.ALL_F32, file).write()


def described(file):
    reader = gguf.GGUFReader(file)
    metadata = [
        [field.name, [kind.name.lower() for kind in field.types], field.contents()]
        for field in reader.fields.values() if not field.name.startswith(("GGUF.", "general.", "tokenizer."))]
    name = reader.fields["general.architecture"].contents()
    tensors = {
        tensor.name: tensor.data.tolist() if tensor.name.startswith("rope_") else list(map(int, reversed(tensor.shape)))
        for tensor in reader.tensors}
    return {"architecture": name, "metadata": metadata, "tensors": tensors}


def main():
    cases = {}
    for name, (config_class, keys) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            torch.manual_seed(1)
            t.AutoModelForCausalLM.from_config(config_class(**{**COMMON, **keys})).save_pretrained(folder)
            convert(folder, folder / "model.gguf")
            config = json.loads((folder / "config.json").read_text())
            cases[name] = {**described(folder / "model.gguf"), "config": config}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    FIXTURE.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
