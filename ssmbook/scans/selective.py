"""The selective scan: an input-dependent diagonal recurrence, of which no (T, d, N) tensor is ever made."""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook.numerics import single
from ssmbook.scans._ops import selective
from ssmbook.scans._validate import check_arguments, check_options, one_step, outside_autocast

SHAPES = "x: ... T d, delta: ... T d, A: d N, B: ... T N, C: ... T N, D: d, state: ... d N"


@outside_autocast
def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
    *,
    reverse: bool = False,
    reset: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the selective state space model of Mamba.

    h_t = exp(Delta_t A) h_{t-1} + Delta_t B_t x_t, y_t = C_t h_t + D x_t. x, delta: (..., T, d) inputs and
    step sizes (used as they are: apply softplus yourself); A: (d, N) rates, negative for a stable system; B,
    C: (..., T, N); D: (d,) skip or None; state: (..., d, N) initial state, zero if None. Returns y (..., T,
    d) and the final state (..., d, N). The input term is the Euler form Delta B that Mamba's code uses, not
    the exact zero-order hold. ``reverse`` runs from the last step to the first; ``reset`` (..., T), boolean,
    is true at the steps that forget the state before them, unless it is NaN or infinite, as in
    :func:`diagonal_scan`.

    Dtype and device of the inputs; float16 and bfloat16 are computed, and their states kept, in float32, and
    A and D may be float32 beside them. Memory beyond inputs and outputs is that of one state every 32 steps,
    also for the backward pass, which makes the others again; without Numba and Triton, that of 256 states.
    Differentiable in every argument, any number of times; forward mode and gradients of gradients hold every
    state. Raises ``ValueError`` / ``TypeError`` naming the argument. After `gu2024mamba`.
    Introduced in *scans*.

    >>> n, d, N = 16, 2, 4
    >>> x, delta, A = torch.randn(n, d), torch.rand(n, d), -torch.rand(d, N)
    >>> B, C = torch.randn(n, N), torch.randn(n, N)
    >>> y, state = selective_scan(x, delta, A, B, C)
    >>> first, state = selective_scan(x[:9], delta[:9], A, B[:9], C[:9])  # in two pieces
    >>> then, state = selective_scan(x[9:], delta[9:], A, B[9:], C[9:], state=state)
    >>> torch.allclose(torch.cat([first, then]), y, atol=1e-5)
    True
    """
    check_arguments(SHAPES, x, delta, A, B, C, D, state, single=("A", "D", "state"))
    check_options(reset, x, 1, reverse=reverse)
    dtype = x.dtype
    x, delta, A, B, C, D, state = map(single, (x, delta, A, B, C, D, state))
    if state is None:
        state = x.new_zeros((*x.shape[:-2], *A.shape))
    if x.shape[-2] == 0:
        y, state = x * delta, state.clone()
    else:
        given = x, delta, B, C
        u, steps, B, C = (t.flip(-2) for t in given) if reverse else given
        mask = reset.flip(-1) if reverse and reset is not None else reset
        y, state = selective(u, steps, A.mT, B, C, state.mT, True, mask)
        y, state = y.flip(-2) if reverse else y, state.mT
    return (y if D is None else torch.addcmul(y, D, x)).to(dtype), state


def selective_scan_naive(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`selective_scan` as it is written, one step at a time."""
    check_arguments(SHAPES, x, delta, A, B, C, D, state, single=("A", "D", "state"))
    h = x.new_zeros((*x.shape[:-2], *A.shape)) if state is None else state
    y = []
    for x_t, delta_t, B_t, C_t in zip(
        x.unbind(-2), delta.unbind(-2), B.unbind(-2), C.unbind(-2), strict=True
    ):
        h = (delta_t[..., None] * A).exp() * h + (delta_t * x_t)[..., None] * B_t[..., None, :]
        y.append((h * C_t[..., None, :]).sum(-1) + (0 if D is None else D * x_t))
    return torch.stack(y, -2) if y else torch.zeros_like(x), h


def selective_step(
    x_t: Tensor,
    delta_t: Tensor,
    A: Tensor,
    B_t: Tensor,
    C_t: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Take one step of :func:`selective_scan`.

    x_t, delta_t: (..., d); B_t, C_t: (..., N); state: (..., d, N). Returns y_t (..., d) and the next state
    (..., d, N). Raises as :func:`selective_scan` does. Introduced in *scans*.

    >>> delta, A, one = torch.ones(1), torch.tensor([[-1.0]]), torch.ones(1)
    >>> y, state = selective_step(one, delta, A, one, one)
    >>> y, state = selective_step(one, delta, A, one, one, state=state)
    >>> round(y.item(), 3)  # 1, and what is left of the first 1 after one unit of time: 1/e
    1.368
    """
    x, delta, B, C = one_step(-2, x=x_t, delta=delta_t, B=B_t, C=C_t)
    y, state = selective_scan(x, delta, A, B, C, D, state)
    return y.squeeze(-2), state
