"""The selective scan: an input-dependent diagonal recurrence, of which no (T, d, N) tensor is ever made."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ssmbook._checks import check_choice
from ssmbook.numerics import phi1
from ssmbook.scans._engine import (
    BLOCK,
    PHI_RADIUS,
    PHI_SERIES,
    Operation,
    check_scan,
    differentiated_again,
    half_in_float32,
    kernels_for,
    loops_for,
    observer,
    on_large_pages,
    run,
    wide_copy,
)
from ssmbook.scans.diagonal import diagonal

HOLDS = ("euler", "zoh")
PIECE = 256  # steps whose states are in memory at once where there is no compiled loop


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
    hold: str = "euler",
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`selective_scan` as it is written, one step at a time."""
    _check(x, delta, A, B, C, D, state, hold)
    h = x.new_zeros((*x.shape[:-2], *A.shape)) if state is None else state
    y = []
    for x_t, delta_t, B_t, C_t in zip(
        x.unbind(-2), delta.unbind(-2), B.unbind(-2), C.unbind(-2), strict=True
    ):
        z = delta_t[..., None] * A
        u_t = (delta_t * x_t)[..., None] * (phi1(z) if hold == "zoh" else 1)
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
    hold: str = "euler",
) -> tuple[Tensor, Tensor]:
    """Run the selective state space model of Mamba.

    h_t = exp(Delta_t A) h_{t-1} + B_bar_t x_t, y_t = C_t h_t. x, delta: (..., T, d) inputs and step sizes
    (used as they are: apply softplus yourself); A: (d, N) rates, negative for a stable system; B, C: (..., T,
    N); D: (d,), adds D x_t, or None; state: (..., d, N) initial state, zero if None. hold: "zoh", B_bar =
    Delta phi_1(Delta A) B, the exact zero-order hold, or "euler", B_bar = Delta B, as Mamba's code computes.
    The decay is exact in both, so "euler" is what `System.discretize` calls "mixed".
    Returns y (..., T, d) and the final state (..., d, N), differentiable any number of times.

    Beyond inputs and outputs it keeps one state every 32 steps, for the backward pass too; without Numba and
    Triton, 256 states. Gradients of gradients and forward mode keep every state. float16 and bfloat16 are
    computed, and their states kept, in float32. Raises ``ValueError`` / ``TypeError`` naming the argument.
    After `gu2024mamba`.

    >>> n, d, N = 16, 2, 4
    >>> x, delta, A = torch.randn(n, d), torch.rand(n, d), -torch.rand(d, N)
    >>> B, C = torch.randn(n, N), torch.randn(n, N)
    >>> y, state = selective_scan(x, delta, A, B, C)
    >>> first, state = selective_scan(x[:9], delta[:9], A, B[:9], C[:9])  # in two pieces
    >>> then, state = selective_scan(x[9:], delta[9:], A, B[9:], C[9:], state=state)
    >>> torch.allclose(torch.cat([first, then]), y, atol=1e-5)
    True
    """
    _check(x, delta, A, B, C, D, state, hold)
    if state is None:
        state = x.new_zeros((*x.shape[:-2], *A.shape))
    if x.shape[-2] == 0:
        return x * delta, state.clone()
    y, state = selective(x, delta, A.mT, B, C, state.mT, hold)
    return y if D is None else torch.addcmul(y, D, x), state.mT


def _check(x, delta, A, B, C, D, state, hold) -> None:
    check_choice("hold", hold, HOLDS)
    time = {"x": (x, "... T d"), "delta": (delta, "... T d"), "A": (A, "d N")}
    check_scan(**time, B=(B, "... T N"), C=(C, "... T N"), D=(D, "d"), state=(state, "... d N"))


def selective(x, delta, A, B, C, state, hold: str) -> tuple[Tensor, Tensor]:
    """y (..., T, d), T > 0, and the final state (..., N, d), with A (N, d), or (1, d) for all states.

    ``hold``: as above, or "none" where x enters as it is.
    """
    given = x, delta, A, B, C, state, hold
    who, kernels = observer(), hold != "none" and not torch.compiler.is_compiling() and kernels_for(state)
    if x.is_meta or (loops_for(x) or kernels) and who != "derivative":
        return _selective(*given)[:2]
    return (_in_full if who == "derivative" or torch.compiler.is_compiling() else _in_pieces)(*given)


# --- The operation and its gradients ------------------------------------------------------------------------


