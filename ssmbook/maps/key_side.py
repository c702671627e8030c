"""Linear attention, RetNet, GLA, DeltaNet and SSD: heads whose recurrence acts on the key side only."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_choice, check_tensors
from ssmbook.maps.attention import PER_HEAD, HeadMap, per_head
from ssmbook.maps.base import RecurrentMap, inverse_softplus, random_parameter, random_steps
from ssmbook.numerics import half_to_float32
from ssmbook.scans import diagonal_scan, ssd_scan


class KeySideMap(HeadMap, RecurrentMap):
    """Heads with a memory S of shape (key_width, head_width): written at a key, read by a query.

    The recurrence acts on the key side only, so each head's W_ij is a scalar times V_h. Here it is a scalar
    decay, S_i = a_i S_{i-1} + k_i v_i^T; subclasses write ``_read_write``. For another recurrence they
    override ``_update``, ``_coefficients`` and ``_mix`` as well.
    """

    @abstractmethod
    def _read_write(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (..., H, n, key_width), log a (..., H, n, 1) or whatever ``_update`` takes."""

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k, log_a = self._read_write(x)
        return scalar_decay_coefficients(q, k, log_a.squeeze(-1))

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        # By a scan, in time and memory linear in n, instead of by the coefficients.
        q, k, log_a = self._read_write(x)
        v, k, q = (a.transpose(-3, -2) for a in (v, k, q))
        return ssd_scan(v, log_a.squeeze(-1).mT, k, q)[0].transpose(-3, -2)

    def _update(self, memory: Tensor, v: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
        return log_a.exp()[..., None] * memory + outer(k, v)

    def _read(self, q: Tensor, memory: Tensor) -> Tensor:
        return (q[..., None, :] @ memory).squeeze(-2)

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return half_to_float32(self.W_V.new_zeros(*batch_shape, self.H, self.key_width, self.head_width))

    def _step(self, x_t: Tensor, state: Tensor):
        q, *written = (half_to_float32(a.squeeze(-2)) for a in self._read_write(x_t[..., None, :]))
        v = half_to_float32(torch.einsum("hrd,...d->...hr", self.W_V, x_t))
        state = self._update(state, v, *written)
        return torch.einsum("hpr,...hr->...p", self.W_O, self._read(q, state).to(x_t.dtype)), state


def outer(k: Tensor, v: Tensor) -> Tensor:
    """k v^T per head: (..., H, c), (..., H, r) -> (..., H, c, r)."""
    return k[..., :, None] * v[..., None, :]


FEATURE_MAPS = {"identity": lambda z: z, "elu+1": lambda z: functional.elu(z) + 1}


class LinearAttention(KeySideMap):
    """Causal linear attention: alpha_ij = <phi(q_i), phi(k_j)>, divided by its row sum if normalized.

    d, p: widths in and out; H heads; head_width: width of queries, keys and values; feature_map: phi,
    "identity" or "elu+1" (positive, so that no row sum vanishes). A row whose sum is 0 gets coefficients 0.
    Parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_V``, ``W_O``.
    This is the core of the layer, without projection biases, norms (`katharopoulos2020transformers`).

    >>> layer, x = LinearAttention(4, 4, H=2, head_width=3), torch.randn(8, 4)
    >>> layer.interaction(x).interaction_rank(), torch.allclose(layer(x), layer.run(x)[0], atol=1e-5)
    (2, True)
    """

    def __init__(
        self,
        d: int,
        p: int,
        *,
        H: int,
        head_width: int,
        normalized: bool = False,
        feature_map: str = "elu+1",
        **new: Any,
    ):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        check_choice("feature_map", feature_map, FEATURE_MAPS)
        self.normalized, self.feature_map = normalized, feature_map

    def _read_write(self, x: Tensor):
        phi = FEATURE_MAPS[self.feature_map]
        q, k = phi(per_head(self.W_Q, x)), phi(per_head(self.W_K, x))
        return q, k, q.new_zeros(*q.shape[:-1], 1)

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k, _ = self._read_write(x)
        return linear_coefficients(q, k, normalized=self.normalized)

    # With one more value, always 1, the memory also holds the row sums.
    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        columns = self.head_width + int(self.normalized)
        return half_to_float32(self.W_V.new_zeros(*batch_shape, self.H, self.key_width, columns))

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        return self._normalize(super()._mix(x, self._with_ones(v)))

    def _update(self, memory: Tensor, v: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
        return super()._update(memory, self._with_ones(v), k, log_a)

    def _read(self, q: Tensor, memory: Tensor) -> Tensor:
        return self._normalize(super()._read(q, memory))

    def _with_ones(self, v: Tensor) -> Tensor:
        return torch.cat([v, torch.ones_like(v[..., :1])], dim=-1) if self.normalized else v

    def _normalize(self, read: Tensor) -> Tensor:
        return read[..., :-1] * safe_reciprocal(read[..., -1:]) if self.normalized else read


class RetNet(KeySideMap):
    """Retention: alpha_ij = gamma_h^(i - j) <q_i, k_j> / sqrt(head_width) for j <= i.

    d, p: widths in and out; H heads; head_width: width of queries, keys and values. Buffer ``decay`` (H,),
    gamma_h = 1 - 2^(-5 - h) for h = 0, 1, ...; parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_V``,
    ``W_O``. This is the core of the layer, without rotation of queries and keys, group norm, output gate
    (`sun2023retentive`).

    >>> layer = RetNet(4, 4, H=2, head_width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        decay = [1 - 2.0 ** (-5 - h) for h in range(H)]
        self.register_buffer("decay", self.W_V.detach().new_tensor(decay))

    def _read_write(self, x: Tensor):
        q, k = per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x)
        return q, k, self.decay.log()[:, None, None].expand(*q.shape[:-1], 1)


class GLA(KeySideMap):
    """Gated linear attention: S_i = diag(a_i) S_{i-1} + k_i v_i^T, each key channel with its own decay.

    a_i = sigmoid(W_a x_i + b_a)^(1/temperature). d, p: widths in and out; H heads; head_width: width of
    queries, keys and values; temperature > 0: large values slow the decay. Parameters ``W_Q``, ``W_K``,
    ``W_a`` (H, head_width, d), ``b_a`` (H, head_width), ``W_V``, ``W_O``.
    This is the core of the layer, without low-rank gate projection, head norm, output gate (`yang2024gated`).

    >>> layer = GLA(4, 4, H=2, head_width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, temperature: float = 16.0, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self.temperature = temperature
        self.W_a = random_parameter(H, head_width, d, fan_in=d, **new)
        self.b_a = nn.Parameter(self.W_a.new_zeros(H, head_width))

    def _read_write(self, x: Tensor):
        gate = per_head(self.W_a, x) + self.b_a[:, None, :]
        log_a = functional.logsigmoid(gate) / self.temperature
        return per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x), log_a

    def _coefficients(self, x: Tensor) -> Tensor:
        channels = zip(*(a.unbind(-1) for a in self._read_write(x)), strict=True)
        return sum(q[..., :, None] * k[..., None, :] * decay_matrix(log_a) for q, k, log_a in channels)

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k, log_a = self._read_write(x)
        written = outer(k, v)
        rates = log_a[..., None].expand(written.shape)
        memory, _ = diagonal_scan(rates.flatten(-2), written.flatten(-2), log=True)
        return self._read(q, memory.view(written.shape))


class DeltaNet(KeySideMap):
    """The delta rule with unit keys: S_i = (I - beta_i k_i k_i^T) S_{i-1} + beta_i k_i v_i^T, read by q_i.

    d, p: widths in and out; H heads; head_width: width of queries, keys and values. beta_i = sigmoid(W_beta
    x_i + b_beta) in (0, 1); a key of length 0 stays 0. The coefficients are
    tril(Q K^T) (I + diag(beta) tril(K K^T, -1))^{-1} diag(beta). Parameters ``W_Q``, ``W_K`` (H, head_width,
    d), ``W_beta`` (H, 1, d), ``b_beta`` (H,), ``W_V``, ``W_O``.
    This is the core of the layer, without short convolutions, SiLU on queries, keys and values, query
    normalization, output norm (`yang2024parallelizing`).

    >>> layer = DeltaNet(4, 4, H=1, head_width=4)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # it erases, and is still one head
    1
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self.W_beta = random_parameter(H, 1, d, fan_in=d, **new)
        self.b_beta = nn.Parameter(self.W_beta.new_zeros(H))

    def _read_write(self, x: Tensor):
        k = per_head(self.W_K, x)
        length = torch.linalg.vector_norm(k, dim=-1, keepdim=True)
        k = k / torch.where(length == 0, 1.0, length)
        beta = torch.sigmoid(per_head(self.W_beta, x) + self.b_beta[:, None, None])
        return per_head(self.W_Q, x), k, beta

    def _coefficients(self, x: Tensor) -> Tensor:
        q, k, beta = map(half_to_float32, self._read_write(x))  # PyTorch solves no system in half precision
        erase, read = beta * (k @ k.mT).tril(-1), (q @ k.mT).tril()
        alpha = torch.linalg.solve_triangular(erase, read, upper=False, left=False, unitriangular=True)
        return (alpha * beta.mT).to(x.dtype)

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        return self._coefficients(x) @ v

    def _update(self, memory: Tensor, v: Tensor, k: Tensor, beta: Tensor) -> Tensor:
        recalled = (k[..., None, :] @ memory).squeeze(-2)
        return memory + outer(beta * k, v - recalled)


class SSD(KeySideMap):
    """Mamba-2 head: alpha_ij = <C_i, B_j> Delta_j exp(A_h (Delta_{j+1} + ... + Delta_i)) for j <= i.

    d, p: widths in and out; H heads; head_width: width of the values; N: states; groups: how many (B, C)
    pairs the heads share, a divisor of H. Delta_i = softplus(W_delta x_i + b_delta), one per head; A_h =
    -exp(log_A[h]). Parameters ``W_B``, ``W_C`` (groups, N, d), ``W_delta`` (H, 1, d), ``b_delta``, ``log_A``
    (H,), ``W_V``, ``W_O``.
    This is the core of the layer, without short convolution, SiLU, D skip, output gate and norm
    (`dao2024transformers`).

    >>> layer = SSD(4, 4, H=1, head_width=4, N=64)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # one head, whatever the size of its state
    1
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, N: int, groups: int = 1, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, queries=False, **new)
        if groups < 1 or H % groups:
            raise ValueError(f"groups must divide H = {H}; got {groups}")
        self.N, self.groups, self.key_width = N, groups, N
        self.W_B = random_parameter(groups, N, d, fan_in=d, **new)
        self.W_C = random_parameter(groups, N, d, fan_in=d, **new)
        self.W_delta = random_parameter(H, 1, d, fan_in=d, **new)
        self.b_delta = nn.Parameter(inverse_softplus(random_steps(H, **new)))
        rates = torch.arange(1, H + 1, dtype=self.W_B.dtype, device=self.W_B.device)
        self.log_A = nn.Parameter(rates.log())

    @classmethod
    def from_transformers(cls, mixer: nn.Module) -> SSD:
        """The core of a Mamba-2 or Bamba mixer of transformers, for tokens (u, B, C, step).

        mixer: a ``Mamba2Mixer``, a ``BambaMixer``, or any module with their parts. A token holds what enters
        the core after the short convolution: the values u (H head_width), B and C (groups N each) and the
        raw steps (H); so all of the map's matrices but ``log_A`` and ``b_delta`` only pick channels. The skip
        D is left out. Returns a new map in the dtype and on the device of the mixer. Raises ``TypeError`` for
        other modules, ``ValueError`` for a mixer that clamps its steps.
        """
        names = ("A_log", "dt_bias", "num_heads", "head_dim", "n_groups", "ssm_state_size")
        if not all(hasattr(mixer, name) for name in names):
            raise TypeError(f"mixer must have {', '.join(names)}; got {type(mixer).__name__}")
        log_A, b_delta, H, r, groups, N = (getattr(mixer, name) for name in names)
        if tuple(getattr(mixer, "time_step_limit", (0.0, math.inf))) != (0.0, math.inf):
            raise ValueError(f"mixer must not clamp its steps; got limits {tuple(mixer.time_step_limit)}")
        like = {"dtype": log_A.dtype, "device": log_A.device}
        inner, shared = H * r, groups * N
        pick = torch.eye(inner + 2 * shared + H, **like)
        u, B, C, step = pick.split([inner, shared, shared, H])
        core = cls(len(pick), inner, H=H, head_width=r, N=N, groups=groups, **like)
        found = {"W_V": u.unflatten(0, (H, r)), "W_delta": step[:, None], "b_delta": b_delta, "log_A": log_A}
        found |= {"W_B": B.unflatten(0, (groups, N)), "W_C": C.unflatten(0, (groups, N))}
        found["W_O"] = torch.eye(inner, **like).unflatten(1, (H, r)).transpose(0, 1)
        core.load_state_dict(found)
        return core

    def _read_write(self, x: Tensor):
        share = self.H // self.groups
        B, C = (per_head(w, x).repeat_interleave(share, dim=-3) for w in (self.W_B, self.W_C))
        delta = functional.softplus(per_head(self.W_delta, x) + self.b_delta[:, None, None])
        return C, delta * B, -self.log_A.exp()[:, None, None] * delta


def linear_coefficients(q: Tensor, k: Tensor, *, normalized: bool = False) -> Tensor:
    """Causal linear attention: alpha_ij = <q_i, k_j> for j <= i, divided by its row sum if normalized.

    q, k: (..., H, n, width), features already applied. A row whose sum is exactly 0 gets coefficients 0.
    Returns (..., H, n, n) (`katharopoulos2020transformers`). Raises as ``softmax_coefficients``.

    >>> q = k = torch.ones(1, 3, 1)
    >>> linear_coefficients(q, k)[0].tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    check_tensors(q=(q, PER_HEAD), k=(k, PER_HEAD), one_batch=True)
    alpha = (q @ k.mT).tril()
    if not normalized:
        return alpha
    return alpha * safe_reciprocal(alpha.sum(-1, keepdim=True))


def safe_reciprocal(a: Tensor) -> Tensor:
    """1 / a, and 0 where a is 0."""
    zero = a == 0
    return torch.where(zero, 0.0, 1 / torch.where(zero, 1.0, a))


def decay_matrix(log_a: Tensor) -> Tensor:
    """Products of scalar decays between two tokens: L_ij = a_{j+1} ... a_i for j <= i, exactly 0 above.

    log_a: (..., n), the logarithms of a_1 ... a_n. Returns (..., n, n). Each product sums its own logarithms;
    differences of running sums would cancel.
    """
    n = log_a.shape[-1]
    later = torch.ones(n, n, dtype=torch.bool, device=log_a.device).triu(1)
    # Row j of this layout runs along i, which is the fast direction for a running sum.
    sums = torch.where(later, log_a[..., None, :], 0.0).cumsum(-1).mT
    return sums.exp().tril()


def scalar_decay_coefficients(q: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
    """Scalar decay on the key side (RetNet, SSD): alpha_ij = <q_i, k_j> a_{j+1} ... a_i for j <= i.

    q, k: (..., H, n, width); log_a: (..., H, n) log-decays, one per head and token. Returns (..., H, n, n)
    (`sun2023retentive`, `dao2024transformers`). Raises as ``softmax_coefficients``.

    >>> q = k = torch.ones(1, 3, 1)
    >>> scalar_decay_coefficients(q, k, torch.full((1, 3), 0.5).log())[0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 1.0000, 0.0000],
            [0.2500, 0.5000, 1.0000]])
    """
    check_tensors(q=(q, PER_HEAD), k=(k, PER_HEAD), log_a=(log_a, "... H n"), one_batch=True)
    return (q @ k.mT) * decay_matrix(log_a)
