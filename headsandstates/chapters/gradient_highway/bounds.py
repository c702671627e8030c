"""The bounds and prices of the page in closed form: dilution, ALiBi, held states, stacked poles."""

from __future__ import annotations

import torch
from torch import Tensor


def dilution_bound(B: float, n: int) -> Tensor:
    """The largest softmax weight among n tokens with logits in [-B, B], e^{2B}/(e^{2B} + n - 1)."""
    return torch.sigmoid(2 * B - torch.tensor(n - 1.0, dtype=torch.float64).log())


def alibi_bound(B: float, slope: float, distance: int | Tensor) -> Tensor:
    """The bound e^{2B - slope distance} on the weight of a token at a distance, content logits in [-B, B]."""
    return torch.exp(2 * B - slope * torch.as_tensor(distance).double())


def gate_preactivation_for_hold(a: float | Tensor, A: float, T: float | Tensor) -> Tensor:
    """The z = log expm1(log(1/a)/(|A| T)) whose gate softplus(z) keeps the fraction a over T steps."""
    delta = -torch.as_tensor(a, dtype=torch.float64).log() / (abs(A) * T)
    return delta + torch.log(-torch.expm1(-delta))  # log expm1(delta) without its overflow


def lru_parameter_for_hold(a: float | Tensor, T: float | Tensor) -> Tensor:
    """The LRU parameter nu, lam = exp(-exp(nu)), that keeps the fraction a over T steps."""
    a, T = (torch.as_tensor(value, dtype=torch.float64) for value in (a, T))
    return torch.log(-torch.log(a)) - torch.log(T)


def pole_sensitivity(lam: float | Tensor, *, normalized: bool = False) -> Tensor:
    """E (dh/dlam)^2 of h_t = lam h_{t-1} + x_t for white x; ``normalized``: of sqrt(1 - lam^2) h."""
    lam = torch.as_tensor(lam, dtype=torch.float64)
    rest = (1 - lam) * (1 + lam)  # 1 - lam^2 would cancel near 1
    return rest**-2 if normalized else (1 + lam**2) / rest**3


def selective_log_attenuation(A: Tensor, delta: Tensor) -> Tensor:
    """Log of dh_{j+T}/dh_j in a selective SSM, (..., d, N), for A (d, N) and the steps delta (..., T, d)."""
    return A * delta.sum(dim=-2)[..., None]


def stacked_pole_kernel(rho: float, L: int, tau: Tensor) -> Tensor:
    """The kernel binom(tau + L - 1, L - 1) rho^tau of L layers h_t = rho h_{t-1} + x_t, at lags tau."""
    t = tau.double()
    logs = torch.xlogy(t, torch.tensor(rho, dtype=torch.float64))
    for k in range(1, L):
        logs = logs + torch.log1p(t / k)
    return torch.exp(logs)