def _like_y(x, delta, A, B, C, state, hold):
    # one more block than there can be: a dimension of one would be taken for a constant by torch.export
    kept = x.new_empty((*x.shape[:-2], x.shape[-2] // BLOCK + 2, *state.shape[-2:]))
    return x.new_empty(x.shape), state.new_empty(state.shape), kept


def _y(x, delta, A, B, C, state, hold):
    """y (..., T, d), the final state (..., N, d), and the states before every block of steps."""
    kernels = kernels_for(x)
    if kernels:
        return kernels.selective(x, delta, A, B, C, state, hold)
    y, end, kept = map(on_large_pages, _like_y(x, delta, A, B, C, state, hold))
    carry, given = wide_copy(state, end), _for_loop(x, delta, A, B, C, hold)
    run(loops_for(x).selective, *given, (carry, 2), (y, 2), (kept, 3))
    kept[..., -(-x.shape[-2] // BLOCK) :, :, :] = 0
    return y, end.copy_(carry), kept


def _for_loop(x, delta, A, B, C, hold) -> tuple:
    rates, exact = A.contiguous().numpy(force=True), True if hold == "zoh" else None
    return (x, 2), (delta, 2), rates, (B, 2), (C, 2), hold != "none", exact


def _like_inputs(x, delta, A, B, C, hold, kept, d_y, d_end):
    return tuple(t.new_empty(t.shape) for t in (x, delta, A, B, C, d_end))


def _gradients(x, delta, A, B, C, hold, kept, d_y, d_end):
    """The gradients of x, delta, A, B, C and the initial state."""
    kernels = kernels_for(x)
    if kernels:
        return kernels.selective_backward(x, delta, A, B, C, hold, kept, d_y, d_end)
    given = x, delta, A, B, C, hold
    d_x, d_delta, d_A, d_B, d_C, d_state = map(on_large_pages, _like_inputs(*given, kept, d_y, d_end))
    g, sums = wide_copy(d_end, d_end), wide_copy(None, x.new_empty((*x.shape[:-2], *A.shape)))
    found = (g, 2), (d_x, 2), (d_delta, 2), (sums, 2), (d_B, 2), (d_C, 2)
    run(loops_for(x).selective_backward, *_for_loop(*given), (kept, 3), (d_y, 2), *found)
    return d_x, d_delta, d_A.copy_(sums.sum_to_size(A.shape)), d_B, d_C, d_state.copy_(g)


def _keep(ctx, inputs, output):
    *tensors, ctx.hold = inputs
    ctx.save_for_backward(*tensors, output[2])


def _pull(ctx, d_y, d_end, _):
    *inputs, state, kept = ctx.saved_tensors
    if not differentiated_again():
        return *_selective_backward(*inputs, ctx.hold, kept, d_y, d_end), None
    _, pull = torch.func.vjp(lambda *given: _in_full(*given, ctx.hold), *inputs, state)
    return *pull((d_y, d_end)), None


_selective = Operation(
    "selective(Tensor x, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor state, str hold)"
    " -> (Tensor, Tensor, Tensor)",
    *(_y, _like_y, _keep, _pull, (2,)),
)
_selective_backward = Operation(
    "selective_backward(Tensor x, Tensor delta, Tensor A, Tensor B, Tensor C, str hold,"
    " Tensor kept, Tensor d_y, Tensor d_end) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    *(_gradients, _like_inputs),
    shared=range(9),  # the gradient of A is a sum over the batch
)


# --- The form in torch, without Numba and Triton ------------------------------------------------------------


class _Phi1(torch.autograd.Function):
    """:func:`ssmbook.numerics.phi1` with a derivative in closed form, many times faster."""

    @staticmethod
    def forward(ctx, z):
        value = z.expm1().div_(z).masked_fill_(z == 0, 1)
        ctx.save_for_backward(z, value)
        return value

    @staticmethod
    def backward(ctx, change):
        z, value = ctx.saved_tensors
        if differentiated_again():
            return torch.func.vjp(phi1, z)[1](change)[0]
        slope, near = z.exp().sub_(value).div_(z), torch.full_like(z, PHI_SERIES[0])
        for coefficient in PHI_SERIES[1:]:
            near.mul_(z).add_(coefficient)
        return torch.where(z.abs() < PHI_RADIUS[z.dtype], near, slope).mul_(change)


def _in_full(x, delta, A, B, C, state, hold):
    """The scan with every state in memory, by the diagonal one: differentiable in either mode, and again."""
    entered = (x if hold == "none" else delta * x).unsqueeze(-2) * B.unsqueeze(-1)
    rates = (delta.unsqueeze(-2) * A).expand(entered.shape)
    if hold == "zoh":
        entered = entered * (phi1 if observer(rates) else _Phi1.apply)(rates)
    h, end = diagonal(rates.flatten(-2), entered.flatten(-2), state.flatten(-2), True, False)
    h, end = (t.unflatten(-1, state.shape[-2:]) for t in (h, end))
    return (C.unsqueeze(-2) @ h).squeeze(-2), end


def _in_pieces(x, delta, A, B, C, state, hold):
    """The same, piece by piece of time: a backward pass makes the states of each piece again."""
    out = []
    for start in range(0, x.shape[-2], PIECE):
        of = slice(start, start + PIECE)
        x_s, delta_s, B_s, C_s = (t[..., of, :] for t in (x, delta, B, C))
        given = x_s, delta_s, A, B_s, C_s, state, hold
        again = x.shape[-2] > PIECE and torch.is_grad_enabled() and observer() is None
        y, state = checkpoint(_in_full, *given, use_reentrant=False) if again else _in_full(*given)
        out.append(y)
    return torch.cat(out, -2), state
