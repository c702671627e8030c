"""Systems to start from: HiPPO and its diagonal form, random stable ones, rotations, Jordan blocks."""

from __future__ import annotations

import math

import torch

from ssmbook._checks import as_real, check_finite, check_integer, check_number, check_tensors
from ssmbook.systems.system import System


def _cast(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """A tensor built in float64 or complex128 in ``dtype`` (default: torch's), complex if it was complex."""
    dtype = dtype or torch.get_default_dtype()
    return tensor.to(dtype.to_complex() if tensor.is_complex() else dtype)


def hippo_legs(N: int, *, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """HiPPO-LegS: A_nk = -sqrt((2n+1)(2k+1)) below the diagonal, -(n+1) on it; B_n = sqrt(2n+1).

    Returns A (N, N), lower triangular, and B (N, 1) in ``dtype`` (default: torch's).
    ValueError for N < 1. Source: `gu2020hippo`.

    >>> A, B = hippo_legs(3)
    >>> A.diagonal().tolist(), B.shape
    ([-1.0, -2.0, -3.0], torch.Size([3, 1]))
    """
    N = check_integer("N", N, low=1)
    n = torch.arange(N, dtype=torch.float64)
    root = torch.sqrt(2 * n + 1)
    A = 0.0 - torch.tril(torch.outer(root, root), diagonal=-1) - torch.diag(n + 1)  # 0 - x: no -0.0 in print
    return _cast(A, dtype), _cast(root[:, None], dtype)


def s4d_lin(N: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """S4D-Lin: lam_m = -1/2 + i pi m for m = 0, ..., N/2 - 1, one of each conjugate pair.

    Returns lam (N/2,), complex; N real states come back by :func:`real_modes` (m = 0 is the
    real pole -1/2, twice). ValueError for odd N. Source: `gu2022parameterization`.

    >>> s4d_lin(4)
    tensor([-0.5000+0.0000j, -0.5000+3.1416j])
    """
    if check_integer("N", N, low=2) % 2:
        raise ValueError(f"N must be even, two real states for each complex mode; got {N}")
    m = torch.arange(N // 2, dtype=torch.float64)
    return _cast(torch.complex(torch.full_like(m, -0.5), math.pi * m), dtype)


def real_modes(lam: torch.Tensor) -> torch.Tensor:
    """The real A whose 2 x 2 diagonal blocks [[Re, -Im], [Im, Re]] carry the conjugate pairs of ``lam``.

    lam (..., m), complex -> A (..., 2m, 2m), real, same precision and device. TypeError for
    a real ``lam``.

    >>> real_modes(torch.tensor([0.5 + 0.25j])).tolist()
    [[0.5, -0.25], [0.25, 0.5]]
    """
    check_tensors(lam=(lam, "... m"), finite=True, complex_ok=True)
    if not lam.is_complex():
        raise TypeError(f"lam must be complex, one of each conjugate pair; got dtype {lam.dtype}")
    diagonal = torch.diag_embed(lam.real)
    off = torch.diag_embed(lam.imag)
    blocks = torch.stack([torch.stack([diagonal, 0 - off], -1), torch.stack([off, diagonal], -1)], -2)
    m = lam.shape[-1]
    return blocks.movedim(-2, -3).reshape(*lam.shape[:-1], 2 * m, 2 * m)


def random_stable(
    N: int,
    d: int,
    p: int,
    *,
    rho: float,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> System:
    """A Gaussian system with spectral radius ``rho``, minimal with probability one.

    Drawn on the CPU, so that a seed gives one system; `System.to` moves it.

    Parameters
    ----------
    N, d, p : int
        The numbers of states, inputs and outputs, at least 1.
    rho : float
        In (0, 1]; at 1 the system is only marginally stable.
    generator : torch.Generator, optional
        On the CPU; torch's own by default.
    dtype : torch.dtype, optional
        That of the result; torch's default by default. The numbers are drawn in float64.

    Returns
    -------
    System
        With entries of B and C of variance 1/N.

    Raises
    ------
    ValueError
        For sizes below 1 and for rho outside.

    Examples
    --------
    >>> system = random_stable(4, 2, 3, rho=0.9, dtype=torch.float64)
    >>> system, round(system.spectral_radius().item(), 6)
    (System(N=4, d=2, p=3, float64), 0.9)
    """
    N, d, p = (check_integer(name, size, low=1) for name, size in (("N", N), ("d", d), ("p", p)))
    if not 0 < rho <= 1:
        raise ValueError(f"rho must lie in (0, 1] for a stable system; got {rho}")
    A, B, C = (
        torch.randn(shape, generator=generator, dtype=torch.float64) / math.sqrt(N)
        for shape in ((N, N), (N, d), (p, N))
    )
    A = A * (rho / torch.linalg.eigvals(A).abs().amax())
    return System(*(_cast(matrix, dtype) for matrix in (A, B, C)))


def random_orthogonal(
    N: int,
    *,
    rho: float = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """rho times a Haar-random orthogonal matrix: every lag then has norm exactly rho^tau.

    Parameters
    ----------
    N : int
        The size, at least 1.
    rho : float, default 1
        The norm of the matrix, at least 0.
    generator : torch.Generator, optional
        On the CPU; torch's own by default.
    dtype : torch.dtype, optional
        That of the result; torch's default by default. The numbers are drawn in float64.

    Returns
    -------
    Tensor (N, N)
        The matrix A.

    Raises
    ------
    ValueError
        For N below 1 and for a negative rho.

    Examples
    --------
    >>> A = random_orthogonal(3, rho=0.9)
    >>> torch.allclose(A.mT @ A, 0.81 * torch.eye(3), atol=1e-6)
    True
    """
    N = check_integer("N", N, low=1)
    rho = check_number("rho", rho, 0)
    Q, R = torch.linalg.qr(torch.randn((N, N), generator=generator, dtype=torch.float64))
    # QR alone is not Haar: its signs follow the algorithm, so they are tied to those of R
    return _cast(rho * Q * torch.sign(torch.diagonal(R)), dtype)


def rotation(theta: float | torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The rotation of the plane [[cos, -sin], [sin, cos]] by the angle ``theta``.

    theta a number, or a tensor (...) whose dtype and device are then kept -> A (..., 2, 2).
    ValueError for non-finite theta.

    >>> rotation(0.5)
    tensor([[ 0.8776, -0.4794],
            [ 0.4794,  0.8776]])
    """
    angle = as_real("theta", theta)
    angle = angle if isinstance(theta, torch.Tensor) else _cast(angle, dtype)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)


def jordan_block(N: int, lam: float | complex, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The N x N Jordan block: ``lam`` on the diagonal, ones above it.

    Returns A (N, N) in ``dtype`` (default: torch's, made complex for a complex ``lam``).
    ValueError for N < 1 or a non-finite ``lam``.

    >>> jordan_block(2, 0.5).tolist()
    [[0.5, 1.0], [0.0, 0.5]]
    """
    N = check_integer("N", N, low=1)
    value = torch.tensor(lam, dtype=torch.complex128 if isinstance(lam, complex) else torch.float64)
    check_finite("lam", value)
    A = value * torch.eye(N, dtype=value.dtype) + torch.diag(torch.ones(N - 1, dtype=value.dtype), 1)
    return _cast(A, dtype)
