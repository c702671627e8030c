"""What the lens measures of one layer on several texts.

The operator of a layer with heads is W_ij = sum_h alpha^h_ij V_h. Write every block as one
row vec W_ij of p d numbers; then a head is a matrix of rank one, so that the rank of all
these rows is the number of heads that the layer uses. Their singular values sigma_1 >=
sigma_2 >= ... say how well fewer heads do: the best H heads leave the share

    sum over r > H of sigma_r²  /  sum over all r of sigma_r²

of the energy of the operator (Eckart–Young). A count of heads here is the least H that
leaves at most a share eps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook.lens._gradient import gradient_against, six_digits
from ssmbook.lens._reading import Reading
from ssmbook.lens._states import fewest, grown
from ssmbook.numerics import default_rtol, numerical_rank
from ssmbook.operators import DenseOperator
from ssmbook.operators.spectra import singular_values, tail_energies

EPSILONS = (0.1, 0.01, 0.001)
# Heads are listed one by one up to here; wider layers are summed up by quantiles.
MOST_HEADS = 64
_QUANTILES = torch.linspace(0, 1, 11, dtype=torch.float64)
_SPECTRUM = 64
# What the rows of a float32 softmax miss to one is no sink.
_NO_SINK = 1e-6
# Singular values below this share of the largest are rounding.
_RTOL = default_rtol(torch.float64)


@dataclass(frozen=True)
class Measures:
    """The numbers of one layer; lists run over the texts, unless it says otherwise.

    Parameters
    ----------
    rank : list of int
        The interaction rank.
    counts : dict of lists of int
        ``counts[eps]``: the fewest heads that leave at most the fraction eps of the operator's energy.
    common : dict of int
        As ``counts``, with the same value maps for all texts.
    spectrum : list of float
        Up to 64 singular values common to the texts, over the largest.
    heads : dict of lists of float
        Over the heads, or 11 quantiles of over 64 of them: "first" (weight on the first token),
        "outside" (weight on no token: an explicit sink), "distance" (mean), "states" and "states_1%"
        (rank between past and future at the middle, of causal layers).
    gradient : dict or None
        See ``gradient_against``.
    states : dict or None
        Of causal layers: "lengths", a quarter, a half and the whole of a text; "without"[eps], for each
        length the ``states`` of each head without its first key (or 11 quantiles of 64 evenly chosen
        ones), upper medians over the texts; "with"[eps], the same with it, on whole texts.
    """

    rank: list[int]
    counts: dict[str, list[int]]
    common: dict[str, int]
    spectrum: list[float]
    heads: dict[str, list[float]]
    gradient: dict[str, Any] | None
    states: dict[str, Any] | None = None


@dataclass(frozen=True)
class LayerReport:
    """One layer: what it is, its numbers, and those of the same layer with permuted weights.

    Parameters
    ----------
    name, kind, family : str
        Its name in the model, its class, and what read it.
    n, p, d, H : int
        Tokens of a text, widths of outputs and inputs, heads.
    miss : float
        The largest relative miss of y == W x + offset over the texts.
    trained, permuted : Measures
        As the layer is, and with permuted weights (or ``None``).
    weights : list or None
        What the page draws, see ``drawn``.
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

    @property
    def title(self) -> str:
        """The name, or the class of a layer that is the model itself."""
        return self.name or self.kind

    @property
    def needed(self) -> list[int]:
        """The states of each head at 1 % without its first key; none where the layer is not causal."""
        return self.trained.states["without"]["0.01"][-1] if self.trained.states else []

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> LayerReport:
        """Return the layer that a report holds; keys of other versions are passed over."""
        for key in ("trained", "permuted"):
            if given[key]:
                known = {each.name: given[key].get(each.name) for each in fields(Measures)}
                given = {**given, key: Measures(**known)}
        return cls(**{each.name: given[each.name] for each in fields(cls) if each.name in given})


def measure(readings: Sequence[Reading], seed: int, gradient: bool) -> Measures:
    """Measure the core of one layer as read on several texts of one length."""
    rows = [reading.core.W.span_rows() for reading in readings]
    spectra = [singular_values(each) for each in rows]
    common = singular_values(torch.cat(rows)) if len(rows) > 1 else spectra[0]
    longest = max(reading.core.W.n for reading in readings)
    statistics, states = zip(*(head_statistics(reading) for reading in readings), strict=True)
    return Measures(
        rank=[numerical_rank(sigma, _RTOL) for sigma in spectra],
        counts=by_share([tail_energies(sigma) for sigma in spectra]),
        common={eps: count for eps, (count,) in by_share([tail_energies(common)]).items()},
        spectrum=leading(common),
        heads=mean_statistics(statistics),
        gradient=gradient_against(readings[0], seed) if gradient else None,
        states=None if any(each is None for each in states) else median_states(states, longest),
    )


