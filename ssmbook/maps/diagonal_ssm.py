"""S4D: a diagonal recurrence in every channel, the same at every token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer
from ssmbook.maps.base import New, RecurrentMap, Unpack, random_parameter, random_steps
from ssmbook.numerics import half_to_float32, phi1
from ssmbook.operators import DiagonalOperator, LagOperator
from ssmbook.scans import diagonal_scan


class DiagonalSSM(RecurrentMap):
    """d scalar SSMs side by side (S4D): W_ij = diag(kappa_1(i - j), ..., kappa_d(i - j)).

    A mode has a = -exp(log_decay) + i frequency, lam = exp(Delta_c a) and, by exact
    zero-order hold of an input of weight 1, B = Delta_c phi1(Delta_c a). The skip D_c is
    added at lag 0. Initially a = -1/2 + i pi m (S4D-Lin) or a = -(m + 1). Parameters
    ``log_decay``, ``frequency`` (d, modes), ``C`` (d, modes, 2: real and imaginary part;
    for real modes no frequencies, and (d, modes)), ``log_delta``, ``D`` (d,).
    ``interaction(x)`` is unbatched. This is the core of the layer, without activation and
    mixing of channels after it (`gu2022parameterization`).

    Parameters
    ----------
    d : int
        Width in and out.
    N : int
        Real states per channel; even for conjugate modes.
    conjugate : bool, default True
        N/2 complex modes, each for a conjugate pair, kappa_c(tau) = 2 Re sum_m C_cm
        lam_cm^tau B_cm; otherwise N real modes.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    ValueError
        If N is odd and the modes come in pairs.

    Examples
    --------
    >>> DiagonalSSM(3, N=8).interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    def __init__(self, d: int, *, N: int, conjugate: bool = True, **new: Unpack[New]):
        super().__init__(d, d)
        if conjugate and N % 2:
            raise ValueError(f"N must be even for conjugate modes, which come in pairs; got {N}")
        self.N, self.conjugate = check_integer("N", N, low=1), conjugate
        self.modes = N // 2 if conjugate else N
        self.state_shape = d, self.modes
        self.log_delta = nn.Parameter(random_steps(d, **new).log())
        self.D = random_parameter(d, fan_in=1, **new)
        shape = (d, self.modes, 2) if conjugate else (d, self.modes)
        self.C = random_parameter(*shape, fan_in=N, **new)
        m = torch.arange(self.modes, dtype=self.D.dtype, device=self.D.device).expand(d, self.modes)
        decay = torch.full_like(m, 0.5) if conjugate else m + 1
        self.log_decay = nn.Parameter(decay.log())
        self.register_parameter("frequency", nn.Parameter(math.pi * m) if conjugate else None)

    def _modes(self) -> tuple[Tensor, Tensor, Tensor]:
        """log lam, B and C per channel and mode: (d, modes), complex if conjugate; never in half."""
        a, C = -half_to_float32(self.log_decay).exp(), half_to_float32(self.C)
        if self.conjugate:
            a, C = torch.complex(a, half_to_float32(self.frequency)), 2 * torch.view_as_complex(C)
        delta = half_to_float32(self.log_delta).exp()[:, None]
        return delta * a, delta * phi1(delta * a), C

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        state = super().initial_state(batch_shape)
        return state.to(state.dtype.to_complex()) if self.conjugate else state

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        log_lam, B, C = self._modes()
        entered = (B * x[..., None]).flatten(-2)
        h, end = diagonal_scan(log_lam.exp().flatten().expand(entered.shape), entered, state.flatten(-2))
        y = (C * h.unflatten(-1, C.shape)).sum(-1).real.to(x.dtype) + self.D * x
        return y, end.view(state.shape)

    def kernel(self, n: int) -> Tensor:
        """The kernels kappa_c(tau) of all channels, skip included at lag 0: (n, d)."""
        log_lam, B, C = self._modes()
        # In the dtype of the modes: half precision cannot count past 256 or 2048.
        tau = torch.arange(n, dtype=log_lam.real.dtype, device=self.D.device)
        kappa = (C * B * torch.exp(tau[:, None, None] * log_lam)).sum(-1).real.to(self.D.dtype)
        return torch.cat([kappa[:1] + self.D, kappa[1:]])

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        return DiagonalOperator(LagOperator(self.kernel(x.shape[-2]).mT[..., None, None]))


ZOO = {
    "S4D": lambda of, new: DiagonalSSM(of.d, N=of.N, **new),
    "S4D, real": lambda of, new: DiagonalSSM(of.d, N=of.N, conjugate=False, **new),
}
