"""The engines that are compared, one module each, and what they have in common."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..process import Command
from ..rows import Row


@dataclass(frozen=True)
class Place:
    """Where the prepared files lie, and what runs them."""

    folder: Path
    threads: int
    python: str = sys.executable
    whin: Path | None = None

    def checkpoint(self, model: str) -> str:
        """Folder with config.json and *.safetensors."""
        return str(self.folder / "models" / model)

    def gguf(self, model: str, quantization: str) -> str:
        return str(self.folder / "models" / f"{model}-{quantization}.gguf")

    def worker(self, name: str, site: str | None, *arguments: str) -> Command:
        """A script of `workers`, run by the peers' Python with the packages in the folder `site`."""
        script = Path(__file__).parent.parent / "workers" / f"{name}.py"
        env = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **HUGE_PAGES}
        if site:
            env["PYTHONPATH"] = str(self.folder / site)
        return Command([self.python, str(script), "--threads", str(self.threads), *arguments], env)


# malloc asks for huge pages: every peer is faster with them.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


@dataclass(frozen=True)
class Reading:
    """What a command's output says."""

    tokens_per_sec: float
    peak_rss: int | None = None  # bytes; None: take that of the process


class Peer(Protocol):
    name: str  # the column
    weights: str  # the group of rows: int8, int4 or bf16

    def measures(self, row: Row) -> bool:
        """Whether it can run this row at all."""

    def command(self, place: Place, model: str, row: Row) -> Command:
        """What to run; it warms up before it measures."""

    def read(self, row: Row, output: str) -> Reading:
        """The figure in the output. A ValueError where the output is of something else than the row."""


def check(name: str, found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"{name} is {found}, not {expected}")


def worker_arguments(row: Row) -> list[str]:
    """A row as all workers take it."""
    repeats = ["--repeats", str(row.repeats)]
    if row.kind == "prefill":
        return ["--prompt", str(row.tokens), *repeats]
    return ["--prompt", str(row.depth), "--new", str(row.tokens), "--batch", str(row.batch), *repeats]
