"""Singular values of tall matrices in float64, by QR and SVD; a Gram matrix would square the condition."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ssmbook._checks import check_finite, check_shape
from ssmbook.numerics import numerical_rank

# Entries gathered before a QR step: enough to make one worth its call, few enough to stay
# in cache.
_PART_ENTRIES = 2**17
# Columns from which a matrix is made a triangle before its SVD.
_WIDE = 1024


def stacked_r_factor(blocks: Iterable[Tensor], like: Tensor, name: str = "W") -> Tensor:
    """Return at most ``width`` rows in float64 with the singular values and row space of stacked blocks.

    ``blocks``: matrices (..., r, width), read one after the other and never stacked as a
    whole; ``like``: an empty float64 matrix (..., 0, width). Raises ``ValueError`` when a
    block is not finite.
    """
    width = like.shape[-1]
    part_rows = max(8 * width, _PART_ENTRIES // max(1, width))
    kept, rows = [like], 0
    for block in blocks:
        block = block.to(torch.float64)
        check_finite(name, block)
        # A tall block is taken in parts, which stay in cache and need no second copy of the
        # whole.
        for part in block.expand(*like.shape[:-2], *block.shape[-2:]).split(max(1, part_rows), dim=-2):
            kept.append(part)
            rows += part.shape[-2]
            if rows > part_rows:
                kept = [r_factor(torch.cat(kept, dim=-2))]
                rows = kept[0].shape[-2]
    return r_factor(torch.cat(kept, dim=-2))


def r_factor(matrix: Tensor) -> Tensor:
    """Return a matrix with the singular values and row space of another, and no more rows than columns."""
    rows, width = matrix.shape[-2:]
    return matrix if rows <= width else torch.linalg.qr(matrix, mode="r").R


def singular_values(matrix: Tensor) -> Tensor:
    """Return the singular values (..., min(m, width)) of matrices (..., m, width), descending."""
    # LAPACK's SVD of a wide matrix takes eight times as long as that of its triangle.
    return torch.linalg.svdvals(r_factor(matrix.mT) if matrix.shape[-1] >= _WIDE else matrix)


def tail_energies(spectrum: Tensor) -> Tensor:
    """Return sum_{r > H} σ_r² / sum σ_r² for H = 0 … m of a descending spectrum (..., m): (..., m + 1).

    Each tail is summed from its small end; a zero spectrum has tails 0.
    """
    spectrum = torch.nn.functional.pad(spectrum, (0, 1))
    largest = spectrum[..., :1]
    energy = (spectrum / torch.where(largest > 0, largest, 1.0)).square()
    tails = energy.flip(-1).cumsum(-1).flip(-1)
    return tails / torch.where(largest > 0, tails[..., :1], 1.0)


def row_directions(matrix: Tensor, count: int | None, rtol: float = 0.0) -> Tensor:
    """Return the first ``count`` right singular vectors (..., count, width) of matrices (..., m, width).

    There are ``count`` of them even if the rank is smaller. None: as many as the rank at
    ``rtol``, the largest of a batch.
    """
    width = matrix.shape[-1]
    if width >= _WIDE:
        Q, R = torch.linalg.qr(matrix.mT)
        _, sigma, basis = torch.linalg.svd(R.mT, full_matrices=False)
    else:
        _, sigma, basis = torch.linalg.svd(matrix, full_matrices=False)
    count = int(torch.as_tensor(numerical_rank(sigma, rtol)).max()) if count is None else count
    basis = basis[..., :count, :] @ Q.mT if width >= _WIDE else basis[..., :count, :]
    missing = min(count, width) - basis.shape[-2]
    if missing > 0:
        # Columns of zeros become orthonormal ones by QR: no basis of all width² numbers is
        # built.
        filled = torch.linalg.qr(torch.nn.functional.pad(basis.mT, (0, missing))).Q[..., basis.shape[-2] :]
        basis = torch.cat([basis, filled.mT], dim=-2)
    return basis


def positive_lead(rows: Tensor) -> Tensor:
    """Return rows (..., width) with the first entry of at least half the largest size made positive.

    So the signs of singular vectors do not depend on the machine.
    """
    if rows.numel() == 0:
        return rows
    size = rows.abs()
    large = size >= 0.5 * size.amax(-1, keepdim=True)
    return rows * torch.sign(rows.gather(-1, large.to(torch.int8).argmax(-1, keepdim=True)))


def psd_root(matrix: Tensor) -> Tensor:
    """Return the symmetric square root of a symmetric positive semidefinite matrix (..., m, m)."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(0).sqrt()[..., None, :] @ vectors.mT


def covariance_root(name: str, covariance: Tensor | None, size: int, device: torch.device) -> Tensor:
    """Return the square root (size, size) of a covariance (None: the identity) in float64 on ``device``."""
    if covariance is None:
        return torch.eye(size, dtype=torch.float64, device=device)
    check_shape(name, covariance, f"{size} {size}")
    check_finite(name, covariance)
    root = psd_root(covariance.to(device=device, dtype=torch.float64))
    # Second moments of fewer tokens than channels are singular, and rounded in the dtype
    # they come in.
    slack = max(1e-12, 4 * torch.finfo(covariance.dtype).eps) * size * float(covariance.abs().max())
    if not torch.allclose(root @ root, covariance.to(root), rtol=1e-6, atol=slack):
        raise ValueError(f"{name} must be symmetric and positive semidefinite")
    return root
