"""The lens as a command: ``python -m ssmbook.lens MODEL --text FILE --out report/``, or ``plan MODEL …``."""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ssmbook._checks import check_integer
from ssmbook.lens._layers import how_to_register, not_read, select, survey
from ssmbook.lens._load import Place, find_model, load_model, load_tokenizer, tokenize, windows
from ssmbook.lens._report import Report, begin, measure_layers
from ssmbook.lens.changes._plan import check_sizes, plan

# First tokens that every group of a plan keeps; what a tokenizer may add around a text.
_SINK, _AROUND = 4, 8


def parser(planning: bool = False) -> argparse.ArgumentParser:
    """The arguments of a report, or of a plan."""
    wanted = argparse.ArgumentParser(
        prog="python -m ssmbook.lens" + " plan" * planning,
        description="Which key–value groups of a language model keep their whole cache within a budget, and "
        "what that costs on your text and on copying. The share of the cache holds at --tokens: on longer "
        "texts whole caches grow and windows do not. Gemma-3-270M took about 5 CPU minutes and 6 GB of "
        "memory at 256 tokens. Finished steps stay in --out for the same command."
        if planning
        else "How many heads each layer of a trained model uses on your text, and how far it reaches. "
        "Reads a local folder, a .gguf file or an installed package; downloads nothing.",
    )
    add, several = wanted.add_argument, 8 if planning else 4
    optional = {} if planning else {"nargs": "?"}
    add("model", help="folder of a transformers model, .gguf file, or package that carries one", **optional)
    add("--text", type=Path, required=planning, help="a text file, cut into windows by the model's tokenizer")
    add("--tokens", type=int, default=256, help="tokens in each window (256)")
    add("--texts", type=int, default=several, help=f"windows to read ({several})")
    add("--out", type=Path, help="folder for what is made, and for going on (without: the table alone)")
    add("--device", default="cpu", help="where to compute (cpu)")
    if planning:
        add(
            "--budget",
            type=float,
            required=True,
            help="the share of the cache that may stay at --tokens, such as 0.37",
        )
        add("--window", type=int, default=32, help="tokens of a narrow group, 4 first ones among them (32)")
        add("--states", action="store_true", help="fit causal states where they are nearer than a window")
        return wanted
    add("--ids", type=Path, help="token ids instead of text, for a model without a tokenizer")
    add("--resume", action="store_true", help="go on with the report in --out")
    add("--layers", nargs="+", help="names of some layers, or their places from 0")
    add("--seed", type=int, default=0, help="of the permuted weights (0)")
    add("--no-permuted", action="store_true", help="leave out the permuted weights")
    add("--no-gradient", action="store_true", help="leave out the gradients against distance")
    add("--note", help="a sentence to keep with the report, such as where the text comes from")
    pair = {"nargs": 2, "type": Path, "metavar": ("BEFORE", "AFTER")}
    add("--compare", help="two report.json; --out: as a page", **pair)
    return wanted


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status, 2 for what it refuses."""
    arguments = sys.argv[1:] if arguments is None else arguments
    planning = arguments[:1] == ["plan"]
    given = parser(planning).parse_args(arguments[planning:])
    try:
        (make_plan if planning else run if given.compare is None else compare)(given)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"ssmbook.lens: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        words = "; --out holds what was finished, and the same command (a report: with --resume) goes on"
        kept = given.out is not None and any(given.out.glob("steps/*" if planning else "report.json"))
        print(f"ssmbook.lens: stopped{words * kept}", file=sys.stderr)
        return 130
    return 0


def compare(given: argparse.Namespace) -> None:
    """Set two reports side by side."""
    before, after = (Report.from_json(path) for path in given.compare)
    print(before.compare(after))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        before.compare_html(after, given.out / "compare.html")


def make_plan(given: argparse.Namespace) -> None:
    """Plan the cache of a model; what is wrong with the arguments is said before the model is loaded."""
    check_sizes(given.budget, given.window, _SINK, given.tokens)
    check_integer("--texts", given.texts, low=2)  # to decide and to measure
    check_out(given.out)
    place = find_model(given.model)
    texts, _ = read_texts(given, place, None, least=2)
    logging.basicConfig(format="%(message)s")  # to stderr
    log = logging.getLogger("ssmbook.lens")
    log.setLevel(logging.INFO)
    model = load_model(place, head=True).to(given.device)
    log.info("loaded %s: %d parameters", type(model).__name__, sum(p.numel() for p in model.parameters()))
    made = plan(
        model, texts, given.budget, window=given.window, sink=_SINK, states=given.states,
        folder=given.out and given.out / "steps",
    )  # fmt: skip
    print(made.table())
    if given.out:
        made.save(given.out)
        print(f"{given.out} holds the plan. To go on in Python, with a model of lens.load:")
        print(f"plan = lens.load_plan({str(given.out)!r})\nsmaller = plan.module(model)")


def check_out(out: Path | None) -> None:
    """Refuse a place where nothing can be written, or read again."""
    there = out and next(each for each in (out, *out.parents) if each.exists())
    if there and not (there.is_dir() and os.access(there, os.R_OK | os.W_OK | os.X_OK)):
        what = "cannot be read and written" if there.is_dir() else "is a file"
        raise ValueError(f"--out must be a folder; {there} {what}")


def read_texts(
    given: argparse.Namespace, place: Place, ids: Path | None, least: int = 1
) -> tuple[torch.Tensor, Any]:
    """Return the windows of the text, at least so many, or of ids in its place, and the tokenizer."""
    source = ids or given.text
    whole = source.read_text("utf-8")
    # a token is a byte at least, but for a few that a tokenizer adds around a text
    if ids is None and (size := len(whole.encode())) < least * (given.tokens - _AROUND):
        raise ValueError(
            f"--text must fill {given.tokens} tokens{', twice' * (least > 1)}; {source} has {size} bytes"
        )
    words, tokenizer = ([], whole.split(), []), None
    if ids is None:
        tokenizer = load_tokenizer(place)
        if tokenizer is None:
            raise ValueError(f"{given.model} must have a tokenizer to read --text; give token ids with --ids")
        words = tokenize(tokenizer, whole)
    before, found, after = words
    if wrong := [each for each in found if not str(each).isdecimal()]:
        raise ValueError(f"--ids must hold token ids, whole numbers; got {wrong[0][:40]!r} in {source}")
    texts = windows(before, [*map(int, found)], after, given.tokens, given.texts)
    if len(texts) < least:
        raise ValueError(
            f"--text must fill {least} windows of {given.tokens} tokens; {source} fills {len(texts)}"
        )
    try:
        return texts.to(given.device), tokenizer
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device must be one of this machine; got {given.device}") from error


def run(given: argparse.Namespace) -> None:
    """Measure a model layer by layer; the report is written after each."""
    if given.model is None or (given.text is None) == (given.ids is None):
        raise ValueError("give a model and either --text or --ids (or --compare with two reports)")
    earlier = None  # what is wrong with --out is said now, not after minutes of measuring
    if given.resume and given.out is None:
        raise ValueError("--resume needs --out, the folder of the report to go on with")
    check_out(given.out)
    if given.out is not None and (given.out / "report.json").exists():
        if not given.resume:
            raise ValueError(f"{given.out} holds a report; choose another folder, or go on with --resume")
        earlier = Report.from_json(given.out / "report.json")
    place = find_model(given.model)
    ids, tokenizer = read_texts(given, place, given.ids)
    model = load_model(place).to(given.device)
    found, strange = survey(model, ids)
    result = begin(
        model, ids, given.model, seed=given.seed, permuted=not given.no_permuted,
        gradient=not given.no_gradient, text=(given.text or given.ids).name, tokens_sha256=digest([ids]),
        weights_sha256=digest(model.parameters()),
    )  # fmt: skip
    if earlier is not None:
        resume(result, earlier)
    if tokenizer is not None:
        result.tokens = [tokenizer.decode([each]) for each in ids[0, : len(result.tokens)].tolist()]
    result.notes += [given.note] if given.note else []
    result.notes += not_read(strange)
    if strange:
        print(how_to_register(strange), file=sys.stderr)
    places = {str(place): layer.name for place, layer in enumerate(found)}
    order = {name: place for place, name in enumerate(places.values())}
    wanted = select(found, given.layers and [places.get(each, each) for each in given.layers])
    for layer in measure_layers(model, ids, wanted, result):
        done = len(result.layers) + 1
        print(f"{done} of {max(done, len(wanted))}: {layer.name}", file=sys.stderr)
        result.layers.append(layer)
        result.layers.sort(key=lambda each: order.get(each.name.partition(", call ")[0], 0))
        write(result, given.out)
    print(*result.verdict(), result.table(), sep="\n")
    write(result, given.out)  # with what could not be read
    if given.out is not None:
        print(f"{given.out / 'report.html'} and report.json", file=sys.stderr)


def write(result: Report, out: Path | None) -> None:
    """Write the report as JSON and as a page, if there is a folder to write to."""
    if out is not None:
        result.to_json(out / "report.json")
        result.to_html(out / "report.html")


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Return 16 letters that tell texts or weights from others."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy())
    return found.hexdigest()[:16]


def resume(result: Report, earlier: Report) -> None:
    """Take over the layers of an earlier report of the same model and texts, measured in the same way."""
    was, now = ({"model": each.model, **each.settings} for each in (earlier, result))
    changed = [f"{key}: {was.get(key)} → {now[key]}" for key in now if was.get(key) != now[key]]
    if changed:
        raise ValueError(f"--resume needs the command that made the report; got {'; '.join(changed)}")
    result.layers = earlier.layers


if __name__ == "__main__":
    sys.exit(main())
