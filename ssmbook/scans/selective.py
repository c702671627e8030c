"""The selective scan: an input-dependent diagonal recurrence, run in time blocks so that no (T, d, N)
tensor exists.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook._checks import check_alike, check_shape

from ._core import is_batched, loop_into, scan_into
from ._validate import check_batch, check_state, like_state, outside_autocast, widen

# Inside, states are (..., N, d): channels innermost, since there are more of them than states.
WIDTH = 2048  # from this many numbers on, one step is work enough for one call
BLOCK = 1 << 19  # numbers in a block of fewer


def _ranges(T: int, width: int) -> list[tuple[int, int]]:
    """(start, length) of the time blocks: short ones, so that what a block needs stays in the caches."""
    size = 64 if width >= WIDTH else max(64, BLOCK // width)
    return [(start, min(size, T - start)) for start in range(0, T, size)]


def _recur(a: Tensor, b: Tensor, state: Tensor, reverse: bool = False) -> Tensor:
    """The recurrence over dim -3 from ``state``; ``b`` may be overwritten."""
    h = b if state.numel() >= WIDTH else torch.empty_like(b)
    run = loop_into if h is b else scan_into
    run(a.flatten(-2), b.flatten(-2), h.flatten(-2), state.flatten(-2), reverse=reverse)
    return h


def _block(x, delta, A, B, state):
    """Decays exp(Delta A) and states of one block, both (..., L, N, d), from the state before it."""
    a = (delta.unsqueeze(-2) * A).exp_()
    return a, _recur(a, (delta * x).unsqueeze(-2) * B.unsqueeze(-1), state)


def _each(function, info, in_dims, args, outputs: int):
    """The vmap rule of a function that shares A over its batch: one call for each element."""
    calls = []
    for i in range(info.batch_size):
        calls.append(
            function.apply(
                *(t if dim is None else t.select(dim, i) for t, dim in zip(args, in_dims, strict=True))
            )
        )
    return tuple(torch.stack(out) for out in zip(*calls, strict=True)), (0,) * outputs


class SelectiveScan(torch.autograd.Function):
    """Keeps the state before every block; the backward pass makes the states inside a block again from it."""

    @staticmethod
    def forward(x, delta, A, B, C, state):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        ranges = _ranges(x.shape[-2], state.numel())
        A, state = A.mT.contiguous(), state.mT.contiguous()
        kept = x.new_empty((*x.shape[:-2], len(ranges), *A.shape))
        for i, (start, length) in enumerate(ranges):
            kept.select(-3, i).copy_(state)
            x_s, delta_s, B_s, C_s, y_s = (t.narrow(-2, start, length) for t in (x, delta, B, C, y))
            _, h = _block(x_s, delta_s, A, B_s, state)
            y_s.copy_((C_s.unsqueeze(-2) @ h).squeeze(-2))
            state = h.select(-3, -1).contiguous()
        return y, state.mT.contiguous(), kept

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:5], output[2])
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, grad_y, grad_state, _):
        if is_batched(grad_y) or is_batched(grad_state):
            return _plain_backward(*ctx.saved_tensors, grad_y, grad_state)
        return SelectiveScanBackward.apply(*ctx.saved_tensors, grad_y, grad_state)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _each(SelectiveScan, info, in_dims, args, 3)


def _plain_backward(x, delta, A, B, C, kept, grad_y, grad_state):
    """The gradients through the recurrence as it is written, for gradients that come batched."""
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (x, delta, A, B, C, kept.select(-3, 0).mT)]
        outputs = selective_scan_naive(*leaves[:5], state=leaves[5])
        return torch.autograd.grad(outputs, leaves, (grad_y, grad_state))


class SelectiveScanBackward(torch.autograd.Function):
    """The gradients of :class:`SelectiveScan`, block by block from the last to the first; differentiable
    once.
    """

    @staticmethod
    def forward(x, delta, A, B, C, kept, grad_y, grad_state):
        grads = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (x, delta, B, C)]
        A, grad_state = A.mT.contiguous(), grad_state.mT.contiguous()
        grad_A = torch.zeros_like(A)
        ranges = _ranges(x.shape[-2], grad_state.numel())
        with torch.autocast(x.device.type, enabled=False):
            for i in reversed(range(len(ranges))):
                pieces = [t.narrow(-2, *ranges[i]) for t in (x, delta, B, C, grad_y, *grads)]
                grad_state, part = _block_backward(A, kept.select(-3, i), grad_state, *pieces)
                grad_A += part
        grad_x, grad_delta, grad_B, grad_C = grads
        return grad_x, grad_delta, grad_A.mT, grad_B, grad_C, grad_state.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(
            "selective_scan is differentiable once; use diagonal_scan for higher derivatives"
        )

    @staticmethod
    def vmap(info, in_dims, *args):
        return _each(SelectiveScanBackward, info, in_dims, args, 6)


def _block_backward(A, state, grad_state, x, delta, B, C, grad_y, grad_x, grad_delta, grad_B, grad_C):
    """Fill the block's gradients of x, delta, B, C; return those of the state before the block and of A."""
    a, h = _block(x, delta, A, B, state)
    grad_C.copy_((grad_y.unsqueeze(-2) @ h.mT).squeeze(-2))
    g = grad_y.unsqueeze(-2) * C.unsqueeze(-1)
    last = g.select(-3, -1).add_(grad_state)
    L = g.shape[-3]
    if L > 1:
        earlier = g.narrow(-3, 0, L - 1)
        rest = _recur(a.narrow(-3, 1, L - 1), earlier, last, reverse=True)
        if rest is not earlier:
            earlier.copy_(rest)
    grad_state = a.select(-3, 0) * g.select(-3, 0)
    rate = torch.cat((state.unsqueeze(-3), h.narrow(-3, 0, L - 1)), -3).mul_(a).mul_(g)
    g_B = (B.unsqueeze(-2) @ g).squeeze(-2)
    torch.mul(delta, g_B, out=grad_x)
    torch.addcmul((rate * A).sum(-2), x, g_B, out=grad_delta)
    grad_B.copy_(((delta * x).unsqueeze(-2) @ g.mT).squeeze(-2))
    grad_A = torch.einsum("bnd,bd->nd", rate.reshape(-1, *A.shape), delta.reshape(-1, A.shape[1]))
    return grad_state, grad_A


