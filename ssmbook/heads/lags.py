"""Lag operators of four matrices that are not held together by a `System` yet."""

from __future__ import annotations

import torch

from ssmbook._checks import check_alike, check_tensor
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
    """Refuse with a ``ValueError`` a system (A, B, C) whose first N + 1 lags are not M's, to 1e-6 of the
    largest. Introduced in *how-many-heads-really*.
    """
    check_alike(M=M, A=A)
    few = min(len(M), len(A) + 1)
    first = lag_operators(A, B, C, few)
    same = first.shape == M[:few].shape
    if not same or _largest(first - M[:few]) > 1e-6 * _largest(first):
        raise ValueError(f"system must have the lags M; its first {few} differ from them")


def _largest(tensor):
    return float(tensor.abs().max()) if tensor.numel() else 0.0
