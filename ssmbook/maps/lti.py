"""The linear time-invariant state space model with matrix state: S5, LRU and every other MIMO layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._checks import check_alike, check_finite, check_integer, check_shape
from ..operators import LagOperator
from ..scans import lti_kernel, lti_scan
from .base import RecurrentMap


class LTISSM(RecurrentMap):
    """Linear time-invariant SSM: W_ij = C A^(i-j) B for j <= i, plus D at i = j.

    h_i = A h_{i-1} + B x_i, y_i = C h_i + D x_i. A: (N, N), B: (N, d), C: (p, N), D: (p, d) or None for no
    skip; one dtype, one device, finite. They are copied into parameters of the same names. W does not depend
    on X, so ``interaction(x)`` is unbatched. ``forward`` is :func:`ssmbook.scans.lti_scan`, with its warning.
    Raises ``ValueError``/``TypeError`` for tensors that do not fit together. Introduced in *zoo*.
    """

    def __init__(self, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None):
        size = check_shape("C", C, "p N", check_shape("B", B, "N d", check_shape("A", A, "N N")))
        given = {"A": A, "B": B, "C": C}
        if D is not None:
            check_shape("D", D, "p d", size)
            given["D"] = D
        check_alike(**given)
        for name, tensor in given.items():
            check_finite(name, tensor)
        super().__init__(size["d"], size["p"])
        self.N = size["N"]
        for name in ("A", "B", "C", "D"):
            copied = nn.Parameter(given[name].detach().clone()) if name in given else None
            self.register_parameter(name, copied)

    @classmethod
    def random(cls, d, p, *, N, rho=0.9, skip=False, generator=None, dtype=None, device=None) -> LTISSM:
        """A random system with spectral radius rho: independent normal entries, A rescaled.

        d, p: widths in and out; N: states; rho >= 0; skip: also draw a D. Raises
        ``ValueError``/``TypeError`` for bad sizes or rho. Introduced in *zoo*.
        """
        for name, value in {"d": d, "p": p, "N": N}.items():
            check_integer(name, value, low=1)
        if not 0 <= rho < float("inf"):
            raise ValueError(f"rho must be finite and at least 0; got {rho}")
        like = {"generator": generator, "dtype": dtype, "device": device}
        A = torch.randn(N, N, **like)
        A = A * (rho / torch.linalg.eigvals(A).abs().max())
        B, C = torch.randn(N, d, **like) / d**0.5, torch.randn(p, N, **like) / N**0.5
        return cls(A, B, C, torch.randn(p, d, **like) / d**0.5 if skip else None)

    def initial_state(self, batch_shape=()):
        return self.A.new_zeros(*batch_shape, self.N)

    def _forward(self, x: Tensor) -> Tensor:
        y, _ = lti_scan(self.A, self.B, self.C, x)
        return y if self.D is None else y + x @ self.D.mT

    def lag_operators(self, n: int) -> Tensor:
        """M_0 = C B + D and M_tau = C A^tau B for 0 < tau < n: (n, p, d). Introduced in *zoo*."""
        check_integer("n", n, low=0)
        M = lti_kernel(self.A, self.B, self.C, n)
        return M if self.D is None or n == 0 else torch.cat([M[:1] + self.D, M[1:]])

    def _interaction(self, x: Tensor) -> LagOperator:
        return LagOperator(self.lag_operators(x.shape[-2]), x.shape[-2])

    def _step(self, x_t: Tensor, state: Tensor):
        h = state @ self.A.mT + x_t @ self.B.mT
        y_t = h @ self.C.mT
        return (y_t if self.D is None else y_t + x_t @ self.D.mT), h
