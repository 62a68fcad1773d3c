"""Tiny checkpoints of families with mixtures of experts, and the ways in which files hold all experts in one tensor."""
import json
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

from cases import drop, put
from families import FULL, SLIDING, both, case, rope


class Stacked:
    """The gates of all experts and what they multiply in one tensor, and all projections back in another, as
    transformers has them in memory."""

    def write(self, folder: Path):
        tensors = load_file(folder / "model.safetensors")
        stored = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
        for layer in sorted({name.split(".experts.")[0] for name in tensors if ".experts." in name}):
            count = len({name for name in tensors if re.fullmatch(re.escape(layer) + r"\.experts\.\d+\.up_proj\.weight", name)})
            part = lambda name: [tensors[f"{layer}.experts.{expert}.{name}_proj.weight"] for expert in range(count)]
            gate_up = [torch.cat(pair) for pair in zip(part("gate"), part("up"))]
            stored[f"{layer}.experts.gate_up_proj"] = torch.stack(gate_up)
            stored[f"{layer}.experts.down_proj"] = torch.stack(part("down"))
        save_file(stored, folder / "model.safetensors", {"format": "pt"})

    def plain(self, folder: Path, to: Path, flat: bool = False):
        """What transformers is to load: the same; with `flat`, what multiplies the gates before the gates."""
        shutil.copytree(folder, to)
        if flat:
            tensors = load_file(folder / "model.safetensors")
            swapped = {name: torch.cat(tensor.chunk(2, 1)[::-1], 1) if name.endswith("gate_up_proj") else tensor
                       for name, tensor in tensors.items()}
            save_file(swapped, to / "model.safetensors", {"format": "pt"})

    def check(self):
        pass


class Mxfp4:
    """The experts in 4 bits, 32 inputs with one power of two."""

    config = {"quant_method": "mxfp4",
              "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}

    def write(self, folder: Path):
        stored = {}
        for name, tensor in load_file(folder / "model.safetensors").items():
            if name.endswith(("gate_up_proj", "down_proj")):
                stored[name + "_blocks"], stored[name + "_scales"] = self.quantise(tensor.transpose(1, 2).float())
            else:
                stored[name] = tensor
        save_file(stored, folder / "model.safetensors", {"format": "pt"})
        path = folder / "config.json"
        saved = json.loads(path.read_text())
        saved["quantization_config"] = self.config
        path.write_text(json.dumps(saved, indent=2) + "\n")

    def quantise(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(experts, outputs, inputs) as (experts, outputs, groups, 16) and (experts, outputs, groups)."""
        groups = weight.unflatten(-1, (-1, 32))
        exponents = (groups.abs().amax(-1).log2().floor() - 2).clamp(-127, 127)
        scaled = groups / torch.exp2(exponents)[..., None]
        codes = (scaled[..., None] - torch.tensor(FP4_VALUES)).abs().argmin(-1).to(torch.uint8)
        return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8)

    def plain(self, folder: Path, to: Path, flat: bool = False):
        """Writes what the checkpoint means, as floats; with `flat`, what it would without its powers of two."""
        shutil.copytree(folder, to)
        tensors, meant = load_file(folder / "model.safetensors"), {}
        for name, tensor in tensors.items():
            if name.endswith("_blocks"):
                scales = tensors[name.replace("_blocks", "_scales")]
                scales = torch.full_like(scales, 126) if flat else scales
                meant[name.removesuffix("_blocks")] = convert_moe_packed_tensors(tensor, scales, dtype=torch.float32)
            elif not name.endswith("_scales"):
                meant[name] = tensor.float()
        save_file(meant, to / "model.safetensors", {"format": "pt"})
        saved = json.loads((to / "config.json").read_text())
        saved.pop("quantization_config", None)
        (to / "config.json").write_text(json.dumps(saved))

    def check(self):
        """Every number of the type survives."""
        numbers = torch.tensor(FP4_VALUES).repeat(2, 1, 4) * torch.tensor([0.25, 8.0])[:, None, None]
        assert torch.equal(convert_moe_packed_tensors(*self.quantise(numbers)).transpose(1, 2).float(), numbers)


YARN = dict(factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096)


def qwen() -> list:
    return [
        case("qwen3-moe", "Two of six experts, their shares divided by their sum; experts of 16, one by one in the file.",
             "qwen3_moe", {"num_hidden_layers": 2, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                           "norm_topk_prob": True},
             without=[{"norm_topk_prob": False}, {"num_experts_per_tok": 1}]),
        case("qwen3-moe-stacked", "Experts in layer 1 of 4 alone, all in one tensor; a window of 8; biases; tied; the key "
             "num_experts.", "qwen3_moe",
             {"num_hidden_layers": 4, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 10,
              "decoder_sparse_step": 2, "mlp_only_layers": [3], "attention_bias": True, "use_sliding_window": True,
              "sliding_window": 8, "tie_word_embeddings": True},
             spell=lambda saved: saved.update(num_experts=saved.pop("num_local_experts")), quantised=Stacked()),
        case("qwen2-moe", "Two of six experts with shares of all, and one for every row with a gate.", "qwen2_moe",
             {"num_hidden_layers": 2, "head_dim": "derived", "num_experts": 6, "num_experts_per_tok": 2,
              "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20},
             without=[{"norm_topk_prob": True}, {"num_experts_per_tok": 3}]),
        case("qwen2-moe-mixed", "Experts in every second layer but the last; windows of 8 in every second layer below the "
             "third; shared expert of 32; no biases; tied.", "qwen2_moe",
             {"num_hidden_layers": 4, "head_dim": "derived", "num_experts": 5, "num_experts_per_tok": 2,
              "intermediate_size": 20, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32, "norm_topk_prob": True,
              "decoder_sparse_step": 2, "mlp_only_layers": [3], "qkv_bias": False, "use_sliding_window": True,
              "sliding_window": 8, "max_window_layers": 3, "tie_word_embeddings": True},
             spell=drop("layer_types"), without=[{"norm_topk_prob": False}, {"use_sliding_window": False}]),
    ]


def gpt_oss() -> list:
    return [
        case("gpt-oss", "Windows of 8 in every second layer, sinks, two of four experts; without rope keys and layer types.",
             "gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "num_hidden_layers": 2,
                         "intermediate_size": 20},
             spell=drop("rope_parameters", "layer_types"),
             without=[{"sliding_window": 256}, rope(theta=150_000.0)]),
        case("gpt-oss-mxfp4", "Experts in MXFP4, three of four; windows by list; keys as the published files have them.",
             "gpt_oss", {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_local_experts": 4,
                         "num_experts_per_tok": 3, "sliding_window": 8, "layer_types": [SLIDING, FULL],
                         **rope("yarn", 150_000.0, **YARN)},
             spell=both(drop("rope_parameters"),
                        put(rope_theta=150_000, rope_scaling={"rope_type": "yarn", **YARN}, swiglu_limit=7.0,
                            initial_context_length=4096, experts_per_token=3, num_experts_per_tok=3)),
             quantised=Mxfp4()),
    ]


EXPERTS = qwen() + gpt_oss()
