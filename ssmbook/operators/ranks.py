"""Rank with a stated tolerance: float64, by QR and SVD (a Gram matrix would square the gap)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from .._checks import check_finite, check_tensor

# Entries gathered before a QR step: enough to make one worth its call, few enough to stay in cache.
_PART_ENTRIES = 2**17


def default_rtol(dtype: torch.dtype) -> float:
    """Return the relative cut below which a singular value of an operator held in ``dtype`` counts as zero.

    1e-10 for float64, 16 machine epsilons for shorter types (1.9e-6 for float32): entries rounded once put
    the noise near one epsilon of the largest singular value, so a planted value at 1e-5 of it is kept in
    either. Raises ``TypeError`` for anything but a floating-point dtype. Introduced in
    *interaction-operator*.
    """
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating-point torch.dtype; got {dtype}")
    return 1e-10 if dtype == torch.float64 else 16 * torch.finfo(dtype).eps


def check_rtol(rtol) -> None:
    """Refuse a tolerance that is not a number in [0, 1) (``TypeError`` / ``ValueError``)."""
    if isinstance(rtol, bool) or not isinstance(rtol, (int, float)):
        raise TypeError(f"rtol must be a number in [0, 1); got {type(rtol).__name__}")
    if not 0 <= rtol < 1:
        raise ValueError(f"rtol must be a number in [0, 1); got {rtol}")


def check_eps(eps) -> None:
    """Refuse an error that is not a finite number of at least 0 (``TypeError`` / ``ValueError``)."""
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise TypeError(f"eps must be a number; got {type(eps).__name__}")
    if not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"eps must be finite and at least 0; got {eps}")


def compress(blocks: Iterable[torch.Tensor], like: torch.Tensor, name: str = "W") -> torch.Tensor:
    """Return a float64 matrix of at most ``width`` rows with the singular values of stacked blocks.

    It has their row space too. ``blocks``: matrices (..., r, width), read one after the other and never
    stacked as a whole; ``like``: an empty float64 matrix (..., 0, width). Each block must be finite, else a
    ``ValueError`` names ``name``.
    """
    width = like.shape[-1]
    part_rows = max(8 * width, _PART_ENTRIES // max(1, width))
    kept, rows = [like], 0
    for block in blocks:
        block = block.detach().to(torch.float64)
        check_finite(name, block)
        # A tall block is taken in parts, which stay in cache and need no second copy of the whole.
        for part in block.expand(*like.shape[:-2], *block.shape[-2:]).split(max(1, part_rows), dim=-2):
            kept.append(part)
            rows += part.shape[-2]
            if rows > part_rows:
                kept = [triangle(torch.cat(kept, dim=-2))]
                rows = kept[0].shape[-2]
    return triangle(torch.cat(kept, dim=-2))


def triangle(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix with the singular values and row space of another, and no more rows than columns."""
    rows, width = matrix.shape[-2:]
    if rows <= width or matrix.numel() == 0:
        return matrix[..., :width, :]
    return torch.linalg.qr(matrix, mode="r").R


def numerical_rank(singular_values: torch.Tensor, rtol: float, scale: float | torch.Tensor | None = None):
    """Count the singular values above ``rtol`` times the largest: the one rule of tolerance.

    ``singular_values`` (..., m), in any order; ``scale``, a number or (...), stands in for the largest where
    the noise is set by something larger. Returns an ``int`` when unbatched, else int64 of shape (...).
    Nothing stands above zero times zero, so a zero matrix has rank 0. Raises ``ValueError`` on a non-finite
    or negative value or a tolerance outside [0, 1). Introduced in *interaction-operator*.
    """
    check_tensor("singular_values", singular_values)
    if singular_values.dim() == 0:
        raise ValueError("singular_values must have shape (..., m); got ()")
    check_finite("singular_values", singular_values)
    if bool((singular_values < 0).any()):
        raise ValueError(f"singular_values must be at least 0; got {float(singular_values.min())}")
    check_rtol(rtol)
    counts = (singular_values > _threshold(singular_values, rtol, scale)[..., None]).sum(-1)
    return plain(counts)


