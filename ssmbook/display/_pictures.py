"""Pictures of interaction operators: block norms, operator-span spectra, Kronecker sums."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ssmbook._checks import (
    check_choice,
    check_finite,
    check_flags,
    check_positive,
    check_shape,
    check_tensors,
)
from ssmbook.display._style import COLORS, DIVERGING, SEQUENTIAL, check_axes, figure
from ssmbook.display._table import number
from ssmbook.numerics import tolerance

MOST_TERMS = 6


def _operator(W, method: str, derive) -> np.ndarray:
    """Return what ``W.method()`` says, or ``derive(W)`` for a tensor of blocks, as a float64 array."""
    if isinstance(W, torch.Tensor):
        check_shape("W", W, "n n p d")
        check_finite("W", W)
        result = derive(W.detach().double())
    elif hasattr(W, method):
        result = getattr(W, method)().detach().double()
    else:
        raise TypeError(
            f"W must be a tensor (n, n, p, d) or an operator with {method}(); got {type(W).__name__}"
        )
    check_finite("W", result)
    return result.cpu().numpy()


def _norms(W) -> np.ndarray:
    norms = _operator(W, "block_norms", lambda blocks: torch.linalg.vector_norm(blocks, dim=(-2, -1)))
    if norms.ndim != 2 or norms.shape[0] != norms.shape[1] or norms.size == 0:
        raise ValueError(f"W must be one operator with n >= 1, block norms (n, n); got {norms.shape}")
    return norms


def _spectrum(W) -> np.ndarray:
    sigma = _operator(W, "spectrum", lambda blocks: torch.linalg.svdvals(blocks.flatten(0, 1).flatten(1)))
    if sigma.ndim != 1 or sigma.size == 0:
        raise ValueError(f"W must be one operator with a spectrum (m,), m >= 1; got {sigma.shape}")
    return sigma


def block_heatmap(W: Any, ax: Axes, *, colorbar: bool = True, vmax: float | None = None) -> str:
    """Draw the norms of the blocks W_ij as a picture, i down and j across, and return its alt text.

    ``W`` is a tensor (n, n, p, d) of any floating dtype or an operator with ``block_norms()`` -> (n, n);
    white is zero. ``vmax`` fixes the top of the color scale (for several pictures side by side). Raises
    ``ValueError``/``TypeError`` for a batched, empty or non-finite operator. Introduced in
    *interaction-operator*.

    >>> from ssmbook.operators import LagOperator
    >>> fig, ax = figure()
    >>> alt = block_heatmap(LagOperator(torch.ones(4, 1, 1)), ax)
    >>> alt == block_heatmap_alt(LagOperator(torch.ones(4, 1, 1)))
    True
    """
    norms = _norms(W)
    check_axes(ax)
    check_flags(colorbar=colorbar)
    top = check_positive("vmax", vmax) if vmax is not None else float(norms.max()) or 1.0
    image = ax.imshow(norms, cmap=SEQUENTIAL, norm=Normalize(0, top), interpolation="nearest")
    ax.set(xlabel="input token j", ylabel="output token i")
    _box(ax)
    if colorbar:
        ax.figure.colorbar(image, ax=ax, label="norm of the block", shrink=0.85)
    return block_heatmap_alt(W)


def block_heatmap_alt(W: Any) -> str:
    """Return the words of ``block_heatmap``: size, largest block, number and pattern of zero blocks.

    ``W`` as for ``block_heatmap``; a block counts as zero below 1e-12 of the largest. Introduced in
    *interaction-operator*.

    >>> from ssmbook.operators import LagOperator
    >>> block_heatmap_alt(LagOperator(torch.ones(4, 1, 1))).partition(";")[0]
    '4 by 4 heat map of block norms'
    """
    norms = _norms(W)
    n, top = len(norms), norms.max()
    if top == 0:
        return f"{n} by {n} heat map of block norms, all 0"
    i, j = (int(k) for k in np.argwhere(norms >= top * (1 - 1e-6))[0])
    zero = norms <= 1e-12 * top
    later, earlier = np.triu(np.ones((n, n), bool), 1), np.tril(np.ones((n, n), bool), -1)
    if n > 1 and zero[later].all():
        pattern = (
            " (all blocks off the diagonal among them)"
            if zero[earlier].all()
            else " (all j > i among them: causal)"
        )
    else:
        pattern = ""
    words = f"{n} by {n} heat map of block norms; largest {number(top)}, first at i = {i}, j = {j}"
    return f"{words}; {int(zero.sum())} of {n * n} blocks are 0{pattern}"


def span_spectrum(
    W: Any, ax: Axes, *, rtol: float | None = None, label: str | None = None, color: str = "blue"
) -> str:
    """Draw the operator-span singular values on a log axis with the rank cut, and return the alt text.

    ``W`` is a tensor (n, n, p, d) or an operator with ``spectrum()`` -> (m,); values at most ``rtol`` times
    the largest (by default 1e-10, for types shorter than float64 16 epsilons) are hollow and do not count.
    ``label`` is written at the first value, ``color`` names an entry of ``COLORS``. Raises as
    ``block_heatmap``. Introduced in *interaction-operator*.

    >>> from ssmbook.operators import LagOperator
    >>> fig, ax = figure()
    >>> alt = span_spectrum(LagOperator(torch.ones(4, 1, 1)), ax)
    >>> alt.partition(": ")[2]
    'rank 1'
    """
    sigma, rtol = _spectrum(W), tolerance(rtol, getattr(W, "dtype", torch.float64))
    top = float(sigma.max()) or 1.0
    rank = int((sigma > rtol * top).sum())
    shown = np.maximum(sigma, top * 1e-18)
    r = np.arange(1, len(sigma) + 1)
    check_axes(ax)
    hue = COLORS[check_choice("color", color, COLORS)]
    ax.semilogy(r[:rank], shown[:rank], "o", linestyle="-", color=hue, label=label)
    ax.semilogy(r[rank:], shown[rank:], "o", linestyle="none", markerfacecolor="white", color=hue)
    ax.axhline(rtol * top, color=COLORS["gray"], linestyle=(0, (5, 2)), linewidth=1.2)
    ax.annotate(
        f"rank {rank} above the cut, {_power(rtol)} $\\sigma_1$",
        (1.0, rtol * top),
        (-2, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=9,
    )
    if label:
        ax.annotate(label, (1, shown[0]), (7, 3), textcoords="offset points", fontsize=9.5)
    ax.set(xlabel="r", ylabel=r"singular value $\sigma_r$")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return span_spectrum_alt(W, rtol=rtol)


def span_spectrum_alt(W: Any, *, rtol: float | None = None) -> str:
    """Return the words of ``span_spectrum``: how many values, how many above the cut, the ends of those.

    Values below the cut are rounding noise and are not quoted. Introduced in *interaction-operator*.

    >>> from ssmbook.operators import LagOperator
    >>> span_spectrum_alt(LagOperator(torch.ones(4, 1, 1)))
    '1 operator-span singular values, 1 above the cut at 1.9e-6 of the largest, of size 3.16: rank 1'
    """
    sigma, rtol = _spectrum(W), tolerance(rtol, getattr(W, "dtype", torch.float64))
    rank = int((sigma > rtol * sigma.max()).sum())
    if rank == 0:
        return f"{len(sigma)} operator-span singular values, all 0: rank 0"
    kept = (
        f"from {number(sigma[0])} down to {number(sigma[rank - 1])}"
        if rank > 1
        else f"of size {number(sigma[0])}"
    )
    cut = f"{rank} above the cut at {_power(rtol)} of the largest"
    return f"{len(sigma)} operator-span singular values, {cut}, {kept}: rank {rank}"


def _power(rtol: float) -> str:
    return f"{rtol:.2g}".replace("e-0", "e-")


def kronecker_picture(F: Any) -> tuple[Figure, str]:
    """Draw W as the sum of A_h ⊗ V_h, coefficients beside value maps, and return ``fig, alt``.

    ``F`` has attributes ``alpha`` (H, n, n) and ``V`` (H, p, d), as ``FactorizedOperator``, or is that pair
    of tensors. Orange is negative, blue positive, one scale for all coefficients and one for all value
    maps; at most six terms are drawn. Raises ``ValueError``/``TypeError`` for other shapes or H = 0.
    Introduced in *interaction-operator*.

    >>> from ssmbook.operators import FactorizedOperator
    >>> fig, alt = kronecker_picture(FactorizedOperator(torch.ones(1, 4, 4).tril(), torch.eye(2)[None]))
    >>> print(alt)
    W as a sum of 1 Kronecker term A ⊗ V: A is 4 by 4, V is 2 by 2; Frobenius norms of the terms 4.47
    """
    alpha, V = _factors(F)
    shown = min(len(V), MOST_TERMS)
    per_row = shown if shown <= 3 else (shown + 1) // 2
    rows = -(-shown // per_row)
    width = (3.4, 5.4, 7.0)[per_row - 1]
    ratios = [0.45, 1.0, 0.3, 0.7] * per_row
    fig, axes = figure(
        4 * per_row,
        rows,
        (width, 0.5 + 1.15 * rows * width / 2.45 / per_row),
        width_ratios=ratios,
        squeeze=False,
    )
    fig.stacks = tuple(range(4, 4 * per_row, 4))  # four columns make one term
    if shown < len(V):
        fig.suptitle(f"the first {shown} of {len(V)} terms")
    for ax in axes.flat:
        ax.axis("off")
    for h in range(shown):
        sign, left, times, right = axes[h // per_row, 4 * (h % per_row) : 4 * (h % per_row) + 4]
        _symbol(sign, "W =" if h == 0 else "+", 13)
        _symbol(times, "⊗", 13)
        for ax, name, values in ((left, "A", alpha), (right, "V", V)):
            ax.axis("on")
            signed(ax, values[h], np.abs(values).max())
            ax.set_title(f"${name}_{h + 1}$")
    return fig, _kronecker_alt(alpha, V, shown)


def _factors(F) -> tuple[np.ndarray, np.ndarray]:
    if not (isinstance(F, tuple) and len(F) == 2 or hasattr(F, "alpha") and hasattr(F, "V")):
        raise TypeError(f"F must have alpha and V, or be that pair of tensors; got {type(F).__name__}")
    alpha, V = F if isinstance(F, tuple) else (F.alpha, F.V)
    check_tensors(alpha=(alpha, "H n n"), V=(V, "H p d"), finite=True)
    if min(alpha.numel(), V.numel()) == 0:
        raise ValueError(
            f"alpha and V must hold at least one entry; got {tuple(alpha.shape)} and {tuple(V.shape)}"
        )
    alpha, V = (t.detach().double().cpu().numpy() for t in (alpha, V))
    return alpha, V


def _kronecker_alt(alpha: np.ndarray, V: np.ndarray, shown: int) -> str:
    norms = np.linalg.norm(alpha, axis=(1, 2)) * np.linalg.norm(V, axis=(1, 2))
    H, p, d = V.shape
    n = alpha.shape[1]
    drawn = "" if shown == H else f", the first {shown} drawn"
    return (
        f"W as a sum of {H} Kronecker term{'s' * (H > 1)} A ⊗ V{drawn}: A is {n} by {n}, V is {p} by {d}; "
        f"Frobenius norms of the terms {', '.join(number(v) for v in norms[:shown])}"
    )


def signed(ax: Axes, values: Any, top: float | None = None, aspect: str | None = None) -> None:
    """Show a table on a symmetric scale, its own or up to ``top``: blue positive, framed, without ticks."""
    values = np.asarray(values)
    top = (float(np.nanmax(np.abs(values))) if top is None else top) or 1.0
    ax.imshow(values, cmap=DIVERGING, norm=Normalize(-top, top), aspect=aspect, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    _box(ax)


def equation(axes, parts, titles, *, sign_size: float, title_size: float, **scale) -> None:
    """Show tables as ``signed`` does and the signs between them (str), panel by panel."""
    for ax, part, title in zip(axes, parts, titles, strict=True):
        if isinstance(part, str):
            ax.axis("off")
            _symbol(ax, part, sign_size)
        else:
            signed(ax, part, **scale)
            ax.set_title(title, fontsize=title_size)


def medians(ax: Axes, places, rows, color: str, linestyle: Any = "none") -> list[float]:
    """Draw the median of each row with bars to its least and its largest entry; returns the medians."""
    middle = [median(row) for row in rows]
    low, high = [min(row) for row in rows], [max(row) for row in rows]
    bars = np.array([np.subtract(middle, low), np.subtract(high, middle)])
    ax.errorbar(list(places), middle, bars, fmt="o", color=color, linestyle=linestyle, ms=5, capsize=3)
    return middle


def _symbol(ax, text, points) -> None:
    ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=points, transform=ax.transAxes)


def _box(ax) -> None:
    ax.grid(False)
    for side in ax.spines.values():
        side.set_visible(True)
