"""Systems to start from: HiPPO and its diagonal forms, random stable, rotations, Jordan blocks, a spring."""

from __future__ import annotations

import math
from numbers import Number, Real

import torch

from ssmbook._checks import (
    as_real,
    check_finite,
    check_integer,
    check_like,
    check_positive,
    check_tensor,
    check_tensors,
)
from ssmbook.systems.response import spectral_radius
from ssmbook.systems.system import System


def _cast(tensor: torch.Tensor, dtype, device) -> torch.Tensor:
    """Hand over what was built in float64 in the dtype asked for: the entries are then correctly rounded."""
    check_like(dtype=dtype, device=device, complex_ok=True)
    dtype = dtype or torch.get_default_dtype()
    if tensor.is_complex() and not dtype.is_complex:
        dtype = dtype.to_complex()
    return tensor.to(dtype=dtype, device=device)


def _even(N: int) -> int:
    N = check_integer("N", N, low=2)
    if N % 2:
        raise ValueError(f"N must be even, two real states to each complex mode; got {N}")
    return N


def hippo_legs(
    N: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """HiPPO-LegS: A_nk = -sqrt((2n+1)(2k+1)) below the diagonal, -(n+1) on it; B_n = sqrt(2n+1).

    Returns A (N, N), lower triangular, and B (N, 1) in ``dtype`` (default: torch's). ValueError for N < 1.
    Source: `gu2020hippo`. Introduced in *structured-dynamics*.

    >>> A, B = hippo_legs(3)
    >>> A.diagonal().tolist(), B.shape
    ([-1.0, -2.0, -3.0], torch.Size([3, 1]))
    """
    N = check_integer("N", N, low=1)
    n = torch.arange(N, dtype=torch.float64)
    root = torch.sqrt(2 * n + 1)
    A = 0.0 - torch.tril(torch.outer(root, root), diagonal=-1) - torch.diag(n + 1)  # 0 - x: no -0.0 in print
    return _cast(A, dtype, device), _cast(root[:, None], dtype, device)


def s4d_legs(
    N: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """S4D-LegS: eigenvalues of HiPPO-LegS's normal part, one of each conjugate pair, and B in that basis.

    Returns lam (N/2,), real part -1/2 and growing positive imaginary part, and B (N/2, 1), complex; N real
    states come back by :func:`real_modes`. ValueError for odd N. Source: `gu2022parameterization`.
    Introduced in *structured-dynamics*.

    >>> lam, B = s4d_legs(4)
    >>> lam.shape, [round(value, 4) for value in lam.real.tolist()]
    (torch.Size([2]), [-0.5, -0.5])
    """
    N = _even(N)
    A, B = hippo_legs(N, dtype=torch.float64)
    # A = -I/2 + skew - P P^T with P = B / sqrt(2): all but the last, of rank one, is the normal part
    skew = (A.tril(-1) - A.tril(-1).mT) / 2
    # i * skew is Hermitian: eigh keeps the basis unitary, which a general eigensolver does not promise
    values, vectors = torch.linalg.eigh(1j * skew.to(torch.complex128))
    # skew v = -i values v: negative values are the positive frequencies, largest first
    pairs = slice(0, N // 2)
    lam = torch.complex(torch.full((N // 2,), -0.5, dtype=torch.float64), -values[pairs]).flip(0)
    rotated = (vectors[:, pairs].mH @ B.to(torch.complex128)).flip(0)
    return _cast(lam, dtype, device), _cast(rotated, dtype, device)


def s4d_lin(
    N: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> torch.Tensor:
    """S4D-Lin: lam_m = -1/2 + i pi m for m = 0, ..., N/2 - 1, one of each conjugate pair.

    Returns lam (N/2,), complex; N real states come back by :func:`real_modes` (m = 0 is the real pole -1/2,
    twice). ValueError for odd N. Source: `gu2022parameterization`. Introduced in
    *structured-dynamics*.

    >>> s4d_lin(4)
    tensor([-0.5000+0.0000j, -0.5000+3.1416j])
    """
    N = _even(N)
    m = torch.arange(N // 2, dtype=torch.float64)
    return _cast(torch.complex(torch.full_like(m, -0.5), math.pi * m), dtype, device)


def real_modes(lam: torch.Tensor) -> torch.Tensor:
    """The real A whose 2 x 2 diagonal blocks [[Re, -Im], [Im, Re]] carry the conjugate pairs of ``lam``.

    lam (..., m), complex -> A (..., 2m, 2m), real, same precision and device. TypeError for a real ``lam``.
    Introduced in *structured-dynamics*.

    >>> real_modes(torch.tensor([0.5 + 0.25j])).tolist()
    [[0.5, -0.25], [0.25, 0.5]]
    """
    check_tensor("lam", lam, complex_ok=True)
    if not lam.is_complex():
        raise TypeError(f"lam must be complex, one of each conjugate pair; got dtype {lam.dtype}")
    check_tensors(lam=(lam, "... m"), finite=True, complex_ok=True)
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
    device: torch.device | str | None = None,
) -> System:
    """A Gaussian system with spectral radius ``rho``, minimal with probability one.

    A `System` with N states, d inputs and p outputs, entries of B and C of variance 1/N, in ``dtype``
    (default: torch's). rho in (0, 1]; at 1 the system is only marginally stable. Drawn on the CPU: one seed,
    one system on every device. ValueError for sizes < 1 or rho outside. Introduced in *structured-dynamics*.

    >>> system = random_stable(4, 2, 3, rho=0.9, dtype=torch.float64)
    >>> system, round(system.spectral_radius().item(), 6)
    (System(N=4, d=2, p=3, float64), 0.9)
    """
    N, d, p = (check_integer(name, size, low=1) for name, size in (("N", N), ("d", d), ("p", p)))
    check_like(generator=generator)
    if check_positive("rho", rho) > 1:
        raise ValueError(f"rho must lie in (0, 1] for a stable system; got {rho}")
    A, B, C = (
        torch.randn(shape, generator=generator, dtype=torch.float64) / math.sqrt(N)
        for shape in ((N, N), (N, d), (p, N))
    )
    A = A * (rho / spectral_radius(A))
    return System(*(_cast(matrix, dtype, device) for matrix in (A, B, C)))


def random_orthogonal(
    N: int,
    *,
    rho: float = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """rho times a Haar-random orthogonal matrix: every lag then has norm exactly rho^tau.

    Returns A (N, N) in ``dtype`` (default: torch's). ValueError for N < 1 or negative rho. Introduced in
    *structured-dynamics*.

    >>> A = random_orthogonal(3, rho=0.9)
    >>> torch.allclose(A.mT @ A, 0.81 * torch.eye(3), atol=1e-6)
    True
    """
    N = check_integer("N", N, low=1)
    check_like(generator=generator)
    rho = check_positive("rho", rho, zero_ok=True)
    Q, R = torch.linalg.qr(torch.randn((N, N), generator=generator, dtype=torch.float64))
    # QR alone is not Haar: its signs follow the algorithm, so they are tied to those of R
    return _cast(rho * Q * torch.sign(torch.diagonal(R)), dtype, device)


def rotation(
    theta: float | torch.Tensor,
    *,
    rho: float = 1.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """rho R(theta), the plane rotation [[cos, -sin], [sin, cos]] scaled by ``rho``.

    theta a number, or a tensor (...) whose dtype and device are then kept -> A (..., 2, 2). ValueError for
    negative rho or non-finite theta. Introduced in *interaction-rank-gap*.

    >>> rotation(0.5, rho=0.9)
    tensor([[ 0.7898, -0.4315],
            [ 0.4315,  0.7898]])
    """
    rho = check_positive("rho", rho, zero_ok=True)
    if not isinstance(theta, torch.Tensor):
        theta = _cast(as_real("theta", theta), dtype, device)
    elif dtype is not None or device is not None:
        got = f"dtype {dtype}, device {device}"
        raise TypeError(
            f"dtype and device must be left out beside a tensor theta, whose own are kept; got {got}"
        )
    as_real("theta", theta)
    cos, sin = torch.cos(theta), torch.sin(theta)
    return rho * torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)


def jordan_block(
    N: int,
    lam: float | complex,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """The N x N Jordan block: ``lam`` on the diagonal, ones above it.

    Returns A (N, N) in ``dtype`` (default: torch's, made complex for a complex ``lam``). ValueError for N <
    1 or a non-finite ``lam``. Introduced in *gradient-highway*.

    >>> jordan_block(2, 0.5).tolist()
    [[0.5, 1.0], [0.0, 0.5]]
    """
    N = check_integer("N", N, low=1)
    if isinstance(lam, bool) or not isinstance(lam, Number):
        raise TypeError(f"lam must be a number; got {type(lam).__name__}")
    value = torch.tensor(lam, dtype=torch.float64 if isinstance(lam, Real) else torch.complex128)
    check_finite("lam", value)
    A = value * torch.eye(N, dtype=value.dtype) + torch.diag(torch.ones(N - 1, dtype=value.dtype), 1)
    return _cast(A, dtype, device)


def mass_on_spring(
    mass: float,
    damping: float,
    stiffness: float,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> System:
    """A mass on a damped spring, pushed by a force, seen by its position: m q'' + c q' + k q = x, y = q.

    A continuous-time `System` with the state (q, q'), one input and one output, in ``dtype`` (default:
    torch's); `System.discretize` takes its steps. ValueError unless mass > 0, damping >= 0, stiffness >= 0.
    Introduced in *structured-dynamics*.

    >>> swing = mass_on_spring(mass=1.0, damping=0.0, stiffness=4.0)  # in continuous time
    >>> torch.linalg.eigvals(swing.A).imag.abs()  # two radians per second
    tensor([2.0000, 2.0000])
    """
    mass = check_positive("mass", mass)
    damping = check_positive("damping", damping, zero_ok=True)
    stiffness = check_positive("stiffness", stiffness, zero_ok=True)
    A = torch.tensor([[0.0, 1.0], [-stiffness / mass, -damping / mass]], dtype=torch.float64)
    B = torch.tensor([[0.0], [1.0 / mass]], dtype=torch.float64)
    C = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    return System(*(_cast(matrix, dtype, device) for matrix in (A, B, C)))
