"""The statements of the chapters *zoo* and *factorized*, on cases that their check cells do not try."""

import pytest
import torch
from helpers import F64, close, gen, like, randn
from torch.nn import functional

from ssmbook import maps


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
