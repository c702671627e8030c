"""ssmbook: attention and state space models through one operator, W_ij(X).

The library of the book *Heads and States*. Lower floors know nothing of upper ones: ``operators``, ``scans``
and ``display`` stand on torch alone; ``systems`` on them; ``maps``, ``heads`` and ``gradients`` above, side
by side; ``testing``, ``experiments``, ``exercises`` and ``lens`` next; ``chapters`` on top. Subpackages load
on first use, so ``import ssmbook`` costs nothing beyond Python itself.
"""

from importlib import import_module

__version__ = "0.1.0"

_SUBPACKAGES = (
    "operators",
    "scans",
    "systems",
    "maps",
    "heads",
    "gradients",
    "experiments",
    "lens",
    "display",
    "exercises",
    "testing",
)

__all__ = [*_SUBPACKAGES, "System", "__version__"]


def __getattr__(name: str):
    if name == "System":
        return import_module(f"{__name__}.systems").System
    if name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
