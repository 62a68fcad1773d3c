"""Stores the matrices of a checkpoint in 8 bits with scales, and gives back the float32 checkpoint that it means.

transformers' own dequantiser shares the rows and columns of a matrix out evenly among its scales, and so refuses or
misreads partial blocks, which its GPU kernels and those of other engines take as they are. So the blocks are put
together here, and compared with transformers where none is partial.
"""
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0}


@dataclass
class Quantised:
    """How the projections are stored. Embedding, norms and head stay as they are."""
    dtype: torch.dtype
    # What stands behind the weight's name in that of its scales.
    suffix: str
    scale_dtype: torch.dtype
    # Rows and columns that share a scale; None for all.
    block: tuple[int | None, int | None]
    # The quantization_config, if there is one.
    config: dict | None

    def write(self, folder: Path):
        """Quantises the checkpoint in the folder."""
        tensors = load_file(folder / "model.safetensors")
        stored = {}
        for name, tensor in tensors.items():
            if name.endswith("proj.weight"):
                stored[name], stored[name + self.suffix] = self.quantise(tensor.float())
            else:
                stored[name] = tensor
        save_file(stored, folder / "model.safetensors", {"format": "pt"})
        if self.config is not None:
            path = folder / "config.json"
            saved = json.loads(path.read_text())
            saved["quantization_config"] = self.config
            path.write_text(json.dumps(saved, indent=2) + "\n")

    def quantise(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, cols = (size or all_ for size, all_ in zip(self.block, weight.shape))
        grid = [[part.abs().max() for part in band.split(cols, 1)] for band in weight.split(rows, 0)]
        scales = (torch.tensor(grid) / LARGEST[self.dtype]).to(self.scale_dtype)
        codes = weight / spread(scales.float(), (rows, cols), weight.shape)
        codes = codes.clamp(-LARGEST[self.dtype], LARGEST[self.dtype])
        if self.dtype == torch.int8:
            codes = codes.round()
        return codes.to(self.dtype), scales.reshape([]) if self.block == (None, None) else scales

    def dequantise(self, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        block = tuple(size or all_ for size, all_ in zip(self.block, codes.shape))
        return codes.float() * spread(scales.float().reshape(scales.shape or (1, 1)), block, codes.shape)

    def plain(self, folder: Path, to: Path, flat: bool = False):
        """Writes what the checkpoint means, as float32; with `flat`, what it would without its scales."""
        shutil.copytree(folder, to)
        tensors = load_file(folder / "model.safetensors")
        meant = {}
        for name, tensor in tensors.items():
            scales = tensors.get(name + self.suffix)
            if name.endswith(self.suffix):
                continue
            if flat and scales is not None:
                scales = torch.full_like(scales, float(scales.float().mean())) if scales.shape else scales * 1.1
            meant[name] = tensor.float() if scales is None else self.dequantise(tensor, scales)
        save_file(meant, to / "model.safetensors", {"format": "pt"})
        saved = json.loads((to / "config.json").read_text())
        saved.pop("quantization_config", None)
        (to / "config.json").write_text(json.dumps(saved))

    def check(self):
        """Dequantises as transformers does where no block is partial. It takes 8-bit integers for pairs of 4 bits."""
        if self.dtype == torch.int8:
            return
        codes, scales = self.quantise(torch.randn(256, 384, generator=torch.Generator().manual_seed(1)))
        theirs = Fp8Dequantize(None)._dequantize_one(codes, scales, torch.float32)
        assert torch.equal(self.dequantise(codes, scales), theirs), f"{self} means something else to transformers"


def spread(scales: torch.Tensor, block: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """The scale of each number of a matrix of this shape."""
    return scales.repeat_interleave(block[0], 0)[:shape[0]].repeat_interleave(block[1], 1)[:, :shape[1]]