def _check(x, delta, A, B, C, D, state, time: str) -> None:
    sizes = check_shape("x", x, f"... {time} d")
    check_shape("delta", delta, f"... {time} d", sizes)
    sizes = check_shape("A", A, "d N", sizes)
    check_shape("B", B, f"... {time} N", sizes)
    check_shape("C", C, f"... {time} N", sizes)
    if D is not None:
        check_shape("D", D, "d", sizes)
        check_alike(x=x, D=D)
    check_alike(x=x, delta=delta, A=A, B=B, C=C)
    dims = 1 + len(time.split())
    batch = x.shape[:-dims]
    check_batch(batch, delta=(delta, dims), B=(B, dims), C=(C, dims))
    check_state(state, "d N", {"d": sizes["d"], "N": sizes["N"]}, batch, x=like_state(x, state))


@outside_autocast
def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the selective state space model of Mamba: h_t = exp(Delta_t A) h_{t-1} + Delta_t B_t x_t, y_t =
    C_t h_t + D x_t.

    x, delta: (..., T, d) inputs and step sizes (used as they are: apply softplus yourself); A: (d, N)
    rates, negative for a stable system; B, C: (..., T, N); D: (d,) skip or None; state: (..., d, N) initial
    state, zero if None. Returns y (..., T, d) and the final state (..., d, N). The input term is the Euler
    form Delta B that Mamba's code uses, not the exact zero-order hold. Memory beyond inputs and outputs is
    that of one time block, in the backward pass too, which makes each block's states again. Dtype and
    device of the inputs; float16 and bfloat16 are computed, and their states kept, in float32.
    Differentiable once in every argument. Raises ``ValueError`` / ``TypeError`` naming the argument. After
    :cite:`gu2024mamba`. Introduced in *scans*.
    """
    _check(x, delta, A, B, C, D, state, "T")
    dtype = x.dtype
    x, delta, A, B, C, D, state = widen(x, delta, A, B, C, D, state)
    if state is None:
        state = x.new_zeros((*x.shape[:-2], *A.shape))
    if x.numel() == 0 or A.numel() == 0:
        y, state = torch.zeros_like(x), state.clone()
    else:
        y, state, _ = SelectiveScan.apply(x, delta, A, B, C, state)
    return (y if D is None else torch.addcmul(y, D, x)).to(dtype), state


def selective_scan_naive(x, delta, A, B, C, D=None, state=None):
    """The recurrence of :func:`selective_scan` as it is written, one step at a time."""
    h = x.new_zeros((*x.shape[:-2], *A.shape)) if state is None else state
    y = []
    for x_t, delta_t, B_t, C_t in zip(
        x.unbind(-2), delta.unbind(-2), B.unbind(-2), C.unbind(-2), strict=True
    ):
        h = (delta_t[..., None] * A).exp() * h + (delta_t * x_t)[..., None] * B_t[..., None, :]
        y.append((h * C_t[..., None, :]).sum(-1) + (0 if D is None else D * x_t))
    return torch.stack(y, -2) if y else torch.zeros_like(x), h


@outside_autocast
def selective_step(
    x_t: Tensor,
    delta_t: Tensor,
    A: Tensor,
    B_t: Tensor,
    C_t: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Take one step of :func:`selective_scan`: from x_t, delta_t (..., d), B_t, C_t (..., N) and state
    (..., d, N).

    Returns y_t (..., d) and the next state (..., d, N). Raises as :func:`selective_scan` does. Introduced
    in *scans*.
    """
    _check(x_t, delta_t, A, B_t, C_t, D, state, "")
    dtype = x_t.dtype
    x_t, delta_t, A, B_t, C_t, D, state = widen(x_t, delta_t, A, B_t, C_t, D, state)
    b = (delta_t * x_t).unsqueeze(-1) * B_t.unsqueeze(-2)
    state = b if state is None else (delta_t.unsqueeze(-1) * A).exp() * state + b
    y = (state @ C_t.unsqueeze(-1)).squeeze(-1)
    return (y if D is None else y + D * x_t).to(dtype), state
