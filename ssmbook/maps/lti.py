"""The linear time-invariant state space model with matrix state: S5, LRU and every other MIMO layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ssmbook._checks import check_flags, check_integer, check_like, check_positive
from ssmbook.maps.base import RecurrentMap, zero_state
from ssmbook.numerics import single
from ssmbook.operators import LagOperator
from ssmbook.scans import lti_scan
from ssmbook.systems.system import System, check_system


class LTISSM(RecurrentMap):
    """Linear time-invariant SSM: W_ij = C A^(i-j) B for j <= i, plus D at i = j.

    h_i = A h_{i-1} + B x_i, y_i = C h_i + D x_i. ``system``: one real `System`, whose matrices are copied
    into parameters of the same names; ``layer.system`` is the `System` they make now. W does not depend on
    X, so ``interaction(x)`` is unbatched. ``forward`` is :func:`ssmbook.scans.lti_scan`, with its warning.
    Raises ``TypeError`` for what is no System and a complex one, ``ValueError`` for a batch. Introduced in
    *zoo*.

    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> layer = LTISSM(System(turn, torch.eye(2), torch.eye(2)))
    >>> layer.interaction(torch.randn(8, 2)).interaction_rank()  # a turning state is two heads
    2
    """

    def __init__(self, system: System):
        check_system(system, batched=False, complex_ok=False)
        super().__init__(system.d, system.p)
        self.N = system.N
        for name, matrix in zip("ABCD", system, strict=True):
            copied = None if matrix is None else nn.Parameter(matrix.clone())
            self.register_parameter(name, copied)

    @property
    def system(self) -> System:
        """The parameters as a `System`, through which gradients pass."""
        return System._trusted(self.A, self.B, self.C, self.D)

    @classmethod
    def random(
        cls,
        d: int,
        p: int,
        *,
        N: int,
        rho: float = 0.9,
        skip: bool = False,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> LTISSM:
        """A random system with spectral radius rho, 0.9 unless said: independent normal entries, A rescaled.

        d, p: widths in and out; N: states; rho >= 0; skip: also draw a D. Raises
        ``ValueError``/``TypeError`` for bad sizes or rho. Introduced in *zoo*.
        """
        d, p, N = (check_integer(name, value, low=1) for name, value in {"d": d, "p": p, "N": N}.items())
        rho = check_positive("rho", rho, zero_ok=True)
        check_flags(skip=skip)
        check_like(generator=generator, dtype=dtype, device=device)
        like = {"generator": generator, "dtype": dtype, "device": device}
        A = torch.randn(N, N, **like)
        A = A * (rho / torch.linalg.eigvals(single(A)).abs().max())
        B, C = torch.randn(N, d, **like) / d**0.5, torch.randn(p, N, **like) / N**0.5
        return cls(System(A, B, C, torch.randn(p, d, **like) / d**0.5 if skip else None))

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return zero_state(self.A, batch_shape, self.N)

    def _forward(self, x: Tensor) -> Tensor:
        y, _ = lti_scan(self.A, self.B, self.C, x)
        return y if self.D is None else y + x @ self.D.mT

    def _interaction(self, x: Tensor) -> LagOperator:
        return LagOperator(self.system.lags(x.shape[-2]), x.shape[-2])

    def _step(self, x_t: Tensor, state: Tensor):
        A, B, C = map(single, (self.A, self.B, self.C))
        h = state @ A.mT + single(x_t) @ B.mT
        y_t = (h @ C.mT).to(x_t.dtype)
        return (y_t if self.D is None else y_t + x_t @ self.D.mT), h
