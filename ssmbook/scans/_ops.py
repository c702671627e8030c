"""The scans as operations of PyTorch, ``torch.ops.ssmbook.*``.

What each computes, by which engine, and its rules for shapes (``torch.compile``, ``torch.export``, meta
tensors), for gradients and for ``vmap``. Gradients are had from a loop, and once more in terms of the
operation itself: the second formula serves whoever differentiates again.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from ssmbook.scans import _blocks
from ssmbook.scans._engine import BLOCK, array, carried, kernels_for, loops_for, roomy, run

PIECE = 256  # steps whose states are in memory at once where there is no compiled loop

_library = torch.library.Library("ssmbook", "FRAGMENT")


class Operation:
    """An operation of PyTorch, ``torch.ops.ssmbook.NAME``, with its rules for shapes, gradients and ``vmap``.

    Where nothing watches it is called past PyTorch's dispatcher, which takes as long as a scan of a hundred
    thousand numbers.
    """

    def __init__(self, schema: str, function, like, keep=None, gradients=None, shared=()):
        """Register the operation that ``function`` computes.

        ``like`` gives results without their numbers; ``keep`` and ``gradients`` are ``setup_context`` and
        ``backward`` of an autograd function; arguments at the places ``shared`` have no batch dimensions.
        """
        name = schema.partition("(")[0]
        self.function, self.keep, self.gradients, self.shared = function, keep, gradients, shared
        _library.define(schema)
        _library.impl(name, function, "CompositeExplicitAutograd")
        self.registered = getattr(torch.ops.ssmbook, name).default
        torch.library.register_fake(self.registered, like, lib=_library)
        torch.library.register_vmap(self.registered, self._mapped, lib=_library)
        if gradients:
            torch.library.register_autograd(self.registered, gradients, setup_context=keep, lib=_library)

    def __call__(self, *given):
        tensors = [t for t in given if isinstance(t, Tensor)]
        if watched(*tensors):
            return self.registered(*given)
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return _Recorded.apply(self, *given) if recorded else self.function(*given)

    def _mapped(self, info, in_dims, *given):
        """The rule for ``vmap``: the mapped dimension is one more batch dimension.

        Every element is a call of its own where an argument is mapped that has no batch dimensions.
        """
        n, pairs = info.batch_size, list(zip(given, in_dims, strict=True))
        if any(in_dims[i] is not None for i in self.shared):
            each = ([t if dim is None else t.select(dim, k) for t, dim in pairs] for k in range(n))
            outputs = tuple(map(torch.stack, zip(*(self(*given) for given in each), strict=True)))
        else:
            outputs = self(
                *(t if i in self.shared else _mapped_first(t, dim, n) for i, (t, dim) in enumerate(pairs))
            )
        return outputs, (0,) * len(outputs)


class _Recorded(torch.autograd.Function):
    """An operation with its gradients, past the dispatcher."""

    @staticmethod
    def forward(ctx, operation, *given):
        ctx.gradients, output = operation.gradients, operation.function(*given)
        operation.keep(ctx, given, output)
        return output

    @staticmethod
    def backward(ctx, *changes):
        return None, *ctx.gradients(ctx, *changes)


def _mapped_first(t, dim: int | None, size: int):
    if not isinstance(t, Tensor):
        return t
    return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)


def transformed() -> bool:
    """Whether a derivative in forward mode or of ``torch.func`` may be wanted: operations have no rule."""
    if torch.compiler.is_compiling():
        return False
    others = torch._C._functorch.get_interpreter_stack() or ()
    return forward_ad._current_level >= 0 or any(t.key() != TransformType.Vmap for t in others)


def watched(*tensors: Tensor) -> bool:
    """Whether something records, traces or transforms what is done with tensors.

    Then it has to be done by operations of PyTorch.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return True
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if forward_ad._current_level >= 0 or torch._C._dispatch_tls_is_dispatch_key_included("VmapMode"):
        return True
    return not all(type(t) in (Tensor, torch.nn.Parameter) and not t.is_meta for t in tensors)


def _differentiated_again() -> bool:
    return torch.is_grad_enabled() or transformed()


def _earlier(h: Tensor, state: Tensor | None) -> Tensor:
    """The value that each step starts from: ``h`` one step before, and the initial state."""
    first = torch.zeros_like(h[..., :1, :]) if state is None else state.unsqueeze(-2)
    return torch.cat((first, h[..., :-1, :]), -2)


