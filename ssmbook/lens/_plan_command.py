"""Plans as a command: ``python -m ssmbook.lens plan MODEL --budget 0.37 --text FILE --out plan/``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ssmbook.lens._load import find_model, load, load_tokenizer, tokenize, windows
from ssmbook.lens.changes._plan import plan


def parser() -> argparse.ArgumentParser:
    wanted = argparse.ArgumentParser(
        prog="python -m ssmbook.lens plan",
        description="Which key–value groups of a language model keep their whole cache within a budget, and "
        "what that costs on your text and on copying. Finished steps stay in --out for the same command.",
    )
    add = wanted.add_argument
    add("model", help="folder of a transformers model, .gguf file, or package that carries one")
    add("--budget", type=float, required=True, help="the share of the cache that may stay, such as 0.37")
    add("--text", type=Path, required=True, help="a text file; every other window of it is held out")
    add("--tokens", type=int, default=256, help="tokens in each window (256)")
    add("--texts", type=int, default=8, help="windows to read (8)")
    add(
        "--window",
        type=int,
        default=32,
        help="tokens that a narrow group keeps, 4 first ones among them (32)",
    )
    add("--states", action="store_true", help="fit causal states where they are nearer than a window")
    add("--out", type=Path, help="folder for plan.json and features.safetensors")
    add("--device", default="cpu", help="where to compute (cpu)")
    return wanted


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status, 2 for what it refuses."""
    given = parser().parse_args(arguments)
    try:
        tokenizer = load_tokenizer(find_model(given.model))
        if tokenizer is None:
            raise ValueError(f"{given.model} must have a tokenizer to read --text")
        before, ids, after = tokenize(tokenizer, given.text.read_text("utf-8"))
        texts = windows(before, ids, after, given.tokens, given.texts)
        model, _ = load(given.model)
        steps = given.out and given.out / "steps"
        made = plan(
            model.to(given.device), texts.to(given.device), given.budget, window=given.window,
            states=given.states, folder=steps,
        )  # fmt: skip
        print(made.table())
        if given.out:
            made.save(given.out)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"ssmbook.lens: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; the same command goes on" if given.out else ""
        print(f"ssmbook.lens: stopped{kept}", file=sys.stderr)
        return 130
    return 0
