"""Graders of the chapter *scans*."""

from functools import partial

import torch

from ssmbook.exercises import agrees, grader
from ssmbook.scans import diagonal_scan_naive

PARTS = ("a", "b", "state")


def _cases():
    for seed, (T, D) in enumerate(((1, 1), (2, 3), (16, 2), (37, 1), (63, 4))):
        generator = torch.Generator().manual_seed(seed)
        a = torch.rand(T, D, generator=generator, dtype=torch.float64)
        b, state = torch.randn(2, T, D, generator=generator, dtype=torch.float64)
        yield a, b, state[0]
    generator = torch.Generator().manual_seed(9)
    b = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    yield (torch.arange(40) % 7 != 0).to(b.dtype)[:, None].expand(40, 2).clone(), b, b[0]


def _stacked(gradients):
    return torch.cat([torch.atleast_2d(torch.as_tensor(g)) for g in gradients])


def _by_hand(a, state, h, d, *, own_gate=False, local=False, late=False, bare=False, swapped=False):
    """The three gradients, stacked, with the mistake that is asked for."""
    g = d.clone()
    for t in range(len(d) - 2, -1, -1):
        if not local:
            g[t] = d[t] + a[t if own_gate else t + 1] * g[t + 1]
    before = h if late else torch.cat((state[None], h[:-1]))
    by_a, by_b = (g, g * before) if swapped else (g * before, g)
    return _stacked((by_a, by_b, g[0] if bare else a[0] * g[0]))


BACKWARD_MISTAKES = [
    (
        partial(_by_hand, own_gate=True),
        "h_t goes on through the gate of the next step: your recurrence backwards in time takes its own",
    ),
    (partial(_by_hand, local=True), "h_t is felt in every later output, and you count its own alone"),
    (
        partial(_by_hand, late=True),
        "the gate a_t multiplied the state before its step; you take the state after it",
    ),
    (partial(_by_hand, bare=True), "the initial state enters through the gate a_0, and you leave that out"),
    (partial(_by_hand, swapped=True), "the order is a, b, state: you give the gradient of b first"),
]


@grader(
    "scans/backward",
    formula="g_t = d_t + a_{t+1} g_{t+1} runs backwards in time from g_{T-1} = d_{T-1}; the gradient of b_t "
    "is g_t, that of a_t is g_t h_{t-1}, that of the initial state is a_0 g_0",
)
def grade_backward(answer):
    """A function (a (T, D), state (D,), h (T, D), d (T, D)) -> gradients of a, b and state, stacked."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    wanted, cases = {}, []
    for a, b, state in _cases():
        leaves = [t.clone().requires_grad_() for t in (a, b, state)]
        h, _ = diagonal_scan_naive(*leaves)
        d = torch.linspace(-1, 2, h.numel(), dtype=h.dtype).view_as(h)
        cases.append((a, state, h.detach(), d))
        wanted[_key(*cases[-1])] = torch.autograd.grad(h, leaves, d)

    def right(*case, part=slice(3)):
        return _stacked(wanted[_key(*case)][part])

    hint = "these are not the gradients of the loop"
    problem = agrees(lambda *case: _stacked(answer(*case)), right, cases, hint, mistakes=BACKWARD_MISTAKES)
    if problem is None or not problem.startswith(hint):
        return problem
    for i, name in enumerate(PARTS):
        part = slice(i, i + 1)
        wrong = f"the gradient of {name} is not that of the loop"
        problem = agrees(
            lambda *case, p=part: _stacked(answer(*case)[p]), partial(right, part=part), cases, wrong
        )
        if problem:
            return problem
    return hint


def _key(a, state, h, d):
    return len(h), float(d.sum()), float(a.sum())
