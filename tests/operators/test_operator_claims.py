"""The statements about one operator and its heads, on cases that the check cells of the book do not try."""

import math

import pytest
import torch
from helpers import F64, future, randn, rank

from ssmbook.operators import (
    DenseOperator,
    FactorizedOperator,
    LagOperator,
    jacobian_operator,
    operator_span,
    path_operator,
    secant_operator,
)


def close(a, b, tol=1e-10):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def same_map(W, x, y, tol=1e-9):
    close(W.apply(x), y, tol)


def running_gate(x):
    return torch.sin(x.cumsum(-2)) * torch.tanh(x) + x.abs()


def running_softmax(x):
    return (x @ x.mT).masked_fill(future(x.shape[-2]), -math.inf).softmax(-1) @ x[..., :2]


def running_maximum(x):
    return x.cummax(-2).values * x.sin()


CAUSAL = [running_gate, running_softmax, running_maximum]


@pytest.mark.guards("thm-path-operator")
@pytest.mark.parametrize("F", CAUSAL)
@pytest.mark.parametrize(("n", "scale"), [(1, 1.0), (7, 1e-6), (7, 3.0)])
def test_the_path_operator_is_exact_and_causal(F, n, scale):
    x = scale * randn(n, 3)
    W = path_operator(F, x, rtol=1e-11)
    same_map(W, x, F(x), 1e-8 * scale)
    assert (W.to_dense()[future(n)] == 0).all()


@pytest.mark.guards("thm-path-operator")
def test_a_kink_on_the_ray_is_averaged_over():
    # relu(x - 1) at x = 4.3 has slope 0 up to t = 1/4.3 on the ray and 1 on the rest.
    x = torch.tensor([[4.3]], dtype=F64)
    assert abs(float(path_operator(lambda z: torch.relu(z - 1), x).to_dense()) - 3.3 / 4.3) < 1e-6


@pytest.mark.guards("thm-path-operator")
def test_without_the_lipschitz_condition_the_integral_can_miss_the_map():
    # A step jumps without a slope: the derivative is 0 almost everywhere on the ray, the value is not.
    def step(z):
        return (z > 0.5).to(z.dtype) + 0 * z

    x = torch.ones(1, 1, dtype=F64)
    assert float(jacobian_operator(step, 0.3 * x).apply(x)) == 0 and float(step(x)) == 1
    with pytest.raises(ValueError, match="rtol"):
        path_operator(step, x)


def cubic(x):
    return (x @ x.mT).tril() @ x


def quadratic(x):
    return x.square().cumsum(-2)


def one_and_a_half(x):
    return x.abs().sqrt() * x.cumsum(-2)


@pytest.mark.guards("prop-homogeneous")
@pytest.mark.parametrize(("F", "r"), [(cubic, 3), (quadratic, 2), (torch.relu, 1), (one_and_a_half, 1.5)])
def test_the_jacobian_over_the_degree_is_the_path_operator(F, r):
    x = randn(5, 3)
    jacobian = jacobian_operator(F, x)
    close(F(1.7 * x), 1.7**r * F(x))
    same_map(jacobian * (1 / r), x, F(x))
    close(jacobian_operator(F, 1.7 * x).to_dense(), 1.7 ** (r - 1) * jacobian.to_dense())
    close(path_operator(F, x, 400).to_dense(), jacobian.to_dense() / r, 1e-5)


@pytest.mark.guards("prop-homogeneous")
def test_degree_zero_and_inhomogeneous_maps_are_outside_the_rule():
    x = randn(5, 3)
    unit = jacobian_operator(lambda z: z / z.norm(dim=-1, keepdim=True), x)
    assert unit.apply(x).abs().max() < 1e-12
    mixed = jacobian_operator(lambda z: z + z**2, x).apply(x)
    ratio = mixed / (x + x**2)
    assert ratio.max() - ratio.min() > 0.1


@pytest.mark.guards("prop-non-uniqueness")
def test_a_single_number_determines_its_operator():
    x, y = torch.tensor([[2.0]], dtype=F64), torch.tensor([[6.0]], dtype=F64)
    assert float(secant_operator(y, x).to_dense()) == 3.0  # nd = 1: nothing annihilates x


@pytest.mark.guards("prop-non-uniqueness")
@pytest.mark.parametrize(("rank_x", "rank_y"), [(1, 1), (1, 3), (4, 2), (3, 3)])
def test_the_secant_operator_has_the_product_of_the_ranks(rank_x, rank_y):
    x = randn(6, rank_x) @ randn(rank_x, 4, seed=1)
    y = randn(6, rank_y, seed=2) @ randn(rank_y, 3, seed=3)
    secant = secant_operator(y, x)
    same_map(secant, x, y)
    assert secant.interaction_rank() == rank_x * rank_y


def rearranged_spectrum(W):
    return torch.linalg.svdvals(W.flatten(0, 1).flatten(1))


