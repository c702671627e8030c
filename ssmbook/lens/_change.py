"""Changes of a layer's heads: merged, cut, carried by a few states, without their sink, frozen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ssmbook._checks import check_choice, check_integer, check_number
from ssmbook.lens._calls import capture, split_texts
from ssmbook.lens._errors import (
    Errors,
    Mixture,
    errors,
    factors,
    gram,
    lost_by,
    mixture,
    output_grams,
    output_mixture,
)
from ssmbook.lens._frozen import Reading, check_frozen
from ssmbook.lens._layers import MixingLayer, layers, read, select
from ssmbook.operators import DiagonalOperator, FactorizedOperator
from ssmbook.operators.spectra import psd_root

FITS = ("operator", "uncorrelated", "output")


@dataclass(frozen=True)
class Change:
    """What takes the place of the heads of a layer, for ``replace``.

    ``name``: what was done; ``coefficients``: the layer's coefficients (..., H, n, n) to those in their
    place, or its tokens (..., n, d) if ``of_tokens``; ``W_O`` (H, p, r), ``W_V`` (H, r, d): weights in place
    of the layer's own, or ``None``; ``lost``: the errors on the texts it was fitted to, or ``None``;
    ``cost``: "score matrices" that are still computed, and "value maps" or "states" where they are fewer.
    """

    name: str
    coefficients: Callable[[Tensor], Tensor] = field(repr=False)
    W_O: Tensor | None = field(default=None, repr=False)
    lost: Errors | None = None
    cost: dict[str, int] = field(default_factory=dict)
    W_V: Tensor | None = field(default=None, repr=False)
    of_tokens: bool = False


class Heads(nn.Module):
    """Shared heads of a layer as a module: alpha'_k = sum_h mix_kh alpha_h, with value maps W_O[k] W_V[k].

    Parameters ``mix`` (H', H), ``W_O`` (H', p, width), ``W_V`` (H', width, d); ``replace`` puts it in. Its
    score matrices are those of the layer, and not trained.
    """

    def __init__(self, mix: Tensor, W_O: Tensor, W_V: Tensor, lost: Errors | None = None):
        super().__init__()
        self.mix, self.W_O, self.W_V = (nn.Parameter(part) for part in (mix, W_O, W_V))
        self.lost = lost

    @property
    def change(self) -> Change:
        """What ``replace`` puts in."""
        k, H = self.mix.shape
        cost = {"score matrices": H, "value maps": k, "width": self.W_V.shape[1]}
        name = f"{H} heads merged to {k}"
        return Change(name, lambda alpha: mixed(alpha, self.mix), self.W_O, self.lost, cost, self.W_V)


def mixed(alpha: Tensor, P: Tensor) -> Tensor:
    """Return coefficients alpha'_g = sum_h P_gh alpha_h of every text."""
    return torch.einsum("gh,...hij->...gij", P.to(alpha), alpha)


def drop_heads(heads: Sequence[int]) -> Change:
    """Return the change that leaves out these heads, numbered from 0; the others stay as they are.

    Raises ``ValueError`` for a head that the layer does not have.
    """
    gone = [check_integer("heads", h, low=0) for h in heads]

    def coefficients(alpha):
        for h in gone:
            check_integer("heads", h, low=0, high=alpha.shape[-3] - 1)
        kept = alpha.clone()
        kept[..., gone, :, :] = 0
        return kept

    return Change(f"without heads {gone}", coefficients)


def drop_sink() -> Change:
    """Return the change that takes the first key away: no later token reads it, other weights stay."""

    def coefficients(alpha):
        kept = alpha.clone()
        kept[..., 1:, 0] = 0
        return kept

    return Change("without the first key", coefficients)


def truncate(N: int) -> Change:
    """Return the change that carries each causal head by a recurrence with N states.

    The recurrence changes from token to token, h_{i+1} = A_i h_i + B_i x_i with [A_i B_i] of orthonormal
    rows, so it is stable: a time-varying truncation, made for each text, not one linear system for all texts.
    Each step keeps the N directions of [states, new token] that later tokens read most; see ``truncated``.
    """
    N = check_integer("N", N, low=1)
    return Change(f"{N} states", lambda alpha: truncated(alpha, N), cost={"states": N})


def truncated(alpha: Tensor, N: int) -> Tensor:
    """Return coefficients (..., n, n) of N states near causal ones; all cuts have rank N at most.

    Going through the text, the part of the future rows that the past can still influence is written as
    K Vᵀ, V with orthonormal columns for the tokens so far; K joined by the new token's column is cut back to
    its N leading right singular vectors. What the steps leave out of one row is orthogonal, so the squared
    errors add up: to the dropped singular values, squared. Computed in float64, returned in alpha's dtype.
    """
    n, given = alpha.shape[-1], alpha.to(torch.float64)
    if bool((given.triu(1) != 0).any()):
        raise ValueError("coefficients must be causal to be carried by states; got weights on later tokens")
    found, K = torch.zeros_like(given), given[..., :, :0]
    V = given.new_zeros(*alpha.shape[:-2], 0, n)  # states from tokens, (..., N, n)
    for t in range(n):
        found[..., t, :] = (K[..., t : t + 1, :] @ V)[..., 0, :]
        found[..., t, t] = given[..., t, t]
        new = V.new_zeros(*V.shape[:-2], 1, n)
        new[..., t] = 1
        K, V = torch.cat([K, given[..., :, t : t + 1]], -1), torch.cat([V, new], -2)
        if K.shape[-1] > N:
            later = K[..., t + 1 :, :]
            kept = torch.linalg.eigh(later.mT @ later).eigenvectors[..., -N:]
            K, V = K @ kept, kept.mT @ V
    return found.to(alpha.dtype)


@torch.no_grad()
def freeze(layer: MixingLayer, inputs: Tensor) -> Change:
    """Return the change that keeps the coefficients of one text, (n,) or (n, d), for all of n tokens."""
    calls, _ = capture(layer.model, {layer.name: layer.module}, inputs)
    kept = coefficients_of(read(layer, calls[layer.name]))
    kept = kept[0] if kept.ndim == 4 and len(kept) == 1 else kept
    if kept.ndim != 3:
        raise ValueError(f"inputs must be one text to freeze coefficients at; got a batch of {len(kept)}")

    def coefficients(alpha):
        if alpha.shape[-2:] != kept.shape[-2:]:
            n = kept.shape[-1]
            raise ValueError(f"a frozen layer must see texts of {n} tokens; got {alpha.shape[-1]}")
        return kept.to(alpha).expand_as(alpha)

    return Change("frozen coefficients", coefficients)


def coefficients_of(reading: Reading) -> Tensor:
    """The coefficients of the heads of a reading, (..., H, n, n)."""
    W = reading.core.W
    if isinstance(W, FactorizedOperator):
        return W.alpha
    if isinstance(W, DiagonalOperator):
        return W.channels.to_dense()[..., 0, 0]
    raise ValueError(f"the layer must have heads or channels to be changed; got a {type(W).__name__}")


def outcome(reading: Reading, change: Change) -> Tensor:
    """What the core of a layer makes of its tokens with other heads: y' = W' x + offset."""
    core, alpha = reading.core, coefficients_by(reading, change)
    if isinstance(core.W, DiagonalOperator):
        y = torch.einsum("...hij,...jh->...ih", alpha, core.x)
    else:
        W_O, W_V = value_factors(reading, change)
        y = torch.einsum("...hnr,hpr->...np", alpha @ (core.x[..., None, :, :] @ W_V.mT), W_O)
    return y if core.offset is None else y + core.offset


def coefficients_by(reading: Reading, change: Change) -> Tensor:
    """The coefficients that a change makes."""
    return change.coefficients(reading.core.x if change.of_tokens else coefficients_of(reading))


def value_factors(reading: Reading, change: Change) -> list[Tensor]:
    """The factors W_O and W_V of the value maps, those of the change in place of the layer's own."""
    pairs = zip((change.W_O, change.W_V), factors(reading), strict=True)
    return [own if other is None else other.to(own) for other, own in pairs]


def changed(reading: Reading, change: Change):
    """The operator W' of a layer with other heads."""
    alpha, W = coefficients_by(reading, change), reading.core.W
    if isinstance(W, DiagonalOperator):
        one = alpha.new_ones(1, 1, 1)
        return DiagonalOperator(FactorizedOperator(alpha[..., None, :, :], one))
    W_O, W_V = value_factors(reading, change)
    return FactorizedOperator(alpha, W_O @ W_V)


@torch.no_grad()
def change_errors(layer: MixingLayer, inputs: Tensor, change: Change | nn.Module) -> Errors:
    """Return the errors of a change on other texts: ``inputs`` as for ``operator``, read in float64.

    >>> from ssmbook import lens
    >>> from ssmbook.maps import Attention
    >>> model = torch.nn.Sequential(Attention(6, 6, H=2, head_width=3)).eval()
    >>> found = lens.change_errors(lens.layers(model)[0], torch.randn(3, 10, 6), lens.drop_heads([0, 1]))
    >>> round(found.output, 6)  # both of its heads were dropped, so all of its output is missing
    1.0
    """
    calls, _ = capture(layer.model, {layer.name: layer.module}, inputs)
    reading = read(layer, calls[layer.name])
    check_frozen(layer.name or layer.kind, reading.core)
    change = getattr(change, "change", change)
    return errors(reading.core.W, changed(reading, change), reading.core.x)


class Observed:
    """What the heads of one layer did on some texts, in Gram matrices; it makes changes fitted to them.

    ``H``: how many heads; ``alphas`` (H, H): of attention matrices, added up over the texts; ``moments``
    (d, d): x xᵀ added up over the ``tokens``; ``outputs`` (H, H, H, H): ⟨alpha_h V_g x, alpha_h' V_g' x⟩ at
    [g, h, g', h'].
    """

    def __init__(self, name: str, reading: Reading) -> None:
        if not isinstance(reading.core.W, FactorizedOperator):
            raise ValueError(
                f"{name} must have heads with value maps to merge or cut; got {type(reading.core.W).__name__}"
            )
        self.name = name
        self.W_O, self.W_V = factors(reading)
        self.H, _, r = self.W_O.shape
        self.alphas = self.W_O.new_zeros(self.H, self.H)
        self.outputs = self.W_O.new_zeros(*[self.H] * 4)
        self.moments = self.W_V.new_zeros(*[self.W_V.shape[-1]] * 2)
        self.values = self.W_O.new_zeros(*[self.H * r] * 2)
        self.tokens = 0

    def add(self, reading: Reading) -> None:
        """Add one text."""
        alpha, x = reading.core.W.alpha, reading.core.x
        self.alphas += gram(alpha)
        self.outputs += output_grams(alpha, x, self.W_O, self.W_V)
        z = (alpha @ (x @ self.W_V.mT)).movedim(0, 1).flatten(1)
        self.values += z.mT @ z
        self.moments += x.mT @ x
        self.tokens += len(x)

    def __add__(self, other: Observed) -> Observed:
        """Return what the heads did on the texts of both."""
        both = copy.copy(self)
        for name in ("alphas", "moments", "outputs", "values", "tokens"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both

    def map_grams(self, seen: bool, W_O: Tensor | None = None) -> Tensor:
        """⟨V_g, V_h⟩ (H, H), or weighted by second moments (``seen``), with V_h = W_O[h] W_V[h] by factors.

        With other output weights (2H, 2H): of the layer's own value maps and of those.
        """
        left = self.W_V.flatten(0, 1)
        inputs = (left @ self.moments / self.tokens if seen else left) @ left.mT
        out = self.W_O.movedim(1, 0).flatten(1)
        if W_O is not None:
            out, inputs = torch.cat([out, W_O.movedim(1, 0).flatten(1)], 1), inputs.repeat(2, 2)
        r = self.W_O.shape[-1]
        return ((out.mT @ out) * inputs).unflatten(0, (-1, r)).unflatten(2, (-1, r)).sum((1, 3))

    def merge(self, H: int, fit: str = "uncorrelated") -> Change:
        """Return the change to H merged heads: one fixed matrix of rank H mixes the attention matrices.

        ``fit``: which of the three ``Errors`` to make least on these texts; "output" goes on from
        "uncorrelated" and ends in a local minimum, never above it. All the scores are still computed.
        Raises ``ValueError`` for H = 0 or above the layer's.
        """
        P = self._mixture(H, fit).P
        cost = {"score matrices": self.H, "value maps": H}
        name = f"{self.H} heads merged to {H}"
        return Change(name, lambda alpha: mixed(alpha, P), lost=self.lost(P), cost=cost)

    def _mixture(self, H: int, fit: str) -> Mixture:
        H = check_integer("H", H, low=1, high=self.H)
        check_choice("fit", fit, FITS)
        if H == self.H:
            own = torch.eye(H, dtype=self.alphas.dtype, device=self.alphas.device)
            return Mixture(own, own)
        found = mixture(self.alphas, self.map_grams(fit != "operator"), H)
        return output_mixture(found, self.outputs) if fit == "output" else found

    def heads(self, H: int | None = None, fit: str = "uncorrelated", width: int | None = None) -> Heads:
        """Return what ``merge`` makes as a module in float64, with value maps of at most this rank.

        ``width``: the best maps of that rank for tokens with these second moments; full if ``None``.
        """
        A, B = self._mixture(self.H if H is None else H, fit)
        V = torch.einsum("gk,gpr,grd->kpd", A, self.W_O, self.W_V)
        full = min(V.shape[1:])
        width = full if width is None else check_integer("width", width, low=1, high=full)
        W_O = torch.linalg.svd(V @ psd_root(self.moments)).U[..., :width]
        return Heads(B.mT, W_O, W_O.mT @ V, self.lost(A @ B.mT) if width == full else None)

    def cut(self, H: int, ridge: float | None = None) -> Change:
        """Return the change that keeps the H heads with the largest ‖alpha_h‖ ‖V_h‖ on these tokens.

        ``ridge``: refit the output weights by least squares, so that the kept heads come closest to what all
        heads made on these tokens; a larger one holds them nearer to the layer's own weights, in units of the
        mean energy of a value. Few tokens leave many directions open: choose it on texts that are not fitted,
        with ``missed``. Raises ``ValueError`` as ``merge``.
        """
        H = check_integer("H", H, low=1, high=self.H)
        sizes = self.alphas.diagonal() * self.map_grams(True).diagonal()
        kept = sorted(sizes.topk(H).indices.tolist())
        P = torch.zeros_like(self.alphas)
        P[kept, kept] = 1
        W_O, lost = None, self.lost(P)
        if ridge is not None:
            W_O = self._refit(kept, check_number("ridge", ridge, 0.0, float("inf")))
            lost = self.lost(P, W_O)._replace(output=self.missed(W_O))
        name = f"{H} of {self.H} heads kept: {kept}" + ", output weights refitted" * (ridge is not None)
        cost = {"score matrices": H, "value maps": H}
        return Change(name, lambda alpha: mixed(alpha, P), W_O, lost, cost)

    def _refit(self, kept: list[int], ridge: float) -> Tensor:
        """Output weights (H, p, r) by least squares for the kept heads, zero for the others."""
        r = self.W_O.shape[-1]
        own = self.W_O.mT.flatten(0, 1)  # (H r, p)
        at = torch.cat([torch.arange(h * r, (h + 1) * r, device=own.device) for h in kept])
        Z, new = self.values[at][:, at], torch.zeros_like(own)
        firm = Z + ridge * Z.diagonal().mean() * torch.eye(len(at), dtype=Z.dtype, device=Z.device)
        new[at] = own[at] + torch.linalg.solve(firm, self.values[at] @ own - Z @ own[at])
        return new.unflatten(0, (self.H, r)).mT

    def missed(self, W_O: Tensor) -> float:
        """The share of the output on these texts that other output weights (H, p, r) miss."""
        gap, own = ((part.mT.flatten(0, 1)) for part in (W_O - self.W_O, self.W_O))
        return float(((self.values @ gap) * gap).sum() / ((self.values @ own) * own).sum())

    def lost(self, P: Tensor, W_O: Tensor | None = None) -> Errors:
        """The errors of coefficients P alpha on these texts, with other output weights if given."""
        own, shares = torch.eye(self.H, dtype=P.dtype, device=P.device), []
        for seen in (False, True):
            maps = self.map_grams(seen, W_O)
            E = own - P if W_O is None else torch.cat([own, -P])
            gone = ((E @ self.alphas @ E.mT) * maps).sum().clamp_min(0)
            shares.append(float(gone / (self.alphas * maps[: self.H, : self.H]).sum()))
        return Errors(*shares, lost_by(P, self.outputs))


@torch.no_grad()
def observe(model: nn.Module, inputs: Tensor, names: Sequence[str] | None = None) -> dict[str, Observed]:
    """Watch the heads of a model's layers on a batch of texts; return name -> ``Observed``.

    ``inputs``: token ids (texts, n) or hidden states (texts, n, d); ``names``: of some layers (all that have
    heads with value maps). One layer at a time is held in float64. Raises as ``operator``.

    >>> from ssmbook.maps import Attention
    >>> model = torch.nn.Sequential(Attention(6, 6, H=4, head_width=3)).eval()
    >>> seen = observe(model, torch.randn(3, 10, 6))["0"]
    >>> change = seen.merge(2)
    >>> change.name, change.cost["value maps"], change.lost.operator < 1
    ('4 heads merged to 2', 2, True)
    """
    found, seen = select(layers(model, unknown="skip"), names), {}
    modules = {layer.name: layer.module for layer in found}
    for text in split_texts(model, inputs):
        calls, _ = capture(model, modules, text)
        for layer in found:
            reading = read(layer, calls.pop(layer.name))
            heads = isinstance(reading.core.W, FactorizedOperator)
            if names is None and not heads:
                continue
            if layer.name not in seen:
                check_frozen(layer.name or layer.kind, reading.core)
                seen[layer.name] = Observed(layer.name or layer.kind, reading)
            seen[layer.name].add(reading)
    return seen
