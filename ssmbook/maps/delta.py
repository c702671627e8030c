"""The delta rule and its kin: a memory that erases what it recalls before it writes."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_choice, check_integer
from ssmbook.maps.attention import per_head
from ssmbook.maps.base import New, Unpack, inverse_softplus, random_parameter, random_steps
from ssmbook.maps.linear_attention import KeySideMap, decayed_products
from ssmbook.numerics import half_to_float32
from ssmbook.scans._shared import half_in_float32, wide

Rule = Literal["DeltaNet", "Gated DeltaNet", "KDA", "RWKV-7"]


CHUNK = 16  # updates of the delta rule that become products of matrices at once
FEW = 4  # below this many there is nothing to gain by that
DELTA_RULES = {  # how many decays a head has per token: none, one, or one per key channel
    "DeltaNet": 0,
    "Gated DeltaNet": 1,
    "KDA": None,
    "RWKV-7": None,
}


class DeltaNet(KeySideMap):
    """The delta rule and its kin: S_i = (diag(w_i) - r_i u_i^T) S_{i-1} + b_i v_i^T, read by q_i.

    What u reads in the memory is erased along r. A rule is a line, with unit keys k and
    beta = sigmoid(W_beta x + b_beta). "DeltaNet" (`yang2024parallelizing`): w = 1, u = k, r
    = b = beta k. "Gated DeltaNet" (`yang2025gated`): u = w k, one decay w per head. "KDA"
    (`kimi2025linear`): the same, one per key channel. "RWKV-7" (`peng2025rwkv`): u = k made
    from xi W_K x, r = beta u, b = (1 + eta (beta - 1)) W_K x, beta and w per channel.
    Parameters ``W_Q`` (H, head_width, d), ``W_K``, ``W_V`` (H, n_h head_width, d),
    ``W_beta``, ``b_beta``, ``W_O``; with a decay ``W_w``, ``b_w``; for RWKV-7 ``xi``,
    ``eta``. These are cores, without short convolution or token shift, low rank, SiLU,
    query normalization, output norm and gate.

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of queries, keys and values.
    rule : {"DeltaNet", "Gated DeltaNet", "KDA", "RWKV-7"}, default "DeltaNet"
        The line above.
    pairs : int, default 1
        n_h. Above 1 this is DeltaProduct (`siems2025deltaproduct`): a token makes n_h
        updates, each with its own key, value and beta in (0, 2), the decay in the first; so
        a head has n_h value maps.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    TypeError, ValueError
        If ``pairs`` is no whole number of at least 1, or the rule is unknown.

    Examples
    --------
    >>> layer = DeltaNet(4, 4, H=1, head_width=4, rule="Gated DeltaNet", pairs=2)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # two values per token, two matrices
    2
    """

    def __init__(
        self,
        d: int,
        p: int,
        *,
        H: int,
        head_width: int,
        rule: Rule = "DeltaNet",
        pairs: int = 1,
        **new: Unpack[New],
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

    def _scan(self, x: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        q, *updates = self._read_write(x)
        q, v = q.repeat_interleave(self.pairs, -2), self._split(v).flatten(-3, -2)
        y, end = delta_scan(q, *updates, v, state)
        return y[..., self.pairs - 1 :: self.pairs, :], end


def delta_products(q: Tensor, log_w: Tensor, u: Tensor, r: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """What q_t reads of the writes b and r up to t, then what u_t reads of those before t: four (..., T, T).

    So e_t = S_{t-1}^T u_t, what is recalled, solves e = recalled v - erased e, and outputs
    are written v - removed e.
    """
    # u_t reads S_{t-1}, which has not decayed by w_t yet: query one update earlier, then
    # shift back.
    reads, writes = torch.stack((q, u.roll(-1, -2)), -3), torch.stack((b, r), -3)
    products = decayed_products(reads.unsqueeze(-3), writes.unsqueeze(-4), log_w[..., None, None, :, :])
    now, earlier = products.unbind(-4)
    return *now.unbind(-3), *earlier.roll(1, -2).tril(-1).unbind(-3)


@half_in_float32
def delta_scan(
    q: Tensor, log_w: Tensor, u: Tensor, r: Tensor, b: Tensor, v: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """S_t^T q_t and the last S_t = (diag(w_t) - r_t u_t^T) S_{t-1} + b_t v_t^T, from S_0 = state.

    Chunks of updates are products of matrices, as in `yang2024parallelizing`: from the
    memory S before a chunk, the values recalled in it are e + E S, and what it leaves is M
    S + N.

    Parameters
    ----------
    q : Tensor (..., T, width)
        What reads the memory.
    log_w : Tensor (..., T, width) or (..., T, 1)
        Logarithms of the decays.
    u, r, b, v : Tensor (..., T, width)
        What recalls, where it erases, where and what is written.
    state : Tensor (..., width, width)
        The memory before the first update.

    Returns
    -------
    tuple of Tensor (..., T, width) and Tensor (..., width, width)
    """
    T, width = v.shape[-2:]
    if T < FEW:
        return _delta_steps(q, log_w, u, r, b, v, state)
    Q = min(CHUNK, T)
    chunks = -(-T // Q)  # the last one is filled up with updates that change nothing
    q, log_w, u, r, b, v = (
        functional.pad(a, (0, 0, 0, -T % Q)).unflatten(-2, (chunks, Q)) for a in (q, log_w, u, r, b, v)
    )
    written, removed, recalled, erased = delta_products(q, log_w, u, r, b)
    sums = log_w.to(wide(v.dtype)).cumsum(-2)  # their differences lose digits
    before, now, after = (a.to(v.dtype).exp() for a in (sums - log_w, sums, sums[..., -1:, :] - sums))
    known = torch.cat((recalled @ v, before * u), -1)
    solved = torch.linalg.solve_triangular(erased, known, upper=False, unitriangular=True)
    e, E = solved.split((width, u.shape[-1]), -1)
    M = torch.diag_embed(now[..., -1, :].expand(E[..., 0, :].shape)) - (after * r).mT @ E
    N = (after * b).mT @ v - (after * r).mT @ e
    memory = [state]
    for M_c, N_c in zip(M.unbind(-3), N.unbind(-3), strict=True):
        memory.append(M_c @ memory[-1] + N_c)
    y = written @ v - removed @ e + (now * q - removed @ E) @ torch.stack(memory[:-1], -3)
    return y.flatten(-3, -2)[..., :T, :], memory[-1]


def _delta_steps(q, log_w, u, r, b, v, memory) -> tuple[Tensor, Tensor]:
    """The recurrence of `delta_scan` as it is written, one update at a time."""
    y = []
    for q_t, w_t, u_t, r_t, b_t, v_t in zip(
        *(a.unbind(-2) for a in (q, log_w.exp(), u, r, b, v)), strict=True
    ):
        recalled = u_t[..., None, :] @ memory
        memory = w_t[..., None] * memory + b_t[..., None] * v_t[..., None, :] - r_t[..., None] * recalled
        y.append(q_t[..., None, :] @ memory)
    return torch.cat(y, -2), memory


def unit(k: Tensor) -> Tensor:
    """k / |k| along the last dimension, and 0 where k is 0."""
    length = torch.linalg.vector_norm(k, dim=-1, keepdim=True)
    return k / torch.where(length == 0, 1.0, length)


ZOO = {
    "DeltaNet": lambda of, new: DeltaNet(**of.head, **new),
    "Gated DeltaNet": lambda of, new: DeltaNet(rule="Gated DeltaNet", **of.head, **new),
    "KDA": lambda of, new: DeltaNet(rule="KDA", **of.head, **new),
    "RWKV-7": lambda of, new: DeltaNet(rule="RWKV-7", **of.head, **new),
    "DeltaProduct": lambda of, new: DeltaNet(pairs=2, **of.head, **new),
}
