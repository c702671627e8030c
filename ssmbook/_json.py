"""JSON files of measurements: what made the numbers, and the numbers to six digits."""

from __future__ import annotations

import json
import math
import platform
import re
from pathlib import Path
from typing import Any

import torch

from ssmbook import __version__


def versions() -> dict[str, str]:
    """Return the versions that make the numbers."""
    return {"ssmbook": __version__, "torch": torch.__version__, "python": platform.python_version()}


def write_json(path: str | Path, form: str, given: dict) -> None:
    """Write ``given`` as JSON whose "format" is ``form``; lists of numbers stay on one line."""
    text = json.dumps(jsonable({"format": form, **given}), indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), text)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text + "\n", "utf-8")


def read_json(path: str | Path, form: str) -> dict:
    """Read JSON whose "format" is ``form``, without that entry; ``ValueError`` for anything else."""
    given = json.loads(Path(path).read_text("utf-8"))
    found = given.pop("format", None) if isinstance(given, dict) else None
    if found != form:
        raise ValueError(f"path must hold JSON of format {form}; got {found} in {path}")
    return given


def jsonable(value: Any) -> Any:
    """Return what JSON can hold: tensors as lists, floats to six digits, None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): jsonable(part) for key, part in value.items()}
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [jsonable(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
