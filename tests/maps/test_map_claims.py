"""The statements of the chapters *zoo* and *factorized*, on cases that their check cells do not try."""

import math

import pytest
import torch
from helpers import F64, close, future, gen, like, randn, rank
from torch.nn import functional

from ssmbook import maps
from ssmbook.operators import FactorizedOperator, PointwiseOperator
from ssmbook.systems import System


@pytest.mark.guards("prop-siso")
@pytest.mark.parametrize("A", [torch.zeros(3, 3), torch.eye(3), torch.diag(torch.ones(2), 1)])
def test_degenerate_states_stay_within_the_bounds(A):
    system = maps.LTISSM(System(A.to(F64), randn(3, 2), randn(2, 3)))
    degree = {0.0: 1, 3.0: 1, 2.0: 3}[float(A.sum())]  # of the minimal polynomial
    assert system.interaction(torch.zeros(9, 2, dtype=F64)).interaction_rank() == degree <= 3


@pytest.mark.guards("prop-siso")
def test_a_skip_can_pass_the_bound_by_the_states():
    A, B, C, D = 0.5 * torch.eye(1, dtype=F64), randn(1, 2), randn(2, 1), randn(2, 2)
    with_skip = maps.LTISSM(System(A, B, C, D)).interaction(torch.zeros(9, 2, dtype=F64))
    assert with_skip.interaction_rank() == 2  # one state: the proposition says "without skip"


def key_side_scalars(G, b, c):
    """b_j^T G_{j+1} ... G_i c_i for j <= i, as the proposition says."""
    n = len(b)
    table = torch.zeros(n, n, dtype=F64)
    for j in range(n):
        carried = b[j]
        for i in range(j, n):
            carried = carried if i == j else carried @ G[i]
            table[i, j] = carried @ c[i]
    return table


WIDTH = 5
ONE = {"H": 1, "head_width": WIDTH}
EYE = torch.eye(WIDTH, dtype=F64)


def outer(a, b):
    return a[:, :, None] * b[:, None, :]


def linear_attention_row(layer, x, q, k):
    return EYE.expand(len(x), -1, -1), functional.elu(k) + 1, functional.elu(q) + 1


def retnet_row(layer, x, q, k):
    return layer.decay[0] * EYE.expand(len(x), -1, -1), k, q / WIDTH**0.5


def gla_row(layer, x, q, k):
    gate = torch.sigmoid(x @ layer.W_a[0].mT + layer.b_a[0]) ** (1 / layer.temperature)
    return torch.diag_embed(gate), k, q / WIDTH**0.5


def delta_net_row(layer, x, q, k):
    k, beta = functional.normalize(k), torch.sigmoid(x @ layer.W_beta[0].mT + layer.b_beta)
    return EYE - beta[:, :, None] * outer(k, k), beta * k, q


def ssd_row(layer, x):
    delta = functional.softplus(x @ layer.W_delta[0].mT + layer.b_delta)
    decay = torch.exp(-layer.log_A.exp()[0] * delta)
    B, C = x @ layer.W_B[0].mT, x @ layer.W_C[0].mT
    return decay[:, :, None] * torch.eye(6, dtype=F64), delta * B, C


ROWS = {
    "linear attention": (lambda: maps.LinearAttention(3, 5, **ONE, **like()), linear_attention_row),
    "RetNet": (lambda: maps.RetNet(3, 5, **ONE, **like()), retnet_row),
    "GLA": (lambda: maps.GLA(3, 5, **ONE, temperature=2.0, **like()), gla_row),
    "DeltaNet": (lambda: maps.DeltaNet(3, 5, **ONE, **like()), delta_net_row),
    "SSD": (lambda: maps.SSD(3, 5, **ONE, N=6, **like()), ssd_row),
}


