"""The experiments as a command: ``headsandstates.experiments NAME --size small|full --out FILE``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from headsandstates.experiments.results import NAMES, SIZES, run


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status, 2 for what it refuses."""
    parser = argparse.ArgumentParser(
        prog="python -m headsandstates.experiments",
        description="The experiments of the book. Finished jobs are kept when you stop; the same "
        "command goes on.",
    )
    parser.add_argument("name", metavar="NAME", choices=NAMES, help=", ".join(NAMES))
    parser.add_argument("--size", choices=SIZES, default="small", help="small: a minute; full: the book's")
    parser.add_argument("--out", type=Path, help="file of results (NAME-SIZE.json)")
    given = parser.parse_args(arguments)
    path = given.out or Path(f"{given.name}-{given.size}.json")
    try:
        run(given.name, given.size, path)
    except (ValueError, OSError) as error:
        print(f"headsandstates.experiments: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
