"""The experiments as a command: ``python -m ssmbook.experiments NAME --size small|full``."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path

from ssmbook._checks import check_choice
from ssmbook._commands import say
from ssmbook.experiments._runs import SIZES, Experiment, run
from ssmbook.experiments.results import NAMES

INTERRUPTED, REFUSED = 130, 2


def experiment(name: str) -> Experiment:
    """The experiment of this name; its module is loaded when it is asked for."""
    check_choice("NAME", name, NAMES)
    return import_module(f"ssmbook.experiments._{name.replace('-', '_')}").EXPERIMENT


def parser() -> argparse.ArgumentParser:
    wanted = argparse.ArgumentParser(
        prog="python -m ssmbook.experiments",
        description="The experiments of the book's last part. Finished jobs are kept when you stop; the same "
        "command goes on. Under torchrun every process does its share; the same command without torchrun "
        "then puts the files together.",
    )
    wanted.add_argument("name", metavar="NAME", help=", ".join(NAMES))
    wanted.add_argument("--size", choices=SIZES, default="small", help="small: a minute; full: the book's")
    wanted.add_argument("--out", type=Path, help="file of results (NAME-SIZE.json)")
    wanted.add_argument("--overwrite", action="store_true", help="replace a finished file")
    return wanted


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = parser().parse_args(arguments)
    path = given.out or Path(f"{given.name}-{given.size}.json")
    said = partial(say, time.monotonic())
    try:
        run(experiment(given.name), given.size, path, overwrite=given.overwrite, say=said)
    except KeyboardInterrupt:
        print(f"\nstopped: what is done is kept in {path}, the same command goes on", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError) as error:
        print(f"ssmbook.experiments: {error}", file=sys.stderr)
        return REFUSED
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
