"""Checks a greedy run of whin against transformers in float32, at every position.

    whin run -m FOLDER --weights bf16 … --json > run.json
    python check_run.py FOLDER run.json

Feeds the tokens of the run to transformers in one piece and compares each generated token with the one that
transformers would have taken at its place. A token that lies less than TIE standard deviations of the logits below
the best counts as a tie. Exits with 1 where another token was taken.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

TIE = 1e-3
ROWS = 128  # rows of logits in memory at once


def main(folder, run):
    ids = json.load(open(run, encoding="utf-8"))
    tokens, n_prompt = torch.tensor([ids["token_ids"]]), ids["n_prompt"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    slips, ties, smallest = [], 0, float("inf")
    with torch.no_grad():
        hidden = model.model(tokens).last_hidden_state[0]
        for start in range(n_prompt - 1, tokens.shape[1] - 1, ROWS):
            end = min(start + ROWS, tokens.shape[1] - 1)
            logits = model.lm_head(hidden[start:end])
            best = logits.topk(2).values
            chosen = logits.gather(1, tokens[0, start + 1 : end + 1, None])[:, 0]
            gap = (best[:, 0] - chosen) / logits.std(dim=1)
            ties += int(((gap > 0) & (gap <= TIE)).sum())
            slips += [(start + 1 + i, g) for i, g in enumerate(gap.tolist()) if g > TIE]
            smallest = min(smallest, ((best[:, 0] - best[:, 1]) / logits.std(dim=1)).min().item())
    print(f"{tokens.shape[1] - n_prompt} tokens after {n_prompt}: {len(slips)} slips, {ties} ties, "
          f"smallest lead of a best token {smallest:.1e} standard deviations")
    for position, gap in slips[:10]:
        print(f"  position {position}: {gap:.4f} standard deviations below the best")
    return 1 if slips else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
