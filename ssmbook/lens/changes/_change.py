"""What takes the place of the heads of a layer, what the layer then computes, and what that loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook.lens._errors import ReplacementErrors, errors
from ssmbook.lens._layers import MixingLayer, read
from ssmbook.lens._reading import Reading, check_read
from ssmbook.operators import DiagonalOperator, FactorizedOperator, InteractionOperator


@dataclass(frozen=True)
class Change:
    """What takes the place of the heads of a layer, for ``replace``.

    Parameters
    ----------
    name : str
        What is done.
    coefficients : callable
        The layer's coefficients (..., H, n, n) to those in their place, (..., H', n, n).
    W_O : Tensor (H', p, r) or None
        Output weights in place of the layer's own.
    lost : ReplacementErrors or None
        The errors on the texts that the change was fitted to.
    cost : dict
        "score matrices" that are still computed; "value maps", "width" or "states" where they are
        fewer.
    W_V : Tensor (H', r, d) or None
        Value weights in place of the layer's own.
    of_tokens : bool, default False
        Whether ``coefficients`` takes the layer's tokens (..., n, d) instead.
    """

    name: str
    coefficients: Callable[[Tensor], Tensor] = field(repr=False)
    W_O: Tensor | None = field(default=None, repr=False)
    lost: ReplacementErrors | None = None
    cost: dict[str, int] = field(default_factory=dict)
    W_V: Tensor | None = field(default=None, repr=False)
    of_tokens: bool = False


def new_coefficients(reading: Reading, change: Change) -> Tensor:
    """The coefficients that a change makes."""
    return change.coefficients(reading.core.x if change.of_tokens else reading.alpha)


def new_factors(reading: Reading, change: Change) -> list[Tensor]:
    """The factors W_O and W_V of the value maps, those of the change in place of the layer's own."""
    pairs = zip((change.W_O, change.W_V), reading.factors, strict=True)
    return [own if other is None else other.to(own) for other, own in pairs]


def outcome(reading: Reading, change: Change) -> Tensor:
    """What the core of a layer makes of its tokens with other heads: y' = W' x + offset."""
    core, alpha = reading.core, new_coefficients(reading, change)
    if isinstance(core.W, DiagonalOperator):
        y = torch.einsum("...hij,...jh->...ih", alpha, core.x)
    else:
        W_O, W_V = new_factors(reading, change)
        y = torch.einsum("...hnr,hpr->...np", alpha @ (core.x[..., None, :, :] @ W_V.mT), W_O)
    return y if core.offset is None else y + core.offset


def changed(reading: Reading, change: Change) -> InteractionOperator:
    """The operator W' of a layer with other heads."""
    alpha = new_coefficients(reading, change)
    if isinstance(reading.core.W, DiagonalOperator):
        one = alpha.new_ones(1, 1, 1)
        return DiagonalOperator(FactorizedOperator(alpha[..., None, :, :], one))
    W_O, W_V = new_factors(reading, change)
    return FactorizedOperator(alpha, W_O @ W_V)


@torch.no_grad()
def change_errors(
    layer: MixingLayer, inputs: Tensor | Mapping[str, Any], change: Change | nn.Module
) -> ReplacementErrors:
    """Return the errors of a change on other texts: ``inputs`` as for ``operator``, read in float64.

    >>> from ssmbook import lens
    >>> from ssmbook.maps import Attention
    >>> model = torch.nn.Sequential(Attention(6, 6, H=2, head_width=3)).eval()
    >>> found = lens.change_errors(lens.layers(model)[0], torch.randn(3, 10, 6), lens.drop_heads([0, 1]))
    >>> round(found.output, 6)  # both of its heads were dropped, so all of its output is missing
    1.0
    """
    reading = read(layer, inputs)
    check_read(layer.title, reading.core)
    change = getattr(change, "change", change)
    return errors(reading.core.W, changed(reading, change), reading.core.x)
