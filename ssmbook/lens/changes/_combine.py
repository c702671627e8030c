"""Changes of coefficients alone, which combine: a window, fainter scores, some heads, one after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssmbook._checks import check_integer, check_number
from ssmbook.lens.changes._change import Change


def window(w: int, sink: int = 4) -> Change:
    """Return the change that leaves each token the first ``sink`` keys and the last ``w - sink``.

    The last ones end with its own. The weights are divided by their sum, as if softmax had
    seen these keys alone: what a head loses is what its cache of w tokens loses.

    >>> alpha = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.3, 0.4]])
    >>> window(2, sink=1).coefficients(alpha)[3]
    tensor([0.2000, 0.0000, 0.0000, 0.8000])
    """
    w = check_integer("w", w, low=1)
    sink = check_integer("sink", sink, low=0, high=w - 1)

    def coefficients(alpha: Tensor) -> Tensor:
        i = torch.arange(alpha.shape[-1], device=alpha.device)
        first = (alpha != 0).any(-2).cumsum(-1) <= sink  # padding before a text is no key of it
        kept = alpha * ((i[:, None] - i < w - sink) | first[..., None, :])
        return kept * (alpha.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True)).nan_to_num()

    return Change(f"a window of {w}", coefficients, cost={"tokens": w})


def fade(c: float) -> Change:
    """Return the change that multiplies the scores of softmax heads by c, additive biases of places too.

    Weights become alpha^c, divided by their sum; what a sink without a key took counts as a
    key of its own. At c = 0 all keys weigh the same.
    """
    c = check_number("c", c, 0.0, float("inf"))

    def coefficients(alpha: Tensor) -> Tensor:
        if bool((alpha < 0).any()):
            raise ValueError("coefficients must be those of softmax to fade; got negative ones")
        rest = (1 - alpha.sum(-1, keepdim=True)).clamp(min=0)
        rest = rest * (rest > 1e-5)  # what is left of rounding
        powers = [torch.where(part > 0, part.pow(c), 0) for part in (alpha, rest)]
        return (powers[0] / (powers[0].sum(-1, keepdim=True) + powers[1])).nan_to_num()

    return Change(f"scores times {c:g}", coefficients)


def only(change: Change, heads: Sequence[int]) -> Change:
    """Return a change of coefficients for these heads alone, numbered from 0; the others stay.

    Raises ``ValueError`` for a change that has weights of its own or makes other heads, and
    for a head that the layer does not have.
    """
    chosen = [check_integer("heads", h, low=0) for h in heads]
    _of_coefficients(change)

    def coefficients(alpha: Tensor) -> Tensor:
        for h in chosen:
            check_integer("heads", h, low=0, high=alpha.shape[-3] - 1)
        mixed = alpha.clone()
        mixed[..., chosen, :, :] = change.coefficients(alpha[..., chosen, :, :])
        return mixed

    return Change(f"{change.name} in heads {chosen}", coefficients)


def both(first: Change, second: Change) -> Change:
    """The change ``first & second``: the second changes what the first made."""
    _of_coefficients(second)

    def coefficients(given: Tensor) -> Tensor:
        return second.coefficients(first.coefficients(given))

    name, cost = f"{first.name}, then {second.name}", {**first.cost, **second.cost}
    return Change(name, coefficients, first.W_O, None, cost, first.W_V, first.of_tokens)


def _of_coefficients(change: Change) -> None:
    if change.W_O is not None or change.W_V is not None or change.of_tokens:
        raise ValueError(f"change must be one of coefficients alone, to be combined so; got {change.name}")