@pytest.mark.guards("prop-zoo-factorized")
@pytest.mark.parametrize("name", ROWS)
def test_each_row_of_the_table_is_the_layer(name):
    make, row = ROWS[name]
    layer, x = make(), randn(11, 3)
    with torch.no_grad():  # no parameter stays where it started: a bias of zero would be in no number
        for seed, parameter in enumerate(layer.parameters()):
            parameter += 0.3 * randn(*parameter.shape, seed=seed)
    queries_and_keys = () if name == "SSD" else (x @ layer.W_Q[0].mT, x @ layer.W_K[0].mT)
    G, b, c = row(layer, x, *queries_and_keys)
    W_V, W_O = layer.W_V[0], layer.W_O[0]
    S, y = torch.zeros(WIDTH, b.shape[1], dtype=F64), []
    for i in range(len(x)):
        S = S @ G[i] + torch.outer(W_V @ x[i], b[i])
        y.append(W_O @ (S @ c[i]))
    close(torch.stack(y), layer(x))
    close(torch.stack(y), layer.run(x)[0])
    scalars = key_side_scalars(G.detach(), b.detach(), c.detach())
    close(layer.coefficients(x)[0].detach(), scalars)
    W = layer.interaction(x)
    close(W.to_dense(), torch.einsum("ij,pd->ijpd", scalars, W_O @ W_V))
    assert W.interaction_rank() == 1


def gated(H, n, p, d, seed=0):
    alpha = randn(H, n, n, seed=seed).tril()
    return randn(n, p, seed=seed), FactorizedOperator(alpha, randn(H, p, d, seed=seed))


@pytest.mark.guards("prop-output-gate")
@pytest.mark.parametrize("H", [1, 2, 3])
def test_every_row_of_a_gated_layer_has_at_most_its_heads(H):
    g, heads = gated(H, 9, 4, 4)
    g[3], g[5, 1:] = 0, 0  # closed gates, wholly and in part
    W = PointwiseOperator(torch.diag_embed(g)) @ heads
    ranks = [W.row_rank(i) for i in range(9)]
    assert max(ranks) == H and ranks[3] == 0
    assert W.interaction_rank() > H


@pytest.mark.guards("prop-output-gate")
def test_the_last_row_of_a_time_invariant_target_holds_every_lag():
    target = maps.LTISSM.random(3, 3, N=5, rho=0.9, **like()).interaction(torch.zeros(12, 3, dtype=F64))
    k = target.interaction_rank()
    assert target.row_rank(11) == k == 5
    # The best gated fit of the last row, whatever its gate, misses at least the tail of its spectrum.
    rows = target.row(11).flatten(1)
    tail = torch.linalg.svdvals(rows)[k - 1] ** 2
    for trial in range(30):
        g, V = randn(3, seed=trial), randn(k - 1, 3, 3, seed=trial)
        Q = torch.linalg.qr((g[:, None] * V).flatten(1).mT).Q
        assert (rows - rows @ Q @ Q.mT).square().sum() >= tail * (1 - 1e-10)


@pytest.mark.guards("prop-linear-recurrence")
@pytest.mark.parametrize("r", [1, 2])
def test_past_to_future_maps_have_the_rank_of_the_cut_times_the_value_rank(r):
    n, N = 9, 3
    V = randn(4, r) @ randn(r, 3)
    low = (randn(n, N) @ randn(N, n)).tril()
    softmax = randn(n, n).masked_fill(future(n), -math.inf).softmax(-1)
    for alpha, cut in ((low, N), (softmax, n // 2), (torch.diag(torch.ones(n - 1, dtype=F64), -1), 1)):
        dense = FactorizedOperator(alpha[None], V[None]).to_dense()
        widest = 0
        for m in range(1, n):
            block = dense[m:, :m].permute(0, 2, 1, 3).reshape((n - m) * 4, m * 3)
            assert rank(block) == r * rank(alpha[m:, :m])
            widest = max(widest, rank(block))
        assert widest == r * cut


@pytest.mark.parametrize(
    "name", ["attention", "attention, not causal", "attention, sink", "latent attention"]
)
def test_long_attention_is_the_sum_over_its_coefficients(name):
    """Without them in memory; with its gradients, and with theirs."""
    m, x = maps.zoo(4, 3, 300, generator=gen())[name], randn(2, 300, 4).requires_grad_()

    def found(y):
        first = torch.autograd.grad(y.square().sum(), [x, *m.parameters()], create_graph=True)
        (second,) = torch.autograd.grad(first[0].square().sum(), x, retain_graph=True)
        once = torch.autograd.grad(y.sin().sum(), [x, *m.parameters()], retain_graph=True)
        return y, *first, second, *once

    wanted = torch.einsum("bhij,hpd,bjd->bip", m.coefficients(x), m.value_maps(), x)
    for got, want in zip(found(m(x)), found(wanted), strict=True):
        close(got, want)
    with torch.no_grad():
        close(m(x), wanted)
    close(torch.func.vmap(m)(x), wanted)
    close(m.float()(x.float()).double(), wanted, tol=1e-5)
