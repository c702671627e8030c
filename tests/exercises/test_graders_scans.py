"""Graders of *scans*: right answers pass, natural mistakes get sentences of their own, parts are named."""

import pytest
import torch

from ssmbook.chapters.scans import graders
from ssmbook.exercises import check
from ssmbook.scans import diagonal_scan, diagonal_scan_naive

NAME = "scans/backward"


def right(a, state, h, d):
    """By autograd, with the inputs rebuilt from the outputs."""
    before = torch.cat((state[None], h[:-1]))
    leaves = [t.clone().requires_grad_() for t in (a, h - a * before, state)]
    return torch.autograd.grad(diagonal_scan_naive(*leaves)[0], leaves, d)


def in_three(stacked):
    def answer(a, state, h, d):
        found = stacked(a, state, h, d)
        return found[: len(h)], found[len(h) : -1], found[-1]

    return answer


def test_backward(each_mistake):
    assert check(NAME, right)
    assert check(NAME, in_three(graders._by_hand))
    each_mistake(NAME, {words: in_three(wrong) for words, wrong in graders.BACKWARD_MISTAKES.items()})


def test_parts_in_another_order_and_without_the_initial_gate_are_told_so():
    """The mistakes made by autograd, not by the catalogue."""

    def swapped(*case):
        by_a, by_b, by_state = right(*case)
        return by_b, by_a, by_state

    def bare(*case):
        by_a, by_b, _ = right(*case)
        return by_a, by_b, by_b[0]

    assert "you give the gradient of b first" in check(NAME, swapped).hint
    assert "you leave that out" in check(NAME, bare).hint


def test_the_wrong_part_is_named():
    for i, name in enumerate(("a", "b", "state")):

        def spoiled(*case, i=i):
            parts = list(right(*case))
            parts[i] = 2 * parts[i]
            return parts

        assert f"the gradient of {name} is not that of the loop" in check(NAME, spoiled).hint


def test_what_is_no_function_is_named():
    assert "expected a function" in check(NAME, 3).hint


TREE = "scans/tree"


def two_sweeps(a, b):
    """Blelloch's sweeps up and down, in place, over a length that is a power of two."""
    T = len(b)
    size = 1 << (T - 1).bit_length()
    P = torch.cat((a, a.new_ones(size - T, a.shape[1])))
    H = torch.cat((b, b.new_zeros(size - T, b.shape[1])))
    stride = 1
    while stride < size:  # up: the end of a block of 2 * stride takes its first half in
        late, early = slice(2 * stride - 1, None, 2 * stride), slice(stride - 1, None, 2 * stride)
        H[late] = P[late] * H[early] + H[late]
        P[late] = P[late] * P[early]
        stride *= 2
    while stride > 1:  # down: the end of a block's first half takes in what came before the block
        middle = slice(stride + stride // 2 - 1, None, stride)
        H[middle] = P[middle] * H[stride - 1 :: stride][: len(H[middle])] + H[middle]
        stride //= 2
    return H[:T]


def loop(a, b):
    return diagonal_scan_naive(a, b)[0]


def doubling(a, b):
    shift = 1
    while shift < len(b):
        b = torch.cat((b[:shift], a[shift:] * b[:-shift] + b[shift:]))
        a = torch.cat((a[:shift], a[shift:] * a[:-shift]))
        shift *= 2
    return b


def pairs_alone(a, b):
    """Neighbors joined once: nothing passes from pair to pair but the end of the one before."""
    h = b.clone()
    for t in range(1, len(b)):
        h[t] = a[t] * (b if t % 2 else h)[t - 1] + b[t]
    return h


def test_tree(each_mistake):
    assert check(TREE, two_sweeps)
    each_mistake(TREE, graders.TREE_MISTAKES)
    each_mistake(TREE, {list(graders.TREE_MISTAKES)[-1]: pairs_alone})
    assert "not the states of the loop: entry (0, 0) is" in check(TREE, lambda a, b: 2 * b).hint
    assert "expected a function" in check(TREE, 3).hint


def test_what_a_right_tree_costs_is_counted():
    assert "right, with 1024 products one after the other" in check(TREE, loop).hint
    assert "right, with 18.0 multiplications a step" in check(TREE, doubling).hint
    assert "of its products 0 were PyTorch's" in check(TREE, lambda a, b: diagonal_scan(a, b)[0]).hint


@pytest.mark.parametrize(
    ("size", "times", "said"),
    [
        (1, 10, "correct"),  # of its own this tree has 40 products one after the other, 3 a step
        (1, 11, "right, with 51 products one after the other at 1024 steps; 50 are allowed"),
        (900, 1, "correct"),
        (1100, 1, "right, with 4.1 multiplications a step; 4 are allowed"),
    ],
)
def test_a_tree_may_spend_a_little_more(size, times, said):
    def spending(a, b):
        for _ in range(times):
            torch.ones(size) * 2
        return graders._tree(a, b)

    assert said in repr(check(TREE, spending))


def test_products_are_counted():
    a, b = torch.rand(5, 3), torch.rand(3, 4)
    for made, numbers, rounds in (
        (lambda: a * a + a, 15, 1),
        (lambda: a @ b, 60, 1),
        (lambda: a.cumprod(0), 15, 5),
        (lambda: a.prod(1), 15, 3),
        (lambda: a.prod(), 15, 15),
        (lambda: torch.addcmul(a, a, a).mul_(a), 30, 2),
    ):
        with graders.Products() as counted:
            made()
        assert (counted.numbers, counted.rounds) == (numbers, rounds)
