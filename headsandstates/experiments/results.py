"""Run an experiment job by job, keep its results, and read those that come with the book."""

from __future__ import annotations

import hashlib
import json
import platform
import struct
import sys
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from ssmbook._checks import check_choice
from ssmbook._json import jsonable, read_json, versions, write_json

FORMAT = "headsandstates.experiments/1"
FOLDER = Path(__file__).parent / "measured"
NAMES = (
    "conformance",
    "diagnose", "fewer-heads", "gradient-flow",
    "how-many-states", "language", "language-larger", "learning-heads",
    "model-families", "tasks", "tasks-longer", "trained-layers", "which-heads", "which-heads-gemma",
)  # fmt: skip
SIZES = ("small", "full")


@dataclass
class Results:
    """The numbers of an experiment with what made them; ``results``: job -> numbers.

    Parameters
    ----------
    experiment, size : str
        Its name, and "small" or "full".
    settings : dict
        What it was run with.
    command : str
        How to make the numbers again.
    versions : dict
        Of Python, torch and others.
    machine : str
        Where it ran.
    results : dict
        The numbers of each job by its name.
    """

    experiment: str
    size: str
    settings: dict
    command: str = ""
    versions: dict[str, str] = field(default_factory=versions)
    machine: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}, CPU")
    results: dict[str, dict] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read a file; ``ValueError`` for one that holds no results."""
        return cls(**read_json(path, FORMAT))

    def save(self, path: str | Path) -> None:
        """Write a file that ``load`` reads."""
        write_json(path, FORMAT, asdict(self))


def half_interval(values: Tensor) -> float:
    """Half of a 95 % interval of the mean of values (n,), n > 1, by Student's law."""
    n = len(values)
    return float(stdtrit(n - 1, 0.975)) * float(values.std()) / n**0.5


def measurement(name: str) -> Results:
    """Return the results of an experiment as they come with the book: settings, versions, numbers.

    ``name``: one of ``NAMES``, such as "learning-heads". The attribute ``results`` has the
    numbers by job, ``command`` how to make them again. Raises ``ValueError`` for another
    name.
    """
    return Results.load(FOLDER / f"{check_choice('name', name, NAMES)}.json")


def run(name: str, size: str, path: str | Path) -> Results:
    """Run the jobs of an experiment that ``path`` does not have yet, and write it after each.

    The module of the experiment has ``FULL``, the settings of the book's run; ``SMALL``,
    what the small run takes less of; and ``jobs(settings)``, name -> function that returns
    the numbers of that job, and perhaps under "weights" tensors by name, which are written
    to a file of their own. Raises ``ValueError`` where ``path`` has results of other
    settings or versions.
    """
    module = import_module(
        f"headsandstates.experiments.{check_choice('name', name, NAMES).replace('-', '_')}"
    )
    settings = {**module.FULL, **(module.SMALL if check_choice("size", size, SIZES) == "small" else {})}
    path, jobs = Path(path), module.jobs(settings)
    command = f"python -m headsandstates.experiments {name} --size {size}"
    found = Results(name, size, jsonable(settings), command)
    if path.exists():
        before = Results.load(path)
        if (before.settings, before.versions) != (found.settings, found.versions):
            raise ValueError(f"{path} has other settings or versions; choose another file")
        found.results = before.results
    for job in (job for job in jobs if job not in found.results):
        print(f"{len(found.results) + 1} of {len(jobs)}: {job}", file=sys.stderr)
        numbers = jobs[job]()
        if "weights" in numbers:
            file = f"{path.stem}-{job.replace(', ', '-').replace(' ', '-')}.safetensors"
            notes = {"job": job, "command": command, **versions()}
            save_weights(numbers.pop("weights"), path.with_name(file), notes)
        found.results[job] = jsonable(numbers)
        found.save(path)
    return found


# Names of the format safetensors, and NumPy's.
_KINDS = {"F16": "<f2", "F32": "<f4", "I8": "i1"}


def save_weights(weights: dict[str, Tensor], path: Path, notes: dict[str, str]) -> None:
    """Write tensors and notes in the format safetensors: a header of JSON, then the numbers."""
    header, parts, end = {"__metadata__": notes}, [], 0
    for name, tensor in weights.items():
        kind = {torch.float16: "F16", torch.float32: "F32", torch.int8: "I8"}[tensor.dtype]
        data = tensor.detach().numpy().astype(_KINDS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": [*tensor.shape], "data_offsets": [end, end + len(data)]}
        end += len(data)
        parts.append(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of ``save_weights``, in float32."""
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    del header["__metadata__"]
    found = {}
    for name, at in header.items():
        first, last = at["data_offsets"]
        numbers = np.frombuffer(whole[8 + length :][first:last], _KINDS[at["dtype"]]).astype("float32")
        found[name] = torch.from_numpy(numbers).reshape(at["shape"])
    return found