# How many heads --------------------------------------------------------------------------------------------


def by_share(tails: Sequence[Tensor]) -> dict[str, list[int]]:
    """Return for each eps the fewest heads of each text that leave at most that share.

    ``tails``: what 0, 1, 2, … heads leave.
    """
    return {f"{eps:g}": [int((each > eps).sum()) for each in tails] for eps in EPSILONS}


def leading(sigma: Tensor) -> list[float]:
    """Return up to 64 singular values over the largest, down to the tolerance of the rank."""
    kept = sigma[sigma > _RTOL * sigma[:1]][:_SPECTRUM]
    return six_digits(kept / kept[:1])


# What each head does ---------------------------------------------------------------------------------------


def head_statistics(reading: Reading) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return first token, mean distance, outside and rank of each head, (H,) each, and the states it needs.

    See `Measures`; the states are those of three lengths without the first key and of the
    whole text with it, (4, eps, H).
    """
    mixing = reading.mixing
    if mixing is None:  # no heads: the norms of the blocks as those of one
        mixing = DenseOperator(reading.core.W.block_norms()[None, ..., None, None])
    n, middle, causal, H = mixing.n, mixing.n // 2, True, mixing.batch_shape[-1]
    chosen = torch.linspace(0, H - 1, min(H, MOST_HEADS)).round().long().to(mixing.device)
    place = torch.arange(n, dtype=mixing.dtype, device=mixing.device)
    first, distance, outside, later, some = [], [], [], [], []
    for i, blocks in enumerate(mixing.rows()):
        row = blocks[..., 0, 0]  # what output i reads of every token, (H, n)
        share = row.abs() / row.abs().sum(-1, keepdim=True).clamp_min(1e-300)
        distance.append(share @ (place - i).abs())
        outside.append(1 - row.sum(-1))
        if i > 0:  # the first output can read the first token alone
            first.append(share[:, 0])
        some.append(row[chosen])
        if i >= middle:
            later.append(row[:, :middle].to(torch.float64))
        causal = causal and not bool(row[:, i + 1 :].any())
    lists = {"first": first, "distance": distance, "outside": outside}
    found = {key: torch.stack(rows, dim=-1).mean(-1) for key, rows in lists.items()}
    if reading.softmax is None or float(found["outside"].max()) <= _NO_SINK:
        del found["outside"]
    if not causal:
        return found, None
    sigma = torch.linalg.svdvals(torch.stack(later, dim=-2))
    found["states"], found["states_1%"] = numerical_rank(sigma, _RTOL), (tail_energies(sigma) > 0.01).sum(-1)
    alpha = torch.stack(some, dim=-2)
    shorter = [fewest(alpha[:, :m, :m], EPSILONS, first=False) for m in grown(n)]
    states = torch.stack([*shorter, fewest(alpha, EPSILONS, first=True)])
    if H > MOST_HEADS:
        at = _QUANTILES.to(states.device)
        states = torch.quantile(states.double(), at, -1, interpolation="nearest").movedim(0, -1).long()
    return found, states


def median_states(texts: Sequence[Tensor], n: int) -> dict[str, Any]:
    """Return the upper medians over the texts as `Measures` has them."""
    found = torch.stack([*texts]).sort(0).values[len(texts) // 2]
    by_eps = {f"{eps:g}": found[:, place].tolist() for place, eps in enumerate(EPSILONS)}
    without = {eps: each[:-1] for eps, each in by_eps.items()}
    return {"lengths": grown(n), "without": without, "with": {eps: each[-1] for eps, each in by_eps.items()}}


def mean_statistics(texts: Sequence[dict[str, Tensor]]) -> dict[str, list[float]]:
    """Return the means over the texts of what all of them have; quantiles of them for a wide layer."""
    means = {}
    for key in texts[0]:
        if all(key in text for text in texts):
            values = torch.stack([text[key].to(torch.float64) for text in texts]).mean(0)
            wide = len(values) > MOST_HEADS
            means[key] = six_digits(torch.quantile(values, _QUANTILES.to(values)) if wide else values)
    return means


# The same layer without the structure of its weights -------------------------------------------------------


def permute_weights(seed: int) -> Callable[[nn.Module], None]:
    """Return what shuffles the entries of each weight matrix ("weight" or "W_…") of a module, in place.

    For ``operator``: how a layer would act if its weights had no structure.
    """

    @torch.no_grad()
    def change(module: nn.Module) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in module.named_parameters():
            if parameter.ndim >= 2 and ("weight" in name or name.rpartition(".")[2].startswith("W_")):
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))

    return change
