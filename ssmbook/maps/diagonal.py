"""The diagonal state space model (S4D): one scalar system per channel, no mixing of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook._checks import check_flags, check_integer
from ssmbook.maps.base import RecurrentMap, draw, spelled_out, zero_state
from ssmbook.maps.timescales import draw_steps
from ssmbook.numerics import phi1, single
from ssmbook.operators import DiagonalOperator, LagOperator
from ssmbook.scans import diagonal_scan


class DiagonalSSM(RecurrentMap):
    """d scalar SSMs side by side (S4D): W_ij = diag(kappa_1(i - j), ..., kappa_d(i - j)).

    d: width in and out; N: real states per channel. pairs=True (N even): N/2 complex modes, each standing
    for a conjugate pair, kappa_c(tau) = 2 Re sum_m C_cm lam_cm^tau B_cm; pairs=False: N real modes (a pair
    of frequency 0 is one real mode). A mode has a = -exp(log_decay) + i frequency, lam = exp(Delta_c a) and,
    by exact zero-order hold of an input of weight 1, B = Delta_c phi1(Delta_c a). The skip D_c joins at lag
    0. Starts at a = -1/2 + i pi m (S4D-Lin) or a = -(m + 1).
    Parameters ``log_decay``, ``frequency`` (d, modes), ``C`` (d, modes, 2: real and imaginary part; without
    pairs the frequencies are absent and ``C`` is (d, modes)), ``log_delta``, ``D`` (d,). W does not depend
    on X, so ``interaction(x)`` is unbatched. Left out (core): activation and mixing of channels after it
    (`gu2022parameterization`). Raises ``ValueError``/``TypeError`` for bad sizes. Introduced in *zoo*.

    >>> DiagonalSSM(3, N=8).interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    @spelled_out
    def __init__(self, d: int, *, N: int, pairs: bool = True, **new: Any):
        super().__init__(d, d)
        N = check_integer("N", N, low=1)
        check_flags(pairs=pairs)
        if pairs and N % 2:
            raise ValueError(f"N must be even with pairs=True (conjugate pairs); got {N}")
        self.N, self.pairs = N, pairs
        modes = N // 2 if pairs else N
        self.log_delta = nn.Parameter(draw_steps(d, **new).log())
        self.D = draw(d, fan_in=1, **new)
        m = torch.arange(modes, dtype=self.D.dtype, device=self.D.device).expand(d, modes)
        self.C = draw(d, modes, 2, fan_in=N, **new) if pairs else draw(d, modes, fan_in=N, **new)
        decay = torch.full_like(m, 0.5) if pairs else m + 1
        self.log_decay = nn.Parameter(decay.log())
        self.register_parameter("frequency", nn.Parameter(math.pi * m) if pairs else None)

    def _modes(self) -> tuple[Tensor, Tensor, Tensor]:
        """log lam, B and C per channel and mode: (d, modes), complex with pairs, else real; never in half."""
        a, C = -single(self.log_decay).exp(), single(self.C)
        if self.pairs:
            a, C = torch.complex(a, single(self.frequency)), 2 * torch.view_as_complex(C)
        delta = single(self.log_delta).exp()[:, None]
        return delta * a, delta * phi1(delta * a), C

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        modes = self.N // 2 if self.pairs else self.N
        state = zero_state(self.D, batch_shape, self.d, modes)
        return state.to(state.dtype.to_complex()) if self.pairs else state

    def _forward(self, x: Tensor) -> Tensor:
        log_lam, B, C = self._modes()
        entered = (B * x[..., None]).flatten(-2)
        h, _ = diagonal_scan(log_lam.exp().flatten().expand(entered.shape), entered)
        return (C * h.unflatten(-1, C.shape)).sum(-1).real.to(x.dtype) + self.D * x

    def kernel(self, n: int) -> Tensor:
        """The kernels kappa_c(tau) of all channels, skip included at lag 0: (n, d). Introduced in *zoo*."""
        n = check_integer("n", n, low=0)
        log_lam, B, C = self._modes()
        # Not in half precision, which counts to 256 or 2048 only.
        tau = torch.arange(n, dtype=log_lam.real.dtype, device=self.D.device)
        kappa = (C * B * torch.exp(tau[:, None, None] * log_lam)).sum(-1).real.to(self.D.dtype)
        return torch.cat([kappa[:1] + self.D, kappa[1:]])

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        return DiagonalOperator(LagOperator(self.kernel(x.shape[-2]).mT[..., None, None]))

    def _step(self, x_t: Tensor, state: Tensor):
        log_lam, B, C = self._modes()
        h = log_lam.exp() * state + B * x_t[..., None]
        return (C * h).sum(-1).real.to(x_t.dtype) + self.D * x_t, h
