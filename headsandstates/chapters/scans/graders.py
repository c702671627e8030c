"""Graders of the chapter *scans*."""

import math
from functools import partial

import torch

from headsandstates.chapters._graded import f64, seeded
from headsandstates.chapters.scans.counting import Traffic
from headsandstates.exercises import grader
from headsandstates.exercises.grading import first_problem
from ssmbook.scans import diagonal_scan_naive


def _by_autograd(a, state, h, d):
    """The gradients of a, b and state through the loop; b is what a step adds to what it keeps."""
    b = h - a * torch.cat((state[None], h[:-1]))
    leaves = [t.clone().requires_grad_() for t in (a, b, state)]
    return torch.autograd.grad(diagonal_scan_naive(*leaves)[0], leaves, d)


def _by_hand(a, state, h, d, *, own_gate=False, late=False, no_state=False):
    """The gradients with the mistake that a switch makes."""
    g = d.clone()
    for t in range(len(d) - 2, -1, -1):
        g[t] = d[t] + a[t if own_gate else t + 1] * g[t + 1]
    before = h if late else torch.cat((0 * state[None] if no_state else state[None], h[:-1]))
    return g * before, g, a[0] * g[0]


@grader(
    "scans/backward",
    right=_by_autograd,
    hint="these are not the gradients of the loop",
    look="in which two ways a change of h_t reaches the loss, and what a_t multiplied",
    parts=("a", "b", "state"),
    mistakes={
        "backwards in time, h_t goes on through the gate of the next step": partial(_by_hand, own_gate=True),
        "the gate a_t multiplied the state before its step": partial(_by_hand, late=True),
        "the first gate multiplied the initial state, not 0": partial(_by_hand, no_state=True),
    },
    formula="g_t = d_t + a_{t+1} g_{t+1} runs backwards in time from g_{T-1} = d_{T-1}; the gradient of b_t "
    "is g_t, that of a_t is g_t h_{t-1}, that of the initial state is a_0 g_0",
)
def backward_cases():
    """For a function (a (T, D), state (D,), h (T, D), d (T, D)) -> gradients of a, b and state."""
    for seed, (T, D) in enumerate(((1, 1), (2, 3), (37, 2))):
        like = seeded(seed)
        a, (b, state) = torch.rand(T, D, **like), torch.randn(2, T, D, **like)
        h, _ = diagonal_scan_naive(a, b, state[0])
        yield a, state[0], h, torch.linspace(-1, 2, T * D, dtype=f64).view(T, D)


def _tree(a, b, *, swapped=False, lost=False):
    """Join pairs, scan their ends by the same function, fill in between; with the mistake of a switch."""
    if len(b) < 2:
        return b
    n = len(b) // 2
    (a_1, b_1), (a_2, b_2) = (a[::2], b[::2]), (a[1::2], b[1::2])
    joined = b_1[:n] + a_1[:n] * b_2 if swapped else a_2 * b_1[:n] + b_2
    ends = _tree(a_2 if lost else a_2 * a_1[:n], joined, swapped=swapped, lost=lost)
    before = torch.cat((0 * b[:1], ends))[: len(b_1)]
    h = torch.empty_like(b)
    h[::2], h[1::2] = a_1 * before + b_1, ends
    return h


TREE_MISTAKES = {
    "the gate of the late step acts on what came before it": partial(_tree, swapped=True),
    "a state passes a pair through both its gates": partial(_tree, lost=True),
}


def _price(answer, T=1024):
    """What is too expensive about a right answer, if anything."""
    with Traffic("mul", "addcmul", "square", "div", "addcdiv") as products:
        answer(*torch.rand(2, T, 1, **seeded(1)))
    calls = 5 * math.ceil(math.log2(T))
    if products.written < T - 1:
        return f"right, with {products.written} products that can be counted: multiply tensors entry by entry"
    if products.calls > calls:
        return f"right, with {products.calls} products one after the other at {T} steps; {calls} are allowed"
    if products.written > 4 * T:
        return f"right, with {products.written / T:.1f} multiplications a step; 4 are allowed"
    return None


@grader(
    "scans/tree",
    formula="Join each even place with the odd one after it: gate a_2 a_1, write a_2 b_1 + b_2; the function "
    "itself scans the pairs, which gives the odd places; an even place takes its own step from there",
)
def grade_tree(answer):
    """A function (a (T, D), b (T, D)) -> h (T, D) from zero, in few products and few rounds of them."""
    like = seeded(0)
    cases = [tuple(2 * torch.rand(2, T, 3, **like) - 1) for T in (1, 2, 3, 8, 37)]
    cases[-1][0][20] = 0.0  # nothing may be divided by a gate
    loop = lambda a, b: diagonal_scan_naive(a, b)[0]  # noqa: E731
    hint = "not the states of the loop"
    return first_problem(answer, cases, right=loop, hint=hint, mistakes=TREE_MISTAKES) or _price(answer)
