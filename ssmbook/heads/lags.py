"""Lag operators of four matrices that are not held together by a `System` yet."""

from __future__ import annotations

import torch

from ssmbook._checks import check_alike, check_tensor
from ssmbook.systems._units import ldexp, standard_form
from ssmbook.systems.system import System


def lag_operators(A, B, C, n, D=None) -> torch.Tensor:
    """The lag operators M_tau = C A^tau B of a state space model for tau = 0 ... n-1, the skip in M_0.

    ``System(A, B, C, D).lags(n)``, which see. Introduced in *structured-dynamics*.
    """
    return System(A, B, C, D).lags(n)


def check_system(A, B, C, D=None, *, complex_ok: bool = False) -> dict[str, int]:
    """Hold four matrices to one system, real unless ``complex_ok``; return the sizes N, d, p."""
    if not complex_ok:
        check_tensor("A", A)
    system = System(A, B, C, D)
    return {"N": system.N, "d": system.d, "p": system.p}


def check_behind(M: torch.Tensor, A, B, C) -> None:
    """Refuse with a ``ValueError`` a system (A, B, C) whose first N + 1 lags are not M's.

    They may differ by 1e-6 of the largest, and by what rounding can do to the sums they are, which matters
    where terms cancel. Introduced in *how-many-heads-really*.
    """
    check_alike(M=M, A=A)
    few = min(len(M), len(A) + 1)
    first = lag_operators(A, B, C, few)
    same = first.shape == M[:few].shape
    if same:
        missed = (first - M[:few]).double().abs() - _rounding(A, B, C, few).to(A.device)
        same = _largest(missed.clamp_min(0)) <= 1e-6 * _largest(first)
    if not same:
        raise ValueError(f"system must have the lags M; its first {few} differ from them")


def _rounding(A, B, C, few: int) -> torch.Tensor:
    """What rounding can add to the lags (few, p, d): 10 (N + 1) (tau + 1) rounding units of |C| |A|^tau |B|.

    Worked in units in which the states compare: others let terms overflow that no lag holds.
    """
    form = standard_form(*(m.detach().double().abs().cpu() for m in (A, B, C)), literal=True)
    unit, (step, exponent), sums, state = torch.finfo(A.dtype).eps * 10 * (len(A) + 1), form.step, [], form.B
    for tau in range(few):
        size = ldexp((form.C @ state) * float(step) ** tau, tau * int(exponent))
        sums.append(unit * (tau + 1) * size * form.scale)
        state = form.A @ state
    return torch.stack(sums) if sums else form.scale.new_zeros(0, *form.scale.shape)


def _largest(tensor):
    return float(tensor.abs().max()) if tensor.numel() else 0.0
