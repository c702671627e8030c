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
    heads, P, D = bounded_heads(M, algebra=a), math.ceil(p / a), math.ceil(d / a)
    assert heads.H == a * (P + D - 1)
    if a in fitting(p, d):  # the best constant is known
        assert heads.bound == math.sqrt(math.comb(P + D - 2, P - 1))
    x = awkward_tokens(n, d, g)
    alpha = heads.coefficients(x)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    norms = torch.linalg.matrix_norm(M, 2)[lag.clamp(min=0)] * (lag >= 0)
    assert (alpha.square().sum(-3).sqrt() <= heads.bound * norms * (1 + 1e-9)).all()
    scale = M.norm() * n * d * x.abs().amax((1, 2), keepdim=True)
    assert ((heads(x) - LagOperator(M) @ x).abs() <= 1e-12 * heads.bound * scale).all()


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
    assert [bilinear_head_count(m, m).short for m in (3, 5, 9, 16)] == ["4", "8", "16 to 17", "16 to 24"]


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


def least_singular_value(V, starts=40):
    """The least singular value of (V_h x)_h over unit x that an optimizer finds."""

    def least(x):
        return torch.linalg.svdvals(torch.einsum("hpd,d->ph", V, torch.from_numpy(x)))[-1] / (x @ x) ** 0.5

    g = gen(3)
    points = (torch.randn(V.shape[2], generator=g, dtype=F64).numpy() for _ in range(starts))
    return min(float(minimize(lambda x: float(least(x)), point).fun) for point in points)


@pytest.mark.guards("prop-token-heads")
@pytest.mark.parametrize("p,d,r", [(2, 2, 1), (3, 5, 1), (4, 4, 2), (5, 4, 2), (6, 8, 4), (16, 16, 8)])
def test_narrow_heads_have_their_rank_their_number_and_their_bound(p, d, r):
    M = torch.randn(12, p, d, generator=gen(1), dtype=F64)
    x = awkward_tokens(12, d, gen(2))
    target = LagOperator(M) @ x
    for sink in (False, True):
        made = bounded_heads(M, value_rank=r, algebra=r, sink=sink)
        assert made.H == r * (math.ceil(p / r) + math.ceil(d / r) - (not sink))
        assert torch.linalg.matrix_rank(made.V).max() <= r
        assert (made(x) - target).norm() < 1e-11 * target.norm()
        if p < 16:
            least = least_singular_value(made.V, 8)
            assert least * made.bound >= 1 - 1e-6
    weights = made.coefficients(x)
    assert (
        weights.tril().min() >= 0
        and weights.sum(-1).max() < 1
        and (made.V.sum(0).norm() < 1e-12 * made.V.norm())
    )
    later = x.clone()
    later[:, 7:] += 1
    assert torch.equal(made.logits(later)[..., :7, :7], made.logits(x)[..., :7, :7])  # causal


@pytest.mark.guards("prop-token-heads")
@pytest.mark.parametrize("p,d,r", [(2, 2, 1), (4, 3, 1), (8, 8, 1), (8, 8, 2), (16, 16, 4)])
def test_one_map_fewer_than_the_lower_bound_leaves_a_direction_out(p, d, r):
    """m maps share a left kernel, and the others leave some x of the rest, as in the proof."""
    low, m = bilinear_head_count(p, d, r).low, -(-p // r) - 1
    H = min(low - 1, m + d - 1)  # the bound m + (p - m r) # d with p - m r = 1 counted by hand
    V = torch.einsum(
        "hpr,hrd->hpd",
        *(torch.randn(H, *s, generator=gen(i), dtype=F64) for i, s in enumerate(((p, r), (r, d)))),
    )
    w = torch.linalg.svd(V[:m].transpose(1, 2).reshape(-1, p)).Vh[-1]
    x = torch.linalg.svd(torch.einsum("p,hpd->hd", w, V[m:])).Vh[-1]
    assert torch.einsum("p,hpd,d->h", w, V, x).abs().max() < 1e-10
    assert low >= m + d


@pytest.mark.guards("prop-token-heads")
def test_four_small_lags_leave_open_what_a_fifth_settles():
    M = torch.eye(4, dtype=F64).reshape(4, 2, 2)
    # Nothing surrounds zero, and positive weights may cost nothing; the page adds minus their sum.
    assert head_count(M, coefficients="any softmax").short == "2 to 3"
    assert head_count(M, coefficients="softmax", value_rank=1).short == "4 to 5"


@pytest.mark.guards("prop-token-heads")
def test_narrow_counts_of_systems_that_use_few_channels():
    g = gen(5)
    rows = torch.randn(9, 4, generator=g, dtype=F64)
    line = torch.einsum("p,td->tpd", torch.randn(3, generator=g, dtype=F64), torch.cat([rows, -rows]))
    for name, count in (("any", 4), ("pairwise", 1), ("any softmax", 5), ("softmax", 5)):
        assert head_count(line, coefficients=name) == count
        assert head_count(line, coefficients=name, value_rank=1) == count
    turns = torch.zeros(3, 3, 3, dtype=F64)  # cross products: planes that turn with the token
    for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        turns[a, b, c], turns[a, c, b] = 1, -1
    assert head_count(turns, coefficients="pairwise").value == 2
    assert head_count(turns, coefficients="pairwise", value_rank=1).value == 3
    assert head_count(turns, coefficients="any", value_rank=1).short == "3 to 5"
    assert head_count(0 * turns, coefficients="any softmax", value_rank=1) == 0
    mean = torch.ones(4, 4, dtype=F64).tril() / torch.arange(1.0, 5.0, dtype=F64)[:, None]
    W = mean[..., None, None] * torch.eye(2, dtype=F64)
    assert head_count(W, coefficients="sinkless") == 1
    assert head_count(W, coefficients="sinkless", value_rank=1).short == "2 to 4"


@pytest.mark.parametrize("coefficients", ["fixed", "softmax", "sinkless", "pairwise", "any", "any softmax"])
def test_a_width_that_no_value_map_has_is_refused(coefficients):
    M = torch.randn(6, 2, 3, generator=gen(), dtype=F64)
    for wrong in (0, 3, 1.5):
        with pytest.raises((ValueError, TypeError), match="value_rank must be"):
            head_count(M, coefficients=coefficients, value_rank=wrong)
    with pytest.raises((ValueError, TypeError), match="value_rank must be"):
        bounded_heads(M, value_rank=3)
    with pytest.raises(ValueError, match="algebra must be one of"):
        bounded_heads(M, value_rank=1, algebra=2)
