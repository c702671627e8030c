"""What the lens measures of one layer on several texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from ssmbook.lens._errors import gram, mixture
from ssmbook.lens._frozen import Reading
from ssmbook.lens._gradient import distance_bins, head_gradients, mean_by_distance, probe_gradients, targets
from ssmbook.numerics import default_rtol, numerical_rank
from ssmbook.operators import DenseOperator, DiagonalOperator, FactorizedOperator, InteractionOperator
from ssmbook.operators.spectra import tail_energies

EPSILONS = (0.1, 0.01, 0.001)
# Heads are listed one by one up to here; wider layers are summed up by quantiles.
MOST_HEADS = 64
_QUANTILES = torch.linspace(0, 1, 11, dtype=torch.float64)
_SPECTRUM = 64
# Floors below this share of the largest are left out of the smallest ratio: rounding decides there.
_NO_FLOOR = 1e-9
# What the rows of a float32 softmax miss to one is no sink.
_NO_SINK = 1e-6


@dataclass(frozen=True)
class Measures:
    """The numbers of one layer. Lists run over the texts, but ``heads`` over heads (11 quantiles of over 64).

    ``rank``: interaction rank. Then the fewest heads for each of the three ``Errors``: ``counts[eps]`` leave
    at most the fraction eps of the operator's energy; ``weighted[eps]`` of the output's, for tokens with that
    text's second moments but no correlation between positions; ``output[eps]``, chosen like these, of the
    output on these tokens (``None`` for over 64 heads). ``common[eps]``: as ``counts``, with the same value
    maps for all texts; ``spectrum``: up to 64 singular values common to the texts, over the largest;
    ``heads``: "first" (weight on the first token), "outside" (weight on no token: an explicit sink),
    "distance" (mean), "states" and "states_1%" (rank between past and future at the middle, of causal
    layers); ``gradient``: see ``gradient_against``.
    """

    rank: list[int]
    counts: dict[str, list[int]]
    weighted: dict[str, list[int]]
    common: dict[str, int]
    spectrum: list[float]
    heads: dict[str, list[float]]
    gradient: dict[str, list] | None
    output: dict[str, list[int]] | None = None


@dataclass(frozen=True)
class LayerReport:
    """One layer: what it is, its numbers, and those of the same layer with permuted weights (or ``None``).

    ``miss``: the largest relative miss of y == W x + offset over the texts; ``weights``, ``alike``: what the
    page draws, see ``drawn``.
    """

    name: str
    kind: str
    family: str
    n: int
    p: int
    d: int
    H: int
    miss: float
    trained: Measures
    permuted: Measures | None = None
    weights: list | None = None
    alike: list | None = None

    @classmethod
    def from_dict(cls, given: dict) -> LayerReport:
        for key in ("trained", "permuted"):
            if given[key]:  # files of version 0.1 have others
                known = {each.name: given[key].get(each.name) for each in fields(Measures)}
                given = {**given, key: Measures(**known)}
        return cls(**given)


def measure(readings: Sequence[Reading], seed: int, gradient: bool) -> Measures:
    """Measure the core of one layer as read on several texts of one length."""
    operators = [reading.core.W for reading in readings]
    rows = [W.span_rows() for W in operators]
    roots = [reading.core.x.mT / reading.core.x.shape[-2] ** 0.5 for reading in readings]
    weighted = [weigh(W, each, L) for W, each, L in zip(operators, rows, roots, strict=True)]
    each, each_weighted = ([torch.linalg.svdvals(part) for part in parts] for parts in (rows, weighted))
    common = torch.linalg.svdvals(torch.cat(rows)) if len(rows) > 1 else each[0]
    missed = [output_tails(reading) for reading in readings]
    return Measures(
        rank=[numerical_rank(sigma, default_rtol(torch.float64)) for sigma in each],
        counts=_by_share(each),
        weighted=_by_share(each_weighted),
        common=count_heads(common),
        spectrum=leading(common),
        heads=_heads([head_statistics(reading) for reading in readings]),
        gradient=gradient_against(readings[0], seed) if gradient else None,
        output=None if missed[0] is None else _first_at_most(missed),
    )


def output_tails(reading: Reading) -> Tensor | None:
    """Return what 0, 1, …, H merged heads lose of the output on these very tokens, (H + 1,).

    The heads are the best for these tokens if positions were uncorrelated: see ``mixture``. ``None`` for more
    than 64 heads, and for an operator without heads.
    """
    W, x = reading.core.W, reading.core.x
    if isinstance(W, DiagonalOperator) and W.d <= MOST_HEADS:
        W = FactorizedOperator(W.channels.to_dense()[..., 0, 0], torch.diag_embed(torch.eye(W.d).to(x)))
    if not isinstance(W, FactorizedOperator) or W.H > MOST_HEADS:
        return None
    values = torch.einsum("hpd,jd->hjp", W.V, x)
    seen = values.flatten(1) @ values.flatten(1).mT / len(x)
    y, found = torch.einsum("hij,hjp->ip", W.alpha, values), []
    alphas = gram(W.alpha)
    for k in range(W.H):
        A, B = mixture(alphas, seen, k)
        merged, maps = torch.einsum("hk,hij->kij", B, W.alpha), torch.einsum("hk,hjp->kjp", A, values)
        found.append((y - torch.einsum("kij,kjp->ip", merged, maps)).square().sum())
    whole = y.square().sum()
    return torch.stack([*found, 0 * whole]) / torch.where(whole > 0, whole, 1.0)


def count_heads(sigma: Tensor) -> dict[str, int]:
    """Return the fewest heads that leave each share of the energy, from a spectrum (m,)."""
    tails = tail_energies(sigma)
    return {f"{eps:g}": int((tails > eps).sum()) for eps in EPSILONS}


def _by_share(spectra: list[Tensor]) -> dict[str, list[int]]:
    counts = [count_heads(sigma) for sigma in spectra]
    return {eps: [each[eps] for each in counts] for eps in counts[0]}


def _first_at_most(shares: list[Tensor]) -> dict[str, list[int]]:
    """The fewest heads of each text, for each eps, that lose at most that share: see ``output_tails``."""
    return {f"{eps:g}": [int((each <= eps).nonzero()[0]) for each in shares] for eps in EPSILONS}


def leading(sigma: Tensor) -> list[float]:
    """Return up to 64 singular values over the largest, down to the tolerance of the rank."""
    kept = sigma[sigma > default_rtol(torch.float64) * sigma[:1]][:_SPECTRUM]
    return _numbers(kept / kept[:1])


def weigh(W: InteractionOperator, rows: Tensor, L: Tensor) -> Tensor:
    """Return rows vec W_ij for white inputs that L (d, m) turns into inputs with second moments L L^T.

    Of channels that do not mix only the lengths of L's rows matter: the rows vec diag(w) L have the inner
    products of the rows w, weighted by them.
    """
    if isinstance(W, DiagonalOperator):
        return rows * torch.linalg.vector_norm(L, dim=-1)
    return (rows.unflatten(-1, (W.p, W.d)) @ L).flatten(-2)


def head_statistics(reading: Reading) -> dict[str, Tensor]:
    """Return first token, mean distance, outside and states of each head, (H,) each: see ``Measures``."""
    mixing = reading.mixing
    if mixing is None:  # no heads: the norms of the blocks as those of one
        mixing = DenseOperator(reading.core.W.block_norms()[None, ..., None, None])
    n, found, later, causal = mixing.n, {"first": [], "distance": [], "outside": []}, [], True
    place = torch.arange(n, dtype=mixing.dtype, device=mixing.device)
    for i, row in enumerate(mixing.rows()):
        row = row[..., 0, 0]
        share = row.abs() / row.abs().sum(-1, keepdim=True).clamp_min(1e-300)
        found["distance"].append(share @ (place - i).abs())
        found["outside"].append(1 - row.sum(-1))
        found["first"] += [share[:, 0]] if i else []
        causal = causal and not bool(row[:, i + 1 :].any())
        later += [row[:, : n // 2].to(torch.float64)] if i >= n // 2 else []
    means = {key: torch.stack(rows, dim=-1).mean(-1) for key, rows in found.items()}
    if reading.softmax is None or float(means["outside"].max()) <= _NO_SINK:
        del means["outside"]
    if causal:
        states = torch.linalg.svdvals(torch.stack(later, dim=-2))
        means["states"] = numerical_rank(states, default_rtol(torch.float64))
        means["states_1%"] = (tail_energies(states) > 0.01).sum(-1)
    return means


def _heads(texts: Sequence[dict[str, Tensor]]) -> dict[str, list[float]]:
    """Averages over the texts; quantiles of them for a wide layer."""
    keys = [key for key in texts[0] if all(key in text for text in texts)]
    means = {key: torch.stack([text[key].to(torch.float64) for text in texts]).mean(0) for key in keys}
    if len(means["first"]) > MOST_HEADS:
        means = {key: torch.quantile(values, _QUANTILES.to(values)) for key, values in means.items()}
    return {key: _numbers(values) for key, values in means.items()}


def gradient_against(reading: Reading, seed: int) -> dict[str, list] | None:
    """Return gradient norms against distance, means over three targets, and the floor where one holds.

    Keys: "distance" (lower edges of the bins), "norm" (one row a head, or one for the layer), "floor"
    (alpha_ij sigma_2(V_h), or ``None``), "ratio" (the smallest norm over floor, 1 or more), "exact" (False:
    a lower bound of the norm, from random output directions).
    """
    x = reading.core.x if reading.x is None else reading.x
    at = targets(x.shape[-2])
    found = {"distance": distance_bins(x.shape[-2]), "floor": None, "ratio": None}
    if reading.softmax is not None:
        pairs = [head_gradients(reading.softmax, x, i) for i in at]
        ratios = torch.cat([(a / b)[b > _NO_FLOOR * b.nan_to_num().max()] for a, b in pairs])
        if len(ratios):  # else no value map has a second singular value
            found["floor"] = _mean([mean_by_distance(b, i) for i, (_, b) in zip(at, pairs, strict=True)])
            (found["ratio"],) = _numbers(ratios.min()[None])
        norms = [a for a, _ in pairs]
    elif reading.F is not None:
        generator = torch.Generator().manual_seed(seed)
        norms = [probe_gradients(reading.F, x, i, generator)[None] for i in at]
    else:
        return None
    norm = _mean([mean_by_distance(part, i) for i, part in zip(at, norms, strict=True)])
    return {**found, "norm": norm, "exact": reading.softmax is not None}


def _mean(parts: list[Tensor]) -> list[list[float]]:
    return [_numbers(row) for row in torch.stack(parts).nanmean(0)]


def _numbers(values: Tensor) -> list[float]:
    """Six digits are what a report shows and keeps."""
    return [float(f"{v:.6g}") for v in values.tolist()]


def permute_weights(seed: int) -> Callable[[nn.Module], None]:
    """Return a change of a module: the entries of each weight matrix ("weight" or "W_…") in another order."""

    @torch.no_grad()
    def change(module: nn.Module) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in module.named_parameters():
            if parameter.ndim >= 2 and ("weight" in name or name.rpartition(".")[2].startswith("W_")):
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))

    return change
