"""Mamba-3: heads whose state rotates while it decays."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_integer
from ssmbook.maps.attention import per_head, rotate
from ssmbook.maps.base import New, Unpack, inverse_softplus, random_parameter, random_steps
from ssmbook.maps.linear_attention import KeySideMap, decay_matrix, scan_heads
from ssmbook.numerics import half_to_float32


class Mamba3(KeySideMap):
    """Mamba-3: a decay that also rotates the state, and steps that use both ends; MIMO for a rank R > 1.

    With U_i = sum_r B_i^r (x^r v_i)^T a head runs S_i = a_i Rot_i (S_{i-1} + (1 - lambda_i)
    Delta_i U_{i-1}) + lambda_i Delta_i U_i and returns sum_s o^s (S_i^T C_i^s). Here a_i =
    exp(A Delta_i), Rot_i turns the N states in pairs by Delta_i W_theta x_i, B^r = W_B[r] x
    + b_B[r], C^s likewise, and x^r, o^s scale entries. So V_hrs = W_O diag(o^s x^r) W_V:
    per head at most min(R^2, head_width) matrices, and one if R = 1 (`prop-value-maps`).
    Parameters ``W_B``, ``W_C`` (R, N, d) for all heads, ``b_B``, ``b_C`` (H, R, N),
    ``x_R``, ``o_R`` (H, R, head_width), ``W_delta``, ``W_lam`` (H, 1, d), ``b_delta``,
    ``log_A`` (H,), ``W_theta`` (N / 2, d), ``W_V``, ``W_O``. The core of the layer, without
    norms of B and C, the tanh that bounds its angles, D skip and gate, and with a rate A
    that does not depend on x (`lahoti2026mamba`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of the values.
    N : int
        States, an even number.
    R : int, default 1
        Rank of what a token writes.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    ValueError
        If N is odd.

    Examples
    --------
    >>> layer, x = Mamba3(4, 4, H=1, head_width=4, N=6), torch.randn(8, 4)
    >>> mimo = Mamba3(4, 4, H=1, head_width=4, N=6, R=2)
    >>> layer.interaction(x).interaction_rank(), mimo.interaction(x).interaction_rank()
    (1, 4)
    """

    _queries = False

    def __init__(self, d: int, p: int, *, H: int, head_width: int, N: int, R: int = 1, **new: Unpack[New]):
        if N % 2:
            raise ValueError(f"N must be even, because states rotate in pairs; got {N}")
        super().__init__(d, p, H=H, head_width=head_width, **new)
        self.N = self.key_width = check_integer("N", N, low=2)
        self.R = check_integer("R", R, low=1)
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
        """Per head and (r, s): C_i and B_j turned back to the start, so that their products see j+1 ... i.

        Last the turns until then, (..., H, n, N / 2).
        """
        C, B, log_a, angle, now, later = self._read_write(x)
        turn = half_to_float32(angle).cumsum(-2)
        C, B = (rotate(half_to_float32(a), -turn[..., None, :, :]).to(x.dtype) for a in (C, B))
        R, shape = self.R, (*C.shape[:-3], self.R, self.R, *C.shape[-2:])
        C, B = C[..., None, :, :, :].expand(shape), B[..., None, :, :].expand(shape)
        each = (a.repeat_interleave(R * R, -3) for a in (log_a, now, later))
        return C.flatten(-5, -3), B.flatten(-5, -3), *each, turn

    def _coefficients(self, x: Tensor) -> Tensor:
        C, B, log_a, now, later, _ = self._turned(x)
        # What token j writes a step later decays like what it writes at once, from token j
        # + 1.
        decays = decay_matrix(log_a.squeeze(-1))
        return (C @ B.mT) * (decays * now.mT + decays.tril(-1) * later.roll(-1, -2).mT)

    @property
    def state_shape(self) -> tuple[int, ...]:
        return 2, self.H, self.N, self.head_width  # the memory S and the last write U

    def _scan(self, x: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        C, B, log_a, now, later, turn = self._turned(x)
        R = self.R
        v = (v[..., None, :, :] * self.x_R[:, :, None]).repeat_interleave(R, -3).flatten(-4, -3)
        before = functional.pad(torch.cat((B, v), -1), (0, 0, 1, 0))[..., :-1, :]
        B_before, v_before = before.split([self.N, self.head_width], -1)
        # The write before the first token enters with the memory, of which each r has an equal
        # part.
        memory, last = state.unbind(-4)
        start = (memory + half_to_float32(later[..., :: R * R, :1, :]) * last) / R
        start = start.repeat_interleave(R * R, -3)
        y, end = scan_heads(v, log_a, now * B, C, start)
        y_later, end_later = scan_heads(
            v_before, log_a, later * log_a.exp() * B_before, C, torch.zeros_like(start)
        )
        y = ((y + y_later).unflatten(-3, (-1, R, R)).sum(-4) * self.o_R[:, :, None]).sum(-3)
        write = half_to_float32(B[..., -1, :, None]) * half_to_float32(v[..., -1, None, :])
        ends = torch.stack((end + end_later, write), -4)[..., ::R, :, :].unflatten(-3, (-1, R)).sum(-3)
        return y, rotate(ends.mT, turn[..., None, :, -1:, :]).mT


ZOO = {
    "Mamba-3": lambda of, new: Mamba3(N=of.N, **of.head, **new),
    "Mamba-3, MIMO": lambda of, new: Mamba3(N=of.N, R=2, **of.head, **new),
}
