"""The lens as a command: ``python -m ssmbook.lens MODEL --text FILE --tokens 256 --out report/``."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from functools import partial
from pathlib import Path

import torch

from ssmbook._commands import say
from ssmbook.lens._layers import layers as find_layers
from ssmbook.lens._layers import unknown_mixers, unknown_words
from ssmbook.lens._load import (
    load_model,
    model_folder,
    package_version,
    read_ids,
    tokenize,
    weights_digest,
    windows,
)
from ssmbook.lens._memory import bytes_free, bytes_needed, gigabytes
from ssmbook.lens._report import Report, begin, chosen, compare, measured, split_texts

INTERRUPTED, REFUSED = 130, 2


def parser() -> argparse.ArgumentParser:
    wanted = argparse.ArgumentParser(
        prog="python -m ssmbook.lens",
        description="How many heads each layer of a trained model uses on your text, and how far it reaches. "
        "Reads a local folder or an installed package; downloads nothing.",
    )
    add = wanted.add_argument
    add("model", nargs="?", help="folder of a transformers model, or a package with get_model_path()")
    add("--text", type=Path, help="a text file, cut into windows by the model's own tokenizer")
    add("--ids", type=Path, help="token ids instead of text, for a model without a tokenizer")
    add("--tokens", type=int, default=256, help="tokens in each window (256)")
    add("--texts", type=int, help="windows to read (as many as there are, at most 4)")
    add("--out", type=Path, help="folder for report.json and report.html (without: the table alone)")
    add("--layers", nargs="+", help="names of some layers, or their places from 0")
    add("--device", default="cpu", help="where to compute (cpu)")
    add("--seed", type=int, default=0, help="of the permuted weights (0)")
    add("--no-permuted", action="store_true", help="leave out the permuted weights")
    add("--no-gradient", action="store_true", help="leave out the gradients against distance")
    add("--overwrite", action="store_true", help="replace a finished report")
    add("--note", help="a sentence to keep with the report, such as where the text comes from")
    add("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="two report.json, no model")
    return wanted


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = parser().parse_args(arguments)
    try:
        if given.compare is not None:
            print(compare(*(Report.from_json(path) for path in given.compare)))
            return 0
        return run(given)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"ssmbook.lens: {error}", file=sys.stderr)
        return REFUSED


def run(given: argparse.Namespace) -> int:
    if given.model is None or (given.text is None) == (given.ids is None):
        raise ValueError("give a model and either --text or --ids (or --compare with two reports)")
    folder = model_folder(given.model)
    model = load_model(folder, given.device)
    found = find_layers(model, unknown="skip")
    words = tokenize(folder, given.text) if given.text is not None else ([], read_ids(given.ids), [])
    ids = windows(*words, given.tokens, given.texts).to(given.device)
    texts = split_texts(model, ids)
    result = begin(
        model, texts, given.model, seed=given.seed, permuted=not given.no_permuted,
        gradient=not given.no_gradient, text=(given.text or given.ids).name, tokens_sha256=_digest(ids),
        weights_sha256=weights_digest(folder),
    )  # fmt: skip
    result.versions.update(package_version(given.model))
    strange = unknown_mixers(model, found)
    result.notes += [given.note] if given.note else []
    result.notes += [f"not read: {kind} ({name})" for name, kind in strange.items()]
    if strange:
        print(unknown_words(strange), file=sys.stderr)
    wanted = chosen(found, _names(given.layers, found))
    result, left = resumed(given, result, wanted)
    _announce(model, left, texts)
    return _measure(given, model, texts, left, result)


def _digest(ids: torch.Tensor) -> str:
    """Tells whether two reports are of the same tokens."""
    return hashlib.sha256(repr(ids.tolist()).encode()).hexdigest()[:16]


def _names(asked: list[str] | None, found) -> list[str] | None:
    """Names of layers, given by name or by place."""
    if asked is None:
        return None
    places = {str(place): layer.name for place, layer in enumerate(found)}
    return [places.get(each, each) for each in asked]


def resumed(given, result: Report, wanted) -> tuple[Report, list]:
    """Go on with an unfinished report of the same settings; never replace another without being told."""
    path = None if given.out is None else given.out / "report.json"
    if path is None or not path.exists() or given.overwrite:
        return result, wanted
    before = Report.from_json(path)
    same = all(getattr(before, key) == getattr(result, key) for key in ("model", "settings", "versions"))
    done = {layer.name for layer in before.layers}
    left = [layer for layer in wanted if layer.name not in done]
    if not same or not left:
        what = "is finished" if same else "has other settings, versions or text"
        raise ValueError(f"{path} {what}: nothing was overwritten (--overwrite replaces it)")
    print(f"going on with {path}: {len(before.layers)} layers are done", file=sys.stderr)
    return before, left


def _announce(model, left, texts) -> None:
    """Say what it will take; refuse what does not fit."""
    need, free = bytes_needed(model, left, len(texts), len(texts[0])), bytes_free()
    room = "" if free is None else f", {gigabytes(free)} free"
    size = f"{len(texts)} x {len(texts[0])} tokens, {len(left)} layers"
    print(f"{size}: about {gigabytes(need)} of memory at the peak{room}", file=sys.stderr)
    if free is not None and need > free:
        advice = "fewer --tokens, --texts or --layers"
        raise ValueError(f"memory must hold about {gigabytes(need)}; got {gigabytes(free)} free: {advice}")


def _measure(given, model, texts, left, result: Report) -> int:
    """Measure layer by layer, keeping what is done; Ctrl-C ends it in good order."""
    order = [layer.name for layer in find_layers(model, unknown="skip")]
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    status = 0
    try:
        for layer in measured(model, texts, left, result, partial(say, time.monotonic())):
            result.layers.append(layer)
            result.layers.sort(key=lambda each: order.index(each.name))
            if given.out is not None:
                result.to_json(given.out / "report.json")
    except KeyboardInterrupt:
        status = INTERRUPTED
        print("\nstopped: what is done is kept, the same command goes on", file=sys.stderr)
    if result.layers:
        print(result.table())
        if given.out is not None:
            result.to_html(given.out / "report.html")
            print(f"{given.out / 'report.html'} and report.json", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
