"""What the workers have in common: their arguments and their answer."""

import argparse
import json
from statistics import median
from typing import Callable


def arguments(*more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--model", *more):
        parser.add_argument(name, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prompt", type=int, required=True, help="tokens of each prompt")
    parser.add_argument("--new", type=int, default=0, help="tokens that are decoded and timed after the first new one")
    parser.add_argument("--batch", type=int, default=1, help="texts together")
    parser.add_argument("--repeats", type=int, default=1, help="runs that count")
    return parser.parse_args()


def measure(args: argparse.Namespace, once: Callable[[int], tuple[float, float]]) -> None:
    """Calls `once` with a number of its own, first to warm up, and prints tokens a second, all texts together.

    `once` gives the seconds until the first new token, and those of the `args.new` after it.
    """
    once(0)
    seconds = [once(number + 1) for number in range(args.repeats)]
    prefill = median(args.batch * args.prompt / prefill for prefill, _ in seconds)
    decode = median(args.batch * args.new / decode for _, decode in seconds) if args.new else None
    print(json.dumps({"prompt": args.prompt, "batch": args.batch, "prefill": prefill, "decode": decode}))
