"""The selective scan: an input-dependent diagonal recurrence, run in time blocks so that no (T, d, N)
tensor exists.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook._checks import check_alike, check_shape

from ._core import LOG2_E, is_batched, light_calls, scan_into
from ._validate import check_batch, check_state, like_state, outside_autocast, widen

# Inside, states are (..., N, d): channels innermost, since there are more of them than states.
WIDTH = 1024  # from this many numbers on, one step is work enough for one call
BLOCK = 1 << 18  # numbers in a block, where that is 64 steps or more


def _ranges(T: int, width: int) -> list[tuple[int, int]]:
    """(start, length) of the time blocks: short ones, so that what a block needs stays in the caches."""
    size = max(64, BLOCK // width)
    return [(start, min(size, T - start)) for start in range(0, T, size)]


class _Block:
    """Room for the decays exp(Delta A) and the states of one time block, (..., L, N, d), used for every
    block.
    """

    def __init__(self, x: Tensor, A: Tensor, length: int):
        # exp(z) = 2^(z log2 e), several times faster than exp on some processors
        self.rates = A * LOG2_E
        self.direct = x[..., 0, :].numel() * A.shape[0] >= WIDTH
        self.full = [x.new_empty((*x.shape[:-2], length, *A.shape)) for _ in range(2 if self.direct else 3)]
        self.views = {}

    def room(self, length: int) -> tuple:
        """The buffers for a block of this length, and their single steps."""
        if length not in self.views:
            buffers = [t.narrow(-3, 0, length) for t in self.full]
            self.views[length] = buffers, [t.unbind(-3) for t in buffers]
        return self.views[length]

    def states(self, delta: Tensor, entered: Tensor, B: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Decays and states of the block from the state before it; ``entered`` is Delta x."""
        (a, b, *h), steps = self.room(delta.shape[-2])
        torch.mul(delta.unsqueeze(-2), self.rates, out=a).exp2_()
        torch.mul(entered.unsqueeze(-2), B.unsqueeze(-1), out=b)
        if self.direct:
            with light_calls():
                for a_t, h_t in zip(*steps, strict=True):
                    state = h_t.addcmul_(a_t, state)
            return a, b
        scan_into(a.flatten(-2), b.flatten(-2), h[0].flatten(-2), state.flatten(-2))
        return a, h[0]

    def adjoint(self, a: Tensor, g: Tensor, after: Tensor) -> None:
        """g_t + a_{t+1} g_{t+1} down in time, in place; ``after`` (the part from later blocks) joins at the
        end.
        """
        L = g.shape[-3]
        last = g.select(-3, -1).add_(after)
        if self.direct:
            a, g = a.unbind(-3), g.unbind(-3)
            with light_calls():
                for t in range(L - 2, -1, -1):
                    g[t].addcmul_(a[t + 1], g[t + 1])
        elif L > 1:
            earlier = g.narrow(-3, 0, L - 1)
            out = torch.empty_like(earlier)
            steps = (t.flatten(-2) for t in (a.narrow(-3, 1, L - 1), earlier, out))
            scan_into(*steps, last.flatten(-2), reverse=True)
            earlier.copy_(out)


def _mapped_first(info, in_dims, args) -> list:
    """A vmapped call's tensors with the mapped dimension in front of every one."""
    return [
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip(args, in_dims, strict=True)
    ]


def _each(function, info, in_dims, args) -> tuple:
    """The vmap rule where A is mapped too: one call for each element."""
    mapped = _mapped_first(info, in_dims, args)
    calls = [function(*(t[i] for t in mapped)) for i in range(info.batch_size)]
    return tuple(torch.stack(out) for out in zip(*calls, strict=True))


class SelectiveScan(torch.autograd.Function):
    """Keeps the state before every block; the backward pass makes the states inside a block again from it."""

    @staticmethod
    def forward(x, delta, A, B, C, state):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        ranges = _ranges(x.shape[-2], state.numel())
        A, state, entered = A.mT.contiguous(), state.mT, delta * x
        block = _Block(x, A, ranges[0][1])
        kept = x.new_empty((*x.shape[:-2], len(ranges), *A.shape))
        for i, (start, length) in enumerate(ranges):
            state = kept.select(-3, i).copy_(state)
            delta_s, entered_s, B_s, C_s, y_s = (
                t.narrow(-2, start, length) for t in (delta, entered, B, C, y)
            )
            _, h = block.states(delta_s, entered_s, B_s, state)
            y_s.copy_((C_s.unsqueeze(-2) @ h).squeeze(-2))
            state = h.select(-3, -1)
        return y, state.mT.clone(memory_format=torch.contiguous_format), kept

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[2])
        ctx.save_for_forward(*inputs)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, grad_y, grad_state, _):
        if is_batched(grad_y) or is_batched(grad_state):
            return _plain_backward(*ctx.saved_tensors[:6], grad_y, grad_state)
        return SelectiveScanBackward.apply(*ctx.saved_tensors, grad_y, grad_state)

    @staticmethod
    def jvp(ctx, *tangents):
        return *_push(_naive_by_position, ctx.saved_tensors[:6], tangents), None

    @staticmethod
    def vmap(info, in_dims, *args):
        if in_dims[2] is not None:
            return _each(SelectiveScan.apply, info, in_dims, args), (0, 0, 0)
        x, delta, _, B, C, state = _mapped_first(info, in_dims, args)
        return SelectiveScan.apply(x, delta, args[2], B, C, state), (0, 0, 0)


