"""whin, through its own `whin bench`."""

import json
from dataclasses import dataclass

from . import Command, Place, Reading, Row, check


@dataclass(frozen=True)
class Whin:
    weights: str
    name: str = "whin"

    def measures(self, row: Row) -> bool:
        return True

    def command(self, place: Place, model: str, row: Row) -> Command:
        # The bench always measures a prefill and a decoding: the one that is not asked for is made short.
        if row.kind == "prefill":
            what = ["--prompt", str(row.tokens), "--depth", "0", "--tokens", "2"]
        else:
            what = ["--prompt", "1", "--depth", str(row.depth), "--batch", str(row.batch), "--tokens", str(row.tokens)]
        engine = ["--model", place.checkpoint(model), "--weights", self.weights, "--threads", str(place.threads)]
        return Command([str(place.whin), "bench", *engine, *what, "--runs", str(row.repeats), "--json"])

    def read(self, row: Row, output: str) -> Reading:
        found = json.loads(output)
        result = next(result for result in found["results"] if result["kind"] == row.kind)
        for key in ("tokens", "depth", "batch"):
            check(key, result[key], getattr(row, key))
        # The process itself takes more at its end, to measure the memory's bandwidth.
        return Reading(result["tokens_per_sec"], found["peak_rss_bytes"])
