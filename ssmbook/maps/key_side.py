"""Linear attention and its descendants, up to Mamba-3: heads whose recurrence acts on the key side only."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_choice, check_integer, check_tensors
from ssmbook.maps.attention import PER_HEAD, HeadMap, per_head, rotate
from ssmbook.maps.base import RecurrentMap, inverse_softplus, random_parameter, random_steps
from ssmbook.numerics import half_to_float32
from ssmbook.scans import diagonal_scan, ssd_scan
from ssmbook.scans._shared import half_in_float32, wide


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
        return decayed_products(*self._read_write(x))

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k, log_a = self._read_write(x)
        written = outer(k, v)
        rates = log_a[..., None].expand(written.shape)
        memory, _ = diagonal_scan(rates.flatten(-2), written.flatten(-2), log=True)
        return self._read(q, memory.view(written.shape))


CHUNK = 16  # updates of the delta rule that become products of matrices at once
DELTA_RULES = {  # how many decays a head has per token: none, one, or one per key channel
    "DeltaNet": 0,
    "Gated DeltaNet": 1,
    "KDA": None,
    "RWKV-7": None,
}


class DeltaNet(KeySideMap):
    """The delta rule and its kin: S_i = (diag(w_i) - r_i u_i^T) S_{i-1} + b_i v_i^T, read by q_i.

    What u reads in the memory is erased along r. A rule is a line, with unit keys k and beta = sigmoid(W_beta
    x + b_beta). "DeltaNet" (`yang2024parallelizing`): w = 1, u = k, r = b = beta k. "Gated DeltaNet"
    (`yang2025gated`): u = w k, one decay w per head. "KDA" (`kimi2025linear`): the same, one per key channel.
    "RWKV-7" (`peng2025rwkv`): u = k made from xi W_K x, r = beta u, b = (1 + eta (beta - 1)) W_K x, beta and
    w per channel. With pairs = n_h > 1, DeltaProduct (`siems2025deltaproduct`), a token makes n_h updates,
    each with its own key, value and beta in (0, 2), the decay in the first; so a head has n_h value maps.
    Parameters ``W_Q`` (H, head_width, d), ``W_K``, ``W_V`` (H, n_h head_width, d), ``W_beta``, ``b_beta``,
    ``W_O``; with a decay ``W_w``, ``b_w``; for RWKV-7 ``xi``, ``eta``. These are cores, without short
    convolution or token shift, low rank, SiLU, query normalization, output norm and gate.

    >>> layer = DeltaNet(4, 4, H=1, head_width=4, rule="Gated DeltaNet", pairs=2)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # two values per token, two matrices
    2
    """

    def __init__(
        self, d: int, p: int, *, H: int, head_width: int, rule: str = "DeltaNet", pairs: int = 1, **new: Any
    ):
        self.rule, self.pairs = check_choice("rule", rule, DELTA_RULES), check_integer("pairs", pairs, low=1)
        super().__init__(d, p, H=H, head_width=head_width, pairs=pairs, **new)
        rates = pairs * (head_width if rule == "RWKV-7" else 1)
        self.W_beta = random_parameter(H, rates, d, fan_in=d, **new)
        self.b_beta = nn.Parameter(self.W_beta.new_zeros(H, rates))
        decays = head_width if DELTA_RULES[rule] is None else DELTA_RULES[rule]
        if decays:
            self.W_w = random_parameter(H, decays, d, fan_in=d, **new)
            self.b_w = nn.Parameter(inverse_softplus(random_steps(H * decays, **new)).view(H, decays))
        if rule == "RWKV-7":
            self.xi = nn.Parameter(self.W_beta.new_ones(H, pairs * head_width))
            self.eta = nn.Parameter(self.W_beta.new_ones(H, pairs * head_width))

    def value_maps(self) -> Tensor:
        """The value maps, (H n_h, p, d), n_h to a head."""
        return (self.W_O[:, None] @ self._split(self.W_V, -2)).flatten(0, 1)

    def _split(self, a: Tensor, dim: int = -1) -> Tensor:
        """Per pair: (..., n_h c, ...) -> (..., n_h, c, ...)."""
        return a.unflatten(dim, (self.pairs, -1))

    def _read_write(self, x: Tensor):
        """Queries (..., H, n, c), and log w, u, r, b (..., H, n n_h, c), the updates of a token in turn."""
        k = per_head(self.W_K, x)
        beta = torch.sigmoid(per_head(self.W_beta, x) + self.b_beta[:, None])
        beta = self._split(beta if self.pairs == 1 else 2 * beta)
        if self.rule == "RWKV-7":
            u = unit(self._split(k * self.xi[:, None]))
            b = self._split(k) * (1 + self._split(self.eta[:, None]) * (beta - 1))
            rate = -math.exp(-0.5) * torch.sigmoid(per_head(self.W_w, x) + self.b_w[:, None])
        else:
            u = unit(self._split(k))
            b = beta * u
            rate = k.new_zeros(*k.shape[:-1], 1)
            if DELTA_RULES[self.rule] != 0:
                rate = -functional.softplus(per_head(self.W_w, x) + self.b_w[:, None])
        log_w = functional.pad(rate[..., None, :], (0, 0, 0, self.pairs - 1))
        r = beta * u
        u = u if self.rule == "RWKV-7" else log_w.exp() * u
        return per_head(self.W_Q, x), *(a.flatten(-3, -2) for a in (log_w, u, r, b))

    def _pair_coefficients(self, x: Tensor) -> Tensor:
        """What each pair contributes to each output: (..., H, n, n n_h)."""
        q, *updates = map(half_to_float32, self._read_write(x))  # PyTorch solves nothing in half
        q = q.repeat_interleave(self.pairs, -2)
        written, removed, recalled, erased = delta_products(q, *updates)
        e = torch.linalg.solve_triangular(erased, recalled, upper=False, unitriangular=True)
        return (written - removed @ e)[..., self.pairs - 1 :: self.pairs, :].to(x.dtype)

    def _coefficients(self, x: Tensor) -> Tensor:
        alpha = self._pair_coefficients(x)
        return alpha.unflatten(-1, (-1, self.pairs)).movedim(-1, -3).flatten(-4, -3)

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, *updates = self._read_write(x)
        q, v = q.repeat_interleave(self.pairs, -2), self._split(v).flatten(-3, -2)
        return delta_scan(q, *updates, v)[0][..., self.pairs - 1 :: self.pairs, :]

    def _step(self, x_t: Tensor, state: Tensor):
        x = x_t[..., None, :]
        q, *updates = map(half_to_float32, self._read_write(x))
        updates.append(half_to_float32(self._split(per_head(self.W_V, x)).flatten(-3, -2)))
        for log_w, u, r, b, v in zip(*(a.unbind(-2) for a in updates), strict=True):
            recalled = (u[..., None, :] @ state).squeeze(-2)
            state = log_w.exp()[..., None] * state + outer(b, v) - outer(r, recalled)
        y = self._read(q.squeeze(-2), state).to(x_t.dtype)
        return torch.einsum("hpr,...hr->...p", self.W_O, y), state


def delta_products(q: Tensor, log_w: Tensor, u: Tensor, r: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """What q_t reads of the writes b and r up to t, then what u_t reads of those before t: four (..., T, T).

    So e_t = S_{t-1}^T u_t, what is recalled, solves e = recalled v - erased e, and outputs are written v -
    removed e.
    """
    # u_t reads S_{t-1}, which has not decayed by w_t yet: query one update earlier, then shift back.
    reads, writes = torch.stack((q, u.roll(-1, -2)), -3), torch.stack((b, r), -3)
    products = decayed_products(reads.unsqueeze(-3), writes.unsqueeze(-4), log_w[..., None, None, :, :])
    now, earlier = products.unbind(-4)
    return *now.unbind(-3), *earlier.roll(1, -2).tril(-1).unbind(-3)


@half_in_float32
def delta_scan(q: Tensor, log_w: Tensor, u: Tensor, r: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """S_t^T q_t and the last S_t = (diag(w_t) - r_t u_t^T) S_{t-1} + b_t v_t^T, all (..., T, width), from 0.

    Chunks of updates are products of matrices, as in `yang2024parallelizing`: from the memory S before a
    chunk, the values recalled in it are e + E S, and what it leaves is M S + N.
    """
    T, width = v.shape[-2:]
    chunks = max(1, -(-T // CHUNK))  # the last one is filled up with updates that change nothing
    q, log_w, u, r, b, v = (
        functional.pad(a, (0, 0, 0, chunks * CHUNK - T)).unflatten(-2, (chunks, CHUNK))
        for a in (q, log_w, u, r, b, v)
    )
    written, removed, recalled, erased = delta_products(q, log_w, u, r, b)
    sums = log_w.to(wide(v.dtype)).cumsum(-2)  # their differences lose digits
    before, now, after = (a.to(v.dtype).exp() for a in (sums - log_w, sums, sums[..., -1:, :] - sums))
    known = torch.cat((recalled @ v, before * u), -1)
    solved = torch.linalg.solve_triangular(erased, known, upper=False, unitriangular=True)
    e, E = solved.split((width, u.shape[-1]), -1)
    M = torch.diag_embed(now[..., -1, :].expand(E[..., 0, :].shape)) - (after * r).mT @ E
    N = (after * b).mT @ v - (after * r).mT @ e
    memory = [torch.zeros_like(N[..., 0, :, :])]
    for M_c, N_c in zip(M.unbind(-3), N.unbind(-3), strict=True):
        memory.append(M_c @ memory[-1] + N_c)
    y = written @ v - removed @ e + (now * q - removed @ E) @ torch.stack(memory[:-1], -3)
    return y.flatten(-3, -2)[..., :T, :], memory[-1]


def unit(k: Tensor) -> Tensor:
    """k / |k| along the last dimension, and 0 where k is 0."""
    length = torch.linalg.vector_norm(k, dim=-1, keepdim=True)
    return k / torch.where(length == 0, 1.0, length)


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


class MLSTM(LinearAttention):
    """mLSTM: linear attention that forgets, with exponential input gates and a normalizer of its own.

    alpha_ij = s_ij / max(|sum_j s_ij|, 1) with s_ij = f_{j+1} ... f_i exp(w_I x_j + b_I) <q_i, k_j> /
    sqrt(head_width) for j <= i and f_i = sigmoid(w_F x_i + b_F). d, p: widths in and out; H heads;
    head_width: of queries, keys and values. Parameters ``W_Q``, ``W_K`` (H, head_width, d), ``W_I``, ``W_F``
    (H, 1, d), ``b_I``, ``b_F`` (H,), ``W_V``, ``W_O``. The core of the layer, without head norm, output gate
    and the running maximum that keeps the exponentials in range and changes no output (`beck2024xlstm`).

    >>> layer = MLSTM(4, 4, H=2, head_width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()
    2
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, **new: Any):
        super().__init__(d, p, H=H, head_width=head_width, normalized=True, **new)
        self.W_I, self.W_F = (random_parameter(H, 1, d, fan_in=d, **new) for _ in "IF")
        self.b_I = nn.Parameter(self.W_I.new_zeros(H))
        self.b_F = nn.Parameter(self.W_F.new_full((H,), 3.0))  # at the start f is about 0.95

    def _read_write(self, x: Tensor):
        q, k = per_head(self.W_Q, x) / self.head_width**0.5, per_head(self.W_K, x)
        enter = torch.exp(per_head(self.W_I, x) + self.b_I[:, None, None])
        return q, enter * k, functional.logsigmoid(per_head(self.W_F, x) + self.b_F[:, None, None])

    def _coefficients(self, x: Tensor) -> Tensor:
        alpha = KeySideMap._coefficients(self, x)
        return alpha / alpha.sum(-1, keepdim=True).abs().clamp(min=1)

    def _normalize(self, read: Tensor) -> Tensor:
        return read[..., :-1] / read[..., -1:].abs().clamp(min=1)


