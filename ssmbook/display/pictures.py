"""Pictures of interaction operators: block norms, operator-span spectra, matrices with signs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from ssmbook.display.style import COLORS, DIVERGING, LINES, SEQUENTIAL
from ssmbook.display.tables import number
from ssmbook.numerics import numerical_rank, tolerance

if TYPE_CHECKING:
    from ssmbook.operators import InteractionOperator


def block_heatmap(W: InteractionOperator | torch.Tensor, ax: Axes, *, vmax: float | None = None) -> None:
    """Draw the norms of the blocks W_ij as a picture, i down and j across; white is zero.

    ``W`` is an operator without a batch, or its blocks (n, n, p, d). ``vmax`` is the top of
    the color scale, for several pictures side by side.

    >>> from ssmbook.operators import LagOperator
    >>> fig, ax = figure(size="panel")
    >>> block_heatmap(LagOperator(torch.ones(4, 1, 1)), ax)
    """
    norms = torch.linalg.matrix_norm(W) if isinstance(W, torch.Tensor) else W.block_norms()
    norms = norms.detach().double().cpu().numpy()
    top = vmax or float(norms.max()) or 1.0
    ax.imshow(norms, cmap=SEQUENTIAL, norm=Normalize(0, top), interpolation="nearest")
    ax.set(xlabel="input token j", ylabel="output token i")
    _box(ax)


def span_spectrum(W: InteractionOperator, ax: Axes) -> str:
    """Draw the operator-span singular values on a log axis, with the threshold of the rank; return alt text.

    ``W`` is an operator without a batch. The values that do not count are rounding noise,
    drawn hollow and no lower than 1e-14 of the largest, where they would differ from
    machine to machine.

    >>> from ssmbook.operators import LagOperator
    >>> fig, ax = figure(size="panel")
    >>> span_spectrum(LagOperator(torch.ones(4, 1, 1, dtype=torch.float64)), ax)
    '1 operator-span singular values, 1 above the threshold, 1e-10 of the largest, of size 3.16: rank 1'
    """
    sigma = W.spectrum().detach().double().cpu()
    rtol = tolerance(None, W.dtype)
    rank, share = numerical_rank(sigma, rtol), f"{rtol:.2g}".replace("e-0", "e-")
    top = float(sigma.max()) or 1.0
    shown, r = sigma.clamp(min=top * 1e-14), torch.arange(1, len(sigma) + 1)
    ax.semilogy(r[:rank], shown[:rank], "o", linestyle="-", color=COLORS["head"])
    ax.semilogy(r[rank:], shown[rank:], "o", linestyle="none", markerfacecolor="white", color=COLORS["head"])
    ax.axhline(rtol * top, color=COLORS["gray"], linestyle=LINES["dashed"], linewidth=1.2)
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    words = f"rank {rank} above {share} $\\sigma_1$"
    ax.annotate(words, (1.0, rtol * top), (-2, 3), ha="right", va="bottom", fontsize=9, **place)
    ax.set(xlabel="r", ylabel=r"singular value $\sigma_r$")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    values = f"{len(sigma)} operator-span singular values"
    if rank == 0:
        return f"{values}, all 0: rank 0"
    first, last = number(sigma[0]), number(sigma[rank - 1])
    kept = f"from {first} down to {last}" if rank > 1 else f"of size {first}"
    return f"{values}, {rank} above the threshold, {share} of the largest, {kept}: rank {rank}"


def signed(ax: Axes, values: ArrayLike, top: float | None = None, aspect: str | None = None) -> None:
    """Show a table on a symmetric scale, its own or up to ``top``: blue positive, framed, without ticks.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    values : array (rows, columns)
        What to draw.
    top : float, optional
        The end of the scale; by default the largest size.
    aspect : str, optional
        Of the cells, as for ``Axes.imshow``.
    """
    values = np.asarray(values)
    top = (float(np.nanmax(np.abs(values))) if top is None else top) or 1.0
    ax.imshow(values, cmap=DIVERGING, norm=Normalize(-top, top), aspect=aspect, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    _box(ax)


def part_blocks(ax: Axes, n: int, p: int, d: int, width: float) -> None:
    """Draw the lines between the n by n blocks (p, d) of a picture.

    Parameters
    ----------
    ax : Axes
        Where the picture is.
    n, p, d : int
        How many blocks there are along each side, and their size.
    width : float
        Of the lines, in points.
    """
    for edge in range(1, n):
        ax.axhline(p * edge - 0.5, color=COLORS["gray"], lw=width, ls="-")
        ax.axvline(d * edge - 0.5, color=COLORS["gray"], lw=width, ls="-")


def equation(
    axes: Sequence[Axes], parts: Sequence[ArrayLike | str], titles: Sequence[str], *,
    sign_size: float, title_size: float, **scale: Any,
) -> None:  # fmt: skip
    """Show tables as ``signed`` does and the signs between them (str), panel by panel.

    Parameters
    ----------
    axes : sequence of Axes
        One for each part.
    parts : sequence of array or str
        The tables, and the signs between them.
    titles : sequence of str
        Above the tables.
    sign_size, title_size : float
        Font sizes in points.
    scale
        What `signed` takes.
    """
    for ax, part, title in zip(axes, parts, titles, strict=True):
        if isinstance(part, str):
            ax.axis("off")
            ax.text(0.5, 0.5, part, ha="center", va="center", fontsize=sign_size, transform=ax.transAxes)
        else:
            signed(ax, part, **scale)
            ax.set_title(title, fontsize=title_size)


def medians(
    ax: Axes,
    places: Iterable[float],
    rows: Sequence[Sequence[float]],
    color: str,
    linestyle: str | tuple[float, tuple[float, ...]] = "none",
) -> list[float]:
    """Draw the median of each row with bars to its least and its largest entry; returns the medians.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    places : sequence of float
        Where each row stands.
    rows : sequence of sequences of float
        Their numbers.
    color, linestyle : str, or as matplotlib takes
        Of the marks, and of the line through them.

    Returns
    -------
    list of float
        The medians.
    """
    middle = [median(row) for row in rows]
    low, high = [min(row) for row in rows], [max(row) for row in rows]
    bars = np.array([np.subtract(middle, low), np.subtract(high, middle)])
    ax.errorbar(list(places), middle, bars, fmt="o", color=color, linestyle=linestyle, ms=5, capsize=3)
    return middle


def _box(ax) -> None:
    ax.grid(False)
    ax.spines[:].set_visible(True)
