"""Every proposition of the chapter *scans*, its traps and its seven forms, against code that does not share
its own.
"""

import math
from fractions import Fraction

import pytest
import torch
from helpers import F64
from helpers import randn as rand

from headsandstates.chapters.scans import rosetta
from headsandstates.chapters.scans.counting import (
    measured,
    measured_ratios,
    written_backward,
)
from headsandstates.exercises import check
from ssmbook import scans


@pytest.mark.guards("prop-scan-associative")
def test_composition_is_associative_exactly_over_fractions():
    pairs = [(Fraction(p, 7), Fraction(q, 3)) for p in (-9, 0, 1, 12) for q in (-4, 0, 5)]

    def compose(late, early):
        return late[0] * early[0], late[0] * early[1] + late[1]

    for p in pairs:
        for q in pairs:
            for r in pairs:
                assert compose(compose(r, q), p) == compose(r, compose(q, p))
                h = Fraction(11, 13)
                a, b = compose(compose(r, q), p)
                assert a * h + b == r[0] * (q[0] * (p[0] * h + p[1]) + q[1]) + r[1]
    assert compose(pairs[0], pairs[-1]) != compose(pairs[-1], pairs[0])


@pytest.mark.guards("prop-chunked")
@pytest.mark.parametrize("cuts", [[0, 50], [0, 1, 2, 50], [0, 17, 18, 49, 50], list(range(51))])
def test_any_cut_gives_the_recurrence(cuts):
    a, b, c = rand(50, 3), rand(50, 3, seed=1), rand(3, seed=2)
    a[20:25] = 0
    h, _ = scans.diagonal_scan_naive(a, b, c)
    for low, high in zip(cuts, cuts[1:], strict=False):
        inside, end = scans.diagonal_scan_naive(a[low:high], b[low:high], c)
        torch.testing.assert_close(inside, h[low:high])
        _, from_zero = scans.diagonal_scan_naive(a[low:high], b[low:high])
        c = a[low:high].prod(0) * c + from_zero
        torch.testing.assert_close(c, end)


