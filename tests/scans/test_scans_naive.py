"""Every fast scan equals its naive twin: outputs, final states and every gradient, at awkward lengths, in
float64.
"""

import pytest
import torch

from ssmbook.scans import (
    diagonal_scan,
    diagonal_scan_naive,
    diagonal_step,
    lti_kernel,
    lti_kernel_naive,
    lti_scan,
    lti_scan_naive,
    lti_step,
    selective_scan,
    selective_scan_naive,
    selective_step,
    ssd_scan,
    ssd_scan_naive,
    ssd_step,
)

LENGTHS = (0, 1, 2, 7, 16, 31, 33, 63, 64, 65, 129, 257, 1000, 4097)
REAL, COMPLEX = torch.float64, torch.complex128


def draw(*shape, dtype=REAL, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=dtype, generator=generator)


def same(fast, naive, arguments, tolerance=1e-12):
    """Outputs and the gradient of a random functional of them agree, argument by argument."""
    leaves = [t.detach().clone().requires_grad_() for t in arguments if t is not None]
    results = []
    for function in (fast, naive):
        given = iter(leaves)
        outputs = function(*(None if t is None else next(given) for t in arguments))
        loss = sum((out * draw(*out.shape, dtype=out.dtype, seed=7)).sum().abs() for out in outputs)
        gradients = (
            torch.autograd.grad(loss, leaves, allow_unused=True)
            if loss.requires_grad
            else [None] * len(leaves)
        )
        zeros = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, gradients, strict=True)]
        results.append([*outputs, *zeros])
    for i, (got, wanted) in enumerate(zip(*results, strict=True)):
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        scale = wanted.abs().max() if wanted.numel() else 0
        assert not wanted.numel() or (got - wanted).abs().max() <= tolerance * max(scale, 1e-3), i


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("stateful", [False, True])
def test_diagonal_scan(T, dtype, stateful):
    a = draw(2, 3, T, 2, dtype=dtype)
    a = a.sgn() * 0.97 if a.is_complex() else 2 * a.sigmoid() - 1
    state = draw(2, 3, 2, dtype=dtype, seed=1) if stateful else None
    same(diagonal_scan, diagonal_scan_naive, (a, draw(2, 3, T, 2, dtype=dtype, seed=2), state))


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("stateful", [False, True])
def test_diagonal_scan_from_logarithms(T, stateful):
    state = draw(3, seed=1) if stateful else None
    arguments = (-draw(T, 3).abs() * 0.1 + 0.001, draw(T, 3, seed=2), state)
    same(
        lambda *args: diagonal_scan(*args, log=True),
        lambda *args: diagonal_scan_naive(*args, log=True),
        arguments,
    )


@pytest.mark.parametrize("D", [3, 20], ids=["narrow rows", "wide rows"])
@pytest.mark.parametrize("near_one", [False, True])
def test_every_number_of_blocks_and_left_over_steps(D, near_one):
    """Lengths 1 to 200 and around several levels, both directions."""
    for T in (*range(1, 200), 480, 841, 900, 2000):
        a, b, d = draw(T, D).sigmoid(), draw(T, D, seed=1), draw(T, D, seed=2)
        a = 1 - 1e-3 * a if near_one else a
        same(diagonal_scan, diagonal_scan_naive, (a, b, d[0]))
        with torch.no_grad():
            torch.testing.assert_close(diagonal_scan(a, b)[0], diagonal_scan_naive(a, b)[0])


def test_diagonal_scan_takes_any_strides():
    """Transposed, expanded and sliced inputs give what contiguous ones give."""
    a, b = draw(5, 700).sigmoid(), draw(700, 10)
    views = a.T, b[:, ::2]
    whole = [v.contiguous() for v in views]
    torch.testing.assert_close(diagonal_scan(*views)[0], diagonal_scan(*whole)[0], rtol=0, atol=1e-13)
    row = draw(1, 5).sigmoid().expand(700, 5)
    same(diagonal_scan, diagonal_scan_naive, (row, draw(700, 5), None))


def test_long_sequences_agree_in_both_segment_and_block_sizes():
    """65,536 + 3 steps: several levels of blocks, a remainder at each, real and complex, with gradients."""
    T = 65_539
    for dtype in (REAL, COMPLEX):
        a = draw(T, 1, dtype=dtype).sgn() * (1 - 1e-3 * draw(T, 1).abs())
        same(diagonal_scan, diagonal_scan_naive, (a, draw(T, 1, dtype=dtype), draw(1, dtype=dtype)), 1e-11)


@pytest.mark.parametrize("T", (0, 1, 5, 63, 64, 65, 129, 1000))
@pytest.mark.parametrize("method", ["auto", "recurrence", "chunked"])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_lti_scan(T, method, dtype):
    N, d, p = 5, 2, 3
    A = draw(N, N, dtype=dtype)
    A = 0.97 * A / torch.linalg.eigvals(A).abs().max()
    for state in (None, draw(2, N, dtype=dtype)):
        arguments = (A, draw(N, d, dtype=dtype), draw(p, N, dtype=dtype), draw(2, T, d, dtype=dtype), state)
        same(lambda *args: lti_scan(*args, method=method), lti_scan_naive, arguments, 1e-11)


