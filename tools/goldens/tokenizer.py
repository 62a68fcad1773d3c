"""Writes qwen3-tokenizer.json: texts that trip tokenizers up, as the `tokenizers` library encodes and decodes them.

Usage: python tokenizer.py FOLDER      (a folder that tools/fetch-tokenizer has filled)

The file holds
- `encode`: `text`, its `ids` without anything added, and those ids decoded with special tokens (`kept`) and without
  them (`skipped`); `skipped` is left out where it equals `kept`
- `decode`: `ids` that no text gives (characters cut in half, unused ids), `kept` and `skipped`
"""
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

FIXTURE = Path(__file__).resolve().parents[2] / "crates/whin/tests/fixtures/qwen3-tokenizer.json"

CONTRACTIONS = [
    "I'm you're he's we'll they'd I've can't", "I'M YOU'RE HE'S WE'LL THEY'D I'VE CAN'T", "'S'T'RE'VE'M'LL'D",
    "it'S don'T", "o'clock 'tis rock 'n' roll", "I\u2019m it\u2019s", "'ll", "''s", "x'ſ", "'\u017f", "dogs' cats'll",
]
DIGITS = [
    "0", "12", " 12", "  12", "1234567890", "3.14159", "1,000,000", "2024-02-29T23:59:60Z", "x1y22z333", "٣٤٥", "१२३",
    "½ ² ³ ₄ Ⅷ ①", "0x1F 1e-9", "1 + 1 = 2", "１２３", "𝟏𝟐",
]
SPACES = [
    "", " ", "  ", "   ", " " * 16, " " * 83, " " * 400, "\t", "\t\t\t", "\n", "\n\n", "\n\n\n\n", "\r", "\r\n", "\r\n\r\n",
    "\n\r", " \n", "\n ", " \n \n ", "\t\n\t", "a\n", "a\n\nb", "a \n b", "a\r\nb\r\n\r\nc", "a\rb", "  a", "a  b", "a   b", "a  ",
    "a\u00a0b", "\u00a0", "\u00a0\u00a0x", "a\u2028b", "a\u2029b", "\u0085", "a\u0085b", "\u3000全角", "\u2003em", "\u202fnarrow",
    "a\u200bb", "\u200b", "\x0b\x0c", "a \u00a0 b", "\u1680", "\u180e",
]
CONTROLS = [
    "\x00", "a\x00b", "\x00\x00\x00", "\x01\x02\x1b[0m", "\x7f", "\ufeff", "\ufeffHello", "a\ufeffb", "\ufffd", "\ufffe\uffff",
    "\u202eright to left\u202c", "\u00ad", "a\u00adb", "\U0010ffff", "\ue000", "\U000e0041",
]
MARKS = [
    "é", "e\u0301", "caf\u00e9 cafe\u0301", "\u0301", " \u0301", "a\u0301\u0301\u0301", "\u0338", ">\u0338", "=\u0338", "<\u0338",
    "\u212b \u2126 \u212a", "ﬁ ﬂ ﬃ", "Å A\u030a", "ṩ s\u0323\u0307 s\u0307\u0323", "\u0344", "\u1e9b\u0323", "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "\u1112", "\u1161", "가\u11a8", "ก็ ำ", "สวัสดีชาวโลก", "ภาษาไทยไม่มีช่องว่าง", "नमस्ते दुनिया", "क\u093c", "\u0958", "வணக்கம்", "שָׁלוֹם", "\ufb2a", "مرحبا بالعالم",
    "\u0627\u0653", "ﷺ", "Z̷̢a̸l̶g̵o̷", "Đặng Thị Ngọc", "ϓ", "\u1f71 \u03ac", "\uf900 \u8c48",
]
EMOJI = [
    "😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇩🇪", "❤️", "❤", "☺︎", "1️⃣", "🤷🏽‍♀️", "a😀b", "😀😀😀", " 😀", "🫨", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
]
SCRIPTS = [
    "Hello, world!", "The quick brown fox jumps over the lazy dog.", "你好，世界！", "これはテストです。", "混合English和中文123", "Привет, мир", "Γειά σου Κόσμε",
    "ﾊﾝｶｸ", "𝓗𝓮𝓵𝓵𝓸", "𠜎𠜱", "İstanbul ISPARTA ıi", "ǅ ß ẞ", "ꙮ", "ᚠᛇᚻ", "𓀀𓁐", "Antidisestablishmentarianism", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "x" * 300, "=" * 77, "-" * 130, "ABCdefGHI", "snake_case camelCase SCREAMING_CASE",
]
CODE = [
    "fn main() {\n    println!(\"{}\", 1u8);\n}\n", "def f(x):\n\treturn x**2\n\n\nprint(f(3))", "if (a<=b&&c!=d||!e) { x->y++; }", "<div class=\"a\">\r\n  <br/>\r\n</div>",
    "SELECT * FROM t WHERE a='b''c';", "{\"a\": [1, 2, {\"b\": null}], \"c\": \"\\u00e9\\n\"}", "https://example.org/a?b=c&d=%20#e", "C:\\Users\\x\\\\y", "\\n \\\\ \\", "$\\frac{1}{2}$",
    "!!!???...", " !", " !\n", "!\n\n", "?\r\n\r\n", "-->\n", "{{#if}}", "`'\"`", "#!/bin/sh\n", "a/*b*/c//d", "@user #tag", "…—–“”",
]
AROUND_TOKENS = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", " <|im_start|> ", "<|im_end|>\n", "<|im_end|>\n\n", "a<|im_end|>b", "a <|im_end|> b", "  <|im_end|>  ",
    "<|im_end|><|im_end|>", "<|im_end|", "<|im_end", "|im_end|>", "< |im_end|>", "<|im_end |>", "<|IM_END|>", "<|im_end|>>", "<<|im_end|>", "<|im_<|im_end|>end|>",
    "<|im_end|>\u0338", "<|im_end|>\u0301", "e\u0301<|im_end|>e\u0301", "\u0301<|im_end|>", "<|endoftext|>", "<|endoftext|><|im_start|>", "<think>\n\n</think>\n\n", "<think>", "</think>",
    "<think></think>", "<THINK>", "<think >", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<tool_call", "<tool_response>\n12\n</tool_response>", "<tools></tools>",
    "<|unknown|>", "<s></s>[INST]", "<|fim_prefix|>def<|fim_suffix|>end<|fim_middle|>", "'<|im_end|>s", "I<|im_end|>'m", "\n<|im_end|>", "\r\n<|im_end|>\r\n", "12<|im_end|>34", "\x00<|im_end|>\x00",
]


