"""What takes the place of the heads of a layer: other coefficients, what they compute and what that loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_integer
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

    def __and__(self, other: Change) -> Change:
        """This change, and then one of coefficients alone."""
        from ssmbook.lens.changes._combine import both

        return both(self, other)


def drop_heads(heads: Sequence[int]) -> Change:
    """Return the change that leaves out these heads, numbered from 0; the others stay as they are.

    Raises ``ValueError`` for a head that the layer does not have.
    """
    gone = [check_integer("heads", h, low=0) for h in heads]

    def coefficients(alpha: Tensor) -> Tensor:
        for h in gone:
            check_integer("heads", h, low=0, high=alpha.shape[-3] - 1)
        kept = alpha.clone()
        kept[..., gone, :, :] = 0
        return kept

    return Change(f"without heads {gone}", coefficients)


def drop_sink() -> Change:
    """Return the change that takes the first key away: no later token reads it, other weights stay.

    In a padded text that is the first key that is read at all.
    """

    def coefficients(alpha: Tensor) -> Tensor:
        place = torch.arange(alpha.shape[-1], device=alpha.device)
        first = (alpha != 0).any(-2).int().argmax(-1)[..., None, None]
        return alpha.masked_fill((place == first) & (place[:, None] > first), 0)

    return Change("without the first key", coefficients)


def then(first: Change, second: Change) -> Change:
    """Return the change that makes of the heads what the second makes of those of the first.

    Raises ``ValueError`` where the second would leave out what the first made: it makes its
    coefficients from the tokens, or both bring value maps.
    """
    weights = [(change.W_O, change.W_V) for change in (first, second)]
    brings = [any(part is not None for part in pair) for pair in weights]
    if second.of_tokens or all(brings):
        raise ValueError(
            "a change inside another must use the heads that the other made; got "
            f"“{second.name}” inside “{first.name}”, which brings its own"
        )

    def coefficients(given: Tensor) -> Tensor:
        return second.coefficients(first.coefficients(given))

    W_O, W_V = weights[brings[1]]
    name, cost = f"{first.name}, then {second.name}", {**first.cost, **second.cost}
    return Change(name, coefficients, W_O, None, cost, W_V, first.of_tokens)


def freeze(layer: MixingLayer, inputs: Tensor) -> Change:
    """Return the change that keeps the coefficients of one text, (n,) or (n, d), for all of n tokens."""
    kept = read(layer, inputs).alpha
    kept = kept[0] if kept.ndim == 4 and len(kept) == 1 else kept
    if kept.ndim != 3:
        raise ValueError(f"inputs must be one text to freeze coefficients at; got a batch of {len(kept)}")

    def coefficients(alpha: Tensor) -> Tensor:
        if alpha.shape[-2:] != kept.shape[-2:]:
            n = kept.shape[-1]
            raise ValueError(f"a frozen layer must see texts of {n} tokens; got {alpha.shape[-1]}")
        return kept.to(alpha).expand_as(alpha)

    return Change("frozen coefficients", coefficients)


def truncate(N: int) -> Change:
    """Return the change that carries each causal head by a recurrence with N states.

    The recurrence changes from token to token, h_{i+1} = A_i h_i + B_i x_i with [A_i B_i]
    of orthonormal rows, so it is stable: a time-varying truncation, made for each text, not
    one linear system for all texts. At each token it keeps the N directions of [states, new
    token] that later tokens read most, to a few percent.
    """
    N = check_integer("N", N, low=1)
    return Change(f"{N} states", lambda alpha: truncated(alpha, N), cost={"states": N})


def truncated(alpha: Tensor, N: int) -> Tensor:
    """Return coefficients (..., n, n) of N states near causal ones; all cuts have rank N at most.

    The text is halved again and again. The block at the middle, the tokens before it to
    those from it onward, becomes K V of rank N, with orthonormal rows in V: the states. Then
    V ends the first half, as its N outputs, and K begins the second, as its N inputs, so
    that each half is again such a text between N states, and all halves of one length are
    cut together. What the cuts leave out is orthogonal, so the squared errors add up: to
    the dropped singular values, squared. The directions are found to a few percent of that
    error, from products; they are constants to gradients.

    Computed in the dtype of alpha, or float32 for half precision, which cannot tell apart
    directions below 3e-4 of the largest.
    """
    n, given = alpha.shape[-1], alpha.to(torch.promote_types(alpha.dtype, torch.float32))
    if bool((given.triu(1) != 0).any()):
        raise ValueError("coefficients must be causal to be carried by states; got weights on later tokens")
    if n <= N:
        return alpha
    start = (given != 0).any(-2).int().argmax(-1)  # padding before a text goes behind it
    given, h = shifted(given, start), 1 << (n - 1).bit_length()
    size = h
    # rows are outputs: h tokens, then N states; columns are inputs: N states, then h tokens
    M = functional.pad(given.flatten(0, -3), (N, size - n, 0, size - n + N))
    S = M.new_zeros(len(M), N, N)  # how much later rows read of the N states that end a part: a Gram matrix
    while h > 1:
        h //= 2
        block = M[:, h:, : N + h]
        G = block[:, :h].mT @ block[:, :h] + block[:, h:].mT @ (S @ block[:, h:])
        V = leading_rows(G, N)
        first = torch.cat([M[:, :h, : N + h], V], -2)
        second = torch.cat([block @ V.mT, M[:, h:, N + h :]], -1)
        M, S = (torch.stack(pair, 1).flatten(0, 1) for pair in ((first, second), (V @ G @ V.mT, S)))
    while h < size:
        first, second = M.unflatten(0, (-1, 2)).unbind(1)
        block = torch.cat([second[..., :N] @ first[:, h:], second[..., N:]], -1)
        M = torch.cat([functional.pad(first[:, :h], (0, h)), block], -2)
        h *= 2
    return shifted(M[:, :n, N : N + n].reshape(alpha.shape), -start).to(alpha.dtype)


def shifted(alpha: Tensor, start: Tensor) -> Tensor:
    """Return coefficients (..., n, n) with rows and columns turned: the token ``start`` (...) comes first."""
    place = torch.arange(alpha.shape[-1], device=alpha.device)
    place = ((place + start[..., None]) % alpha.shape[-1])[..., None].expand_as(alpha)
    return alpha.gather(-2, place).gather(-1, place.mT) if bool(start.any()) else alpha


@torch.no_grad()
def leading_rows(G: Tensor, N: int) -> Tensor:
    """Return orthonormal rows (k, N, m) near the N leading eigenvectors of Gram matrices G (k, m, m)."""
    m = G.shape[-1]
    few = m - N <= N
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(m, m - N if few else min(m, N + 8), generator=draw, dtype=G.dtype, device="cpu")
    X = X.to(G.device).expand(len(G), -1, -1)
    if few:  # fewer to leave out than to keep: those are found, by inverse iteration
        unit = torch.finfo(G.dtype)
        trace = G.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None].clamp_min(unit.tiny)
        one = torch.eye(m, dtype=G.dtype, device=G.device)
        factor = torch.linalg.cholesky(G / trace + 8 * unit.eps * one)
        for _ in range(2):
            X = torch.linalg.qr(torch.cholesky_solve(X, factor)).Q
        return torch.linalg.qr(torch.cholesky_solve(X, factor), mode="complete").Q[..., m - N :].mT
    for _ in range(3):
        X = torch.linalg.qr(G @ X).Q
    return (X @ torch.linalg.eigh(X.mT @ G @ X).eigenvectors[..., -N:]).mT


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
