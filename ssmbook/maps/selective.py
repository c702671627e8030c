"""The selective state space model (the core of Mamba-1): each channel keeps its own clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_choice, check_integer
from ssmbook.maps.base import RecurrentMap, draw, spelled_out, zero_state
from ssmbook.maps.timescales import draw_steps, inverse_softplus
from ssmbook.numerics import phi1, single
from ssmbook.operators import DiagonalOperator
from ssmbook.operators.recurrent import ModalOperator
from ssmbook.scans import selective_scan

DISCRETIZATIONS = ("zoh", "euler")


class SelectiveSSM(RecurrentMap):
    """Selective SSM: a diagonal recurrence in every channel whose step, input and output the token selects.

    h_i = exp(Delta_i A) h_{i-1} + B_bar_i x_i, y_i = C_i h_i + D x_i for each channel.
    W_ij = diag over channels of C_i exp(A (Delta_{j+1} + ... + Delta_i)) B_bar_j, plus D at i = j. d: width
    in and out (Mamba's inner width); N: states per channel; discretization: "zoh", B_bar = Delta phi1(Delta
    A) B (exact zero-order hold), or "euler", B_bar = Delta B (what Mamba's code computes). Delta_i =
    softplus(W_delta x_i + b_delta), B_i = W_B x_i, C_i = W_C x_i, A = -exp(log_A). Parameters ``W_delta``
    (d, d), ``b_delta`` (d,), ``W_B``, ``W_C`` (N, d), ``log_A`` (d, N), ``D`` (d,).
    Left out (core): in and out projections, short convolution, SiLU, gate, low rank of W_delta
    (`gu2024mamba`).
    Raises ``ValueError``/``TypeError`` for bad sizes or an unknown discretization. Introduced in *zoo*.

    >>> layer = SelectiveSSM(3, N=8)
    >>> layer.interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    @spelled_out
    def __init__(self, d: int, *, N: int, discretization: str = "zoh", **new: Any):
        super().__init__(d, d)
        N = check_integer("N", N, low=1)
        check_choice("discretization", discretization, DISCRETIZATIONS)
        self.N, self.discretization = N, discretization
        self.W_delta = draw(d, d, fan_in=d, **new)
        self.b_delta = nn.Parameter(inverse_softplus(draw_steps(d, **new)))
        self.W_B = draw(N, d, fan_in=d, **new)
        self.W_C = draw(N, d, fan_in=d, **new)
        rates = torch.arange(1, N + 1, dtype=self.W_B.dtype, device=self.W_B.device)
        self.log_A = nn.Parameter(rates.log().repeat(d, 1))
        self.D = nn.Parameter(self.W_B.new_ones(d))

    @classmethod
    def from_transformers(cls, mixer: nn.Module) -> SelectiveSSM:
        """The core of a Mamba mixer of transformers with its weights, between short convolution and gate.

        mixer: a ``MambaMixer``, or any module with ``x_proj``, ``dt_proj``, ``A_log`` and ``D`` of its
        shapes. The low rank of its steps is multiplied out; "euler", as Mamba computes. Returns a new map in
        the dtype and on the device of the mixer. Raises ``TypeError`` for anything else, ``ValueError`` where
        norms stand between projection and core (Jamba, Falcon-Mamba: no linear selection). Introduced in
        *trained-layers*.
        """
        parts = [getattr(mixer, name, None) for name in ("x_proj", "dt_proj", "A_log", "D")]
        if not isinstance(mixer, nn.Module) or any(part is None for part in parts):
            raise TypeError(f"mixer must have x_proj, dt_proj, A_log and D; got {type(mixer).__name__}")
        x_proj, dt_proj, log_A, D = parts
        if hasattr(mixer, "rms_eps") or hasattr(mixer, "b_layernorm"):
            raise ValueError(f"mixer must select linearly; got norms on its steps, in {type(mixer).__name__}")
        d, N = log_A.shape
        low, W_B, W_C = x_proj.weight.split([dt_proj.in_features, N, N])
        core = cls(d, N=N, discretization="euler", dtype=log_A.dtype, device=log_A.device)
        found = {"W_delta": dt_proj.weight @ low, "b_delta": dt_proj.bias, "W_B": W_B, "W_C": W_C}
        core.load_state_dict(found | {"log_A": log_A, "D": D})
        return core

    def selection(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the tokens select: Delta (..., n, d), A (d, N), B_bar (..., n, d, N) and C (..., n, N).

        x: (..., n, d), or one token (..., d) for results without n. Introduced in *zoo*.
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

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return zero_state(self.D, batch_shape, self.d, self.N)

    def _forward(self, x: Tensor) -> Tensor:
        return selective_scan(x, *self._select(x), self.D, hold=self.discretization)[0]

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        delta, A, B_bar, C = self.selection(x)
        # one scalar recurrence per channel, (..., d, n, N); all of them are read out by the same C
        log_decay, entered = (values.transpose(-3, -2) for values in (delta[..., None] * A, B_bar))
        read = C[..., None, :, None, :].expand(*entered.shape[:-1], 1, self.N)
        skip = self.D[:, None, None, None].expand(self.d, x.shape[-2], 1, 1)
        skip = skip.expand(*x.shape[:-2], *skip.shape)
        return DiagonalOperator(ModalOperator(log_decay, entered[..., None], read, skip))

    def _step(self, x_t: Tensor, state: Tensor):
        delta, A, B_bar, C = map(single, self.selection(x_t))
        h = torch.exp(delta[..., None] * A) * state + B_bar * x_t[..., None]
        return (h @ C[..., None]).squeeze(-1).to(x_t.dtype) + self.D * x_t, h
