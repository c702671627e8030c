"""Graders of the chapter *scans*."""

import math
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ssmbook.chapters._graded import f64, seeded
from ssmbook.exercises import agrees, grader
from ssmbook.scans import diagonal_scan_naive


def _cases():
    for seed, (T, D) in enumerate(((1, 1), (2, 3), (16, 2), (37, 1), (63, 4))):
        like = seeded(seed)
        a, (b, state) = torch.rand(T, D, **like), torch.randn(2, T, D, **like)
        yield _case(a, b, state[0])
    b = torch.randn(40, 2, **seeded(9))
    yield _case((torch.arange(40) % 7 != 0).to(f64)[:, None].expand(40, 2).clone(), b, b[0])


def _case(a, b, state):
    h, _ = diagonal_scan_naive(a, b, state)
    return a, state, h, torch.linspace(-1, 2, h.numel(), dtype=h.dtype).view_as(h)


def _by_autograd(a, state, h, d, part=slice(3)):
    """The gradients through the loop, stacked; b is what a step adds to what it keeps."""
    b = h - a * torch.cat((state[None], h[:-1]))
    leaves = [t.clone().requires_grad_() for t in (a, b, state)]
    return _stacked(torch.autograd.grad(diagonal_scan_naive(*leaves)[0], leaves, d)[part])


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


BACKWARD_MISTAKES = {
    "h_t goes on through the gate of the next step: your recurrence backwards in time takes its own": (
        partial(_by_hand, own_gate=True)
    ),
    "h_t is felt in every later output, and you count its own alone": partial(_by_hand, local=True),
    "the gate a_t multiplied the state before its step; you take the state after it": (
        partial(_by_hand, late=True)
    ),
    "the initial state enters through the gate a_0, and you leave that out": partial(_by_hand, bare=True),
    "the order is a, b, state: you give the gradient of b first": partial(_by_hand, swapped=True),
}


@grader(
    "scans/backward",
    formula="g_t = d_t + a_{t+1} g_{t+1} runs backwards in time from g_{T-1} = d_{T-1}; the gradient of b_t "
    "is g_t, that of a_t is g_t h_{t-1}, that of the initial state is a_0 g_0",
)
def grade_backward(answer):
    """A function (a (T, D), state (D,), h (T, D), d (T, D)) -> gradients of a, b and state, stacked."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"

    def found(*case, part=slice(3)):
        return _stacked(tuple(answer(*case))[part])

    cases, hint = list(_cases()), "these are not the gradients of the loop"
    problem = agrees(found, _by_autograd, cases, hint, mistakes=BACKWARD_MISTAKES)
    if problem is None or not problem.startswith(hint):
        return problem
    for i, name in enumerate(("a", "b", "state")):
        alone = [partial(function, part=slice(i, i + 1)) for function in (found, _by_autograd)]
        problem = agrees(*alone, cases, f"the gradient of {name} is not that of the loop")
        if problem:
            return problem
    return hint


class Products(TorchDispatchMode):
    """Counts what PyTorch multiplies inside the ``with`` block: ``numbers``, and the ``rounds`` they take."""

    ONCE = ("mul", "addcmul", "square", "div", "addcdiv")  # a product for every number of the result
    ALONG = ("prod", "cumprod")  # one for every number that goes in, a chain along the dimension
    TABLES = ("mm", "bmm", "addmm", "baddbmm", "mv", "dot")  # as long as the dimension that is summed

    def __init__(self):
        super().__init__()
        self.numbers = self.rounds = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in self.ONCE:
            self._add(out.numel(), 1)
        elif name in self.ALONG:
            self._add(args[0].numel(), args[0].shape[args[1]] if len(args) > 1 else args[0].numel())
        elif name in self.TABLES:
            self._add(out.numel() * args[-2].shape[-1], 1)
        return out

    def _add(self, numbers, rounds):
        self.numbers, self.rounds = self.numbers + numbers, self.rounds + rounds


def _tree(a, b, *, swapped=False, lost=False, own=False, once=False):
    """Join pairs, scan their ends by the same function, fill in between; with the mistake asked for."""
    if len(b) < 2:
        return b
    n = len(b) // 2
    (a_1, b_1), (a_2, b_2) = (a[::2], b[::2]), (a[1::2], b[1::2])
    joined = b_1[:n] + a_1[:n] * b_2 if swapped else a_2 * b_1[:n] + b_2
    gates = a_2 if lost else a_2 * a_1[:n]
    ends = joined if once else _tree(gates, joined, swapped=swapped, lost=lost, own=own)
    before = torch.cat((ends, 0 * b[:1]) if own else (0 * b[:1], ends))[: len(b_1)]
    h = torch.empty_like(b)
    h[::2], h[1::2] = a_1 * before + b_1, ends
    return h


TREE_MISTAKES = {
    "you compose early after late: the gate of the late step acts on what came before it": (
        partial(_tree, swapped=True)
    ),
    "a state passes a pair through both its gates, and you take those of the late steps alone": (
        partial(_tree, lost=True)
    ),
    "a place between starts from the end of the pair before it, and you take that of its own pair": (
        partial(_tree, own=True)
    ),
    "you join neighbors and stop: the ends of pairs follow the same recurrence, half as long": (
        partial(_tree, once=True)
    ),
}


def _price(answer, T=1024):
    """What is too dear about a right answer, if anything."""
    a, b = torch.rand(2, T, 1, **seeded(1))
    with Products() as made:
        answer(a, b)
    if made.numbers < T - 1:
        return f"right, and of its products {made.numbers} were PyTorch's: no others can be counted"
    rounds = 5 * math.ceil(math.log2(T))
    if made.rounds > rounds:
        return f"right, with {made.rounds} products one after the other at {T} steps; {rounds} are allowed"
    if made.numbers > 4 * T:
        return f"right, with {made.numbers / T:.1f} multiplications a step; 4 are allowed"
    return None


@grader(
    "scans/tree",
    formula="Join each even place with the odd one after it: gate a_2 a_1, write a_2 b_1 + b_2; the function "
    "itself scans the pairs, which gives the odd places; an even place takes its own step from there",
)
def grade_tree(answer):
    """A function (a (T, D), b (T, D)) -> h (T, D) from zero, in few products and few rounds of them."""
    like = seeded(0)
    cases = [tuple(2 * torch.rand(2, T, 3, **like) - 1) for T in (1, 2, 3, 8, 37, 64)]
    for a, _ in cases:
        a[len(a) // 2, 0] = 0.0

    def loop(a, b):
        return diagonal_scan_naive(a, b)[0]

    problem = agrees(answer, loop, cases, "not the states of the loop", mistakes=TREE_MISTAKES)
    return problem or _price(answer)
