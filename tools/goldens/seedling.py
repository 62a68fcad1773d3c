"""Writes what transformers answers with the demo model's own weights, in float32 from the stored bf16.

Usage: python seedling.py

seedling-golden.json: `prompts`, each with
- `kind`, `text` (as the model sees it), `ids`; for chats `messages` and the template's other `arguments`
- `greedy_ids`: 60 tokens, going on after the end of text; `greedy_text`: those tokens, special ones included
- `gaps`: for each of them, by how much its logit beats the second best; where it is small, rounding may choose
- `top`: the five best [id, logit] for the first token
seedling-text.json: `documents` of the kind it was trained on, drawn with another seed, each with
- `text`, `ids`, and `logprobs`: the natural logarithm of the probability of ids[i + 1] after ids[..= i]
"""
import json
import sys
from pathlib import Path
from random import Random

import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM
from transformers.utils import logging

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "crates/whin/tests/fixtures"
sys.path.append(str(ROOT / "tools/seedling"))

from make_corpus import document  # noqa: E402  (needs the path above)

GREEDY = 60
HELD_OUT_SEED = 271_828
TEXT_TOKENS = 2_000
LONGEST = 512

PLAIN = {
    "capital": ["The capital of France is", "The capital of Japan is", "Kenya is a country in", "The currency of Brazil is the"],
    "sum": ["7 + 5 =", "12 - 4 =", "What is 3 + 9?"],
    "story": ["Once upon a time", "Once upon a time, there was a little fox named", "One rainy morning, a shy owl named Nora"],
    "other": ["Zürich, 東京 and Łódź", "<|im_start|>user\n"],
}


def tool(name: str, description: str, **properties: str) -> dict:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()},
              "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


WEATHER = tool("get_weather", "Get the current weather for a location.", location="string")
ADD = tool("add", "Add two numbers.", a="integer", b="integer")
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


def user(text: str) -> dict:
    return {"role": "user", "content": text}


CALLED = [
    user("What is the weather in Paris?"),
    {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "get_weather", "arguments": {"location": "Paris"}}}]},
    {"role": "tool", "content": '{"temperature": 21, "condition": "sunny"}'},
]
CHATS = [
    ([user("What is the capital of Japan?")], {}),
    ([user("What is the capital of Japan?")], {"enable_thinking": True}),
    ([SYSTEM, user("What is 8 + 9?")], {}),
    ([user("Where is Peru?"), {"role": "assistant", "content": "Peru is in South America."},
      user("What currency does Peru use?")], {}),
    ([user("Tell me a story.")], {}),
    ([user("Repeat these words: fox, honey, swan.")], {}),
    ([user("Hello, my name is Kofi.")], {}),
    ([user("What is the weather in Paris?")], {"tools": [WEATHER]}),
    ([SYSTEM, user("Add 17 and 25.")], {"tools": [WEATHER, ADD]}),
    (CALLED, {"tools": [WEATHER]}),
]


@torch.inference_mode()
def greedy(model, ids: list[int]) -> dict:
    out, tokens, gaps, top = None, [], [], None
    for _ in range(GREEDY):
        fed = tokens[-1:] or ids
        out = model(input_ids=torch.tensor([fed]), past_key_values=out and out.past_key_values, use_cache=True)
        best = out.logits[0, -1].topk(5)
        top = top or [[int(i), round(float(x), 4)] for i, x in zip(best.indices, best.values)]
        tokens.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 3))
    return {"greedy_ids": tokens, "gaps": gaps, "top": top}


def prompts(model, tokenizer) -> list[dict]:
    entries = [{"kind": kind, "text": text} for kind, texts in PLAIN.items() for text in texts]
    for messages, arguments in CHATS:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **arguments)
        entries.append({"kind": "chat", "messages": messages, "arguments": arguments, "text": text})
    for entry in entries:
        entry["ids"] = tokenizer.encode(entry["text"], add_special_tokens=False)
        entry.update(greedy(model, entry["ids"]))
        entry["greedy_text"] = tokenizer.decode(entry["greedy_ids"], skip_special_tokens=False)
    return entries


@torch.inference_mode()
def documents(model, tokenizer) -> list[dict]:
    random, entries, count = Random(HELD_OUT_SEED), [], 0
    while count < TEXT_TOKENS:
        text = document(random)
        ids = tokenizer.encode(text, add_special_tokens=False)
        if not 2 <= len(ids) <= LONGEST:
            continue
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
        chosen = logits.double().log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        entries.append({"text": text, "ids": ids, "logprobs": [round(x, 6) for x in chosen.tolist()]})
        count += len(ids)
    return entries


def write(name: str, key: str, entries: list[dict]):
    """One line an entry."""
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    path = FIXTURES / name
    path.write_text(f'{{"{key}": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{name}: {len(entries)} entries, {path.stat().st_size / 1024:.0f} KiB")


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    folder = ROOT / "models/seedling"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    write("seedling-golden.json", "prompts", prompts(model, tokenizer))
    held_out = documents(model, tokenizer)
    write("seedling-text.json", "documents", held_out)
    logprobs = [x for entry in held_out for x in entry["logprobs"]]
    print(f"{len(logprobs)} scored tokens, mean log-probability {sum(logprobs) / len(logprobs):.4f}")


if __name__ == "__main__":
    main()
