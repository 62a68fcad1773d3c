"""From single measurements to one Markdown table: medians, and ratios of whin to each peer."""

from collections.abc import Sequence
from statistics import median

from .rows import MEMORY_ROW, MODELS, ROWS, WEIGHTS

OURS = "whin"
MEMORY = "peak resident memory, MiB"


def medians(measurements: list[dict], field: str) -> dict[tuple[str, str, str, str], float]:
    """The median over the rounds for each (model, weights, row, peer); what failed is left out."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for measured in measurements:
        if field in measured:
            key = (measured["model"], measured["weights"], measured["row"], measured["peer"])
            values.setdefault(key, []).append(measured[field])
    return {key: median(found) for key, found in values.items()}


def lines(measurements: list[dict]) -> list[tuple[str, str, dict[str, float], bool]]:
    """Model and weights, label, figure of each peer, and whether less is better, in the order of the table."""
    speeds, memory = medians(measurements, "tokens_per_sec"), medians(measurements, "peak_rss")
    found = []
    for model in MODELS:
        for weights in WEIGHTS:
            group = f"{model}, {weights}"
            for row in ROWS:
                cells = _peers(speeds, (model, weights, row.key))
                found.append((group, f"{row.label}, tokens/s", cells, False))
            cells = _peers(memory, (model, weights, MEMORY_ROW))
            found.append((group, MEMORY, {peer: rss / 2**20 for peer, rss in cells.items()}, True))
    return [line for line in found if line[2]]


def markdown(measurements: list[dict], order: Sequence[str]) -> str:
    """The table. `order`: names of the peers as they stand in columns; those without any figure get none."""
    found = lines(measurements)
    peers = [peer for peer in order if any(peer in cells for _, _, cells, _ in found)]
    titles = ["", "", *peers, "whin / best peer"]
    text = [_row(titles), _row(["---", "---", *["---:"] * (len(titles) - 2)])]
    last = None
    for group, label, cells, less_is_better in found:
        best = _best(cells, less_is_better)
        figures = [_cell(cells, peer) for peer in peers]
        text.append(_row([group if group != last else "", label, *figures, ratio(cells.get(OURS), best)]))
        last = group
    return "\n".join(text) + "\n"


def ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}×" if ours and theirs else ""


def number(value: float) -> str:
    """At least three digits."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _peers(values: dict[tuple[str, str, str, str], float], start: tuple[str, str, str]) -> dict[str, float]:
    return {key[3]: value for key, value in values.items() if key[:3] == start}


def _best(cells: dict[str, float], less_is_better: bool) -> float | None:
    theirs = [value for peer, value in cells.items() if peer != OURS]
    return (min if less_is_better else max)(theirs, default=None)


def _cell(cells: dict[str, float], peer: str) -> str:
    if peer not in cells:
        return ""
    compared = ratio(cells.get(OURS), cells[peer]) if peer != OURS else ""
    return number(cells[peer]) + (f" ({compared})" if compared else "")


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
