"""The selective scan of Mamba: a diagonal recurrence whose coefficients the tokens select.

Each of d channels keeps N numbers. A is fixed; the token chooses the step Delta_t, one for
each channel, and B_t and C_t, which all channels share:

    h_t = exp(Delta_t A) h_{t-1} + B_bar_t x_t,    y_t = C_t h_t + D x_t.

The decay is the exact one of dh/dt = A h + B x over a time Delta_t. With what goes in there
are two ways: "zoh" takes the input as held over the step, B_bar = Delta phi_1(Delta A) B;
"mixed" takes Euler's B_bar = Delta B, as Mamba's code does.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from ssmbook._checks import check_choice
from ssmbook.numerics import phi1
from ssmbook.scans._shared import check_scan, half_in_float32
from ssmbook.scans.fast.selective import selective

ExactDecay = Literal["zoh", "mixed"]  # the values of `discretization` with A_bar = exp(Delta A)
EXACT_DECAYS = get_args(ExactDecay)  # once: torch.compile of PyTorch 2.6 cannot follow it


@half_in_float32
def selective_scan_naive(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
    *,
    discretization: ExactDecay = "zoh",
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`selective_scan` as it is written, one step at a time.

    Parameters
    ----------
    x, delta : Tensor (..., T, d)
        Inputs and step sizes.
    A : Tensor (d, N)
        Rates.
    B, C : Tensor (..., T, N)
        What writes into the states and what reads them.
    D : Tensor (d,), optional
        The skip.
    state : Tensor (..., d, N), optional
        The initial state, zero if None.
    discretization : {"zoh", "mixed"}, default "zoh"
        How the input enters.

    Returns
    -------
    y : Tensor (..., T, d)
        The outputs.
    end : Tensor (..., d, N)
        The last state.

    Raises
    ------
    ValueError, TypeError
        As :func:`selective_scan`.
    """
    _check(x, delta, A, B, C, D, state, discretization)
    h = x.new_zeros((*x.shape[:-2], *A.shape)) if state is None else state
    y = []
    steps = zip(x.unbind(-2), delta.unbind(-2), B.unbind(-2), C.unbind(-2), strict=True)
    for x_t, delta_t, B_t, C_t in steps:
        z = delta_t[..., None] * A
        u_t = (delta_t * x_t)[..., None] * (phi1(z) if discretization == "zoh" else 1)
        h = z.exp() * h + u_t * B_t[..., None, :]
        y.append((h * C_t[..., None, :]).sum(-1) + (0 if D is None else D * x_t))
    return torch.stack(y, -2) if y else torch.zeros_like(x), h


@half_in_float32
def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
    *,
    discretization: ExactDecay = "zoh",
) -> tuple[Tensor, Tensor]:
    """Run the selective state space model of Mamba, of which no (T, d, N) tensor is ever made.

    h_t = exp(Delta_t A) h_{t-1} + B_bar_t x_t, y_t = C_t h_t + D x_t. Beyond inputs and outputs it keeps
    one state every 32 steps, for the backward pass too; without Numba and Triton, 256 states. Gradients
    of gradients and forward mode keep every state. After `gu2024mamba`.

    Parameters
    ----------
    x : Tensor (..., T, d)
        Inputs. All arguments have one real dtype; float16 and bfloat16 are computed, and their states
        kept, in float32.
    delta : Tensor (..., T, d)
        Step sizes, used as they are: apply softplus yourself.
    A : Tensor (d, N)
        Rates, negative for a stable system.
    B, C : Tensor (..., T, N)
        What writes into the states and what reads them, the same for all channels.
    D : Tensor (d,), optional
        The skip, adds D x_t.
    state : Tensor (..., d, N), optional
        The initial state h_0, zero if None.
    discretization : {"zoh", "mixed"}, default "zoh"
        "zoh": B_bar = Delta phi_1(Delta A) B, the exact zero-order hold; "mixed": B_bar = Delta B, as
        Mamba's code computes. Both names mean what they mean in `System.discretize`.

    Returns
    -------
    y : Tensor (..., T, d)
        The outputs, differentiable any number of times.
    end : Tensor (..., d, N)
        The last state.

    Raises
    ------
    ValueError
        For shapes that differ, and for another discretization.
    TypeError
        For mixed dtypes.

    Examples
    --------
    >>> n, d, N = 16, 2, 4
    >>> x, delta, A = torch.randn(n, d), torch.rand(n, d), -torch.rand(d, N)
    >>> B, C = torch.randn(n, N), torch.randn(n, N)
    >>> y, state = selective_scan(x, delta, A, B, C)
    >>> first, state = selective_scan(x[:9], delta[:9], A, B[:9], C[:9])  # in two pieces
    >>> then, state = selective_scan(x[9:], delta[9:], A, B[9:], C[9:], state=state)
    >>> torch.allclose(torch.cat([first, then]), y, atol=1e-5)
    True
    """
    _check(x, delta, A, B, C, D, state, discretization)
    if state is None:
        state = x.new_zeros((*x.shape[:-2], *A.shape))
    if x.shape[-2] == 0:
        return x * delta, state.clone()
    y, state = selective(x, delta, A.mT, B, C, state.mT, discretization)
    return y if D is None else torch.addcmul(y, D, x), state.mT


def _check(x, delta, A, B, C, D, state, discretization) -> None:
    check_choice("discretization", discretization, EXACT_DECAYS)
    time = {"x": (x, "... T d"), "delta": (delta, "... T d"), "A": (A, "d N")}
    check_scan(**time, B=(B, "... T N"), C=(C, "... T N"), D=(D, "d"), state=(state, "... d N"))