def _threshold(values: torch.Tensor, rtol: float, scale) -> torch.Tensor:
    if scale is None:
        scale = values.amax(-1) if values.shape[-1] else values.new_zeros(values.shape[:-1])
    return rtol * torch.as_tensor(scale, dtype=values.dtype, device=values.device)


def plain(value: torch.Tensor):
    """Return the Python number of a 0-dimensional tensor, and any other tensor as it is."""
    return value.item() if value.dim() == 0 else value


@dataclass(frozen=True, eq=False)
class RankReport:
    """A rank together with what it rests on, so that a near-tie is seen and not hidden.

    ``rank``: int or int64 (...); ``spectrum`` (..., m): float64 singular values, descending; ``rtol``: the
    cut used; ``threshold``: float or float64 (...), the value that a singular value had to exceed, ``rtol``
    times the largest (or times the scale given); ``gap``: float or float64 (...), the last singular value
    kept over the first one dropped (infinite when nothing, or an exact zero, was dropped or nothing was
    kept). ``int(report)`` is the rank. Introduced in *interaction-operator*.
    """

    rank: int | torch.Tensor
    spectrum: torch.Tensor
    rtol: float
    threshold: float | torch.Tensor

    def __int__(self) -> int:
        return int(self.rank)

    @property
    def gap(self) -> float | torch.Tensor:
        counts = torch.as_tensor(self.rank, device=self.spectrum.device)[..., None]
        one = self.spectrum.new_full((*self.spectrum.shape[:-1], 1), torch.inf)
        last = torch.cat([one, self.spectrum], dim=-1).gather(-1, counts)[..., 0]
        first = torch.cat([self.spectrum, torch.zeros_like(one)], dim=-1).gather(-1, counts)[..., 0]
        return plain(last / first)


def rank_report(spectrum: torch.Tensor, rtol: float, scale=None) -> RankReport:
    """Return the ``RankReport`` of a descending spectrum (..., m) cut at ``rtol``.

    ``scale`` and errors as in ``numerical_rank``; ``ValueError`` also for a spectrum that does not descend.
    """
    rank = numerical_rank(spectrum, rtol, scale)
    if bool((spectrum[..., 1:] > spectrum[..., :-1]).any()):
        raise ValueError("spectrum must descend along its last dimension; got a value above the one before")
    return RankReport(rank, spectrum, rtol, plain(_threshold(spectrum, rtol, scale)))


def tail_energies(spectrum: torch.Tensor) -> torch.Tensor:
    """Return sum_{r > H} σ_r² / sum σ_r² for H = 0 … m of a descending spectrum (..., m): (..., m + 1).

    Each tail is summed from its small end; a zero spectrum has tails 0.
    """
    none = torch.zeros_like(spectrum.sum(-1, keepdim=True))
    largest = torch.cat([spectrum, none], dim=-1)[..., :1]
    energy = torch.cat([spectrum / torch.where(largest > 0, largest, 1.0), none], dim=-1).square()
    tails = energy.flip(-1).cumsum(-1).flip(-1)
    return tails / torch.where(largest > 0, tails[..., :1], 1.0)


def leading_row_directions(matrix: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first ``count`` right singular vectors (..., count, width) of a float64 matrix (..., m,
    width).

    The basis goes on past the rank. Signs are fixed, the first entry of at least half the largest size being
    positive, so that ties among entries do not make a page depend on the machine.
    """
    width = matrix.shape[-1]
    basis = torch.linalg.svd(matrix, full_matrices=False).Vh if matrix.numel() else matrix[..., :0, :]
    basis = basis[..., :count, :]
    missing = min(count, width) - basis.shape[-2]
    if missing > 0:
        # Columns of zeros become orthonormal ones by QR: no basis of all width² numbers is built.
        filled = torch.linalg.qr(torch.nn.functional.pad(basis.mT, (0, missing))).Q[..., basis.shape[-2] :]
        basis = torch.cat([basis, filled.mT], dim=-2)
    if basis.numel() == 0:
        return basis
    large = basis.abs() >= 0.5 * basis.abs().amax(-1, keepdim=True)
    lead = basis.gather(-1, large.to(torch.int8).argmax(-1, keepdim=True))
    return basis * torch.sign(lead)