def _push(function, inputs, tangents) -> tuple[Tensor, ...]:
    """The derivative along ``tangents``, as the transpose of the transpose: forward mode does not nest."""
    outputs, pull = torch.func.vjp(function, *inputs)
    _, push = torch.func.vjp(lambda *grads: pull(grads), *(torch.zeros_like(t) for t in outputs))
    return push(tangents)


def _plain_backward(x, delta, A, B, C, state, grad_y, grad_state):
    """The gradients through the recurrence as it is written: batched and differentiable again."""
    _, pull = torch.func.vjp(_naive_by_position, x, delta, A, B, C, state)
    return pull((grad_y, grad_state))


def _naive_by_position(x, delta, A, B, C, state):
    return selective_scan_naive(x, delta, A, B, C, state=state)


class SelectiveScanBackward(torch.autograd.Function):
    """The gradients of :class:`SelectiveScan`, block by block from the last to the first."""

    @staticmethod
    def forward(x, delta, A, B, C, state, kept, grad_y, grad_state):
        grads = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (x, delta, B, C)]
        A, grad_state = A.mT.contiguous(), grad_state.mT.contiguous()
        grad_A = torch.zeros_like(A)
        ranges, entered = _ranges(x.shape[-2], grad_state.numel()), delta * x
        block = _Block(x, A, ranges[0][1])
        with torch.autocast(x.device.type, enabled=False):
            for i in reversed(range(len(ranges))):
                pieces = [t.narrow(-2, *ranges[i]) for t in (x, delta, entered, B, C, grad_y, *grads)]
                grad_state = _block_backward(block, A, kept.select(-3, i), grad_state, grad_A, *pieces)
        grad_x, grad_delta, grad_B, grad_C = grads
        return grad_x, grad_delta, grad_A.mT.contiguous(), grad_B, grad_C, grad_state.mT.contiguous()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:6], *inputs[7:])
        ctx.save_for_forward(*inputs[:6], *inputs[7:])

    @staticmethod
    def backward(ctx, *grads):
        _, pull = torch.func.vjp(_plain_backward, *ctx.saved_tensors)
        grad_inputs = pull(grads)
        return *grad_inputs[:6], None, *grad_inputs[6:]

    @staticmethod
    def jvp(ctx, *tangents):
        return _push(_plain_backward, ctx.saved_tensors, (*tangents[:6], *tangents[7:]))

    @staticmethod
    def vmap(info, in_dims, *args):
        return _each(SelectiveScanBackward.apply, info, in_dims, args), (0,) * 6


def _block_backward(
    block, A, state, grad_state, grad_A, x, delta, entered, B, C, grad_y, grad_x, grad_delta, grad_B, grad_C
) -> Tensor:
    """Fill the block's gradients of x, delta, B, C, add to that of A; return that of the state before it."""
    a, h = block.states(delta, entered, B, state)
    grad_C.copy_((grad_y.unsqueeze(-2) @ h.mT).squeeze(-2))
    g = grad_y.unsqueeze(-2) * C.unsqueeze(-1)
    block.adjoint(a, g, grad_state)
    L = g.shape[-3]
    grad_state = a.select(-3, 0) * g.select(-3, 0)
    g_B = (B.unsqueeze(-2) @ g).squeeze(-2)
    torch.mul(delta, g_B, out=grad_x)
    grad_B.copy_((entered.unsqueeze(-2) @ g.mT).squeeze(-2))
    rate = g.mul_(a)  # from here on the gradient of Delta_t A
    rate.narrow(-3, 1, L - 1).mul_(h.narrow(-3, 0, L - 1))
    rate.select(-3, 0).mul_(state)
    torch.addcmul((rate * A).sum(-2), x, g_B, out=grad_delta)
    grad_A += rate.mul_(delta.unsqueeze(-2)).flatten(0, -3).sum(0)
    return grad_state


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
    Differentiable in every argument, any number of times; forward mode and gradients of gradients go by the
    plain recurrence. Raises ``ValueError`` / ``TypeError`` naming the argument. After :cite:`gu2024mamba`.
    Introduced in *scans*.
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
