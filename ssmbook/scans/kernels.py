"""Convolution kernels of time-invariant systems by two-level powers: A^{iL+j} = A^{iL} A^j costs one
product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ssmbook._checks import check_alike, check_integer, check_shape

from ._core import WIDE


def power_columns(A: Tensor, B: Tensor, length: int) -> Tensor:
    """The blocks B, AB, A^2 B, ... (length, N, d), by doubling: each product doubles how many there are."""
    columns, power = B.unsqueeze(0), A
    while columns.shape[0] < length:
        columns = torch.cat((columns, power @ columns))
        if columns.shape[0] < length:
            power = power @ power
    return columns[:length]


def lti_kernel(A: Tensor, B: Tensor, C: Tensor, length: int) -> Tensor:
    """Compute the kernel K_tau = C A^tau B of a linear time-invariant system for tau = 0 ... length - 1.

    A: (N, N), B: (N, d), C: (p, N), all of one dtype (real or complex) and device. Returns (length, p, d)
    in that dtype, differentiable in A, B and C; cost O(sqrt(length) N^2 (p + d) + length N p d), memory
    that of the kernel. A power that overflows gives non-finite lags, as it would one step at a time. Raises
    ``ValueError`` / ``TypeError`` naming the argument. Introduced in *structured-dynamics*.
    """
    sizes = check_shape("A", A, "N N", complex_ok=True)
    check_shape("B", B, "N d", sizes, complex_ok=True)
    check_shape("C", C, "p N", sizes, complex_ok=True)
    check_alike(A=A, B=B, C=C)
    check_integer("length", length, low=0)
    p, d = C.shape[0], B.shape[1]
    if length == 0:
        return A.new_zeros((0, p, d))
    L = 1 << ((length - 1).bit_length() + 1) // 2
    n = -(-length // L)
    inner = power_columns(A, B, L)
    outer = power_columns(torch.linalg.matrix_power(A, L).mT, C.mT, n) if n > 1 else C.mT.unsqueeze(0)
    rows = outer.mT.reshape(n * p, A.shape[0])
    kernel = rows @ inner.transpose(0, 1).reshape(A.shape[0], L * d)
    return kernel.view(n, p, L, d).transpose(1, 2).reshape(n * L, p, d)[:length]


def lti_kernel_naive(A, B, C, length):
    """The kernel of :func:`lti_kernel` as it is written, one power of A at a time."""
    column, kernel = B, []
    for _ in range(length):
        kernel.append(C @ column)
        column = A @ column
    return torch.stack(kernel) if kernel else A.new_zeros((0, C.shape[0], B.shape[1]))


def scalar_powers(lam: Tensor, length: int) -> Tensor:
    """1, lam, lam^2, ... (..., length, N) in the dtype of ``lam``, by doubling in the wide dtype."""
    base = lam.to(WIDE.get(lam.dtype, lam.dtype)).unsqueeze(-2)
    powers = torch.ones_like(base)
    while powers.shape[-2] < length:
        powers = torch.cat((powers, base * powers), -2)
        base = base * base
    return powers[..., :length, :].to(lam.dtype)


def diagonal_kernel(lam: Tensor, B: Tensor, C: Tensor, length: int) -> Tensor:
    """Compute the kernel K_tau = C diag(lam)^tau B of a diagonal system for tau = 0 ... length - 1.

    lam: (N,), B: (N, d), C: (p, N), all of one dtype (real or complex) and device. Returns (length, p, d)
    in that dtype (take ``.real`` where conjugate pairs make it real), differentiable in lam, B and C. The
    powers are built at two levels, so only O(N sqrt(length)) of them are formed; no logarithm is taken, so
    lam may be zero or negative. Raises ``ValueError`` / ``TypeError`` naming the argument. After
    :cite:`gupta2022diagonal`. Introduced in *structured-dynamics*.
    """
    sizes = check_shape("lam", lam, "N", complex_ok=True)
    check_shape("B", B, "N d", sizes, complex_ok=True)
    check_shape("C", C, "p N", sizes, complex_ok=True)
    check_alike(lam=lam, B=B, C=C)
    check_integer("length", length, low=0)
    N, p, d = lam.shape[0], C.shape[0], B.shape[1]
    if length == 0:
        return lam.new_zeros((0, p, d))
    L = max(1, math.isqrt(length))
    n = -(-length // L)
    wide = lam.to(WIDE.get(lam.dtype, lam.dtype))
    inner = scalar_powers(wide, L).to(lam.dtype)
    outer = scalar_powers(scalar_powers(wide, L + 1)[-1], n).to(lam.dtype)
    rows = (outer.unsqueeze(1) * C).reshape(n * p, N)
    columns = (inner.unsqueeze(-1) * B).transpose(0, 1).reshape(N, L * d)
    return (rows @ columns).view(n, p, L, d).transpose(1, 2).reshape(n * L, p, d)[:length]


def diagonal_kernel_naive(lam, B, C, length):
    """The kernel of :func:`diagonal_kernel` as it is written, one power of lam at a time."""
    column, kernel = B, []
    for _ in range(length):
        kernel.append(C @ column)
        column = lam[:, None] * column
    return torch.stack(kernel) if kernel else lam.new_zeros((0, C.shape[0], B.shape[1]))
