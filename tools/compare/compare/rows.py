"""What is measured: the rows of the table."""

from dataclasses import dataclass

MODELS = ("Qwen3-0.6B", "Qwen3-1.7B")
WEIGHTS = ("int8", "int4", "bf16")


@dataclass(frozen=True)
class Row:
    """One figure in tokens a second: of a prompt that is read, or of texts that go on.

    A prefill row times a prompt of `tokens`. A decode row times `tokens` new ones of each of `batch` texts, all of
    which already have `depth` tokens; their figure is the sum over the texts.
    """

    key: str
    label: str
    kind: str  # prefill or decode
    tokens: int
    depth: int = 0
    batch: int = 1
    repeats: int = 3  # in one process, after a warm-up; their median counts
    busy: bool = False  # beside as many busy processes as processors are used
    weights: tuple[str, ...] = WEIGHTS


ROWS = (
    Row("prefill-512", "prefill of 512 tokens", "prefill", 512),
    Row("prefill-2048", "prefill of 2048 tokens", "prefill", 2048, repeats=1, weights=("int8", "bf16")),
    Row("decode-128", "decode after 128 tokens", "decode", 64, depth=128),
    Row("decode-2048", "decode after 2048 tokens", "decode", 64, depth=2048, repeats=1),
    Row("decode-128x16", "decode of 16 texts, after 128 tokens each", "decode", 64, depth=128, batch=16,
        repeats=1, weights=("int8", "int4")),
    Row("decode-128-busy", "decode after 128 tokens, beside busy processes", "decode", 32, depth=128, busy=True,
        repeats=1, weights=("int8",)),
)

# The row whose process also gives the peak of resident memory.
MEMORY_ROW = "decode-2048"
