"""What the lens measures of one layer on several texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ssmbook.lens._bounds import spectrum_bounds
from ssmbook.lens._frozen import Reading
from ssmbook.lens._gradient import binned, distance_bins, head_gradients, probed_gradients, targets
from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    InteractionOperator,
    ModalOperator,
    default_rtol,
    numerical_rank,
)
from ssmbook.operators.ranks import tail_energies

EPSILONS = (0.1, 0.01, 0.001)
# Heads are listed one by one up to here; wider layers are summed up by quantiles.
MOST_HEADS = 64
_QUANTILES = torch.linspace(0, 1, 11, dtype=torch.float64)
_SPECTRUM = 64
# Channels above which the spectrum is bounded instead of computed.
_WIDE = 512
# Floors below this share of the largest are left out of the smallest ratio: rounding decides there.
_NO_FLOOR = 1e-9
# What the rows of a float32 softmax miss to one is no sink.
_NO_SINK = 1e-6


@dataclass(frozen=True)
class Measures:
    """The numbers of one layer. Lists run over the texts, but ``heads`` over heads (11 quantiles of over 64).

    ``rank``: interaction rank; ``counts[eps]``: fewest heads that leave at most the fraction eps of the
    operator's energy; ``weighted[eps]``: of the output's energy, for inputs with the second moments of that
    text's; ``common[eps]``, ``common_weighted[eps]``: heads with the same value maps for all texts;
    ``spectrum``: up to 64 singular values common to the texts, the largest one; ``heads``: "first" (weight on
    the first token), "outside" (weight on no token: an explicit sink), "distance" (mean), "states" and
    "states_1%" (rank between past and future at the middle, of causal layers); ``gradient``: see
    ``gradient_against``. Of a layer wider than 512 channels ``common`` is empty, and ``at_most`` says whether
    rank and counts are certified bounds that leave room below.
    """

    rank: list[int]
    counts: dict[str, list[int]]
    weighted: dict[str, list[int]]
    common: dict[str, int]
    common_weighted: dict[str, int]
    spectrum: list[float]
    heads: dict[str, list[float]]
    gradient: dict[str, list] | None
    quantiles: bool
    at_most: bool

    def shared(self) -> dict[str, int]:
        """Heads common to the texts; of a wide layer the most that one text needs."""
        return self.common or {eps: max(counts) for eps, counts in self.counts.items()}


@dataclass(frozen=True)
class LayerReport:
    """One layer: what it is, its numbers, and those of the same layer with permuted weights.

    ``miss``: the largest relative miss of y == W x + offset over the texts; ``permuted``: ``None`` when not
    asked for. Introduced in *trained-layers*.

    >>> layer = measurement("minilm").layers[0]
    >>> layer.n, layer.H, layer.miss < 1e-10
    (256, 12, True)
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

    @classmethod
    def from_dict(cls, given: dict) -> LayerReport:
        parts = {key: Measures(**given[key]) if given[key] else None for key in ("trained", "permuted")}
        return cls(**{**given, **parts})


def measure(readings: Sequence[Reading], seed: int, gradient: bool) -> Measures:
    """Measure the core of one layer as read on several texts of one length."""
    operators = [reading.core.W for reading in readings]
    roots = [reading.core.x.mT / reading.core.x.shape[-2] ** 0.5 for reading in readings]
    plain = [_count(W) for W in operators]
    weighted = [_count(weighted_by(W, L)) for W, L in zip(operators, roots, strict=True)]
    shared, shared_weighted = _common(operators, roots)
    heads, quantiles = _heads([statistics(reading) for reading in readings])
    return Measures(
        rank=[each.rank for each in plain],
        counts={eps: [each.counts[eps] for each in plain] for eps in plain[0].counts},
        weighted={eps: [each.counts[eps] for each in weighted] for eps in weighted[0].counts},
        common={} if shared is None else shared.counts,
        common_weighted={} if shared_weighted is None else shared_weighted.counts,
        spectrum=(shared or plain[0]).spectrum,
        heads=heads,
        gradient=gradient_against(readings[0], seed) if gradient else None,
        quantiles=quantiles,
        at_most=any(each.at_most for each in [*plain, *weighted]),
    )


@dataclass(frozen=True)
class Counted:
    """Rank, head counts, leading singular values of one operator; ``at_most``: certified from above only."""

    rank: int
    counts: dict[str, int]
    spectrum: list[float]
    at_most: bool = False


def counted(sigma: Tensor) -> Counted:
    """Count heads on a spectrum (m,)."""
    cut = default_rtol(torch.float64)
    kept = sigma[sigma > cut * sigma.amax()] if len(sigma) else sigma
    tails = tail_energies(sigma)
    counts = {f"{eps:g}": int((tails > eps).sum()) for eps in EPSILONS}
    return Counted(len(kept), counts, _numbers(kept[:_SPECTRUM] / kept[:1]))


def _count(W: InteractionOperator) -> Counted:
    """Of a wide layer certified bounds, from matrix products alone; of any other the spectrum itself."""
    if not _wide(W):
        return counted(W.spectrum())
    bounds = spectrum_bounds(W)
    rank, counts = bounds.rank(), {f"{eps:g}": bounds.epsilon_heads(eps) for eps in EPSILONS}
    sigma = bounds.energies[:_SPECTRUM].sqrt()
    loose = not all(count.settled for count in (rank, *counts.values()))
    most = {eps: count.high for eps, count in counts.items()}
    return Counted(rank.high, most, _numbers(sigma / sigma[:1]), loose)


def _wide(W: InteractionOperator) -> bool:
    return isinstance(W, DiagonalOperator) and W.d > _WIDE


