"""Measures mistral.rs on a GGUF file."""

import os
import random
from pathlib import Path

from common import arguments, measure

# Each of these, with the space before it, is one token of Qwen3.
WORDS = "the of and to in is was for on that with as by at from are this be or have".split()


def main() -> None:
    args = arguments("--tokenizer")
    assert args.batch == 1
    # Read when the package starts its threads.
    os.environ["RAYON_NUM_THREADS"] = os.environ["CANDLE_NUM_THREADS"] = str(args.threads)
    from mistralrs import CompletionRequest, Runner, Which

    file = Path(args.model)
    which = Which.GGUF(
        quantized_model_id=str(file.parent), quantized_filename=file.name, tok_model_id=args.tokenizer
    )
    runner = Runner(which=which, prefix_cache_n=0)

    def once(number: int) -> tuple[float, float]:
        choose = random.Random(number).choice
        prompt = "".join(" " + choose(WORDS) for _ in range(args.prompt))
        request = CompletionRequest(
            prompt=prompt, model="default", max_tokens=args.new + 1, temperature=0.0, ignore_eos=True
        )
        usage = runner.send_completion_request(request).usage
        assert usage.prompt_tokens == args.prompt, f"{usage.prompt_tokens} tokens in the prompt"
        assert usage.completion_tokens == args.new + 1, "it stopped early"
        # The first new token belongs to the time of the prompt.
        return usage.total_prompt_time_sec, usage.total_completion_time_sec

    measure(args, once)


if __name__ == "__main__":
    main()
