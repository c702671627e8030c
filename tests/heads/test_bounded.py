"""Bounded pairwise heads: exact for every input, zero tokens and canceling ones included."""

import itertools
import math
from functools import partial

import pytest
import torch
from helpers import F64, gen
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ssmbook.heads import bilinear_head_count, bounded_heads, head_count
from ssmbook.operators import LagOperator
from ssmbook.systems import System, random_stable

every_input_head_count = partial(head_count, coefficients="any")

ALGEBRAS = (1, 2, 4, 8)


def fitting(p, d):
    return [a for a in ALGEBRAS if a <= 2 or min(p, d) <= a]


def awkward_tokens(n, d, g):
    """Random tokens, zero ones, sparse and alternating ones."""
    x = torch.randn(4, n, d, generator=g, dtype=F64)
    x[0, ::2] = 0
    x[1] *= torch.rand(n, d, generator=g, dtype=F64) < 0.3
    x[2] = torch.tensor([(-1.0) ** b for b in range(d)], dtype=F64)
    return x


@pytest.mark.guards("prop-bounded-heads")
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.sampled_from(ALGEBRAS)
)
def test_heads_are_the_system_for_awkward_inputs_and_keep_their_bound(seed, p, d, n, a):
    g = torch.Generator().manual_seed(seed)
    M = torch.randn(n, p, d, generator=g, dtype=F64)
    heads = bounded_heads(M, algebra=a if a in fitting(p, d) else None)
    if a in fitting(p, d):
        P, D = math.ceil(p / a), math.ceil(d / a)
        assert heads.H == a * (P + D - 1) and heads.bound == math.sqrt(math.comb(P + D - 2, P - 1))
    x = awkward_tokens(n, d, g)
    alpha = heads.coefficients(x)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    norms = torch.linalg.matrix_norm(M, 2)[lag.clamp(min=0)] * (lag >= 0)
    assert (alpha.square().sum(-3).sqrt() <= heads.bound * norms * (1 + 1e-9)).all()
    scale = M.norm() * n * d * x.abs().amax((1, 2), keepdim=True)
    assert ((heads(x) - LagOperator(M) @ x).abs() <= 1e-12 * heads.bound * scale).all()


@pytest.mark.guards("prop-bounded-heads")
@pytest.mark.parametrize("a", ALGEBRAS)
def test_unit_multiplications_keep_lengths_and_are_orthogonal(a):
    V = bounded_heads(torch.zeros(1, a, a, dtype=F64), algebra=a).V
    assert V.shape == (a, a, a) and torch.equal(V[0], torch.eye(a, dtype=F64))
    gram = torch.einsum("apd,bpe->abde", V, V)
    eye = torch.eye(a, dtype=F64)
    assert torch.equal(gram + gram.transpose(2, 3), 2 * torch.einsum("ab,de->abde", eye, eye))
    if a == 2:
        assert V[1].tolist() == [[0, -1], [1, 0]]


@pytest.mark.guards("prop-bounded-heads")
@pytest.mark.parametrize(
    "p,d,a", [(2, 2, 1), (3, 3, 1), (4, 4, 1), (2, 5, 1), (4, 6, 2), (6, 6, 2), (3, 7, 4)]
)
def test_the_bound_is_attained_and_an_optimizer_finds_nothing_worse(p, d, a):
    heads = bounded_heads(torch.zeros(1, p, d, dtype=F64), algebra=a)
    V = heads.V.numpy()

    def product(z):
        w, x = z[:p], z[p:]
        return ((V @ x @ w) ** 2).sum() / ((w**2).sum() * (x**2).sum())

    g = torch.Generator().manual_seed(p + d)
    starts = torch.randn(20, p + d, generator=g, dtype=F64).numpy()
    least = min(minimize(product, start).fun for start in starts)
    assert least >= heads.bound**-2 * (1 - 1e-6)
    ends = torch.zeros(p + d, dtype=F64)
    ends[0], ends[p + a * (math.ceil(d / a) - 1)] = 1, 1  # the lowest power times the highest
    assert product(ends.numpy()) == pytest.approx(heads.bound**-2, rel=1e-12)