# --- h_t = a_t h_{t-1} + b_t --------------------------------------------------------------------------------


def _turn(h, backwards: bool) -> bool:
    """Whether channels are to run backwards, as time does.

    Memory comes up to four times as fast so, where many numbers lie between one step and the next.
    """
    return backwards and h.shape[-1] > 64


def _like_h(a, b, state, log, reverse):
    return b.new_empty(b.shape), b.new_empty((*b.shape[:-2], b.shape[-1]))


def _h(a, b, state, log, reverse):
    kernels, loops = kernels_for(b), loops_for(b)
    if kernels:
        return kernels.diagonal(a, b, state, log, reverse)
    h, end = _like_h(a, b, state, log, reverse)
    if loops:
        h, carry = roomy(h), carried(state, end)
        run(loops.diagonal(log, reverse, _turn(b, reverse)), (a, 2), (b, 2), (carry, 1), (h, 2))
        return h, carry.to(b.dtype)
    if b.numel():
        _blocks.scan_into(a, b, h, state, log, reverse)
        end.copy_(h.select(-2, 0 if reverse else -1))
    return h, end


def _like_gradients(a, h, state, d_h, d_end, log, reverse):
    return h.new_empty(h.shape), h.new_empty(h.shape), d_end.new_empty(d_end.shape)


def _gradients_of_h(a, h, state, d_h, d_end, log, reverse):
    """The gradients of a, b and the initial state."""
    kernels, loops = kernels_for(h), loops_for(h)
    if kernels:
        return kernels.diagonal_backward(a, h, state, d_h, d_end, log, reverse)
    if not loops:
        return _diagonal_adjoint(a, h, state, d_h, d_end, log, reverse)
    g, state = carried(d_end, d_end), torch.zeros_like(d_end) if state is None else state
    d_a, d_b = roomy(h.new_empty(h.shape)), roomy(h.new_empty(h.shape))
    loop = loops.diagonal_backward(log, reverse, _turn(h, not reverse))
    run(loop, (a, 2), (h, 2), (state, 1), (d_h, 2), (g, 1), (d_a, 2), (d_b, 2))
    return d_a, d_b, g.to(d_end.dtype)


def _diagonal_adjoint(a, h, state, d_h, d_end, log, reverse):
    """The same by the operation itself, run the other way: g_t = d_t + a_{t+1} g_{t+1}."""
    if reverse:
        a, h, d_h = a.flip(-2), h.flip(-2), d_h.flip(-2)
    keep = torch.full_like(a[..., :1, :], 0 if log else 1)
    g, _ = diagonal(torch.cat((a[..., 1:, :], keep), -2).conj(), d_h, d_end, log, True)
    decay = (a.exp() if log else a).conj()
    d_a = g * _earlier(h, state).conj()
    d_a = d_a * decay if log else d_a
    d_state = decay[..., 0, :] * g[..., 0, :]
    return (d_a.flip(-2), g.flip(-2), d_state) if reverse else (d_a, g, d_state)


def _keep_for_diagonal(ctx, inputs, output):
    a, _, state, ctx.log, ctx.reverse = inputs
    ctx.save_for_backward(a, output[0], state)


def _diagonal_gradients(ctx, d_h, d_end):
    formula = _diagonal_adjoint if _differentiated_again() else _diagonal_backward
    a, h, state = ctx.saved_tensors
    d_a, d_b, d_state = formula(a, h, state, d_h, d_end, ctx.log, ctx.reverse)
    return d_a, d_b, None if state is None else d_state, None, None


_diagonal = Operation(
    "diagonal(Tensor a, Tensor b, Tensor? state, bool log, bool reverse) -> (Tensor, Tensor)",
    *(_h, _like_h, _keep_for_diagonal, _diagonal_gradients),
)
_diagonal_backward = Operation(
    "diagonal_backward(Tensor a, Tensor h, Tensor? state, Tensor d_h, Tensor d_end, bool log, bool reverse)"
    " -> (Tensor, Tensor, Tensor)",
    *(_gradients_of_h, _like_gradients),
)