class Mamba3(KeySideMap):
    """Mamba-3: a decay that also rotates the state, and steps that use both ends; MIMO for a rank R > 1.

    With U_i = sum_r B_i^r (x^r v_i)^T a head runs S_i = a_i Rot_i (S_{i-1} + (1 - lambda_i) Delta_i U_{i-1})
    + lambda_i Delta_i U_i and returns sum_s o^s (S_i^T C_i^s). Here a_i = exp(A Delta_i), Rot_i turns the N
    states in pairs by Delta_i W_theta x_i, B^r = W_B[r] x + b_B[r], C^s likewise, and x^r, o^s scale entries.
    So V_hrs = W_O diag(o^s x^r) W_V: per head at most min(R^2, head_width) matrices, and one if R = 1
    (`prop-value-maps`). Parameters ``W_B``, ``W_C`` (R, N, d) for all heads, ``b_B``, ``b_C`` (H, R, N),
    ``x_R``, ``o_R`` (H, R, head_width), ``W_delta``, ``W_lam`` (H, 1, d), ``b_delta``, ``log_A`` (H,),
    ``W_theta`` (N / 2, d), ``W_V``, ``W_O``. The core of the layer, without norms of B and C, the tanh that
    bounds its angles, D skip and gate, and with a rate A that does not depend on x (`lahoti2026mamba`).

    >>> layer, x = Mamba3(4, 4, H=1, head_width=4, N=6), torch.randn(8, 4)
    >>> mimo = Mamba3(4, 4, H=1, head_width=4, N=6, R=2)
    >>> layer.interaction(x).interaction_rank(), mimo.interaction(x).interaction_rank()
    (1, 4)
    """

    def __init__(self, d: int, p: int, *, H: int, head_width: int, N: int, R: int = 1, **new: Any):
        if N % 2:
            raise ValueError(f"N must be even, because states rotate in pairs; got {N}")
        super().__init__(d, p, H=H, head_width=head_width, queries=False, **new)
        self.N, self.key_width, self.R = N, N, check_integer("R", R, low=1)
        self.W_B, self.W_C = (random_parameter(R, N, d, fan_in=d, **new) for _ in "BC")
        self.b_B, self.b_C = (nn.Parameter(self.W_B.new_ones(H, R, N)) for _ in "BC")
        self.x_R, self.o_R = (random_parameter(H, R, head_width, fan_in=R, **new) for _ in "xo")
        self.W_delta, self.W_lam = (random_parameter(H, 1, d, fan_in=d, **new) for _ in "dl")
        self.b_delta = nn.Parameter(inverse_softplus(random_steps(H, **new)))
        self.W_theta = random_parameter(N // 2, d, fan_in=d, **new)
        self.log_A = nn.Parameter(self.W_B.new_zeros(H))

    def value_maps(self) -> Tensor:
        """The value maps V_hrs, (H R R, p, d)."""
        scales = self.x_R[:, :, None] * self.o_R[:, None]  # (H, R, R, head_width)
        return ((self.W_O[:, None, None] * scales[..., None, :]) @ self.W_V[:, None, None]).flatten(0, 2)

    def _read_write(self, x: Tensor):
        """C and B (..., H, R, n, N); log a, angles, what a token writes at once and one step later."""
        B, C = (
            per_head(w, x)[..., None, :, :, :] + b[:, :, None]
            for w, b in ((self.W_B, self.b_B), (self.W_C, self.b_C))
        )
        delta = functional.softplus(per_head(self.W_delta, x) + self.b_delta[:, None, None])
        angle = delta * (x @ self.W_theta.mT)[..., None, :, :]
        lam = torch.sigmoid(per_head(self.W_lam, x))
        return C, B, -self.log_A.exp()[:, None, None] * delta, angle, lam * delta, (1 - lam) * delta

    def _turned(self, x: Tensor):
        """Per head and (r, s): C_i and B_j turned back to the start, so that their products see j+1 ... i."""
        C, B, log_a, angle, now, later = self._read_write(x)
        back = -half_to_float32(angle).cumsum(-2)[..., None, :, :]
        C, B = (rotate(half_to_float32(a), back).to(x.dtype) for a in (C, B))
        R, shape = self.R, (*C.shape[:-3], self.R, self.R, *C.shape[-2:])
        C, B = C[..., None, :, :, :].expand(shape), B[..., None, :, :].expand(shape)
        each = (a.repeat_interleave(R * R, -3) for a in (log_a, now, later))
        return C.flatten(-5, -3), B.flatten(-5, -3), *each

    def _coefficients(self, x: Tensor) -> Tensor:
        C, B, log_a, now, later = self._turned(x)
        # What token j writes a step later decays like what it writes at once, from token j + 1.
        decays = decay_matrix(log_a.squeeze(-1))
        return (C @ B.mT) * (decays * now.mT + decays.tril(-1) * later.roll(-1, -2).mT)

    def _mix(self, x: Tensor, v: Tensor) -> Tensor:
        C, B, log_a, now, later = self._turned(x)
        R = self.R
        v = (v[..., None, :, :] * self.x_R[:, :, None]).repeat_interleave(R, -3).flatten(-4, -3)
        before = functional.pad(torch.cat((B, v), -1), (0, 0, 1, 0))[..., :-1, :]
        B_before, v_before = before.split([self.N, self.head_width], -1)
        y = 0
        for k, value in ((now * B, v), (later * log_a.exp() * B_before, v_before)):
            value, k, q = (a.transpose(-3, -2) for a in (value, k, C))
            y = y + ssd_scan(value, log_a.squeeze(-1).mT, k, q)[0].transpose(-3, -2)
        return (y.unflatten(-3, (-1, R, R)).sum(-4) * self.o_R[:, :, None]).sum(-3)

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        # The memory S and the last write U.
        return half_to_float32(self.W_V.new_zeros(*batch_shape, 2, self.H, self.N, self.head_width))

    def _step(self, x_t: Tensor, state: Tensor):
        C, B, log_a, angle, now, later = (
            half_to_float32(a.squeeze(-2)) for a in self._read_write(x_t[..., None, :])
        )
        memory, last = state.unbind(-4)
        v = half_to_float32(torch.einsum("hrd,...d->...hr", self.W_V, x_t))[..., None, :] * self.x_R
        write = B.mT @ v
        kept = rotate((memory + later[..., None] * last).mT, angle[..., None, :]).mT
        memory = log_a.exp()[..., None] * kept + now[..., None] * write
        y = ((C @ memory) * self.o_R).sum(-2).to(x_t.dtype)
        return torch.einsum("hpr,...hr->...p", self.W_O, y), torch.stack((memory, write), -4)


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


def decayed_products(q: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
    """<q_i, a_{j+1} ... a_i k_j> for j <= i, with a decay per channel or, of width 1, one for all."""
    if log_a.shape[-1] == 1:
        return (q @ k.mT) * decay_matrix(log_a.squeeze(-1))
    channels = zip(*(a.unbind(-1) for a in (q, k, log_a)), strict=True)
    return sum(q[..., :, None] * k[..., None, :] * decay_matrix(log_a) for q, k, log_a in channels)


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
