"""Models and texts from this machine: nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt")


def model_folder(path_or_name: str) -> Path:
    """Return the folder of a model: the path itself, or of an installed package that carries one.

    Such a package has a function ``get_model_path()``. Raises ``ValueError`` for anything that would need a
    download.
    """
    folder = Path(path_or_name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"a model's folder must hold config.json; got {folder} without one")
        return folder
    package = path_or_name.replace("-", "_")
    if package.isidentifier() and importlib.util.find_spec(package) is not None:
        found = getattr(importlib.import_module(package), "get_model_path", None)
        if found is not None:
            return Path(found())
    raise ValueError(
        f"the model must be a folder or an installed package that carries one; got {path_or_name}, which is "
        f"neither: the lens downloads nothing, so fetch the model first and pass its folder"
    )


def package_version(path_or_name: str) -> dict[str, str]:
    """The version of the package that carries the model, by its name; nothing for a folder."""
    if Path(path_or_name).expanduser().is_dir():
        return {}
    try:
        return {path_or_name: metadata.version(path_or_name)}
    except metadata.PackageNotFoundError:
        return {}


def weights_digest(folder: Path) -> str:
    """Tells one checkpoint from another: a hash of the files that hold the weights."""
    found = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with path.open("rb") as file:
            while part := file.read(2**22):
                found.update(part)
    return found.hexdigest()[:16]


def load_model(folder: Path, device: str = "cpu") -> nn.Module:
    """Load a model of transformers from a folder, in float32 and evaluation mode, without its output head."""
    place = check_device(device)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = _transformers()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"the folder must hold a model that transformers reads; got {folder}: {error}"
        ) from error
    return model.eval().to(place)


def check_device(device: str) -> torch.device:
    """Refuse a device that this machine does not have (``ValueError``)."""
    try:
        place = torch.device(device)
        torch.zeros(1, device=place, dtype=torch.float64)
    except (RuntimeError, AssertionError, TypeError) as error:
        words = str(error).splitlines()[0]
        raise ValueError(f"device must be one that holds float64 here; got {device!r}: {words}") from error
    return place


def _transformers():
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            "the lens loads models with transformers: pip install transformers safetensors"
        ) from error


def read_ids(path: Path) -> list[int]:
    """Token ids from a file of whole numbers."""
    try:
        return [int(word) for word in path.read_text("utf-8").replace(",", " ").split()]
    except ValueError as error:
        raise ValueError(f"ids must be whole numbers; got {error} in {path}") from error


def tokenize(folder: Path, path: Path) -> tuple[list[int], list[int], list[int]]:
    """Return what the model's own tokenizer adds before a text, the text's ids, and what it adds after it."""
    if not any((folder / name).is_file() for name in _TOKENIZER):
        raise ValueError(f"text needs a tokenizer; {folder} holds none: pass token ids with --ids")
    tokenizer = _transformers().AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(path.read_text("utf-8"), add_special_tokens=False, verbose=False)["input_ids"]
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    start = next(s for s in range(len(whole)) if whole[s : s + len(inner)] == inner)
    return whole[:start], ids, whole[start + len(inner) :]


def windows(before, ids, after, tokens: int, texts: int | None, most: int = 4) -> Tensor:
    """Cut ids into texts of ``tokens`` each, one after the other, (texts, tokens).

    ``texts``: how many; by default as many as there are, ``most`` of them. Raises ``ValueError`` for a text
    that is shorter than asked.
    """
    tokens = check_integer("tokens", tokens, low=8)
    added = len(before) + len(after)
    inner = tokens - added
    if inner < 1:
        raise ValueError(f"tokens must be more than the {added} that the tokenizer adds; got {tokens}")
    there = len(ids) // inner
    wanted = min(there, most) or 1 if texts is None else texts
    check_integer("texts", wanted, low=1)
    if there < wanted:
        raise ValueError(
            f"the text must have {wanted * inner} tokens for {wanted} x {tokens}; got {len(ids)}: "
            f"give more text, or fewer --tokens or --texts"
        )
    parts = [[*before, *ids[t * inner : (t + 1) * inner], *after] for t in range(wanted)]
    return torch.tensor(parts)