@pytest.mark.guards("prop-two-level-powers")
@pytest.mark.parametrize("T", [1, 2, 3, 4, 17, 100, 257])
def test_two_level_powers(T):
    L = math.isqrt(T - 1) + 1
    n = -(-T // L)
    assert L == math.ceil(math.sqrt(T)) and L - 1 + n - 1 < 2 * math.sqrt(T) and T <= n * L
    power = torch.linalg.matrix_power
    for A in (rand(4, 4) / 2, torch.diag(torch.ones(3, dtype=F64), 1)):
        B, C = rand(4, 2, seed=1), rand(3, 4, seed=2)
        rows = torch.cat([C @ power(A, i * L) for i in range(n)])
        columns = torch.cat([power(A, j) @ B for j in range(L)], 1)
        blocks = (rows @ columns).view(n, 3, L, 2).transpose(1, 2).reshape(n * L, 3, 2)[:T]
        torch.testing.assert_close(blocks, torch.stack([C @ power(A, t) @ B for t in range(T)]))
        torch.testing.assert_close(blocks, scans.lti_kernel(A, B, C, T))


@pytest.mark.guards("prop-ssd-block")
def test_blocks_of_a_scalar_gated_recurrence():
    T, P, N, Q = 48, 3, 4, 12
    x, B, C = rand(T, P), rand(T, N, seed=1), rand(T, N, seed=2)
    a = torch.rand(T, generator=torch.Generator().manual_seed(3), dtype=F64)
    table = torch.zeros(T, T, dtype=F64)
    for i in range(T):
        for j in range(i + 1):
            table[i, j] = math.prod(a[j + 1 : i + 1].tolist()) * float(C[i] @ B[j])
    y, _ = scans.ssd_scan_naive(x[:, None], a.log()[:, None], B[:, None], C[:, None])
    torch.testing.assert_close(table @ x, y[:, 0])
    S = torch.zeros(P, N, dtype=F64)
    for u in range(0, T, Q):
        chunk, g = slice(u, u + Q), a[u : u + Q]
        s = g.cumprod(0)
        r = torch.stack([g[j + 1 :].prod() for j in range(Q)])
        D = torch.stack(
            [torch.stack([g[j + 1 : i + 1].prod() * (j <= i) for j in range(Q)]) for i in range(Q)]
        )
        m = (C[chunk] @ B[chunk].T) * D
        torch.testing.assert_close(m, table[chunk, chunk])
        torch.testing.assert_close(m @ x[chunk] + s[:, None] * (C[chunk] @ S.T), y[chunk, 0])
        S = s[-1] * S + x[chunk].T @ (r[:, None] * B[chunk])
        for v in range(0, u, Q):
            assert torch.linalg.matrix_rank(table[chunk, v : v + Q], rtol=1e-10) <= N
    assert torch.linalg.matrix_rank(table[:Q, :Q]) == Q


def test_rosetta_matrix_rounds_once_and_leaves_out_the_half_precision_transform():
    errors = rosetta.rosetta_matrix(rosetta.FORMS, (F64, torch.bfloat16), (0.999,), (33, 500))
    assert errors["float64"].max() < 1e-12
    assert list(errors["bfloat16"].isnan().all(1)) == [name == "Fourier" for name in rosetta.FORMS]
    assert errors["bfloat16"].nan_to_num(0).max() < 1e-2
    narrow = rosetta.rosetta_matrix({"narrow": rosetta.narrow_state}, (torch.bfloat16,), (0.999,), (500,))
    assert narrow["bfloat16"].min() > 1e-2


def test_attention_heads_are_built_in_double_precision_and_applied_to_rounded_tables():
    A, B, C = (torch.tensor([[value]], dtype=F64) for value in (0.5, 2.0, 3.0))
    x = torch.tensor([[1.0], [-1.0], [2.0]], dtype=F64)
    torch.testing.assert_close(
        rosetta.heads(A, B, C, x).flatten(), torch.tensor([6, -3, 10.5], dtype=F64), rtol=1e-14, atol=0
    )
    # at the tolerance of bfloat16 these three poles are too few for exact heads, which are then refused
    A = torch.diag(torch.tensor([0.9, 0.8, 0.7])) + torch.diag(torch.tensor([0.1, 0.1]), 1)
    system = [t.bfloat16() for t in (A, torch.eye(3), torch.eye(3), rand(60, 3))]
    assert rosetta.heads(*system).dtype == torch.float32
    assert 2**-14 < rosetta.relative_error(rosetta.heads, *system) < 2**-7


def test_the_pointwise_operator_loses_the_gradient_of_the_gates_and_ours_does_not():
    module = pytest.importorskip("torch._higher_order_ops.associative_scan")
    a, b = rand(9, 3).requires_grad_(), rand(9, 3, seed=1).requires_grad_()

    def pointwise(a, b):
        return module.associative_scan_op(lambda p, q, r, s: (p * r, r * q + s), (a, b), ())[1]

    wanted = torch.autograd.grad(scans.diagonal_scan_naive(a, b)[0].sum(), (a, b))
    ours = torch.autograd.grad(scans.diagonal_scan(a, b)[0].sum(), (a, b))
    torch.testing.assert_close(ours, wanted)
    if torch.__version__.startswith("2.13."):
        lost = torch.autograd.grad(pointwise(a, b).sum(), (a, b))
        torch.testing.assert_close(pointwise(a, b), scans.diagonal_scan_naive(a, b)[0])
        torch.testing.assert_close(lost[1], wanted[1])
        assert not lost[0].any() and wanted[0].any()


def test_backward_traffic_of_indexing_is_quadratic_and_that_of_the_scan_linear():
    def indexed(a, b):
        h, out = torch.zeros_like(b[0]), []
        for t in range(len(b)):
            h = a[t] * h + b[t]
            out.append(h)
        return torch.stack(out)

    def growth(function):
        few, many = (written_backward(function, rand(T, 3), rand(T, 3, seed=1)) for T in (100, 200))
        return many / few

    assert growth(indexed) > 3.8
    assert growth(lambda a, b: scans.diagonal_scan_naive(a, b)[0]) < 2.1
    assert growth(lambda a, b: scans.diagonal_scan(a, b)[0]) < 2.3


def test_the_grader_of_the_backward_pass():
    def backward(a, state, h, d, shift=1):
        g, out = torch.zeros_like(state), []
        later = torch.cat((a[shift:], torch.zeros_like(a[:shift])))
        for t in reversed(range(len(h))):
            g = d[t] + later[t] * g
            out.append(g)
        g = torch.stack(out[::-1])
        return g * torch.cat((state[None], h[:-1])), g, a[0] * g[0]

    assert check("scans/backward", backward)
    assert not check("scans/backward", lambda *t: backward(*t, shift=0))
    assert "backwards in time" in check("scans/backward", lambda *t: backward(*t, shift=0)).hint
    assert not check("scans/backward", 3)


def test_the_measured_times_are_those_of_the_committed_benchmark():
    _, results = measured()
    rows = measured_ratios(results, list(results["diagonal"]))
    assert all(ratio is None or ratio > 0 for row in rows for ratio in row[1:])
    key = "1x65536x16, uniform, forward"
    times = results["diagonal"][key]
    best = min(times["mambapy (B,T,D,1)"], times["mambapy (B,T,1,D)"])
    assert measured_ratios(results, [key])[0][1:3] == [t / times["ours"] for t in (times["naive twin"], best)]
