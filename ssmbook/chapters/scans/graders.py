"""Graders of the chapter *scans*."""

import torch

from ssmbook.exercises import agrees, grader
from ssmbook.scans import diagonal_scan_naive


def _cases():
    for seed, (T, D) in enumerate(((1, 1), (2, 3), (16, 2), (37, 1), (63, 4))):
        generator = torch.Generator().manual_seed(seed)
        a = torch.rand(T, D, generator=generator, dtype=torch.float64)
        b, state = torch.randn(2, T, D, generator=generator, dtype=torch.float64)
        yield a, b, state[0]
    generator = torch.Generator().manual_seed(9)
    b = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    yield (torch.arange(40) % 7 != 0).to(b.dtype)[:, None].expand(40, 2).clone(), b, b[0]


@grader("scans/backward")
def grade_backward(answer):
    """A function (a (T, D), state (D,), h (T, D), d (T, D)) -> gradients of a, b and state, stacked."""
    wanted, cases = {}, []
    for a, b, state in _cases():
        leaves = [t.clone().requires_grad_() for t in (a, b, state)]
        h, _ = diagonal_scan_naive(*leaves)
        d = torch.linspace(-1, 2, h.numel(), dtype=h.dtype).view_as(h)
        gradients = torch.autograd.grad(h, leaves, d)
        cases.append((a, state, h.detach(), d))
        wanted[len(h), float(d.sum()), float(a.sum())] = torch.cat((*gradients[:2], gradients[2][None]))

    def stacked(a, state, h, d):
        return torch.cat([torch.atleast_2d(torch.as_tensor(g)) for g in answer(a, state, h, d)])

    def right(a, state, h, d):
        return wanted[len(h), float(d.sum()), float(a.sum())]

    hint = (
        "g_t = d_t + a_{t+1} g_{t+1} runs backwards in time from g_{T-1} = d_{T-1}; the gradient of b_t is "
        "g_t, that of a_t is g_t h_{t-1}, that of the initial state is a_0 g_0"
    )
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    return agrees(stacked, right, cases, hint)