@pytest.mark.parametrize("n", (0, 1, 2, 3, 17, 64, 1000))
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_kernels(n, dtype):
    N, d, p = 4, 2, 3
    A = draw(N, N, dtype=dtype)
    A = A / torch.linalg.eigvals(A).abs().max()
    B, C = draw(N, d, dtype=dtype), draw(p, N, dtype=dtype)
    same(lambda *args: [lti_kernel(*args, n)], lambda *args: [lti_kernel_naive(*args, n)], (A, B, C))


def selective_arguments(T, d, N, batch=(2,)):
    delta = torch.nn.functional.softplus(draw(*batch, T, d))
    inputs = draw(*batch, T, N), draw(*batch, T, N, seed=1)
    return draw(*batch, T, d), delta, -draw(d, N).abs(), *inputs, draw(d), draw(*batch, d, N)


@pytest.mark.parametrize("T", (0, 1, 2, 63, 64, 65, 1000))
@pytest.mark.parametrize("d, N", [(3, 2), (40, 32)])
def test_selective_scan(T, d, N):
    """Both routes inside a block: the blocked scan for few states, the plain loop for many."""
    arguments = selective_arguments(T, d, N)
    same(selective_scan, selective_scan_naive, arguments)
    same(selective_scan, selective_scan_naive, (*arguments[:5], None, None))


def test_selective_scan_over_several_blocks_of_few_states():
    same(selective_scan, selective_scan_naive, selective_arguments(20_000, 2, 3, ()))


@pytest.mark.parametrize("T", (0, 1, 2, 63, 64, 65, 1000))
@pytest.mark.parametrize("stateful", [False, True])
def test_ssd_scan(T, stateful):
    H, P, N = 3, 4, 5
    log_a = -draw(2, T, H).abs() + 0.05
    state = draw(2, H, P, N) if stateful else None
    arguments = draw(2, T, H, P), log_a, draw(2, T, H, N), draw(2, T, H, N, seed=1), state
    same(ssd_scan, ssd_scan_naive, arguments)


def run_steps(step, sequences, time, state):
    """Stream a sequence through a step form; ``time`` gives each sequence's time dimension."""
    out = []
    for pieces in zip(*(s.unbind(t) for s, t in zip(sequences, time, strict=True)), strict=True):
        y, state = step(pieces, state)
        out.append(y)
    return torch.stack(out, time[0]), state


@pytest.mark.parametrize("split", (1, 40, 99))
def test_steps_and_split_sequences_equal_the_whole(split):
    T, tolerance = 100, {"rtol": 0, "atol": 1e-13}
    A, B, C = draw(4, 4) * 0.3, draw(4, 2), draw(3, 4)
    x, delta, rates, Bs, Cs, D, _ = selective_arguments(T, 3, 2)
    log_a = -draw(2, T, 3).abs()
    cases = [
        (diagonal_scan, lambda s, h: diagonal_step(*s, h), [x.sigmoid(), x], [-2, -2], lambda s, h: (*s, h)),
        (lti_scan, lambda s, h: lti_step(A, B, C, *s, h), [Bs], [-2], lambda s, h: (A, B, C, *s, h)),
        (
            selective_scan,
            lambda s, h: selective_step(s[0], s[1], rates, s[2], s[3], D, h),
            [x, delta, Bs, Cs],
            [-2] * 4,
            lambda s, h: (s[0], s[1], rates, s[2], s[3], D, h),
        ),
        (
            ssd_scan,
            lambda s, h: ssd_step(*s, h),
            [draw(2, T, 3, 2), log_a, draw(2, T, 3, 4), draw(2, T, 3, 4, seed=1)],
            [-3, -2, -3, -3],
            lambda s, h: (*s, h),
        ),
    ]
    for scan, step, sequences, time, arguments in cases:
        y, final = scan(*arguments(sequences, None))
        for got, wanted in zip(run_steps(step, sequences, time, None), (y, final), strict=True):
            torch.testing.assert_close(got, wanted, **tolerance)
        head = [s.narrow(t, 0, split) for s, t in zip(sequences, time, strict=True)]
        tail = [s.narrow(t, split, T - split) for s, t in zip(sequences, time, strict=True)]
        y_head, state = scan(*arguments(head, None))
        y_tail, state = scan(*arguments(tail, state))
        torch.testing.assert_close(torch.cat((y_head, y_tail), time[0]), y, **tolerance)
        torch.testing.assert_close(state, final, **tolerance)


@pytest.mark.parametrize("method", ["auto", "recurrence", "chunked"])
@pytest.mark.parametrize(
    "N, d, p, batch, T",
    [(0, 2, 3, (), 5), (3, 0, 2, (2,), 100), (3, 2, 0, (), 5), (3, 2, 2, (0,), 70), (3, 2, 2, (2,), 0)],
)
def test_lti_scan_with_nothing_in_a_dimension(N, d, p, batch, T, method):
    """Without inputs a state still runs on freely."""
    A, B, C = 0.5 * draw(N, N), draw(N, d), draw(p, N)
    x, state = draw(*batch, T, d), draw(*batch, N)
    for start in (None, state):
        got, wanted = lti_scan(A, B, C, x, start, method=method), lti_scan_naive(A, B, C, x, start)
        torch.testing.assert_close(got, wanted)