KRONECKER = {
    "generic": lambda: randn(5, 5, 2, 3),
    "planted": lambda: FactorizedOperator(randn(3, 6, 6), randn(3, 3, 2)).to_dense(),
    "one block": lambda: torch.zeros(4, 4, 2, 2, dtype=F64).index_put_(
        (torch.tensor(3), torch.tensor(1)), randn(2, 2)
    ),
    "equal singular values": lambda: FactorizedOperator(
        torch.eye(4, dtype=F64).reshape(4, 2, 2), torch.eye(4, dtype=F64).reshape(4, 2, 2)
    ).to_dense(),
    "zero": lambda: torch.zeros(3, 3, 2, 2, dtype=F64),
}


@pytest.mark.guards("thm-kronecker")
@pytest.mark.parametrize("name", KRONECKER)
def test_the_best_heads_miss_the_tail_of_the_spectrum(name):
    W = KRONECKER[name]()
    operator, sigma = DenseOperator(W), rearranged_spectrum(W)
    for H in range(min(len(W) ** 2, W.shape[2] * W.shape[3]) + 1):
        best = operator.best_heads(H)
        terms = sum(torch.kron(A, V) for A, V in zip(best.alpha, best.V, strict=True))
        big = W.permute(0, 2, 1, 3).reshape(len(W) * W.shape[2], -1)
        missed = (big - terms).square().sum()
        close(missed, sigma[H:].square().sum())
        exact = bool(missed <= 1e-20 * max(float(W.square().sum()), 1e-300))
        assert exact == (operator.interaction_rank() <= H)


@pytest.mark.guards("prop-lag-optimum")
@pytest.mark.parametrize(("n", "p", "d"), [(1, 2, 2), (9, 2, 3), (6, 1, 4)])
def test_the_best_heads_of_a_time_invariant_target_are_kernels(n, p, d):
    M = randn(n, p, d)
    dense = DenseOperator(LagOperator(M).to_dense())  # nothing tells this one that it is causal
    for H in range(1, min(n**2, p * d) + 1):
        heads = dense.best_heads(H)
        Q = heads.V.flatten(1)
        close(Q @ Q.mT, torch.eye(H, dtype=F64))
        kernels = torch.einsum("tpd,hpd->ht", M, heads.V)
        assert (heads.alpha[:, future(n)] == 0).all()
        for tau in range(n):
            close(heads.alpha.diagonal(-tau, 1, 2), kernels[:, tau, None].expand(H, n - tau))


@pytest.mark.guards("prop-lag-optimum")
def test_a_causal_target_has_causal_best_heads_even_if_it_varies():
    W = randn(6, 6, 2, 3)
    W[future(6)] = 0
    heads = DenseOperator(W).best_heads(3)
    assert (heads.alpha[:, future(6)] == 0).all()
    acausal = DenseOperator(randn(6, 6, 2, 3)).best_heads(3)
    assert acausal.alpha[:, future(6)].abs().min() > 0  # the hypothesis is needed


@pytest.mark.guards("prop-gauge")
def test_below_full_span_pairs_exist_that_no_gauge_connects():
    A, V = randn(1, 4, 4), randn(1, 2, 2)
    one = FactorizedOperator(torch.cat([A, 0 * A]), torch.cat([V, randn(1, 2, 2, seed=1)]))
    two = FactorizedOperator(torch.cat([A, 0 * A]), torch.cat([V, randn(1, 2, 2, seed=2)]))
    close(one.to_dense(), two.to_dense())
    assert rank(torch.cat([one.V, two.V]).flatten(1)) == 3  # V' is not even in the span of V


def common_error(W, V):
    Q = torch.linalg.qr(V.flatten(1).mT).Q
    rows = W.to_dense().flatten(-2)
    return (rows - rows @ Q @ Q.mT).square().sum((1, 2, 3)).mean()


@pytest.mark.guards("thm-nearest-heads")
@pytest.mark.parametrize("H", [0, 1, 2, 5])
def test_the_best_common_heads_miss_the_tail_of_the_mean_gram_matrix(H):
    W = FactorizedOperator(randn(40, 3, 4, 4), randn(40, 3, 2, 3) * randn(40, 1, 1, 1).exp())
    rows = W.to_dense().flatten(-2)
    gram = torch.einsum("bijv,bijw->vw", rows, rows) / 40
    floor = torch.linalg.eigvalsh(gram).flip(0)[H:].clamp(min=0).sum()
    V = operator_span(W)[:H]
    reached = common_error(W, V)
    close(reached, floor, 1e-9)
    separate = W.spectrum()[:, H:].square().sum(-1).mean()
    assert separate <= floor * (1 + 1e-12)
    for seed in range(50):
        other = V + 10.0 ** -(seed % 4) * randn(H, 2, 3, seed=seed)
        assert common_error(W, other) >= floor * (1 - 1e-10)
