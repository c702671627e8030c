"""The impulse response by the plain loop: the naive twin of `System.lags`."""

from __future__ import annotations

import torch

from ssmbook.scans import lti_kernel_naive
from ssmbook.systems.system import System, check_system, system_first, with_skip


@system_first
def impulse_response(system: System, n: int) -> torch.Tensor:
    """The lag operators M_tau = C A^tau B for tau < n, one product at a time; M_0 takes the skip D too.

    A `System`, real or complex, batches too -> M (..., n, p, d), same dtype and device. Lag 0 is C B: the
    state has already seen the token it is read at. This is the naive form of `System.lags`, kept as its
    reference. Raises TypeError for what is no System, ValueError for n < 0; an unstable A overflows to inf.
    Source: `kailath1980linear`. Introduced in *structured-dynamics*.

    >>> system = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
    >>> impulse_response(system, 3).flatten().tolist()
    [1.0, 0.5, 0.25]
    """
    A, B, C, D = check_system(system)
    return with_skip(lti_kernel_naive(A, B, C, n), D)