class _Diagonal(torch.autograd.Function):
    """The operation for forward mode and ``torch.func``: a tangent runs through the same recurrence."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a, b, state, log, reverse):
        return _diagonal(a, b, state, log, reverse)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _keep_for_diagonal(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], output[0], inputs[2])

    backward = staticmethod(_diagonal_gradients)

    @staticmethod
    def jvp(ctx, t_a, t_b, t_state, *_):
        a, h, state = ctx.saved_tensors
        before = _earlier(h.flip(-2), state).flip(-2) if ctx.reverse else _earlier(h, state)
        moved = t_a * a.exp() * before if ctx.log else t_a * before
        return diagonal(a, t_b + moved, t_state, ctx.log, ctx.reverse)


def diagonal(a, b, state, log: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    """h (..., T, D), T > 0, and the final state (..., D); differentiable in either mode, and again."""
    return (_Diagonal.apply if transformed() else _diagonal)(a, b, state, log, reverse)


# --- h_t = exp(Delta_t A) h_{t-1} + B_t u_t, y_t = C_t h_t, states (..., N, d), A (N, d) or (1, d) ---
# where u is Delta x if weighted, else x


def _like_y(x, delta, A, B, C, state, weighted, reset):
    # one more block than there can be: a dimension of one would be taken for a constant by torch.export
    kept = x.new_empty((*x.shape[:-2], x.shape[-2] // BLOCK + 2, *state.shape[-2:]))
    return x.new_empty(x.shape), state.new_empty(state.shape), kept


def _y(x, delta, A, B, C, state, weighted, reset):
    """y (..., T, d), the final state (..., N, d), and the states before every block of steps."""
    kernels = kernels_for(x)
    if kernels:
        return kernels.selective(x, delta, A, B, C, state, reset)
    y, end, kept = map(roomy, _like_y(x, delta, A, B, C, state, weighted, reset))
    carry, given = carried(state, end), _data(x, delta, A, B, C, weighted, reset)
    run(loops_for(x).selective, *given, (carry, 2), (y, 2), (kept, 3))
    kept[..., -(-x.shape[-2] // BLOCK) :, :, :] = 0
    return y, end.copy_(carry), kept


def _data(x, delta, A, B, C, weighted, reset) -> tuple:
    rates = A.contiguous().numpy(force=True)
    return (x, 2), (delta, 2), rates, (B, 2), (C, 2), weighted, reset if reset is None else (reset, 1)


def _like_inputs(x, delta, A, B, C, weighted, reset, kept, d_y, d_end):
    return tuple(t.new_empty(t.shape) for t in (x, delta, A, B, C, d_end))


def _gradients_of_y(x, delta, A, B, C, weighted, reset, kept, d_y, d_end):
    """The gradients of x, delta, A, B, C and the initial state."""
    kernels = kernels_for(x)
    if kernels:
        return kernels.selective_backward(x, delta, A, B, C, reset, kept, d_y, d_end)
    given = x, delta, A, B, C, weighted, reset
    d_x, d_delta, d_A, d_B, d_C, d_state = map(roomy, _like_inputs(*given, kept, d_y, d_end))
    g, sums = carried(d_end, d_end), carried(None, x.new_empty((*x.shape[:-2], *A.shape)))
    given = *_data(*given), (kept, 3), (d_y, 2), (g, 2)
    run(loops_for(x).selective_backward, *given, (d_x, 2), (d_delta, 2), (sums, 2), (d_B, 2), (d_C, 2))
    return d_x, d_delta, d_A.copy_(sums.sum_to_size(A.shape)), d_B, d_C, d_state.copy_(g)


def _in_full(x, delta, A, B, C, state, weighted, reset):
    """The same with every state in memory, by :func:`diagonal`: differentiable in either mode, and again."""
    entered = (delta * x if weighted else x).unsqueeze(-2) * B.unsqueeze(-1)
    rates = (delta.unsqueeze(-2) * A).expand(entered.shape)
    if reset is not None:
        rates = rates.masked_fill(reset[..., None, None], -torch.inf)
    h, end = diagonal(rates.flatten(-2), entered.flatten(-2), state.flatten(-2), True, False)
    h, end = (t.unflatten(-1, state.shape[-2:]) for t in (h, end))
    return (C.unsqueeze(-2) @ h).squeeze(-2), end


def _keep_for_selective(ctx, inputs, output):
    *tensors, ctx.weighted, reset = inputs
    ctx.save_for_backward(*tensors, reset, output[2])


def _selective_gradients(ctx, d_y, d_end, _):
    *inputs, state, reset, kept = ctx.saved_tensors
    if not _differentiated_again():
        return *_selective_backward(*inputs, ctx.weighted, reset, kept, d_y, d_end), None, None
    _, pull = torch.func.vjp(lambda *given: _in_full(*given, ctx.weighted, reset), *inputs, state)
    return *pull((d_y, d_end)), None, None


_selective = Operation(
    "selective(Tensor x, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor state, bool weighted,"
    " Tensor? reset) -> (Tensor, Tensor, Tensor)",
    *(_y, _like_y, _keep_for_selective, _selective_gradients, (2,)),
)
_selective_backward = Operation(
    "selective_backward(Tensor x, Tensor delta, Tensor A, Tensor B, Tensor C, bool weighted, Tensor? reset,"
    " Tensor kept, Tensor d_y, Tensor d_end) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    *(_gradients_of_y, _like_inputs),
    shared=range(10),  # the gradient of A is a sum over the batch
)


def _in_pieces(x, delta, A, B, C, state, weighted, reset):
    """The same, piece by piece of time: a backward pass makes the states of each piece again."""
    out = []
    for start in range(0, x.shape[-2], PIECE):
        of = slice(start, start + PIECE)
        x_s, delta_s, B_s, C_s = (t[..., of, :] for t in (x, delta, B, C))
        given = x_s, delta_s, A, B_s, C_s, state, weighted, None if reset is None else reset[..., of]
        again = torch.is_grad_enabled() and torch._C._functorch.peek_interpreter_stack() is None
        y, state = checkpoint(_in_full, *given, use_reentrant=False) if again else _in_full(*given)
        out.append(y)
    return torch.cat(out, -2), state


def selective(x, delta, A, B, C, state, weighted: bool, reset) -> tuple[Tensor, Tensor]:
    """y (..., T, d), T > 0, and the final state (..., N, d)."""
    given = x, delta, A, B, C, state, weighted, reset
    compiled = loops_for(x) or weighted and not torch.compiler.is_compiling() and kernels_for(state)
    if x.is_meta or compiled and not transformed():
        return _selective(*given)[:2]
    return (_in_full if transformed() or torch.compiler.is_compiling() else _in_pieces)(*given)


# --- h_t = A h_{t-1} + u_t ----------------------------------------------------------------------------------


def _like_states(A, u, state, reverse, reset):
    return u.new_empty(u.shape), u.new_empty((*u.shape[:-2], u.shape[-1]))


def _states(A, u, state, reverse, reset):
    """All states (..., T, N) and the last one, for one A (N, N)."""
    loops = loops_for(u)
    if not loops:
        return _blocks.dense(A, u, state, reverse, reset)
    h, end = map(roomy, _like_states(A, u, state, reverse, reset))
    carry = carried(state, end)
    run(loops.dense, array(A), (u, 2), reverse, reset if reset is None else (reset, 1), (carry, 1), (h, 2))
    return h, end.copy_(carry)


def _keep_for_dense(ctx, inputs, output):
    A, _, state, ctx.reverse, reset = inputs
    ctx.save_for_backward(A, output[0], state, reset)


def _dense_gradients(ctx, d_h, d_end):
    """g_t = d_t + A^H g_{t+1}: the same operation, run the other way. Nothing comes back from a reset."""
    A, h, state, reset = ctx.saved_tensors
    if ctx.reverse:
        h, d_h, reset = h.flip(-2), d_h.flip(-2), None if reset is None else reset.flip(-1)
    d_h = torch.cat((d_h[..., :-1, :], d_h[..., -1:, :] + d_end.unsqueeze(-2)), -2)
    g, _ = dense(A.mH, d_h, None, True, None if reset is None else reset.roll(-1, -1))
    before = _earlier(h, state)
    d_state = None if state is None else g[..., 0, :] @ A.conj()
    if reset is not None:
        before = torch.where(reset.unsqueeze(-1), 0, before)
        d_state = None if state is None else torch.where(reset[..., :1], 0, d_state)
    d_A = g.transpose(-2, -1) @ before.conj()
    d_A = d_A.sum(tuple(range(d_A.dim() - 2))) if d_A.dim() > 2 else d_A
    return d_A, g.flip(-2) if ctx.reverse else g, d_state, None, None


_dense = Operation(
    "dense(Tensor A, Tensor u, Tensor? state, bool reverse, Tensor? reset) -> (Tensor, Tensor)",
    *(_states, _like_states, _keep_for_dense, _dense_gradients, (0,)),
)


def dense(A, u, state, reverse: bool = False, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """All states (..., T, N), T > 0, and the last one (..., N), for one A (N, N)."""
    return (_blocks.dense if transformed() else _dense)(A, u, state, reverse, reset)
