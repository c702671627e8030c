"""The selective scan as an operation, and its gradients, without ever keeping all states.

The states of all steps are N times as many numbers as inputs and outputs. A loop or a
kernel makes them one after the other and keeps only every 32nd. The backward pass starts
from these, the last one first, makes the 32 states after it again, and runs the recurrence
of the gradients back through them.

Here a state is (N, d), channels last, so that a loop runs through neighbors in memory.
"""

import functools

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ssmbook.numerics import phi1
from ssmbook.scans.fast import engines
from ssmbook.scans.fast.diagonal import diagonal
from ssmbook.scans.fast.operation import Operation, active_transform, differentiated_again
from ssmbook.scans.fast.phi import Phi1

PIECE = 256  # steps whose states are in memory at once where there is no compiled loop


def selective(x, delta, A, B, C, state, discretization: str) -> tuple[Tensor, Tensor]:
    """y (..., T, d), T > 0, and the final state (..., N, d), with A (N, d), or (1, d) for all states.

    ``discretization``: "zoh", "mixed", or "none" where x enters as it is.
    """
    given = x, delta, A, B, C, state, discretization
    if active_transform() == "derivative":
        return _with_all_states(*given)
    compiling = torch.compiler.is_compiling()
    kernels = discretization != "none" and not compiling and engines.kernels_for(state)
    if x.is_meta or engines.loops_for(x) or kernels:
        return _selective(*given)[:2]
    return _with_all_states(*given) if compiling else _in_pieces(*given)


# --- The operation ------------------------------------------------------------------------------------


def _like_y(x, delta, A, B, C, state, discretization):
    # one more block than there can be: a dimension of one would be taken for a constant by
    # torch.export
    kept = x.new_empty((*x.shape[:-2], x.shape[-2] // engines.BLOCK + 2, *state.shape[-2:]))
    return x.new_empty(x.shape), state.new_empty(state.shape), kept


def _y(x, delta, A, B, C, state, discretization):
    """y (..., T, d), the final state (..., N, d), and the states before every block of steps."""
    if kernels := engines.kernels_for(x):
        return kernels.selective(x, delta, A, B, C, state, discretization)
    results = _like_y(x, delta, A, B, C, state, discretization)
    y, end, kept = map(engines.on_large_pages, results)
    carry = engines.wide_copy(state, end)
    given = _for_loop(x, delta, A, B, C, discretization)
    engines.run(engines.loops_for(x).selective, *given, (carry, 2), (y, 2), (kept, 3))
    kept[..., -(-x.shape[-2] // engines.BLOCK) :, :, :] = 0  # the blocks that there are not
    return y, end.copy_(carry), kept


def _for_loop(x, delta, A, B, C, discretization) -> tuple:
    """The arguments of a loop: ``weighted`` and ``exact`` stand for the discretization there."""
    weighted = discretization != "none"
    exact = True if discretization == "zoh" else None
    return (x, 2), (delta, 2), A.contiguous().numpy(force=True), (B, 2), (C, 2), weighted, exact


def _keep(ctx, inputs, output):
    *tensors, ctx.discretization = inputs
    ctx.save_for_backward(*tensors, output[2])


def _pull(ctx, d_y, d_end, _):
    *inputs, state, kept = ctx.saved_tensors
    if not differentiated_again():
        return *_selective_backward(*inputs, ctx.discretization, kept, d_y, d_end), None
    _, pull = torch.func.vjp(lambda *given: _with_all_states(*given, ctx.discretization), *inputs, state)
    return *pull((d_y, d_end)), None


_selective = Operation(
    "selective(Tensor x, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor state, str discretization)"
    " -> (Tensor, Tensor, Tensor)",
    *(_y, _like_y, _keep, _pull, (2,)),
)

# --- Its gradients, as a second operation -------------------------------------------------------------


def _like_inputs(x, delta, A, B, C, discretization, kept, d_y, d_end):
    return tuple(t.new_empty(t.shape) for t in (x, delta, A, B, C, d_end))


def _gradients(x, delta, A, B, C, discretization, kept, d_y, d_end):
    """The gradients of x, delta, A, B, C and the initial state."""
    given = x, delta, A, B, C, discretization
    if kernels := engines.kernels_for(x):
        return kernels.selective_backward(*given, kept, d_y, d_end)
    results = map(engines.on_large_pages, _like_inputs(*given, kept, d_y, d_end))
    d_x, d_delta, d_A, d_B, d_C, d_state = results
    g = engines.wide_copy(d_end, d_end)
    sums = engines.wide_copy(None, x.new_empty((*x.shape[:-2], *A.shape)))  # of A, each row by itself
    found = (g, 2), (d_x, 2), (d_delta, 2), (sums, 2), (d_B, 2), (d_C, 2)
    engines.run(engines.loops_for(x).selective_backward, *_for_loop(*given), (kept, 3), (d_y, 2), *found)
    return d_x, d_delta, d_A.copy_(sums.sum_to_size(A.shape)), d_B, d_C, d_state.copy_(g)


_selective_backward = Operation(
    "selective_backward(Tensor x, Tensor delta, Tensor A, Tensor B, Tensor C, str discretization,"
    " Tensor kept, Tensor d_y, Tensor d_end) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    *(_gradients, _like_inputs),
    shared=range(9),  # the gradient of A is a sum over the batch
)


# --- The form in PyTorch, without Numba and Triton ------------------------------------------------------


def _with_all_states(x, delta, A, B, C, state, discretization):
    """The scan with every state in memory, by the diagonal one: differentiable in either mode, and again."""
    entered = x if discretization == "none" else delta * x
    entered = entered.unsqueeze(-2) * B.unsqueeze(-1)
    rates = (delta.unsqueeze(-2) * A).expand(entered.shape)
    if discretization == "zoh":
        entered = entered * (phi1 if active_transform(rates) else Phi1.apply)(rates)
    h, end = diagonal(rates.flatten(-2), entered.flatten(-2), state.flatten(-2), log=True)
    h, end = (t.unflatten(-1, state.shape[-2:]) for t in (h, end))
    return (C.unsqueeze(-2) @ h).squeeze(-2), end


def _in_pieces(x, delta, A, B, C, state, discretization):
    """The same, piece by piece of time: a backward pass makes the states of each piece again."""
    form = _with_all_states
    if x.shape[-2] > PIECE and torch.is_grad_enabled() and active_transform() is None:
        form = functools.partial(checkpoint, _with_all_states, use_reentrant=False)
    out = []
    for x_s, delta_s, B_s, C_s in zip(*(t.split(PIECE, -2) for t in (x, delta, B, C)), strict=True):
        y, state = form(x_s, delta_s, A, B_s, C_s, state, discretization)
        out.append(y)
    return torch.cat(out, -2), state