@pytest.mark.guards("prop-bounded-heads")
def test_the_count_is_the_hopf_stiefel_number_up_to_eight_channels():
    def vanishes(p, d, H):  # (s + t)^H = 0 over Z/2 modulo s^p and t^d: another form of the condition
        powers = {(0, 0)}
        for _ in range(H):
            moved = [(s + u, t + v) for s, t in powers for u, v in ((1, 0), (0, 1))]
            powers = {m for m in moved if moved.count(m) % 2 and m[0] < p and m[1] < d}
        return not powers

    for p, d in itertools.product(range(1, 9), range(1, 20)):
        count = bilinear_head_count(p, d)
        assert count.settled and count == bilinear_head_count(d, p)
        assert vanishes(p, d, count.value) and not vanishes(p, d, count.value - 1)
        assert bounded_heads(torch.zeros(1, p, d, dtype=F64)).H == count
        assert bounded_heads(torch.zeros(1, d, p, dtype=F64)).H == count
    assert [bilinear_head_count(m, m).short for m in (3, 5, 9, 16)] == ["4", "8", "16 to 17", "16 to 30"]


@pytest.mark.guards("prop-bounded-heads", "thm-strong-form")
def test_the_count_of_one_system():
    g = torch.Generator().manual_seed(0)
    eye = torch.eye(2, dtype=F64)
    quarter = torch.tensor([[0.0, -1], [1, 0]], dtype=F64)
    assert every_input_head_count(System(quarter, eye, eye), 6) == 2
    six = random_stable(6, 4, 2, rho=0.9, generator=g, dtype=F64)
    assert every_input_head_count(six, 20) == 4  # two for almost every input
    assert every_input_head_count(six.lags(20).mT) == 4
    assert every_input_head_count(torch.randn(20, 3, 3, generator=g, dtype=F64)) == 4
    # Two outputs, one of them silent for x = e_1: the span is not always the plane.
    blind = torch.tensor([[[1.0, 0], [0, 1]], [[0, 1], [0, 1]]], dtype=F64)
    assert every_input_head_count(blind) == 2
    blind = torch.randn(9, 2, 4, generator=g, dtype=F64)
    assert every_input_head_count(blind) == 4
    blind[:, 0, 0] = 0  # of one token the first output is silent: four maps are not forced any more
    assert every_input_head_count(blind).short == "2 to 4"
    assert every_input_head_count(blind.mT) == 4  # as before: four outputs of a generic token
    # As few lags as there are inputs: two complex numbers times two, every output reached from every input.
    pair = torch.stack([torch.kron(row, unit) for row in eye[:, None] for unit in (eye, quarter)])
    assert pair.shape == (4, 2, 4) and every_input_head_count(pair) == 4
    spin = torch.zeros(3, 3, 3, dtype=F64)
    for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        spin[a, b, c], spin[a, c, b] = 1, -1
    assert every_input_head_count(spin).short == "2 to 3"  # three by hand
    assert every_input_head_count(torch.zeros(4, 2, 2, dtype=F64)) == 0
    row = torch.randn(9, 1, 5, generator=g, dtype=F64)
    assert every_input_head_count(row) == 5 and every_input_head_count(row[:3]) == 3
    frame = torch.randn(3, 2, generator=g, dtype=F64), torch.randn(4, 6, generator=g, dtype=F64)
    assert every_input_head_count(frame[0] @ six.lags(20) @ frame[1]) == 4  # six states among idle channels


@pytest.mark.guards("thm-strong-form")
@pytest.mark.parametrize("second, counts", [(1.0, ("4", "4")), (0.0, ("3 to 4", "2 to 4"))])
def test_five_maps_of_a_plane_reach_all_of_it_iff_what_they_leave_out_has_rank_two(second, counts):
    """All 3 x 2 maps orthogonal to N = w x^T + second v y^T: at x no w^T M x is left where N has rank one."""
    N = torch.tensor([[1.0, 0], [0, second], [0, 0]], dtype=F64)
    others = torch.linalg.svd(N.reshape(1, 6)).Vh[1:].reshape(5, 3, 2)
    M = torch.einsum("nk,kpd->npd", torch.randn(9, 5, generator=gen(), dtype=F64), others)
    assert tuple(every_input_head_count(lags).short for lags in (M, M.mT)) == counts
