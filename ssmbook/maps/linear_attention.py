"""Linear attention, and what its descendants share: a memory written at a key and read by a query."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_choice, check_tensors
from ssmbook.maps.attention import PER_HEAD, HeadMap, per_head
from ssmbook.maps.base import New, RecurrentMap, Unpack
from ssmbook.scans import diagonal_scan, ssd_scan


class KeySideMap(RecurrentMap, HeadMap):
    """Heads with a memory S of shape (key_width, head_width): written at a key, read by a query.

    The recurrence acts on the key side only, so each head's W_ij is a scalar times V_h.
    Here it decays, S_i = diag(a_i) S_{i-1} + k_i v_i^T; subclasses write ``_read_write``.
    For another recurrence they override ``_coefficients`` and ``_scan`` as well.
    """

    family = "key side"

    @abstractmethod
    def _read_write(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries and keys (..., H, n, key_width), and log a, as wide or of width 1 (one decay for all)."""

    @property
    def state_shape(self) -> tuple[int, ...]:
        return self.H, self.key_width, self.head_width

    def _coefficients(self, x: Tensor) -> Tensor:
        return decayed_products(*self._read_write(x))

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        # By a scan, in time and memory linear in n, instead of by the coefficients.
        mixed, state = self._scan(x, per_head(self.W_V, x), state)
        return self._project(mixed), state

    def _scan(self, x: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """sum_j alpha_ij v_j for values v (..., H, n, width) from a memory (..., H, key_width, width)."""
        q, k, log_a = self._read_write(x)
        if log_a.shape[-1] == 1:
            return scan_heads(v, log_a, k, q, state)
        written = k[..., :, None] * v[..., None, :]
        rates = log_a[..., None].expand(written.shape)
        memory, end = diagonal_scan(rates.flatten(-2), written.flatten(-2), state.flatten(-2), log=True)
        return (q[..., None, :] @ memory.view(written.shape)).squeeze(-2), end.view(state.shape)


def scan_heads(v: Tensor, log_a: Tensor, k: Tensor, q: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """`ssd_scan` for heads before tokens, (..., H, n, width), and a memory (..., H, key_width, width)."""
    v, k, q = (a.transpose(-3, -2) for a in (v, k, q))
    y, end = ssd_scan(v, log_a.squeeze(-1).mT, k, q, state.mT)
    return y.transpose(-3, -2), end.mT


FEATURE_MAPS = {"identity": lambda z: z, "elu+1": lambda z: functional.elu(z) + 1}


class LinearAttention(KeySideMap):
    """Causal linear attention: alpha_ij = <phi(q_i), phi(k_j)>, divided by its row sum if normalized.

    A row whose sum is 0 gets coefficients 0. Parameters ``W_Q``, ``W_K`` (H, head_width,
    d), ``W_V``, ``W_O``. This is the core of the layer, without projection biases, norms
    (`katharopoulos2020transformers`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of queries, keys and values.
    normalized : bool, default False
        Divide each row of coefficients by its sum.
    feature_map : {"identity", "elu+1"}, default "elu+1"
        phi; the second is positive, so that no row sum vanishes.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    ValueError
        If the feature map is unknown.

    Examples
    --------
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
        feature_map: Literal["identity", "elu+1"] = "elu+1",
        **new: Unpack[New],
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
    @property
    def state_shape(self) -> tuple[int, ...]:
        return self.H, self.key_width, self.head_width + int(self.normalized)

    def _scan(self, x: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if self.normalized:
            v = functional.pad(v, (0, 1), value=1.0)
        read, state = super()._scan(x, v, state)
        return self._normalize(read), state

    def _normalize(self, read: Tensor) -> Tensor:
        return read[..., :-1] * safe_reciprocal(read[..., -1:]) if self.normalized else read


def linear_coefficients(q: Tensor, k: Tensor, *, normalized: bool = False) -> Tensor:
    """Causal linear attention: alpha_ij = <q_i, k_j> for j <= i, divided by its row sum if normalized.

    q, k: (..., H, n, width), features already applied. A row whose sum is exactly 0 gets
    coefficients 0. Returns (..., H, n, n) (`katharopoulos2020transformers`). Raises as
    ``softmax_coefficients``.

    >>> q = k = torch.ones(1, 3, 1)
    >>> linear_coefficients(q, k)[0].tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    check_tensors(q=(q, PER_HEAD), k=(k, PER_HEAD), one_batch=True)
    alpha = (q @ k.mT).tril()
    if not normalized:
        return alpha
    return alpha * safe_reciprocal(alpha.sum(-1, keepdim=True))


def scalar_decay_coefficients(q: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
    """Scalar decay on the key side (RetNet, SSD): alpha_ij = <q_i, k_j> a_{j+1} ... a_i for j <= i.

    q, k: (..., H, n, width); log_a: (..., H, n) log-decays, one per head and token. Returns
    (..., H, n, n) (`sun2023retentive`, `dao2024transformers`). Raises as
    ``softmax_coefficients``.

    >>> q = k = torch.ones(1, 3, 1)
    >>> scalar_decay_coefficients(q, k, torch.full((1, 3), 0.5).log())[0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 1.0000, 0.0000],
            [0.2500, 0.5000, 1.0000]])
    """
    check_tensors(q=(q, PER_HEAD), k=(k, PER_HEAD), log_a=(log_a, "... H n"), one_batch=True)
    return (q @ k.mT) * decay_matrix(log_a)


def safe_reciprocal(a: Tensor) -> Tensor:
    """1 / a, and 0 where a is 0."""
    zero = a == 0
    return torch.where(zero, 0.0, 1 / torch.where(zero, 1.0, a))


def decay_matrix(log_a: Tensor) -> Tensor:
    """Products of scalar decays between two tokens: L_ij = a_{j+1} ... a_i for j <= i, exactly 0 above.

    log_a: (..., n), the logarithms of a_1 ... a_n. Returns (..., n, n). Each product sums
    its own logarithms; differences of running sums would cancel.
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


ZOO = {
    "linear attention": lambda of, new: LinearAttention(feature_map="identity", **of.head, **new),
    "linear attention, normalized": lambda of, new: LinearAttention(normalized=True, **of.head, **new),
}
