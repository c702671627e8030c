"""How fast the powers of A, and with them an LTI system's lags, decay, and how far they grow before that."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ssmbook._checks import check_tensors
from ssmbook.numerics import tolerance
from ssmbook.systems.system import System, check_system


def power_norms(A: torch.Tensor, n: int) -> torch.Tensor:
    """||A^tau||_2 for tau < n: all lag operators of A lie under a multiple of this curve.

    A (N, N), real or complex -> real (n,). Raises ``TypeError`` or ``ValueError`` for a malformed A,
    ``ValueError`` for powers that overflow.

    >>> power_norms(torch.tensor([[0.5, 4.0], [0.0, 0.5]]), 4)  # grows before it decays
    tensor([1.0000, 4.0616, 4.0156, 3.0052])
    """
    N = check_tensors(A=(A, "N N"), finite=True, complex_ok=True)["N"]
    powers = [torch.eye(N, dtype=A.dtype, device=A.device)]
    for _ in range(n - 1):
        powers.append(A @ powers[-1])
    powers = torch.stack(powers)[:n]
    if not torch.isfinite(powers).all():
        raise ValueError(f"n must stay below the powers of A that overflow {A.dtype}; got {n}")
    return torch.linalg.matrix_norm(powers, ord=2)


def transient_peak(A: torch.Tensor, *, max_steps: int = 100_000) -> tuple[float, int]:
    """The peak of the powers of a non-normal A, over all tau >= 0: (max_tau ||A^tau||_2, that tau).

    A (N, N), real or complex. The search ends at the first T with ||A^T|| <= 1, because every later
    tau = q T + r has ||A^tau|| <= ||A^r||. Raises ``TypeError`` or ``ValueError`` for a malformed A, and
    ``ValueError`` if no power contracts within ``max_steps`` (rho > 1, or a Jordan block at rho = 1).

    >>> peak, tau = transient_peak(torch.tensor([[0.5, 4.0], [0.0, 0.5]], dtype=torch.float64))
    >>> round(peak, 4), tau
    (4.0616, 1)
    """
    N = check_tensors(A=(A, "N N"), finite=True, complex_ok=True)["N"]
    slack = 1 + 8 * N * torch.finfo(A.dtype).eps  # an orthogonal A has norm 1 only up to rounding
    A, peak, place = A.detach(), 1.0, 0
    power = A
    for tau in range(1, max_steps + 1):
        if not torch.isfinite(power).all():
            raise ValueError(f"A must have a power of norm at most 1; got A^{tau} that overflows {A.dtype}")
        norm = float(torch.linalg.matrix_norm(power, ord=2))
        if norm <= slack:
            return peak, place
        if norm > peak:
            peak, place = norm, tau
        power = A @ power
    raise ValueError(
        f"A must have a power of norm at most 1 within max_steps = {max_steps}; got {norm:.3g} there"
    )


def diagonalizable_bound(system: System, tau: int | torch.Tensor) -> torch.Tensor:
    """||C|| ||B|| kappa(P) rho^tau >= ||C A^tau B||_2 for A = P Lambda P^{-1}, columns of P of norm 1.

    One `System`, real or complex, whose skip plays no part; tau >= 0, an int or integer tensor. Returns a
    real tensor of the shape of tau (prop-lti-decay). Raises ``TypeError`` for what is no System,
    ``ValueError`` for a batch and for an A that is defective to rounding: see :func:`jordan_envelope`.

    >>> system = System(torch.diag(torch.tensor([0.9, 0.5])), torch.eye(2), torch.eye(2))
    >>> diagonalizable_bound(system, torch.tensor([0, 10]))  # 1 and 0.9 ** 10
    tensor([1.0000, 0.3487])
    """
    A, B, C, _ = check_system(system, batched=False)
    values, P = torch.linalg.eig(A)
    rebuilt = (P * values) @ torch.linalg.inv_ex(P).inverse
    close = torch.finfo(A.dtype).eps ** 0.25 * torch.linalg.matrix_norm(A)
    if not torch.linalg.matrix_norm(rebuilt - A) <= close:  # NaN if P is singular
        raise ValueError(
            "A must be diagonalizable; its eigenvectors are dependent to rounding: use jordan_envelope"
        )
    spectrum = torch.linalg.svdvals(P)
    gain = torch.linalg.matrix_norm(B, 2) * torch.linalg.matrix_norm(C, 2) * spectrum[0] / spectrum[-1]
    return gain * values.abs().max() ** torch.as_tensor(tau, device=A.device)


def jordan_envelope(rho: float, m: int, tau: int | torch.Tensor) -> torch.Tensor:
    """sum_{k < m} binom(tau, k) rho^{tau - k} >= ||J^tau||_2 for Jordan blocks of size <= m, |lam| <= rho.

    rho >= 0; m >= 1; tau >= 0, an int or integer tensor. Returns float64 of the shape of tau. Multiply by
    ||C|| ||B|| kappa(P), A = P J P^{-1}, for a system (prop-jordan-decay).

    >>> jordan_envelope(rho=0.5, m=2, tau=torch.arange(4))  # rises before it falls
    tensor([1.0000, 1.5000, 1.2500, 0.8750], dtype=torch.float64)
    """
    t = torch.as_tensor(tau).double()
    rho = torch.as_tensor(rho, dtype=t.dtype, device=t.device)
    total, log_binomial = torch.zeros_like(t), torch.zeros_like(t)
    for k in range(m):
        # In logarithms, so that neither the binomial overflows nor rho^tau underflows alone.
        term = torch.exp(log_binomial + torch.xlogy((t - k).clamp(min=0), rho))
        total = total + torch.where(t >= k, term, 0.0)
        log_binomial = log_binomial + torch.log((t - k).clamp(min=1) / (k + 1))
    return total


class DecayWindow(NamedTuple):
    """Among any nu consecutive lags at least one has norm >= floor * rho^s, s its lag."""

    nu: int
    floor: float
    rho: float


def decay_window(system: System) -> DecayWindow:
    """How slowly the lags of a system may decay, as (nu, floor, rho), worked in float64.

    Among any nu consecutive lags at least one has norm >= floor * rho^s, s its lag: rho is the spectral
    radius and nu the degree of the minimal polynomial of the minimal realization (prop-lti-decay). One
    `System`, real or complex, whose skip plays no part. Raises ``TypeError`` for what is no System,
    ``ValueError`` for a batch and if all lags are zero from some lag on.

    >>> cycle = System(torch.eye(5).roll(1, 0), torch.eye(5)[:, :1], torch.eye(5)[:1])
    >>> window = decay_window(cycle)  # its lags are 1, 0, 0, 0, 0, 1, ...
    >>> window.nu, round(window.rho, 6)
    (5, 1.0)
    """
    A, B, C, _ = check_system(system, batched=False).replace(D=None).detach().double().minimal()
    if _is_nilpotent(A):
        raise ValueError("system must have lags that do not end; got a spectral radius of 0")
    values = torch.linalg.eigvals(A)
    unit = float(values.abs().max())
    mu, powers = _minimal_polynomial(A / unit, tolerance(None, system.dtype))
    found = [_top_root(mu, values / unit, lam) for lam in values / unit]
    rho, floors = max(float(root.abs()) for root, _ in found), []
    for root, f in found:
        if float(root.abs()) >= rho * (1 - 1e-9):
            # f(z) = mu(z) / (z - lam), with |lam| = rho: the floor is ||C f(A) B|| / sum_l |f_l| rho^l.
            sizes = f.abs() @ rho ** torch.arange(len(f), dtype=A.real.dtype, device=A.device)
            reached = C.to(f.dtype) @ torch.tensordot(f, powers.to(f.dtype), 1) @ B.to(f.dtype)
            floors.append(float(torch.linalg.matrix_norm(reached, 2) / sizes))
    return DecayWindow(len(mu) - 1, max(floors), rho * unit)


def _is_nilpotent(A) -> bool:
    """Whether a power of A is zero to rounding: A is squared to 2^m >= N steps, and the rounding with it."""
    size, steps, error = len(A), 1, torch.finfo(A.dtype).eps
    norm = torch.linalg.matrix_norm(A) if size else 0.0
    while norm > error and steps < size:
        A, error, steps = A / norm, error / norm, 2 * steps
        A, error = A @ A, 2 * error + error**2 + size * torch.finfo(A.dtype).eps
        norm = torch.linalg.matrix_norm(A)
    return not norm > error


def _top_root(mu, values, lam):
    """The root of mu nearest the eigenvalue lam, with mu / (z - root), constant term first.

    Rounding splits a multiple root but keeps the mean of its parts, so take the mean if it divides mu.
    """
    mean = values[(values - lam).abs() < 1e-2].mean()
    f, rest = _divide_by_root(mu, mean)
    return (mean, f) if rest <= 1e-12 * mu.abs().sum() else (lam, _divide_by_root(mu, lam)[0])


def _minimal_polynomial(A, rtol):
    """Coefficients of the monic minimal polynomial, constant term first, and the powers of A below it."""
    powers = [torch.eye(len(A), dtype=A.dtype, device=A.device)]
    for degree in range(1, len(A) + 1):
        lower, power = torch.stack(powers), A @ powers[-1]
        rows = lower.flatten(1).mT
        found = torch.linalg.lstsq(rows, power.reshape(-1, 1), driver="gelsd").solution[:, 0]
        miss = torch.linalg.vector_norm(rows @ found - power.flatten())
        if miss <= rtol * torch.linalg.vector_norm(power) or degree == len(A):
            return torch.cat([-found, found.new_ones(1)]), lower
        powers.append(power)


def _divide_by_root(mu, root):
    """Divide a polynomial, constant term first, by z - root: the quotient and the size of the remainder."""
    quotient, carry = [], mu[-1].to(root.dtype)
    for coefficient in mu[:-1].flip(0):
        quotient.append(carry)
        carry = coefficient + root * carry
    return torch.stack(quotient[::-1]), carry.abs()
