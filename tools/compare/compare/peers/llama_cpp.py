"""llama.cpp, through its own llama-bench, and llama-batched-bench for several texts."""

import json
from dataclasses import dataclass
from statistics import median

from . import HUGE_PAGES, Command, Place, Reading, Row, check

QUANTIZATIONS = {"int8": "Q8_0", "int4": "Q4_0", "bf16": "BF16"}


@dataclass(frozen=True)
class LlamaCpp:
    weights: str
    flash_attention: bool
    pure: bool = False  # the embedding and the head in 4 bits too

    @property
    def name(self) -> str:
        options = ["-fa"] * self.flash_attention + ["--pure"] * self.pure
        return " ".join(["llama.cpp", *options])

    def measures(self, row: Row) -> bool:
        return not self.pure or row.kind == "decode"

    def command(self, place: Place, model: str, row: Row) -> Command:
        quantization = QUANTIZATIONS[self.weights] + "-pure" * self.pure
        flash = "on" if self.flash_attention else "off"
        common = ["-m", place.gguf(model, quantization), "-t", str(place.threads), "-fa", flash]
        repeats = ["-r", str(row.repeats), "-o", "json"]
        if row.batch > 1:
            context = row.batch * (row.depth + row.tokens)
            what = ["-npp", str(row.depth), "-ntg", str(row.tokens), "-npl", ",".join([str(row.batch)] * row.repeats)]
            binary, options = "llama-batched-bench", ["-c", str(context), *what, "--output-format", "jsonl"]
        elif row.kind == "prefill":
            binary, options = "llama-bench", ["-p", str(row.tokens), "-n", "0", *repeats]
        else:
            binary, options = "llama-bench", ["-p", "0", "-n", str(row.tokens), "-d", str(row.depth), *repeats]
        return Command([str(place.folder / "llama.cpp" / binary), *common, *options], HUGE_PAGES)

    def read(self, row: Row, output: str) -> Reading:
        if row.batch > 1:
            results = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
            for found in results:
                for key, expected in (("pp", row.depth), ("tg", row.tokens), ("pl", row.batch), ("is_pp_shared", 0)):
                    check(key, found[key], expected)
            return Reading(median(found["speed_tg"] for found in results))
        [found] = json.loads(output)
        prompt, new = (row.tokens, 0) if row.kind == "prefill" else (0, row.tokens)
        for key, expected in (("n_prompt", prompt), ("n_gen", new), ("n_depth", row.depth)):
            check(key, found[key], expected)
        check("flash_attn", bool(found["flash_attn"]), self.flash_attention)
        return Reading(median(found["samples_ts"]))
