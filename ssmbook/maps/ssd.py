"""SSD, the core of Mamba-2: one scalar decay per head and token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_integer
from ssmbook.maps.attention import per_head
from ssmbook.maps.base import New, Unpack, inverse_softplus, random_parameter, random_steps
from ssmbook.maps.linear_attention import KeySideMap


class SSD(KeySideMap):
    """Mamba-2 head: alpha_ij = <C_i, B_j> Delta_j exp(A_h (Delta_{j+1} + ... + Delta_i)) for j <= i.

    Delta_i = softplus(W_delta x_i + b_delta), one per head; A_h = -exp(log_A[h]).
    Parameters ``W_B``, ``W_C`` (groups, N, d), ``W_delta`` (H, 1, d), ``b_delta``,
    ``log_A`` (H,), ``W_V``, ``W_O``. This is the core of the layer, without short
    convolution, SiLU, D skip, output gate and norm (`dao2024transformers`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    H : int
        Heads.
    head_width : int
        Width of the values.
    N : int
        States.
    groups : int, default 1
        How many (B, C) pairs the heads share, a divisor of H.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    ValueError
        If groups does not divide H.

    Examples
    --------
    >>> layer = SSD(4, 4, H=1, head_width=4, N=64)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # one head, whatever the size of its state
    1
    """

    _queries = False

    def __init__(
        self, d: int, p: int, *, H: int, head_width: int, N: int, groups: int = 1, **new: Unpack[New]
    ):
        super().__init__(d, p, H=H, head_width=head_width, **new)
        if H % check_integer("groups", groups, low=1):
            raise ValueError(f"groups must divide H = {H}; got {groups}")
        self.N = self.key_width = check_integer("N", N, low=1)
        self.groups = groups
        self.W_B = random_parameter(groups, N, d, fan_in=d, **new)
        self.W_C = random_parameter(groups, N, d, fan_in=d, **new)
        self.W_delta = random_parameter(H, 1, d, fan_in=d, **new)
        self.b_delta = nn.Parameter(inverse_softplus(random_steps(H, **new)))
        rates = torch.arange(1, H + 1, dtype=self.W_B.dtype, device=self.W_B.device)
        self.log_A = nn.Parameter(rates.log())

    @classmethod
    def from_transformers(cls, mixer: nn.Module) -> SSD:
        """The core of a Mamba-2 or Bamba mixer of transformers, for tokens (u, B, C, step).

        mixer: a ``Mamba2Mixer``, a ``BambaMixer``, or any module with their parts. A token
        holds what enters the core after the short convolution: the values u (H head_width),
        B and C (groups N each) and the raw steps (H); so all of the map's matrices but
        ``log_A`` and ``b_delta`` only pick channels. The skip D is left out. Returns a new
        map in the dtype and on the device of the mixer. Raises ``TypeError`` for other
        modules, ``ValueError`` for a mixer that clamps its steps.
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


ZOO = {"SSD": lambda of, new: SSD(N=of.N, **of.head, **new)}
