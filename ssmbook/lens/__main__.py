"""The lens as a command: ``python -m ssmbook.lens MODEL --text FILE --tokens 256 --out report/``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from ssmbook.lens._layers import how_to_register, layers, unknown_mixers
from ssmbook.lens._report import Report, begin, measure_layers, select


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
    add("--texts", type=int, default=4, help="windows to read (4)")
    add("--out", type=Path, help="folder for report.json and report.html (without: the table alone)")
    add("--layers", nargs="+", help="names of some layers, or their places from 0")
    add("--device", default="cpu", help="where to compute (cpu)")
    add("--seed", type=int, default=0, help="of the permuted weights (0)")
    add("--no-permuted", action="store_true", help="leave out the permuted weights")
    add("--no-gradient", action="store_true", help="leave out the gradients against distance")
    add("--note", help="a sentence to keep with the report, such as where the text comes from")
    add("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="two report.json, no model")
    return wanted


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status, 2 for what it refuses."""
    given = parser().parse_args(arguments)
    try:
        if given.compare is not None:
            before, after = (Report.from_json(path) for path in given.compare)
            print(before.compare(after))
        else:
            run(given)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"ssmbook.lens: {error}", file=sys.stderr)
        return 2
    return 0


def run(given: argparse.Namespace) -> None:
    """Measure a model layer by layer; the report is written after each."""
    if given.model is None or (given.text is None) == (given.ids is None):
        raise ValueError("give a model and either --text or --ids (or --compare with two reports)")
    if given.out is not None and (given.out / "report.json").exists():
        raise ValueError(f"{given.out} holds a report; choose another folder")
    folder = model_folder(given.model)
    model = load_model(folder).to(given.device)
    source = given.text or given.ids
    whole = source.read_text("utf-8")
    words = tokenize(folder, whole) if given.text else ([], [int(word) for word in whole.split()], [])
    ids = windows(*words, given.tokens, given.texts).to(given.device)
    found = layers(model, unknown="skip")
    result = begin(
        model, ids, given.model, seed=given.seed, permuted=not given.no_permuted,
        gradient=not given.no_gradient, text=source.name,
    )  # fmt: skip
    strange = unknown_mixers(model, found)
    result.notes += [given.note] if given.note else []
    result.notes += [f"not read: {kind} ({name})" for name, kind in strange.items()]
    if strange:
        print(how_to_register(strange), file=sys.stderr)
    places = {str(place): layer.name for place, layer in enumerate(found)}
    wanted = select(found, given.layers and [places.get(each, each) for each in given.layers])
    for layer in measure_layers(model, ids, wanted, result):
        print(f"{len(result.layers) + 1} of {len(wanted)}: {layer.name}", file=sys.stderr)
        result.layers.append(layer)
        if given.out is not None:
            result.to_json(given.out / "report.json")
    print(result.table())
    if given.out is not None:
        result.to_html(given.out / "report.html")
        print(f"{given.out / 'report.html'} and report.json", file=sys.stderr)


def model_folder(path_or_name: str) -> Path:
    """Return the folder of a model: the path itself, or of an installed package with ``get_model_path()``.

    Raises ``ValueError`` for anything that would need a download.
    """
    folder = Path(path_or_name).expanduser()
    if (folder / "config.json").is_file():
        return folder
    package = path_or_name.replace("-", "_")
    if package.isidentifier() and importlib.util.find_spec(package) is not None:
        found = getattr(importlib.import_module(package), "get_model_path", None)
        if found is not None:
            return Path(found())
    raise ValueError(
        f"the model must be a folder with config.json or an installed package that carries one; got "
        f"{path_or_name}: the lens downloads nothing, so fetch the model first and pass its folder"
    )


def load_model(folder: Path) -> nn.Module:
    """Load a model of transformers from a folder, in float32 and evaluation mode, without its output head."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = importlib.import_module("transformers")

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers.AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()


def tokenize(folder: Path, text: str) -> tuple[list[int], list[int], list[int]]:
    """Return what the model's own tokenizer adds before a text, the text's ids, and what it adds after it."""
    transformers = importlib.import_module("transformers")

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    start = next(s for s in range(len(whole)) if whole[s : s + len(inner)] == inner)
    return whole[:start], ids, whole[start + len(inner) :]


def windows(before, ids, after, tokens: int, texts: int) -> Tensor:
    """Cut ids into at most ``texts`` texts of ``tokens`` each, one after the other, (texts, tokens).

    Raises ``ValueError`` where they do not fill one.
    """
    inner = tokens - len(before) - len(after)
    count = min(texts, len(ids) // inner) if inner > 0 else 0
    if count < 1:
        raise ValueError(f"the text must fill {tokens} tokens; got {len(ids)}: give fewer --tokens")
    return torch.tensor([[*before, *ids[t * inner : (t + 1) * inner], *after] for t in range(count)])


if __name__ == "__main__":
    sys.exit(main())