def weighted_by(W: InteractionOperator, L: Tensor) -> InteractionOperator:
    """The operator on white inputs that L (d, m) turns into inputs with the second moments L L^T.

    Of channels that do not mix only the length of L's rows matters: the rows vec diag(w) L have the inner
    products of the rows w, weighted by them.
    """
    if isinstance(W, FactorizedOperator):
        return FactorizedOperator(W.alpha, W.V @ L)
    if isinstance(W, DiagonalOperator) and isinstance(W.channels, ModalOperator):
        length, own = torch.linalg.vector_norm(L, dim=-1)[:, None, None, None], W.channels
        skip = None if own.D is None else own.D * length
        return DiagonalOperator(ModalOperator(own.log_decay, own.B * length, own.C, skip))
    identity = torch.eye(W.n, dtype=L.dtype, device=L.device)
    return W @ FactorizedOperator(identity[None], L[None])


def _common(operators, roots) -> tuple[Counted | None, Counted | None]:
    """Heads whose value maps serve every text, plain and for the texts' moments; ``None`` of a wide layer."""
    if _wide(operators[0]):
        return None, None
    pooled = torch.linalg.qr(torch.cat([L.mT for L in roots]), mode="r").R.mT
    groups = operators, [weighted_by(W, pooled) for W in operators]
    return tuple(counted(joint_spectrum(group)) for group in groups)


def joint_spectrum(operators: Sequence[InteractionOperator]) -> Tensor:
    """The singular values of the blocks of all the operators together."""
    channels = [getattr(W, "channels", None) for W in operators]
    if not all(isinstance(each, ModalOperator) for each in channels):
        return torch.linalg.svdvals(torch.cat([W.span_matrix() for W in operators]))
    parts = [[getattr(each, part) for each in channels] for part in ("log_decay", "B", "C", "D")]
    stacked = (None if part[0] is None else torch.stack(part) for part in parts)
    return DiagonalOperator(ModalOperator(*stacked)).spectrum(joint=True)


def statistics(reading: Reading) -> dict[str, Tensor]:
    """What each head looks at, (H,) each: see ``Measures``."""
    if reading.mixing is not None:
        return head_statistics(reading.mixing, bool(reading.softmax))
    return head_statistics(DenseOperator(reading.core.W.block_norms()[None, ..., None, None]), False)


def head_statistics(mixing: InteractionOperator, softmax: bool) -> dict[str, Tensor]:
    """First token, mean distance, outside and states of heads given as a scalar operator of batch (H,).

    States are the rank between past and future at the middle: one cut of those whose largest rank is
    ``past_future_rank``, n times as cheap.
    """
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
    if not softmax or float(means["outside"].max()) <= _NO_SINK:
        del means["outside"]
    if causal:
        states = torch.linalg.svdvals(torch.stack(later, dim=-2))
        means["states"] = numerical_rank(states, default_rtol(torch.float64))
        means["states_1%"] = (tail_energies(states) > 0.01).sum(-1)
    return means


def _heads(texts: Sequence[dict[str, Tensor]]) -> tuple[dict[str, list[float]], bool]:
    """Averages over the texts; quantiles of them for a wide layer."""
    keys = [key for key in texts[0] if all(key in text for text in texts)]
    means = {key: torch.stack([text[key].to(torch.float64) for text in texts]).mean(0) for key in keys}
    many = len(means["first"]) > MOST_HEADS
    if many:
        means = {key: torch.quantile(values, _QUANTILES.to(values)) for key, values in means.items()}
    return {key: _numbers(values) for key, values in means.items()}, many


def gradient_against(reading: Reading, seed: int) -> dict[str, list] | None:
    """Gradient norms against distance, means over three targets, and the floor where one holds.

    Keys: "distance" (lower edges of the bins), "norm" (one row a head, or one for the layer), "floor"
    (alpha_ij sigma_2(V_h), or ``None``), "ratio" (the smallest norm over floor, 1 or more), "exact" (False:
    a lower bound of the norm, from random output directions).
    """
    x = reading.core.x if reading.softmax else (reading.mixer or reading.core).x
    n = x.shape[-2]
    edges = distance_bins(n)
    if reading.softmax is not None:
        pairs = [(i, *head_gradients(reading.softmax, x, i)) for i in targets(n)]
        norm = _mean([binned(norms, i) for i, norms, _ in pairs])
        ratios = torch.cat([(a / b)[b > _NO_FLOOR * b.nan_to_num().max()] for _, a, b in pairs])
        floor, ratio = None, None
        if len(ratios):  # else no value map has a second singular value
            floor = _mean([binned(floors, i) for i, _, floors in pairs])
            (ratio,) = _numbers(ratios.min()[None])
        return {"distance": edges, "norm": norm, "floor": floor, "ratio": ratio, "exact": True}
    if reading.F is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    norms = [probed_gradients(reading.F, x, i, generator)[None] for i in targets(n)]
    norm = _mean([binned(part, i) for part, i in zip(norms, targets(n), strict=True)])
    return {"distance": edges, "norm": norm, "floor": None, "ratio": None, "exact": False}


def _mean(parts: list[Tensor]) -> list[list[float]]:
    return [_numbers(row) for row in torch.stack(parts).nanmean(0)]


def _numbers(values: Tensor) -> list[float]:
    """Six digits are what a report shows and keeps."""
    return [float(f"{v:.6g}") for v in values.tolist()]


def permute_weights(seed: int) -> Callable[[nn.Module], None]:
    """What unmakes training: the entries of each weight matrix in another order, biases and norms kept.

    Weight matrices are called "weight", or "W_…" in the maps of the book.
    """

    @torch.no_grad()
    def change(module: nn.Module) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in module.named_parameters():
            if parameter.ndim >= 2 and ("weight" in name or name.rpartition(".")[2].startswith("W_")):
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))

    return change
