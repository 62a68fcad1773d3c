"""The peers that are Python packages: OpenVINO GenAI, mistral.rs and transformers.

Each has a script in `workers`, which warms up, measures and prints one line of JSON.
"""

import json
from dataclasses import dataclass

from . import Command, Place, Reading, Row, check, worker_arguments
from .llama_cpp import QUANTIZATIONS


@dataclass(frozen=True)
class InPython:
    weights: str

    def read(self, row: Row, output: str) -> Reading:
        found = json.loads(output.strip().splitlines()[-1])
        prompt = row.tokens if row.kind == "prefill" else row.depth
        for key, expected in (("prompt", prompt), ("batch", row.batch)):
            check(key, found[key], expected)
        return Reading(found["prefill"] if row.kind == "prefill" else found["decode"])


@dataclass(frozen=True)
class OpenVino(InPython):
    """`rows`: the exported model with one scale a row, instead of the GGUF file with one for 32 weights."""

    rows: bool = False

    @property
    def name(self) -> str:
        return "OpenVINO, rows" if self.rows else "OpenVINO"

    def measures(self, row: Row) -> bool:
        return True

    def command(self, place: Place, model: str, row: Row) -> Command:
        file = f"{place.checkpoint(model)}-openvino" if self.rows else place.gguf(model, QUANTIZATIONS[self.weights])
        return place.worker("run_openvino", "openvino", "--model", file, *worker_arguments(row))


@dataclass(frozen=True)
class MistralRs(InPython):
    name: str = "mistral.rs"

    def measures(self, row: Row) -> bool:
        return row.batch == 1

    def command(self, place: Place, model: str, row: Row) -> Command:
        file = place.gguf(model, QUANTIZATIONS[self.weights])
        tokenizer = place.checkpoint(model)
        arguments = ["--model", file, "--tokenizer", tokenizer, *worker_arguments(row)]
        return place.worker("run_mistralrs", "mistralrs", *arguments)


@dataclass(frozen=True)
class Transformers(InPython):
    name: str = "transformers"

    def measures(self, row: Row) -> bool:
        return True

    def command(self, place: Place, model: str, row: Row) -> Command:
        return place.worker("run_transformers", None, "--model", place.checkpoint(model), *worker_arguments(row))
