"""ssmbook: attention and state space models through one operator, W_ij(X).

>>> import torch
>>> from ssmbook import System, heads, maps
>>> layer = maps.SSD(64, 64, H=4, head_width=16, N=32)  # the core of Mamba-2
>>> x = torch.randn(128, 64)
>>> W = layer.interaction(x)  # its interaction matrix: y_i = sum_j W_ij x_j
>>> torch.allclose(W @ x, layer(x), atol=1e-4), W.interaction_rank()  # every head contributes one matrix
(True, 4)
>>> two = W.best_heads(2)  # the two heads that come closest; W.floor(2) is their relative squared error
>>> rotation = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), B=torch.eye(2), C=torch.eye(2))
>>> print(heads.head_count(rotation, 1000), heads.head_count(rotation, 1000, "softmax"), sep="; ")
2 heads (spectrum, modal); 3 heads (eigenvalue)

This is the library of the book *Heads and States*. Read ``ssmbook.tour`` first: it is the whole argument on
one page, in plain PyTorch. Then come, from the ground up: ``operators`` (interaction matrices) and ``scans``
(fast recurrences); ``systems`` (linear state space models); ``maps`` (layers), ``heads`` (how many heads a
system takes) and ``gradients``; then ``lens`` (trained models), ``display`` and ``testing``. Subpackages are
imported on first use. What only the book draws, measures and grades is in ``headsandstates``.

The page's names in the library: ``InteractionMatrix`` is an `InteractionOperator` of ``operators``, with
``interaction_rank``, ``floor`` and ``best_heads``, and ``system.operator(n)`` is that of a system, so that
``floor`` and ``heads_from_system`` are two of its methods; ``scan`` is ``scans.diagonal_scan``;
``attention``, ``SelectiveLayer`` and ``SSDHead`` are ``maps.Attention``, ``maps.SelectiveSSM`` and
``maps.SSD``; and ``gradient_by_distance`` is ``gradients.gradient_profile``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.3.0"

__all__ = [
    "System",
    "__version__",
    "display",
    "gradients",
    "heads",
    "lens",
    "maps",
    "operators",
    "scans",
    "systems",
    "testing",
]

if TYPE_CHECKING:  # what an editor and a type checker see
    from ssmbook import display, gradients, heads, lens, maps, operators, scans, systems, testing
    from ssmbook import tour as tour
    from ssmbook.systems import System
else:

    def __getattr__(name):
        if name == "System":
            return import_module(f"{__name__}.systems").System
        if name in (*__all__, "tour"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
