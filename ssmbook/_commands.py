"""What the commands share: files that are replaced in one step, and a line that says how far they are."""

from __future__ import annotations

import json
import math
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ssmbook import __version__


def versions() -> dict[str, str]:
    """The versions that make the numbers."""
    return {"ssmbook": __version__, "torch": torch.__version__, "python": platform.python_version()}


def replace(path: Path, data: bytes) -> None:
    """Write a file in one step: what was there stays whole until it is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(path.suffix + ".part")
    fresh.write_bytes(data)
    fresh.replace(path)


def write_json(path: Path, given: dict) -> None:
    """Write what ``plain`` makes of ``given`` as JSON, in one step."""
    text = json.dumps(plain(given), indent=1, ensure_ascii=False)
    # a list of numbers on one line: fewer lines, and a change shows where it is
    text = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), text)
    replace(Path(path), (text + "\n").encode())


def read_json(path: Path, form: str, what: str) -> dict:
    """Read JSON whose "format" is ``form``, without that; ``ValueError`` for anything else."""
    try:
        given = json.loads(Path(path).read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"path must hold {what}; got {path}, which is no JSON") from error
    found = given.pop("format", None) if isinstance(given, dict) else None
    if found != form:
        raise ValueError(f"path must hold {what} of format {form}; got {found} in {path}")
    return given


def plain(value: Any) -> Any:
    """What JSON holds: tensors as lists, floats to six digits, None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def progress(spent: float, done: int, total: int, name: str) -> str:
    """One line: a bar, the time spent, the time left, what is being done."""
    bar = "█" * round(20 * done / max(total, 1))
    left = f", about {_clock(spent / done * (total - done))} left" if 0 < done < total else ""
    return f"[{bar:<20}] {done} of {total} in {_clock(spent)}{left}{': ' + name if name else ''}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def say(start: float, done: int, total: int, name: str) -> None:
    """Show how far it is since ``start``: in place of the line before on a terminal, below it elsewhere."""
    line, live = progress(time.monotonic() - start, done, total, name), sys.stderr.isatty()
    end = "" if live and done < total else "\n"
    print(f"\r\033[K{line}" if live else line, end=end, file=sys.stderr, flush=True)
