"""Trains Seedling, a Qwen3 model of 13 million parameters, and saves it as a Hugging Face checkpoint in bf16.

Usage: python train.py CORPUS.jsonl.gz OUT_DIR --seconds 270 [--device cuda]

The tokenizer is trained first, on the head of the same corpus. The learning rate falls with the time spent, so the
run ends where it should whatever the machine's speed.
"""
import argparse
import gzip
import json
import math
import time
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = Path(__file__).resolve().parents[2] / "models/seedling/chat_template.jinja"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Added tokens that stay visible in decoded text.
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
# How the Qwen tokenizers cut text into words, as their tokenizer.json has it.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCABULARY = 6144
TOKENIZER_DOCUMENTS = 60_000
ROW = 512  # tokens of a training row
PEAK_RATE = 1.5e-3
WARM_UP = 100  # steps


def train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    size = VOCABULARY - len(SPECIAL) - len(MARKERS)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(marker, normalized=False, special=False) for marker in MARKERS])
    return tokenizer


def rows_of(texts: list[str], tokenizer: Tokenizer) -> torch.Tensor:
    """All documents one after another, each ended by <|endoftext|>, cut into rows: (rows, ROW)."""
    end, ids = tokenizer.token_to_id("<|endoftext|>"), []
    for start in range(0, len(texts), 20_000):
        for encoding in tokenizer.encode_batch(texts[start:start + 20_000]):
            ids += [*encoding.ids, end]
    return torch.tensor(ids[:len(ids) // ROW * ROW]).view(-1, ROW)


def new_model(tokenizer: Tokenizer) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=320, intermediate_size=960, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64, max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}, rms_norm_eps=1e-6, tie_word_embeddings=True,
        attention_bias=False, bos_token_id=None, eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        initializer_range=0.02))


def new_optimizer(model, device: str):
    """AdamW; only matrices decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), fused=device == "cuda")


def learning_rate(step: int, done: float) -> float:
    """Linear warm-up, then a cosine over the share of time that is `done`, down to a twentieth of the peak."""
    return PEAK_RATE * min(1.0, (step + 1) / WARM_UP) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def fit(model, rows: torch.Tensor, seconds: float, batch: int, device: str):
    optimizer = new_optimizer(model, device)

    def loss_of(x):
        return model(input_ids=x, labels=x, use_cache=False).loss

    if device == "cuda":
        loss_of = torch.compile(loss_of)
    start, step, order = time.time(), 0, iter([])
    while (done := (time.time() - start) / seconds) < 1.0:
        picked = next(order, None)
        if picked is None:
            # A new pass in a new order; rows that do not fill a batch wait for the next.
            shuffled = torch.randperm(len(rows), device=device)
            order = iter(shuffled[:len(rows) // batch * batch].split(batch))
            picked = next(order)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, done)
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(rows[picked])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.4f} after {time.time() - start:.0f} s", flush=True)
        step += 1
    print(f"{step} steps, last loss {loss.item():.4f}", flush=True)


def save(model, tokenizer: Tokenizer, out: Path) -> PreTrainedTokenizerFast:
    end = tokenizer.token_to_id("<|endoftext|>")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False, model_max_length=4096)
    wrapped.chat_template = TEMPLATE.read_text()
    wrapped.save_pretrained(out)
    model.generation_config.eos_token_id = [tokenizer.token_to_id("<|im_end|>"), end]
    model.generation_config.pad_token_id = end
    # Two files, so that loading the built-in model exercises the index.
    model.to(torch.bfloat16).save_pretrained(out, max_shard_size="14MB")
    return wrapped


def show(model, tokenizer: PreTrainedTokenizerFast, device: str):
    """Prints greedy answers of each kind."""
    weather = {"type": "function", "function": {
        "name": "get_weather", "description": "Get the current weather for a location.",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}}
    prompts = ["The capital of France is", "Once upon a time"]
    for question, options in [
        ("What is the capital of Japan?", {}),
        ("What is the capital of Japan?", {"enable_thinking": True}),
        ("What is the weather in Paris?", {"tools": [weather]}),
    ]:
        messages = [{"role": "user", "content": question}]
        prompts.append(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt, add_special_tokens=False)], device=device)
        answer = model.generate(ids, max_new_tokens=60, do_sample=False)[0, ids.shape[1]:]
        print(repr(prompt), "->", repr(tokenizer.decode(answer, skip_special_tokens=False)))


def main():
    parser = argparse.ArgumentParser(description="Trains Seedling.")
    parser.add_argument("corpus", help="as make_corpus.py writes it")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=270, help="time to train, without the tokenizer")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--batch", type=int, default=192, help="rows of a step")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with gzip.open(arguments.corpus, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    tokenizer = train_tokenizer(texts[:TOKENIZER_DOCUMENTS])
    rows = rows_of(texts, tokenizer)
    print(f"{len(texts)} documents, {rows.numel() / 1e6:.1f}M tokens, {tokenizer.get_vocab_size()} words", flush=True)
    if len(rows) < arguments.batch:
        raise SystemExit(f"the corpus has {len(rows)} rows of {ROW} tokens, fewer than a batch of {arguments.batch}")
    model = new_model(tokenizer).to(arguments.device)
    print(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f}M parameters", flush=True)
    fit(model, rows.to(arguments.device), arguments.seconds, arguments.batch, arguments.device)
    show(model, save(model, tokenizer, arguments.out), arguments.device)


if __name__ == "__main__":
    main()
