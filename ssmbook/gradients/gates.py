"""What it costs to hold a value over T steps: a gate's pre-activation, a pole's parameter and sensitivity."""

from __future__ import annotations

import torch

from ssmbook._checks import as_real, check_flags, check_tensors, together


def selective_log_attenuation(A: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """Log of what a selective SSM keeps across a gap, exactly: -|A| sum_l Delta_l per channel and state.

    A (d, N), negative; delta (..., T, d), at least 0: the steps of the T tokens *after* the source, up to
    the reading one. Returns (..., d, N), same dtype: log of dh_{j+T}/dh_j, whatever the inputs, B and C. It
    is the state's own path: a short convolution that lets the source into later Deltas adds others, and the
    source's dh_j/dx_j holds dDelta and dB. Raises TypeError/ValueError for malformed arguments, A >= 0 or
    negative steps. Source: `gu2024mamba`. Introduced in *gradient-highway*.

    >>> selective_log_attenuation(torch.tensor([[-1.0, -2.0]]), torch.full((3, 1), 0.5)).tolist()
    [[-1.5, -3.0]]
    """
    check_tensors(A=(A, "d N"), delta=(delta, "... T d"), finite=True)
    if bool((A >= 0).any()):
        raise ValueError(f"A must be negative; got {float(A.max())}")
    if bool((delta < 0).any()):
        raise ValueError(f"delta must be at least 0; got {float(delta.min())}")
    return A * delta.sum(dim=-2)[..., None]


def gate_preactivation_for_hold(
    a: float | torch.Tensor, A: float | torch.Tensor, T: float | torch.Tensor
) -> torch.Tensor:
    """The gate softplus(z) that keeps the fraction a over T steps: z = log expm1(log(1/a)/(|A| T)).

    a in (0, 1); A nonzero: the pole's rate, only |A| counts; T > 0: the number of steps. Numbers or tensors,
    of equal shapes unless single. Returns float64 or the tensors' dtype; equals -log T + log(log(1/a)/|A|) +
    O(1/T): the logarithmic price. Raises TypeError/ValueError outside. Introduced in *gradient-highway*.

    >>> z = gate_preactivation_for_hold(a=0.5, A=-1.0, T=100)
    >>> torch.exp(-100 * torch.nn.functional.softplus(z))  # half is left after 100 steps
    tensor(0.5000, dtype=torch.float64)
    """
    a = as_real("a", a, low=0.0, high=1.0)
    A = as_real("A", A).abs()
    if bool((A == 0).any()):
        raise ValueError("A must be nonzero: at 0 every step holds; got 0")
    T = as_real("T", T, low=0.0)
    together(a=a, A=A, T=T)
    delta = -torch.log(a) / (A * T)
    return delta + torch.log(-torch.expm1(-delta))  # log expm1(delta) without its overflow


def lru_parameter_for_hold(a: float | torch.Tensor, T: float | torch.Tensor) -> torch.Tensor:
    """The LRU parameter nu, lam = exp(-exp(nu)), that keeps the fraction a over T: log log(1/a) - log T.

    Arguments, result and errors of :func:`gate_preactivation_for_hold`. Source:
    `orvieto2023resurrecting`. Introduced in *gradient-highway*.

    >>> nu = lru_parameter_for_hold(a=0.5, T=100)
    >>> torch.exp(-torch.exp(nu)) ** 100
    tensor(0.5000, dtype=torch.float64)
    """
    a = as_real("a", a, low=0.0, high=1.0)
    T = as_real("T", T, low=0.0)
    together(a=a, T=T)
    return torch.log(-torch.log(a)) - torch.log(T)


def pole_sensitivity(lam: float | torch.Tensor, *, normalized: bool = False) -> torch.Tensor:
    """E (dh/dlam)^2 of h_t = lam h_{t-1} + x_t, stationary, white x of variance 1: (1 + lam^2)/(1 - lam^2)^3.

    lam in (-1, 1), a number or tensor. ``normalized``: of sqrt(1 - lam^2) h instead, the LRU's scaling, the
    derivative of the scaling included: 1/(1 - lam^2)^2. So a pole near 1 costs (1 - rho)^{-3}, or (1 -
    rho)^{-2} normalized. Proof: dh/dlam = sum_tau tau lam^{tau-1} x_{t-tau}; sum the squares. Returns
    float64 or the dtype of a tensor lam. Raises TypeError/ValueError outside. Source:
    `zucchet2024recurrent`. Introduced in *gradient-highway*.

    >>> pole_sensitivity(torch.tensor([0.0, 0.9]))  # a pole near 1 moves the state most
    tensor([  1.0000, 263.8867])
    """
    check_flags(normalized=normalized)
    lam = as_real("lam", lam, low=-1.0, high=1.0)
    rest = (1 - lam) * (1 + lam)  # not 1 - lam^2: that cancels near 1, where the price is read
    return rest**-2 if normalized else (1 + lam**2) / rest**3
