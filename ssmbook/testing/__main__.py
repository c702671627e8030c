"""Conformance as a command: ``python -m ssmbook.testing mymodule:MyLayer``."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import get_args

from torch import nn

from ssmbook.testing.conformance import ScanKind, check_layer, check_scan


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status: 1 if a check failed, 2 for what it refuses."""
    parser = argparse.ArgumentParser(
        prog="python -m ssmbook.testing",
        description="Try a scan or a layer where trouble is known, and print one table.",
    )
    add = parser.add_argument
    add("name", metavar="MODULE:NAME", help="a scan, a layer, or what makes a layer when called")
    add("--kind", choices=get_args(ScanKind), help="it is a scan, and which recurrence")
    add("--width", type=int, help="of a token, for a layer that does not tell it")
    add("--long", type=int, help="steps of the long sequence")
    given = parser.parse_args(arguments)
    module, _, name = given.name.partition(":")
    long = {} if given.long is None else {"long": given.long}
    try:
        found = getattr(import_module(module), name)
        if given.kind is not None:
            result = check_scan(found, given.kind, **long)
        else:
            result = check_layer(found if isinstance(found, nn.Module) else found(), given.width, **long)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        print(f"ssmbook.testing: {error}", file=sys.stderr)
        return 2
    print(result)
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
