"""What some parts of the library need beyond torch, numpy and scipy, and which extra brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


@contextmanager
def extra(name: Literal["book", "lens"]) -> Iterator[None]:
    """Say which extra brings a package that is missing when the block imports it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        hint = f'{package} must be installed for this: pip install "ssmbook[{name}]"'
        raise ModuleNotFoundError(hint, name=package) from error
