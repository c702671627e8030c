"""How fast the powers of A, and with them an LTI system's lags, decay, and what they do before that."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ssmbook._checks import as_count, as_real, check_integer, check_tensors
from ssmbook.numerics import in_single, tolerance
from ssmbook.systems.system import System, check_system


def _square(A: torch.Tensor) -> int:
    size = check_tensors(A=(A, "N N"), finite=True, complex_ok=True)["N"]
    if size == 0:
        raise ValueError("A must have at least one state; got shape (0, 0)")
    return size


@in_single
def diagonalizable_bound(system: System, tau: int | torch.Tensor) -> torch.Tensor:
    """||C A^tau B||_2 <= ||C|| ||B|| kappa(P) rho^tau for A = P Lambda P^{-1}, columns of P of norm 1.

    One `System`, real or complex, whose skip plays no part; tau: int or integer tensor >= 0. Returns a real
    tensor of the shape of tau. Holds for every rho, and means decay when rho < 1; the rate is the true one
    when the system is minimal. Raises TypeError for what is no System, ValueError for a batch, and when A is
    defective to rounding: see :func:`jordan_envelope`. Introduced in *gradient-highway*.

    >>> system = System(torch.diag(torch.tensor([0.9, 0.5])), torch.eye(2), torch.eye(2))
    >>> diagonalizable_bound(system, torch.tensor([0, 10]))  # 1 and 0.9 ** 10
    tensor([1.0000, 0.3487])
    """
    A, B, C, _ = check_system(system, batched=False)
    _square(A)
    tau = as_count("tau", tau, low=0).to(A.device)
    values, P = torch.linalg.eig(A)
    rebuilt = (P * values) @ torch.linalg.inv_ex(P).inverse
    close = torch.finfo(A.dtype).eps ** 0.25 * torch.linalg.matrix_norm(A)
    if not torch.linalg.matrix_norm(rebuilt - A) <= close:  # not a number where P is singular
        raise ValueError(
            "A must be diagonalizable; its eigenvectors are dependent to rounding: use jordan_envelope"
        )
    spectrum = torch.linalg.svdvals(P)
    gain = torch.linalg.matrix_norm(B, 2) * torch.linalg.matrix_norm(C, 2) * spectrum[0] / spectrum[-1]
    return gain * values.abs().max() ** tau


class DecayWindow(NamedTuple):
    """How long a system's lags can stay below its rate: of any nu in a row one has ||M_s||_2 >= floor rho^s.

    nu: degree of the minimal polynomial of the minimal realization; floor > 0; rho: its spectral radius.
    Introduced in *gradient-highway-deeper*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> decay_window(turn).nu
    2
    """

    nu: int
    floor: float
    rho: float


def decay_window(system: System, *, rtol: float | None = None) -> DecayWindow:
    """The nu lags in a row that hold one of size floor rho^s, s its lag: rho is the rate, and no less.

    One `System`, real or complex, whose skip plays no part; rtol: when a power of A counts as a combination
    of the lower ones (1e-10 in float64). Worked in float64. With mu the minimal polynomial and f(z) = mu(z)
    / (z - lam), |lam| = rho: floor = ||C f(A) B||_2 / sum_l |f_l| rho^l, the largest over such lam. Raises
    TypeError for what is no System, ValueError for a batch and when all lags are zero from some lag on (no
    states, or rho = 0). Source: prop-lti-decay. Introduced in *gradient-highway-deeper*.

    >>> cycle = System(torch.eye(5).roll(1, 0), torch.eye(5)[:, :1], torch.eye(5)[:1])
    >>> window = decay_window(cycle)  # its lags are 1, 0, 0, 0, 0, 1, ...
    >>> window.nu, round(window.rho, 6)
    (5, 1.0)
    """
    A, B, C, _ = check_system(system, batched=False).replace(D=None).detach().double().minimal()
    if _ends(A):
        raise ValueError("system must have lags that do not end; got a spectral radius of 0")
    values = torch.linalg.eigvals(A)
    unit = float(values.abs().max())
    mu, powers = _minimal_polynomial(A / unit, tolerance(rtol, system.dtype))
    found = [_top_root(mu, values / unit, lam) for lam in values / unit]
    rho, floors = max(float(root.abs()) for root, _ in found), []
    for root, f in found:
        if float(root.abs()) >= rho * (1 - 1e-9):
            sizes = f.abs() @ rho ** torch.arange(len(f), dtype=A.real.dtype, device=A.device)
            reached = C.to(f.dtype) @ torch.tensordot(f, powers.to(f.dtype), 1) @ B.to(f.dtype)
            floors.append(float(torch.linalg.matrix_norm(reached, 2) / sizes))
    return DecayWindow(len(mu) - 1, max(floors), rho * unit)


def _ends(A) -> bool:
    """Whether a power of A is zero to rounding: A is squared to 2^m >= N steps, and the rounding with it."""
    size, steps, error = len(A), 1, torch.finfo(A.dtype).eps
    norm = torch.linalg.matrix_norm(A) if size else 0.0
    while norm > error and steps < size:
        A, error, steps = A / norm, error / norm, 2 * steps
        A, error = A @ A, 2 * error + error**2 + size * torch.finfo(A.dtype).eps
        norm = torch.linalg.matrix_norm(A)
    return not norm > error


def _top_root(mu, values, lam):
    """The root of mu that the eigenvalue lam stands for, with mu / (z - root), constant term first.

    Rounding parts a multiple root and leaves the mean of its parts in place: the mean, where it divides mu.
    """
    mean = values[(values - lam).abs() < 1e-2].mean()
    f, rest = _without_root(mu, mean)
    return (mean, f) if rest <= 1e-12 * mu.abs().sum() else (lam, _without_root(mu, lam)[0])


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


def _without_root(mu, root):
    """Divide a polynomial, constant term first, by z - root: the quotient and the size of the remainder."""
    quotient, carry = [], mu[-1].to(root.dtype)
    for coefficient in mu[:-1].flip(0):
        quotient.append(carry)
        carry = coefficient + root * carry
    return torch.stack(quotient[::-1]), carry.abs()


def jordan_envelope(rho: float, m: int, tau: int | torch.Tensor) -> torch.Tensor:
    """sum_{k < m} binom(tau, k) rho^{tau - k} >= ||J^tau||_2 for Jordan blocks of size <= m, |lam| <= rho.

    rho >= 0, a number; m >= 1; tau: int or integer tensor >= 0. Returns float64 of the shape of tau; of
    order tau^{m-1} rho^tau. Multiply by ||C|| ||B|| kappa(P), A = P J P^{-1}, for a system. Proof: J^tau is
    the sum over k of binom(tau, k) lam^{tau-k} N^k and the shift N has norm 1. Raises TypeError/ValueError
    outside. Introduced in *gradient-highway*.

    >>> jordan_envelope(rho=0.5, m=2, tau=torch.arange(4))  # rises before it falls
    tensor([1.0000, 1.5000, 1.2500, 0.8750], dtype=torch.float64)
    """
    rho = as_real("rho", rho, low=0.0, open_ends=False).double()
    m = check_integer("m", m, low=1)
    tau = as_count("tau", tau, low=0)
    t, rho = tau.double(), rho.to(tau.device)
    total, log_binomial = torch.zeros_like(t), torch.zeros_like(t)
    for k in range(m):
        # in logarithms, so that neither the binomial overflows nor rho^tau underflows alone
        term = torch.exp(log_binomial + torch.xlogy((t - k).clamp(min=0), rho))
        total = total + torch.where(t >= k, term, 0.0)
        log_binomial = log_binomial + torch.log((t - k).clamp(min=1) / (k + 1))
    return total


def stacked_pole_kernel(rho: float, L: int, tau: int | torch.Tensor) -> torch.Tensor:
    """L equal poles in a row: kernel binom(tau + L - 1, L - 1) rho^tau; depth adds a polynomial, not a rate.

    rho >= 0, a number; L >= 1 layers h_t = rho h_{t-1} + x_t; tau: int or integer tensor >= 0. Returns
    float64 of the shape of tau, exactly the lag-tau weight of the stack. Raises TypeError/ValueError
    outside. Introduced in *gradient-highway*.

    >>> stacked_pole_kernel(rho=0.5, L=2, tau=torch.arange(4))  # (tau + 1) / 2 ** tau
    tensor([1.0000, 1.0000, 0.7500, 0.5000], dtype=torch.float64)
    """
    rho = as_real("rho", rho, low=0.0, open_ends=False).double()
    L = check_integer("L", L, low=1)
    tau = as_count("tau", tau, low=0)
    t = tau.double()
    logs = torch.xlogy(t, rho.to(tau.device))
    for k in range(1, L):
        logs = logs + torch.log1p(t / k)
    return torch.exp(logs)


@in_single
def power_norms(A: torch.Tensor, n: int) -> torch.Tensor:
    """||A^tau||_2 for tau < n, one product at a time: the envelope every lag operator of A lies under.

    A (N, N), real or complex -> real (n,). Raises TypeError/ValueError for a malformed A, for n < 0 and for
    powers that overflow. Introduced in *gradient-highway*.

    >>> power_norms(torch.tensor([[0.5, 4.0], [0.0, 0.5]]), 4)  # grows before it decays
    tensor([1.0000, 4.0616, 4.0156, 3.0052])
    """
    size = _square(A)
    n = check_integer("n", n, low=0)
    power, powers = torch.eye(size, dtype=A.dtype, device=A.device), []
    for tau in range(n):
        if not torch.isfinite(power).all():
            raise ValueError(f"n must be at most {tau}, before A^{tau} overflows {A.dtype}; got {n}")
        powers.append(power)
        power = A @ power
    if not powers:
        return A.new_empty((0,)).abs()
    return torch.linalg.matrix_norm(torch.stack(powers), ord=2)


@in_single
def transient_peak(A: torch.Tensor, *, max_steps: int = 100_000) -> tuple[float, int]:
    """The hump of a non-normal A: (max_tau ||A^tau||_2, the tau where it stands), over *all* tau >= 0.

    A (N, N), real or complex, power-bounded. Proof that a finite search suffices: once ||A^T|| <= 1, every
    tau = q T + r has ||A^tau|| <= ||A^r||, so the maximum lies before T; for rho < 1 such a T exists. Raises
    TypeError/ValueError for a malformed A, and ValueError when no power contracts within ``max_steps`` (rho
    > 1, or a Jordan block at rho = 1). Introduced in *gradient-highway*.

    >>> peak, tau = transient_peak(torch.tensor([[0.5, 4.0], [0.0, 0.5]], dtype=torch.float64))
    >>> round(peak, 4), tau
    (4.0616, 1)
    """
    size, A = _square(A), A.detach()
    max_steps = check_integer("max_steps", max_steps, low=1)
    slack = 1 + 8 * size * torch.finfo(A.dtype).eps  # an orthogonal A has ||A|| = 1 only to rounding
    power, peak, place, least = A, 1.0, 0, math.inf
    for tau in range(1, max_steps + 1):
        if not torch.isfinite(power).all():
            raise ValueError(
                f"A must have a power of norm at most 1; got powers that overflow {A.dtype} at A^{tau}"
            )
        norm = float(torch.linalg.matrix_norm(power, ord=2))
        if norm <= slack:
            return peak, place
        least = min(least, norm)
        if norm > peak:
            peak, place = norm, tau
        power = A @ power
    gap = 1 - float(torch.linalg.eigvals(A).abs().max())
    found = f"a least norm of {least:.9g} and the spectral radius 1 - {gap:.1e}"
    advice = "; raise max_steps" if gap > 0 else ""
    raise ValueError(f"A must have a power of norm at most 1 within {max_steps} steps; got {found}{advice}")
