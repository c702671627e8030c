"""ssmbook: attention and state space models through one operator, W_ij(X).

>>> import torch
>>> from ssmbook import System, heads, maps
>>> layer = maps.SSD(64, 64, H=4, head_width=16, N=32)  # the core of Mamba-2
>>> x = torch.randn(128, 64)
>>> W = layer.interaction(x)  # its operator: y_i = sum_j W_ij x_j
>>> torch.allclose(W @ x, layer(x), atol=1e-4), W.interaction_rank()  # one matrix for each head
(True, 4)
>>> two = W.best_heads(2)  # the nearest two heads; W.floor(2) is the share of the energy that they miss
>>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), B=torch.eye(2), C=torch.eye(2))
>>> print(heads.head_count(turn, n=1000), heads.softmax_head_count(turn, n=1000), sep="; ")
2 heads (spectrum, modal); 3 heads (eigenvalue)

This is the library of the book *Heads and States*; its API page opens with what to call for what. Lower
floors know nothing of upper ones: ``operators``, ``scans`` and ``display`` stand on torch alone; ``systems``
on them; ``maps``, ``heads`` and ``gradients`` above, side by side; ``testing``, ``exercises`` and ``lens``
next; then ``experiments``; ``chapters`` on top. Subpackages load on first use, so ``import ssmbook`` costs
nothing beyond Python itself.
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
