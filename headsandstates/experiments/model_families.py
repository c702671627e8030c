"""The experiment "model-families": which language models of transformers the lens reads, at tiny sizes.

``families.json`` has sizes for all (``every``, and for those with experts), and of some families what they
need beside them and what was found in them, which the tests compare. The others are tried with the sizes
for all.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from ssmbook import lens

ZOO = json.loads(Path(__file__).with_name("families.json").read_text("utf-8"))
FULL = {"families": "all", "parameters": 30_000_000}
SMALL = {"families": ["bert", "llama", "mamba2", "longformer"]}


def language_models() -> list[str]:
    """The families of transformers that have a model of text, by name."""
    auto = import_module("transformers.models.auto.modeling_auto")
    text = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
    return sorted(text & {*auto.MODEL_MAPPING_NAMES} | {*ZOO["families"]})


def tiny(name: str, most: float = float("inf")) -> nn.Module:
    """A model of the family with random weights that differ from token to token.

    ``ValueError`` where it has more than ``most`` parameters, and what transformers raises
    where the sizes do not fit the family.
    """
    transformers = import_module("transformers")
    own = ZOO["families"].get(name, {"config": ZOO["experts"]})
    like = ZOO["families"].get(own.get("like"), {})
    given, sizes = {**like, **own}, {**like.get("config", {}), **own.get("config", {})}
    kept = {key: value for key, value in ZOO["every"].items() if key not in given.get("without", ())}
    config = transformers.AutoConfig.for_model(name, **{**kept, **sizes})
    kind = getattr(transformers, given.get("class", "AutoModel"))
    make = kind if "class" in given else kind.from_config
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        if most < float("inf"):
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in make(config).parameters())
            if size > most:
                raise ValueError(f"{size:,} parameters at the sizes given here")
        torch.manual_seed(0)
        model = make(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(2.5)
    return model.eval()


def tokens() -> torch.Tensor:
    """19 random tokens."""
    return torch.randint(3, 99, (19,), generator=torch.Generator().manual_seed(1))


def jobs(given: dict) -> dict:
    """One job for each family, and one that says the version of transformers."""
    names = language_models() if given["families"] == "all" else given["families"]
    found = {"transformers": lambda: {"version": version("transformers")}}
    return found | {name: partial(_read, name, given["parameters"]) for name in names}


def _read(name: str, most: float) -> dict:
    """The kinds of layers read and their largest miss, what is not read, or why nothing was tried."""
    import_module("transformers").logging.set_verbosity_error()
    try:
        model = tiny(name, most)
        with torch.no_grad():
            model(tokens()[None])
    except Exception as error:  # of another package, at sizes that it may not know
        return {"not built": _line(error)}
    try:
        report = lens.report(model, tokens(), permuted=False)
    except ValueError as error:
        return {"refused": _line(error)}
    kinds = Counter(layer.family for layer in report.layers)
    return {
        "read": dict(kinds),
        "miss": max(layer.miss for layer in report.layers),
        "listed": [_line(note) for note in report.notes if note.startswith("not read")],
    }


def _line(said: Exception | str) -> str:
    """The first line of what was said, with the class of an error that is not ours."""
    kind = "" if isinstance(said, (str, ValueError)) else f"{type(said).__name__}: "
    return f"{kind}{str(said).strip().splitlines()[0]}"[:200]
