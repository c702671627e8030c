"""State space maps: a matrix state (S5, LRU), a diagonal one (S4D), a selective one (Mamba-1, RG-LRU)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_choice
from ssmbook.maps.base import RecurrentMap, inverse_softplus, random_parameter, random_steps
from ssmbook.numerics import half_to_float32, phi1
from ssmbook.operators import DiagonalOperator, LagOperator
from ssmbook.operators.recurrent import ModalOperator
from ssmbook.scans import diagonal_scan, lti_scan, selective_scan
from ssmbook.scans.selective import ExactDecay
from ssmbook.systems.system import System, check_system


class LTISSM(RecurrentMap):
    """Linear time-invariant SSM: W_ij = C A^(i-j) B for j <= i, plus D at i = j.

    h_i = A h_{i-1} + B x_i, y_i = C h_i + D x_i. ``system``: one real `System`, whose matrices are copied
    into parameters of the same names; ``layer.system`` is the `System` of the current parameters. W does not
    depend on X, so ``interaction(x)`` is unbatched. Raises ``TypeError`` for anything but a real System,
    ``ValueError`` for a batch.

    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> layer = LTISSM(System(turn, torch.eye(2), torch.eye(2)))
    >>> layer.interaction(torch.randn(8, 2)).interaction_rank()  # a rotating state takes two heads
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
    def random(cls, d: int, p: int, *, N: int, rho: float = 0.9, skip: bool = False, **new: Any) -> LTISSM:
        """A system of N states with spectral radius rho: independent normal entries, A rescaled."""
        A = torch.randn(N, N, **new)
        A = A * (rho / torch.linalg.eigvals(half_to_float32(A)).abs().max())
        B, C = torch.randn(N, d, **new) / d**0.5, torch.randn(p, N, **new) / N**0.5
        return cls(System(A, B, C, torch.randn(p, d, **new) / d**0.5 if skip else None))

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return half_to_float32(self.A.new_zeros(*batch_shape, self.N))

    def _forward(self, x: Tensor) -> Tensor:
        y, _ = lti_scan(self.A, self.B, self.C, x)
        return y if self.D is None else y + x @ self.D.mT

    def _interaction(self, x: Tensor) -> LagOperator:
        return LagOperator(self.system.lags(x.shape[-2]), x.shape[-2])

    def _step(self, x_t: Tensor, state: Tensor):
        A, B, C = map(half_to_float32, (self.A, self.B, self.C))
        h = state @ A.mT + half_to_float32(x_t) @ B.mT
        y_t = (h @ C.mT).to(x_t.dtype)
        return (y_t if self.D is None else y_t + x_t @ self.D.mT), h


