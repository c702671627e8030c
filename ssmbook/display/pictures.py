"""Pictures of interaction operators: block norms, operator-span spectra."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from ssmbook.display.style import COLORS, LINES, SEQUENTIAL
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
    ax.grid(False)
    ax.spines[:].set_visible(True)


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
