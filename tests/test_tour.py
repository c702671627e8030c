"""The library against its page: every fast form equals the plain one of `ssmbook.tour`."""

import runpy
import warnings

import pytest
import torch
from helpers import F64, like, random_system, tokens
from torch.testing import assert_close

from ssmbook import System, gradients, heads, maps, operators, scans, tour


def pair(N=5, d=2, p=3, rho=0.95, seed=0, skip=True):
    """The same system for the library and for the tour."""
    A, B, C, D = random_system(N, d, p, rho, seed)
    matrices = (A, B, C, D) if skip else (A, B, C)
    return System(*matrices), tour.System(*matrices)


@pytest.mark.parametrize("skip", [False, True])
def test_systems_have_the_same_outputs_lags_and_floor(skip):
    ours, theirs = pair(skip=skip)
    x = tokens(41, 2)
    y = scans.lti_scan(ours.A, ours.B, ours.C, x)[0]
    assert_close(y if ours.D is None else y + x @ ours.D.mT, theirs(x))
    assert_close(ours.lags(41), theirs.lags(41))
    floor = ours.operator(41).floor()
    assert_close(floor, tour.floor(theirs, 41)[: len(floor)], atol=1e-14, rtol=1e-6)


def nilpotent(N):
    return torch.eye(N, dtype=F64).roll(1, 0).tril()


def families():
    """Systems of many kinds, as (A, B, C, D)."""
    for seed in range(12):
        N, d, p = ((3, 2, 2), (8, 3, 4), (20, 4, 5), (6, 1, 3))[seed % 4]
        A, B, C, D = random_system(N, d, p, (0.5, 0.95, 0.999)[seed % 3], seed)
        yield f"random {seed}", A, B, C, D if seed % 2 else None
    B, C = torch.randn(6, 2, **like(1)), torch.randn(3, 6, **like(2))
    J = nilpotent(6)
    yield "nilpotent", J, B, C, None
    yield "Jordan", 0.7 * torch.eye(6, dtype=F64) + J, B, C, None
    yield "repeated poles", torch.diag(torch.tensor([0.5, 0.5, 0.5, 0.2, 0.2, 0.9], dtype=F64)), B, C, None
    yield "unreachable", torch.diag(torch.linspace(0.1, 0.9, 6, dtype=F64)), B * (B > 0), C, None
    yield "skip that cancels the first lag", torch.diag(torch.linspace(0.1, 0.9, 6, dtype=F64)), B, C, -C @ B


@pytest.mark.parametrize("n", [4, 300])
def test_head_counts_agree_on_many_kinds_of_systems(n):
    for name, A, B, C, D in families():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            count = heads.head_count(System(A, B, C, D), n)
        assert count == tour.head_count(tour.System(A, B, C, D), n), name


def test_operators_have_the_same_rank_floor_and_best_heads():
    _, theirs = pair(N=4, d=3, p=2)
    M = theirs.lags(7)
    W, operator = tour.InteractionMatrix.from_lags(M), operators.LagOperator(M)
    x = tokens(7, 3)
    assert_close(operator @ x, W @ x)
    assert_close(operator.to_dense(), W.blocks)
    assert operator.interaction_rank() == W.rank()
    best = operator.best_heads(2).to_dense()
    assert_close(best, tour.InteractionMatrix.from_heads(*W.best_heads(2)).blocks)
    missed = ((W.blocks - best) ** 2).sum() / (W.blocks**2).sum()
    assert_close(missed, W.floor()[2])


def test_heads_from_a_system_equal_it():
    ours, theirs = pair(N=3)
    k = int(heads.head_count(ours, 11))
    built = tour.InteractionMatrix.from_heads(*tour.heads_from_system(theirs, 11, k))
    assert_close(built.blocks, ours.operator(11).to_dense())


@pytest.mark.parametrize("sink", [False, True])
def test_softmax_attention(sink):
    layer, x = maps.Attention(4, 3, H=2, head_width=4, sink=sink, **like()), tokens(9, 4)
    W = tour.attention(x, layer.W_Q, layer.W_K, layer.W_O @ layer.W_V, sink=sink)
    assert_close(layer.interaction(x).to_dense(), W.blocks)
    assert_close(layer(x), W @ x)


def test_the_diagonal_scan():
    a, b = torch.rand(33, 5, **like(3)), tokens(33, 5)
    assert_close(scans.diagonal_scan(a, b)[0], tour.scan(a, b))


def test_a_selective_layer():
    layer, x = maps.SelectiveSSM(3, N=4, discretization="mixed", **like()), tokens(17, 3)
    plain = tour.SelectiveLayer(
        layer.W_delta, layer.b_delta, layer.W_B, layer.W_C, -layer.log_A.exp(), layer.D
    )
    assert_close(layer(x), plain(x))
    assert_close(layer.interaction(x).to_dense(), plain.interaction(x).blocks)


def test_a_head_of_ssd():
    layer, x = maps.SSD(4, 4, H=1, head_width=4, N=5, **like()), tokens(17, 4)
    V = (layer.W_O @ layer.W_V)[0]
    plain = tour.SSDHead(
        layer.W_delta[0], layer.b_delta, layer.W_B[0], layer.W_C[0], -layer.log_A.exp()[0], V
    )
    assert_close(layer(x), plain(x))
    assert_close(layer.interaction(x).to_dense(), plain.interaction(x).blocks)


def test_gradients_by_distance():
    layer, x = maps.Attention(3, 3, H=1, head_width=3, **like()), tokens(12, 3, seed=5)
    distance, width = gradients.gradient_profile(layer, x)
    assert distance.tolist() == list(range(12))
    assert_close(width, tour.gradient_by_distance(layer, x))


def test_the_page_prints_its_facts(capsys):
    dtype = torch.get_default_dtype()
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    try:
        runpy.run_path(tour.__file__, run_name="__main__")
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.random.set_rng_state(state)
    facts = capsys.readouterr().out
    assert "46.1%, two heads of 0.0%" in facts and "equal this system: True" in facts
    assert "rank 1, a selective layer has rank 8" in facts
