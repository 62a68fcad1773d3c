"""Writes the tiny checkpoints of the engine's tests, each with the answers that transformers gives.

Usage: python make.py [NAME ...]      (no name: all of the tables, cases.py, experts.py, families.py and recurrent.py, and
                                      the table of activations)

A folder of the fixtures holds a checkpoint and
- golden.json: `note`, `seed`, `prompt_ids`, `greedy_ids`
- golden.safetensors, float32: `prefill_logits` (prompt, vocabulary) of the whole prompt in one call, and
  `decode_logits` (greedy, vocabulary), whose row i follows greedy_ids[i], fed alone on top of the cache. So
  greedy_ids[0] is the arg-max of the last prefill row, and greedy_ids[i + 1] that of decode row i.
"""
import copy
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, CONFIG_MAPPING
from transformers.activations import ACT2FN
from transformers.utils import logging

from cases import CASES, Case
from experts import EXPERTS
from families import FAMILIES
from recurrent import RECURRENT

FIXTURES = Path(__file__).resolve().parents[2] / "crates/whin/tests/fixtures"
FLOAT32 = dict(dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
# Elementwise functions of one argument. prelu and xielu have trained parameters, which no checkpoint stores.
ACTIVATIONS = sorted(set(ACT2FN) - {"prelu", "xielu"})


def randomise(model, seed: int):
    """Fills every parameter so that each one matters: no unit norm, no zero bias, layers that outweigh the embedding."""
    draw = torch.Generator().manual_seed(seed)
    # What an embedding is multiplied with, which would drown the layers.
    scales = {f"{name}.weight": module.scalar_embed_scale for name, module in model.named_modules()
              if hasattr(module, "scalar_embed_scale")}
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        if name.endswith("A_log"):
            value = noise - 1.0  # matrices of which some fade slowly
        elif ".conv" in name and parameter.ndim == 3:
            value = 1.5 * noise / parameter.shape[2] ** 0.5
        elif name.endswith("bias"):
            value = 0.5 * noise
        elif "q_norm" in name or "k_norm" in name:
            # Above one: sharp attention makes the logits depend on positions.
            value = 1.6 + 0.4 * noise
        elif "norm" in name:
            value = 1.0 + 0.3 * noise
        else:
            value = 2.0 * noise / (parameter.shape[1] if parameter.ndim > 1 else 1) ** 0.5
        if "norm" in name and not parameter.any():
            value = value - 1.0  # stored as what the factors exceed one by
        value = value / scales.get(name, 1.0)
        parameter.data = value.to(parameter.dtype)


def configured(case: Case, **changes):
    """The config of the case."""
    return CONFIG_MAPPING[case.model](**copy.deepcopy(case.arguments(**changes)))


def class_of(case: Case):
    """The class of models with a head that reads text."""
    return AutoModelForCausalLM if case.is_text else AutoModelForImageTextToText


def write_checkpoint(case: Case, seed: int, folder: Path):
    """Writes config.json and the weights, the config in the spelling that the case asks for."""
    model = class_of(case).from_config(configured(case), attn_implementation="eager").to(case.dtype)
    randomise(model, seed)
    model.save_pretrained(folder, max_shard_size=case.shard_size)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    case.spell(saved)
    path.write_text(json.dumps(saved, indent=2) + "\n")
    if case.quantised:
        case.quantised.write(folder)


def meaning(case: Case, folder: Path) -> Path:
    """The folder of the checkpoint that transformers is to load: plain floats, where the case's are quantised."""
    if not case.quantised:
        return folder
    plain = folder.with_name("plain")
    case.quantised.plain(folder, plain)
    return plain


def load(case: Case, folder: Path, config=None):
    """A fresh model: the dynamic rotary types keep state from earlier calls."""
    return class_of(case).from_pretrained(folder, config=config, **FLOAT32).eval()


@torch.inference_mode()
def answer(model, prompt_ids: list[int], count: int, forced: list[int] | None = None):
    """Logits of the prompt, logits of each of `count` decode steps, the tokens decoded: prefill at once, then token by
    token. The tokens are the greedy ones, or `forced`.
    """
    out = model(input_ids=torch.tensor([prompt_ids]), use_cache=True)
    prefill, steps, tokens = out.logits[0], [], []
    last = prefill[-1]
    for i in range(count):
        tokens.append(forced[i] if forced else int(last.argmax()))
        out = model(input_ids=torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
        last = out.logits[0, -1]
        steps.append(last)
    return prefill, torch.stack(steps), tokens


def is_clear(case: Case, prefill, steps, greedy) -> bool:
    """Whether a small error cannot flip a greedy token, and the tokens vary enough to show a wrong one."""
    rows = torch.cat([prefill[-1:], steps[:-1]])
    best = rows.topk(2).values
    return len(set(greedy)) >= 6 and bool((best[:, 0] - best[:, 1]).min() > case.margin * rows.std())


def check(case: Case, folder: Path, prompt_ids, prefill, steps, greedy):
    """The spelling means the same model, and each option under test moves the logits."""
    meant = answer(load(case, folder, configured(case)), prompt_ids, case.greedy)
    assert torch.equal(meant[0], prefill) and torch.equal(meant[1], steps), f"{case.name}: the spelling changes the model"
    if case.quantised:
        case.quantised.check()
        flat = folder.with_name("flat")
        case.quantised.plain(folder.with_name(case.name), flat, flat=True)
        plains = [load(case, flat)]
    else:
        without = [case.without] if isinstance(case.without, dict) else case.without or []
        plains = [load(case, folder, configured(case, **changes)) for changes in without]
    for index, plain in enumerate(plains):
        plain = answer(plain, prompt_ids, case.greedy, greedy)
        moved = max(float((plain[0] - prefill).std()), float((plain[1] - steps).std())) / float(prefill.std())
        assert moved > 0.01, f"{case.name}: option {index} moves the logits by only {moved:.5f} standard deviations"


def make(case: Case):
    vocabulary = configured(case).get_text_config().vocab_size
    for seed in range(1, 200):
        draw = torch.Generator().manual_seed(1000 + seed)
        prompt_ids = torch.randint(vocabulary, (case.prompt,), generator=draw).tolist()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / case.name
            write_checkpoint(case, seed, folder)
            meant = meaning(case, folder)
            prefill, steps, greedy = answer(load(case, meant), prompt_ids, case.greedy)
            if not is_clear(case, prefill, steps, greedy):
                continue
            check(case, meant, prompt_ids, prefill, steps, greedy)
            golden = {"note": case.note, "seed": seed, "prompt_ids": prompt_ids, "greedy_ids": greedy}
            (folder / "golden.json").write_text(json.dumps(golden) + "\n")
            save_file({"prefill_logits": prefill.contiguous(), "decode_logits": steps}, folder / "golden.safetensors")
            shutil.rmtree(FIXTURES / case.name, ignore_errors=True)
            shutil.copytree(folder, FIXTURES / case.name)
            return seed, float(prefill.std())
    raise SystemExit(f"{case.name}: no seed gives clear greedy tokens")


def write_activations():
    """activations.json: `x`, and for each name of hidden_act its values there."""
    x = torch.tensor([-30.0, -10.5, -6.0, -3.1, -3.0, -2.2, -1.0, -0.5, -0.1, -1e-3, 0.0, 1e-3, 0.1, 0.5, 1.0,
                      1.7, 2.9, 3.0, 3.3, 5.9, 6.0, 7.5, 10.5, 30.0])
    table = {name: [float(y) for y in ACT2FN[name](x)] for name in ACTIVATIONS}
    lines = [f'  {json.dumps(name)}: {json.dumps(values)}' for name, values in table.items()]
    text = '{"x": ' + json.dumps(x.tolist()) + ',\n"y": {\n' + ",\n".join(lines) + "\n}}\n"
    (FIXTURES / "activations.json").write_text(text)


def main(names: list[str]):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    FIXTURES.mkdir(parents=True, exist_ok=True)
    known = {case.name: case for case in CASES + FAMILIES + EXPERTS + RECURRENT}
    for name in names or known:
        seed, deviation = make(known[name])
        size = sum(file.stat().st_size for file in (FIXTURES / name).iterdir())
        print(f"{name}: seed {seed}, logits' standard deviation {deviation:.2f}, {size / 1024:.0f} KiB", flush=True)
    if not names:
        write_activations()


if __name__ == "__main__":
    main(sys.argv[1:])