class DiagonalSSM(RecurrentMap):
    """d scalar SSMs side by side (S4D): W_ij = diag(kappa_1(i - j), ..., kappa_d(i - j)).

    d: width in and out; N: real states per channel. pairs=True (N even): N/2 complex modes, each for a
    conjugate pair, kappa_c(tau) = 2 Re sum_m C_cm lam_cm^tau B_cm; pairs=False: N real modes. A mode has
    a = -exp(log_decay) + i frequency, lam = exp(Delta_c a) and, by exact zero-order hold of an input of
    weight 1, B = Delta_c phi1(Delta_c a). The skip D_c is added at lag 0. Initially a = -1/2 + i pi m
    (S4D-Lin) or a = -(m + 1). Parameters ``log_decay``, ``frequency`` (d, modes), ``C`` (d, modes, 2: real
    and imaginary part; without pairs no frequencies, and (d, modes)), ``log_delta``, ``D`` (d,).
    ``interaction(x)`` is unbatched. This is the core of the layer, without activation and mixing of channels
    after it (`gu2022parameterization`).

    >>> DiagonalSSM(3, N=8).interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    def __init__(self, d: int, *, N: int, pairs: bool = True, **new: Any):
        super().__init__(d, d)
        if pairs and N % 2:
            raise ValueError(f"N must be even with pairs=True (conjugate pairs); got {N}")
        self.N, self.pairs, self.modes = N, pairs, N // 2 if pairs else N
        self.log_delta = nn.Parameter(random_steps(d, **new).log())
        self.D = random_parameter(d, fan_in=1, **new)
        shape = (d, self.modes, 2) if pairs else (d, self.modes)
        self.C = random_parameter(*shape, fan_in=N, **new)
        m = torch.arange(self.modes, dtype=self.D.dtype, device=self.D.device).expand(d, self.modes)
        decay = torch.full_like(m, 0.5) if pairs else m + 1
        self.log_decay = nn.Parameter(decay.log())
        self.register_parameter("frequency", nn.Parameter(math.pi * m) if pairs else None)

    def _modes(self) -> tuple[Tensor, Tensor, Tensor]:
        """log lam, B and C per channel and mode: (d, modes), complex with pairs, else real; never in half."""
        a, C = -half_to_float32(self.log_decay).exp(), half_to_float32(self.C)
        if self.pairs:
            a, C = torch.complex(a, half_to_float32(self.frequency)), 2 * torch.view_as_complex(C)
        delta = half_to_float32(self.log_delta).exp()[:, None]
        return delta * a, delta * phi1(delta * a), C

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        state = half_to_float32(self.D.new_zeros(*batch_shape, self.d, self.modes))
        return state.to(state.dtype.to_complex()) if self.pairs else state

    def _forward(self, x: Tensor) -> Tensor:
        log_lam, B, C = self._modes()
        entered = (B * x[..., None]).flatten(-2)
        h, _ = diagonal_scan(log_lam.exp().flatten().expand(entered.shape), entered)
        return (C * h.unflatten(-1, C.shape)).sum(-1).real.to(x.dtype) + self.D * x

    def kernel(self, n: int) -> Tensor:
        """The kernels kappa_c(tau) of all channels, skip included at lag 0: (n, d)."""
        log_lam, B, C = self._modes()
        # In the dtype of the modes: half precision cannot count past 256 or 2048.
        tau = torch.arange(n, dtype=log_lam.real.dtype, device=self.D.device)
        kappa = (C * B * torch.exp(tau[:, None, None] * log_lam)).sum(-1).real.to(self.D.dtype)
        return torch.cat([kappa[:1] + self.D, kappa[1:]])

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        return DiagonalOperator(LagOperator(self.kernel(x.shape[-2]).mT[..., None, None]))

    def _step(self, x_t: Tensor, state: Tensor):
        log_lam, B, C = self._modes()
        h = log_lam.exp() * state + B * x_t[..., None]
        return (C * h).sum(-1).real.to(x_t.dtype) + self.D * x_t, h


class SelectiveSSM(RecurrentMap):
    """Selective SSM: a diagonal recurrence in every channel whose step, input and output the token selects.

    h_i = exp(Delta_i A) h_{i-1} + B_bar_i x_i, y_i = C_i h_i + D x_i for each channel.
    W_ij = diag over channels of C_i exp(A (Delta_{j+1} + ... + Delta_i)) B_bar_j, plus D at i = j. d: width
    in and out (Mamba's inner width); N: states per channel; discretization: "zoh", B_bar = Delta phi1(Delta
    A) B (exact zero-order hold), or "mixed", B_bar = Delta B (what Mamba's code computes). Delta_i =
    softplus(W_delta x_i + b_delta), B_i = W_B x_i, C_i = W_C x_i, A = -exp(log_A). Parameters ``W_delta``
    (d, d), ``b_delta`` (d,), ``W_B``, ``W_C`` (N, d), ``log_A`` (d, N), ``D`` (d,). This is the core of the
    layer, without in and out projections, short convolution, SiLU, gate, low rank of W_delta (`gu2024mamba`).

    >>> layer = SelectiveSSM(3, N=8)
    >>> layer.interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    def __init__(self, d: int, *, N: int, discretization: ExactDecay = "zoh", **new: Any):
        super().__init__(d, d)
        check_choice("discretization", discretization, get_args(ExactDecay))
        self.N, self.discretization = N, discretization
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

        mixer: a ``MambaMixer``, or any module with ``x_proj``, ``dt_proj``, ``A_log`` and ``D`` of its
        shapes. The low rank of its steps is multiplied out; the discretization is "mixed". Returns a new map
        in the dtype and on the device of the mixer. Raises ``TypeError`` for other modules, ``ValueError``
        for norms on the selection (Jamba, Falcon-Mamba), because these make it nonlinear.
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

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return half_to_float32(self.D.new_zeros(*batch_shape, self.d, self.N))

    def _forward(self, x: Tensor) -> Tensor:
        return selective_scan(x, *self._select(x), self.D, discretization=self.discretization)[0]

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        delta, A, B_bar, C = self.selection(x)
        # One scalar recurrence per channel, (..., d, n, N); all of them are read out by the same C.
        log_decay, entered = (values.transpose(-3, -2) for values in (delta[..., None] * A, B_bar))
        read = C[..., None, :, None, :].expand(*entered.shape[:-1], 1, self.N)
        skip = self.D[:, None, None, None].expand(*x.shape[:-2], self.d, x.shape[-2], 1, 1)
        return DiagonalOperator(ModalOperator(log_decay, entered[..., None], read, skip))

    def _step(self, x_t: Tensor, state: Tensor):
        delta, A, B_bar, C = map(half_to_float32, self.selection(x_t))
        h = torch.exp(delta[..., None] * A) * state + B_bar * x_t[..., None]
        return (h @ C[..., None]).squeeze(-1).to(x_t.dtype) + self.D * x_t, h


class RGLRU(RecurrentMap):
    """RG-LRU, the recurrence of Griffin: each channel is a running average at its own rate.

    h_i = a_i h_{i-1} + sqrt(1 - a_i^2) g_i x_i, entry by entry, and y_i = h_i. The token gates the rate, log
    a_i = -8 sigmoid(W_a x_i + b_a) softplus(rate), and the input, g_i = sigmoid(W_g x_i + b_g). W_ij =
    diag(a_{j+1} ... a_i sqrt(1 - a_j^2) g_j). d: width in and out. Parameters ``W_a``, ``W_g`` (d, d; in
    Griffin block-diagonal), ``b_a``, ``b_g``, ``rate`` (d,); at the start an open gate has a between 0.9 and
    0.999 (`de2024griffin`).

    >>> layer = RGLRU(3)
    >>> layer.interaction(torch.randn(16, 3)).interaction_rank()  # a head for each channel
    3
    """

    def __init__(self, d: int, **new: Any):
        super().__init__(d, d)
        self.W_a, self.W_g = (random_parameter(d, d, fan_in=d, **new) for _ in "ag")
        self.b_a, self.b_g = (nn.Parameter(self.W_a.new_zeros(d)) for _ in "ag")
        a = 0.9 + 0.099 * torch.rand(d, **new)
        self.rate = nn.Parameter(inverse_softplus(-a.log() / 8))

    def _gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log a and sqrt(1 - a^2) g, (..., n, d), in float32 or wider: in half 1 - a^2 vanishes."""
        a, g = (x @ W.mT + b for W, b in ((self.W_a, self.b_a), (self.W_g, self.b_g)))
        log_a = -8 * torch.sigmoid(half_to_float32(a)) * functional.softplus(half_to_float32(self.rate))
        return log_a, (-torch.expm1(2 * log_a)).sqrt() * torch.sigmoid(half_to_float32(g))

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return half_to_float32(self.rate.new_zeros(*batch_shape, self.d))

    def _forward(self, x: Tensor) -> Tensor:
        log_a, entered = self._gates(x)
        return diagonal_scan(log_a, entered * x, log=True)[0].to(x.dtype)

    def _interaction(self, x: Tensor) -> DiagonalOperator:
        log_a, entered = (a.to(x.dtype).mT[..., None] for a in self._gates(x))  # (..., d, n, 1)
        one = torch.ones_like(entered)[..., None]
        return DiagonalOperator(ModalOperator(log_a, entered[..., None], one))

    def _step(self, x_t: Tensor, state: Tensor):
        log_a, entered = self._gates(x_t)
        h = log_a.exp() * state + entered * x_t
        return h.to(x_t.dtype), h
