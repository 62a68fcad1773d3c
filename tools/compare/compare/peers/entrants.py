"""Who takes part, with which weights."""

from . import Peer
from .in_python import MistralRs, OpenVino, Transformers
from .llama_cpp import LlamaCpp
from .whin import Whin

# Their names, in the order of the table's columns.
COLUMNS = (
    "whin", "llama.cpp", "llama.cpp -fa", "llama.cpp -fa --pure", "OpenVINO", "OpenVINO, rows", "mistral.rs",
    "transformers",
)

ENTRANTS: tuple[Peer, ...] = (
    Whin("int8"),
    LlamaCpp("int8", flash_attention=False),
    LlamaCpp("int8", flash_attention=True),
    OpenVino("int8"),
    OpenVino("int8", rows=True),
    MistralRs("int8"),
    Whin("int4"),
    LlamaCpp("int4", flash_attention=False),
    LlamaCpp("int4", flash_attention=True),
    LlamaCpp("int4", flash_attention=True, pure=True),
    OpenVino("int4"),
    Whin("bf16"),
    LlamaCpp("bf16", flash_attention=False),
    LlamaCpp("bf16", flash_attention=True),
    Transformers("bf16"),
)
