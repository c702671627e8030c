"""What takes the place of the heads of a layer: other coefficients, which combine, and what they lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer, check_number
from ssmbook.lens._errors import ReplacementErrors, errors
from ssmbook.lens._layers import MixingLayer, read
from ssmbook.lens._reading import Reading, check_read
from ssmbook.operators import DiagonalOperator, FactorizedOperator, InteractionOperator
from ssmbook.scans.fast.engines import loops_for, run


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
        "score matrices" that are still computed; "value maps", "states" or "tokens" where they are
        fewer.
    W_V : Tensor (H', r, d) or None
        Value weights in place of the layer's own.
    of_tokens : bool, default False
        Whether ``coefficients`` takes the layer's tokens (..., n, d) instead.
    fixed : bool, default False
        Whether the layer's coefficients make no difference to those in their place.

    Examples
    --------
    >>> from ssmbook import lens
    >>> cut = lens.only(lens.Change("cut", torch.zeros_like), [0, 2])
    >>> cut.name, cut.coefficients(torch.ones(3, 2, 2)).sum((1, 2))
    ('cut in heads [0, 2]', tensor([0., 4., 0.]))
    """

    name: str
    coefficients: Callable[[Tensor], Tensor] = field(repr=False)
    W_O: Tensor | None = field(default=None, repr=False)
    lost: ReplacementErrors | None = None
    cost: dict[str, int] = field(default_factory=dict)
    W_V: Tensor | None = field(default=None, repr=False)
    of_tokens: bool = False
    fixed: bool = False

    def __and__(self, other: Change) -> Change:
        """The change that makes of the heads what the other makes of those of this one.

        Raises ``ValueError`` where the other would leave out what this one made: it makes its
        coefficients from the tokens or keeps fixed ones, or both bring value maps.
        """
        other = getattr(other, "change", other)
        weights = [(change.W_O, change.W_V) for change in (self, other)]
        brings = [any(part is not None for part in pair) for pair in weights]
        if other.of_tokens or other.fixed or all(brings):
            raise ValueError(
                "a change after another must use the heads that the other made; got "
                f"“{other.name}” after “{self.name}”, which brings its own"
            )

        def coefficients(given: Tensor) -> Tensor:
            return other.coefficients(self.coefficients(given))

        W_O, W_V = weights[brings[1]]
        name, cost = f"{self.name}, then {other.name}", {**self.cost, **other.cost}
        return Change(name, coefficients, W_O, None, cost, W_V, self.of_tokens)


def window(w: int, sink: int = 4) -> Change:
    """Return the change that leaves each token the first ``sink`` keys and the last ``w - sink``.

    The last ones end with its own. Weights of softmax are divided by their sum, as if it had
    seen these keys alone: what a head loses is what its cache of w tokens loses. Coefficients
    of either sign stay as they are.

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
        share = (alpha.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True)).nan_to_num()
        return torch.where((alpha < 0).any((-2, -1), keepdim=True), kept, kept * share)

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
    chosen, change = [check_integer("heads", h, low=0) for h in heads], getattr(change, "change", change)
    if change.W_O is not None or change.W_V is not None or change.of_tokens:
        raise ValueError(f"change must be one of coefficients alone, to be combined so; got {change.name}")

    def coefficients(alpha: Tensor) -> Tensor:
        for h in chosen:
            check_integer("heads", h, low=0, high=alpha.shape[-3] - 1)
        mixed = alpha.clone()
        mixed[..., chosen, :, :] = change.coefficients(alpha[..., chosen, :, :])
        return mixed

    return Change(f"{change.name} in heads {chosen}", coefficients)


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

    return Change("frozen coefficients", coefficients, fixed=True)


def truncate(N: int) -> Change:
    """Return the change that carries each causal head by a recurrence with N states.

    The recurrence changes from token to token, h_{i+1} = A_i h_i + B_i x_i with [A_i B_i]
    of orthonormal rows, so it is stable: a time-varying truncation, made for each text, not
    one linear system for all texts. Each step keeps the N directions of [states, new token]
    that later tokens read most.
    """
    N = check_integer("N", N, low=1)
    return Change(f"{N} states", lambda alpha: truncated(alpha, N), cost={"states": N})


def truncated(alpha: Tensor, N: int) -> Tensor:
    """Return coefficients (..., n, n) of N states near causal ones; all cuts have rank N at most.

    Going through the text, the part of the future rows that the past can still influence is
    written as K Vᵀ, with orthonormal columns in V for the tokens so far. K, joined by the
    new token's column, is cut back to its N leading right singular vectors. What the steps
    leave out of one row is orthogonal, so the squared errors add up: to the dropped
    singular values, squared. Computed in float64, returned in alpha's dtype; by a compiled
    loop unless a gradient is wanted.
    """
    n, given = alpha.shape[-1], alpha.to(torch.float64)
    if bool((given.triu(1) != 0).any()):
        raise ValueError("coefficients must be causal to be carried by states; got weights on later tokens")
    if n <= 2 * N + 1:  # no cut has a larger rank
        return alpha
    part = n - N - 1  # from here on there are no more rows than states
    graph = torch.is_grad_enabled() and alpha.requires_grad
    if loops_for(given) and not graph:
        from ssmbook.lens.changes._loops import carry

        found = torch.zeros_like(given, memory_format=torch.contiguous_format)
        states = given.new_empty(*alpha.shape[:-2], N + 1, n)
        run(carry, (given.mT, 2), (states, 2), (found, 2))
        V, K = states[..., :N, :part], states[..., :N, part:].mT
    else:
        found, V, K = _carry(given, N, part)
    found[..., part:, :part] = K @ V
    found[..., part:, part:] = given[..., part:, part:]
    return found.to(alpha.dtype)


def _carry(given: Tensor, N: int, part: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first rows, the states from their tokens, and what each later row reads of them."""
    n, found = given.shape[-1], torch.zeros_like(given)
    K = given[..., :, :0]  # what all rows read of each state, (..., n, N)
    V = given.new_zeros(*given.shape[:-2], 0, n)  # states from tokens, (..., N, n)
    for t in range(part):
        # row t reads the past through the states, and its own token directly
        found[..., t, :] = (K[..., t : t + 1, :] @ V)[..., 0, :]
        found[..., t, t] = given[..., t, t]
        # token t becomes one more state
        new = V.new_zeros(*V.shape[:-2], 1, n)
        new[..., t] = 1
        K = torch.cat([K, given[..., :, t : t + 1]], -1)
        V = torch.cat([V, new], -2)
        # of these states only what the later rows read most is kept
        if K.shape[-1] > N:
            later = K[..., t + 1 :, :]
            kept = torch.linalg.eigh(later.mT @ later).eigenvectors[..., -N:]
            K, V = K @ kept, kept.mT @ V
    return found, V[..., :part], K[..., part:, :]


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
    >>> cut = lens.Change("cut", torch.zeros_like)
    >>> found = lens.change_errors(lens.layers(model)[0], torch.randn(3, 10, 6), cut)
    >>> round(found.output, 6)  # both of its heads were cut, so all of its output is missing
    1.0
    """
    reading = read(layer, inputs)
    check_read(layer.title, reading.core)
    change = getattr(change, "change", change)
    return errors(reading.core.W, changed(reading, change), reading.core.x)
