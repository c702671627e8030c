"""Run an experiment job by job: kept after each, resumed where it stopped, never replaced unasked."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ssmbook._commands import plain, read_json, versions, write_json
from ssmbook.experiments.weights import save

FORMAT = "ssmbook.experiments/1"
SIZES = ("small", "full")


@dataclass(frozen=True)
class Experiment:
    """A named set of jobs.

    ``full``: the settings of the book's run, which JSON can hold; ``small``: what the small run (a minute)
    takes less of; ``jobs(settings)``: a dict name -> function that returns the numbers of that job, and
    perhaps under "weights" tensors by name, kept in a file of their own. A job draws its random numbers from
    its settings alone, so that any job can be done at any time and on any machine.
    """

    name: str
    full: dict
    small: dict
    jobs: Callable[[dict], dict[str, Callable[[], dict]]]

    def settings(self, size: str) -> dict:
        return self.full if size == "full" else {**self.full, **self.small}


@dataclass
class Results:
    """The numbers of an experiment with what made them; ``results``: job -> numbers."""

    experiment: str
    size: str
    settings: dict
    command: str = ""
    versions: dict[str, str] = field(default_factory=versions)
    machine: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}, CPU")
    results: dict[str, dict] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file in one step: what was there stays whole until it is replaced."""
        write_json(path, {"format": FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read a file; ``ValueError`` for one that holds no results in this format."""
        return cls(**read_json(path, FORMAT, "results of an experiment"))


def run(experiment: Experiment, size: str, path: Path, *, overwrite=False, say=lambda *now: None) -> Results:
    """Do what is not done yet and keep it in ``path``; under torchrun every process does its share.

    Raises ``ValueError`` where ``path`` holds results of other settings or versions or is finished, unless
    ``overwrite``. ``KeyboardInterrupt`` passes through with everything finished on disk.
    """
    rank, world = (int(os.environ.get(key, default)) for key, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    settings = experiment.settings(size)
    jobs = experiment.jobs(settings)
    command = f"python -m ssmbook.experiments {experiment.name} --size {size}"
    found = Results(experiment.name, size, plain(settings), command)
    if not overwrite:
        _gather(found, path, jobs)
    left = [name for name in jobs if name not in found.results][rank::world]
    own = path if world == 1 else path.with_suffix(f".{rank}{path.suffix}")
    for done, name in enumerate(left):
        say(done, len(left), name)
        numbers = jobs[name]()
        if "weights" in numbers:
            _keep(numbers.pop("weights"), own, name, command)
        found.results[name] = plain(numbers)
        found.results = {key: found.results[key] for key in jobs if key in found.results}
        found.save(own)
    say(len(left), len(left), "")
    if not left:  # what other processes did is put together
        found.save(own)
    return found


def _keep(tensors: dict, path: Path, job: str, command: str) -> None:
    """Write the weights that a job hands over beside the results, with the command that makes them again."""
    name = f"{path.name.split('.')[0]}-{job.replace(', ', '-').replace(' ', '-')}.safetensors"
    save(tensors, path.with_name(name), {"job": job, "command": command, **versions()})


def _gather(found: Results, path: Path, jobs: dict) -> None:
    """Take over what is finished, here and in the files of other processes."""
    parts = sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))
    for each in [path, *parts]:
        if not each.exists():
            continue
        before = Results.load(each)
        made_by = ("experiment", "size", "settings", "versions")
        if any(getattr(before, key) != getattr(found, key) for key in made_by):
            raise ValueError(
                f"{each} has other settings or versions: nothing was overwritten (--overwrite replaces it)"
            )
        if each == path and not set(jobs) - set(before.results):
            raise ValueError(f"{path} is finished: nothing was overwritten (--overwrite replaces it)")
        found.results.update(before.results)
