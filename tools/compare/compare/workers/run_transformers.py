"""Measures transformers with torch in bf16: the forward alone, without what `generate` adds to it."""

import time

import torch
import transformers
from common import arguments, measure


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()

    def once(number: int) -> tuple[float, float]:
        tokens = torch.randint(0, model.config.vocab_size, (args.batch, args.prompt))
        start = time.perf_counter()
        cache = None
        for step in range(args.new + 1):
            result = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache, tokens = result.past_key_values, result.logits[:, -1:].argmax(-1)
            if step == 0:
                first = time.perf_counter()
        return first - start, time.perf_counter() - first

    with torch.inference_mode():
        measure(args, once)


if __name__ == "__main__":
    main()
