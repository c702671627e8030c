"""Selective SSMs: the diagonal recurrences of Mamba-1 and Griffin, whose rates the token sets."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_choice, check_integer
from ssmbook.maps.base import New, RecurrentMap, Unpack, inverse_softplus, random_parameter, random_steps
from ssmbook.numerics import half_to_float32, phi1
from ssmbook.operators import DiagonalOperator
from ssmbook.operators.recurrent import ModalOperator
from ssmbook.scans import diagonal_scan, selective_scan
from ssmbook.scans.selective import ExactDecay


class SelectiveSSM(RecurrentMap):
    """Selective SSM: a diagonal recurrence in every channel whose step, input and output the token selects.

    h_i = exp(Delta_i A) h_{i-1} + B_bar_i x_i, y_i = C_i h_i + D x_i for each channel. W_ij
    = diag over channels of C_i exp(A (Delta_{j+1} + ... + Delta_i)) B_bar_j, plus D at i =
    j. Delta_i = softplus(W_delta x_i + b_delta), B_i = W_B x_i, C_i = W_C x_i, A =
    -exp(log_A). Parameters ``W_delta`` (d, d), ``b_delta`` (d,), ``W_B``, ``W_C`` (N, d),
    ``log_A`` (d, N), ``D`` (d,). This is the core of the layer, without in and out
    projections, short convolution, SiLU, gate, low rank of W_delta (`gu2024mamba`).

    Parameters
    ----------
    d : int
        Width in and out (Mamba's inner width).
    N : int
        States per channel.
    discretization : {"zoh", "mixed"}, default "zoh"
        B_bar = Delta phi1(Delta A) B (exact zero-order hold), or Delta B (what Mamba's code
        computes).
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    TypeError, ValueError
        If ``N`` is no whole number of at least 1, or the discretization is unknown.

    Examples
    --------
    >>> layer = SelectiveSSM(3, N=8)
    >>> layer.interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    def __init__(self, d: int, *, N: int, discretization: ExactDecay = "zoh", **new: Unpack[New]):
        super().__init__(d, d)
        self.N = check_integer("N", N, low=1)
        self.state_shape = d, self.N
        self.discretization = check_choice("discretization", discretization, get_args(ExactDecay))
        self.W_delta = random_parameter(d, d, fan_in=d, **new)
        self.b_delta = nn.Parameter(inverse_softplus(random_steps(d, **new)))
        self.W_B = random_parameter(N, d, fan_in=d, **new)
        self.W_C = random_parameter(N, d, fan_in=d, **new)
        rates = torch.arange(1, N + 1, dtype=self.W_B.dtype, device=self.W_B.device)
        self.log_A = nn.Parameter(rates.log().repeat(d, 1))
        self.D = nn.Parameter(self.W_B.new_ones(d))

    @classmethod
    def from_transformers(cls, mixer: nn.Module) -> SelectiveSSM:
        """The core of a Mamba mixer of transformers with its weights, between short convolution and gate.

        mixer: a ``MambaMixer``, or any module with ``x_proj``, ``dt_proj``, ``A_log`` and
        ``D`` of its shapes. The low rank of its steps is multiplied out; the discretization
        is "mixed". Returns a new map in the dtype and on the device of the mixer. Raises
        ``TypeError`` for other modules, ``ValueError`` for norms on the selection (Jamba,
        Falcon-Mamba), because these make it nonlinear.
        """
        if not all(hasattr(mixer, name) for name in ("x_proj", "dt_proj", "A_log", "D")):
            raise TypeError(f"mixer must have x_proj, dt_proj, A_log and D; got {type(mixer).__name__}")
        if hasattr(mixer, "rms_eps") or hasattr(mixer, "b_layernorm"):
            raise ValueError(f"mixer must select linearly; got norms on its steps, in {type(mixer).__name__}")
        log_A, steps = mixer.A_log, mixer.dt_proj
        d, N = log_A.shape
        low, W_B, W_C = mixer.x_proj.weight.split([steps.in_features, N, N])
        core = cls(d, N=N, discretization="mixed", dtype=log_A.dtype, device=log_A.device)
        found = {"W_delta": steps.weight @ low, "b_delta": steps.bias, "W_B": W_B, "W_C": W_C}
        core.load_state_dict(found | {"log_A": log_A, "D": mixer.D})
        return core

    def selection(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the tokens select: Delta (..., n, d), A (d, N), B_bar (..., n, d, N) and C (..., n, N).

        x: (..., n, d), or one token (..., d) for results without n.
        """
        delta, A, B, C = self._select(x)
        B_bar = delta[..., None] * B[..., None, :]
        if self.discretization == "zoh":
            B_bar = B_bar * phi1(delta[..., None] * A)
        return delta, A, B_bar, C

    def _select(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Delta (..., n, d), A (d, N), B and C (..., n, N)."""
        delta = functional.softplus(x @ self.W_delta.mT + self.b_delta)
        return delta, -self.log_A.exp(), x @ self.W_B.mT, x @ self.W_C.mT

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return selective_scan(x, *self._select(x), self.D, state, discretization=self.discretization)

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        return selective_operator(*self.selection(x), self.D)


def selective_operator(delta: Tensor, A: Tensor, B_bar: Tensor, C: Tensor, D: Tensor) -> DiagonalOperator:
    """The operator of a selective scan, delta (..., n, d), A (d, N), B_bar (..., n, d, N), C (..., n, N)."""
    # One scalar recurrence per channel, (..., d, n, N); all of them are read out by the same C.
    log_decay, entered = (values.transpose(-3, -2) for values in (delta[..., None] * A, B_bar))
    read = C[..., None, :, None, :].expand(*entered.shape[:-1], 1, C.shape[-1])
    skip = D[:, None, None, None].expand(*entered.shape[:-1], 1, 1)
    return DiagonalOperator(ModalOperator(log_decay, entered[..., None], read, skip))


class RGLRU(RecurrentMap):
    """RG-LRU, the recurrence of Griffin: each channel is a running average at its own rate.

    h_i = a_i h_{i-1} + sqrt(1 - a_i^2) g_i x_i, entry by entry, and y_i = h_i. The token
    gates the rate, log a_i = -8 sigmoid(W_a x_i + b_a) softplus(rate), and the input, g_i =
    sigmoid(W_g x_i + b_g). W_ij = diag(a_{j+1} ... a_i sqrt(1 - a_j^2) g_j). Parameters
    ``W_a``, ``W_g`` (d, d; in Griffin block-diagonal), ``b_a``, ``b_g``, ``rate`` (d,); at
    the start an open gate has a between 0.9 and 0.999 (`de2024griffin`).

    Parameters
    ----------
    d : int
        Width in and out.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Examples
    --------
    >>> layer = RGLRU(3)
    >>> layer.interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    def __init__(self, d: int, **new: Unpack[New]):
        super().__init__(d, d)
        self.state_shape = (d,)
        self.W_a, self.W_g = (random_parameter(d, d, fan_in=d, **new) for _ in "ag")
        self.b_a, self.b_g = (nn.Parameter(self.W_a.new_zeros(d)) for _ in "ag")
        a = 0.9 + 0.099 * torch.rand(d, **new)
        self.rate = nn.Parameter(inverse_softplus(-a.log() / 8))

    def _gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log a and sqrt(1 - a^2) g, (..., n, d), in float32 or wider: in half 1 - a^2 vanishes."""
        a, g = (x @ W.mT + b for W, b in ((self.W_a, self.b_a), (self.W_g, self.b_g)))
        log_a = -8 * torch.sigmoid(half_to_float32(a)) * functional.softplus(half_to_float32(self.rate))
        return log_a, (-torch.expm1(2 * log_a)).sqrt() * torch.sigmoid(half_to_float32(g))

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        log_a, entered = self._gates(x)
        h, end = diagonal_scan(log_a, entered * x, state, log=True)
        return h.to(x.dtype), end

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        log_a, entered = (a.to(x.dtype).mT[..., None] for a in self._gates(x))  # (..., d, n, 1)
        one = torch.ones_like(entered)[..., None]
        return DiagonalOperator(ModalOperator(log_a, entered[..., None], one))


ZOO = {
    "selective SSM, zoh": lambda of, new: SelectiveSSM(of.d, N=of.N, discretization="zoh", **new),
    "selective SSM, Euler": lambda of, new: SelectiveSSM(of.d, N=of.N, discretization="mixed", **new),
    "RG-LRU": lambda of, new: RGLRU(of.d, **new),
}