def texts(tokenizer) -> list[str]:
    every = [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    wrapped = [f"a {token}\n b" for token in every] + ["".join(every), " ".join(every)]
    found = (CONTRACTIONS + DIGITS + SPACES + CONTROLS + MARKS + EMOJI + SCRIPTS + CODE + AROUND_TOKENS + wrapped)
    return list(dict.fromkeys(found))


def both(tokenizer, ids: list[int]) -> dict:
    kept = tokenizer.decode(ids, skip_special_tokens=False)
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    return {"kept": kept} if skipped == kept else {"kept": kept, "skipped": skipped}


def broken_ids(tokenizer) -> list[list[int]]:
    """Ids whose bytes end or begin inside a character, and ids past the vocabulary, which decode to nothing."""
    family = tokenizer.encode("👨‍👩‍👧‍👦🫨𓀀", add_special_tokens=False).ids
    cut = [family[:n] for n in range(1, len(family))] + [family[n:] for n in range(1, len(family))]
    return cut + [[family[0], 151645, family[0]], [151645], [151643, 151645], [], [151669], [9707, 151935, 1879], [151935]]


def main(folder: str):
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    encode = []
    for text in texts(tokenizer):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        encode.append({"text": text, "ids": ids, **both(tokenizer, ids)})
    decode = [{"ids": ids, **both(tokenizer, ids)} for ids in broken_ids(tokenizer)]
    tables = {"encode": encode, "decode": decode}
    # One line an entry, and only ASCII: an invisible character must be visible in a diff.
    parts = [f'"{name}": [\n' + ",\n".join(json.dumps(entry) for entry in table) + "\n]" for name, table in tables.items()]
    FIXTURE.write_text("{" + ",\n".join(parts) + "}\n")
    print(f"{len(encode)} texts, {len(decode)} broken sequences, {FIXTURE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
