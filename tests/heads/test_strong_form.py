"""Several heads whose coefficients read the input, and what a lonely token asks of them."""

import math
from functools import partial

import pytest
import torch
from helpers import F64, like
from scipy.optimize import lsq_linear, minimize

from headsandstates.chapters.how_many_heads_really.five_counts import cone_error, half_plane_floor
from ssmbook.heads import bounded_heads, head_count, softmax_heads
from ssmbook.operators import LagOperator
from ssmbook.systems import System, rotation

pairwise_head_count = partial(head_count, coefficients="pairwise")
every_input_head_count = partial(head_count, coefficients="any")


def turns_of_space():
    """The generators of the rotations of space, M_a x = e_a x x: two dimensions for every token."""
    M = torch.zeros(3, 3, 3, dtype=F64)
    for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        M[a, b, c], M[a, c, b] = 1, -1
    return M


def silent_token(V):
    """A token for which the first map is silent, or nearly."""
    return torch.linalg.svd(V[0]).Vh[-1]


@pytest.mark.guards("thm-strong-form", "prop-locally-bounded", "prop-bounded-error")
@pytest.mark.parametrize("seed", range(3))
def test_two_bounded_heads_miss_the_turns_of_space_near_a_lonely_token(seed):
    M = turns_of_space()
    assert pairwise_head_count(M) == 2 and every_input_head_count(M).high == 3
    V = torch.randn(2, 3, 3, **like(seed))
    if seed < 2:
        V = V - V.mT  # images orthogonal to the token, as those of M: both are silent somewhere
    token = silent_token(V)
    span = torch.linalg.qr((V @ token).mT).Q if V[0].det().abs() > 1e-9 else (V[1] @ token)[:, None]
    span = span / span.norm(dim=0)
    gaps = [float((m - span @ (span.mT @ m)).norm()) for m in M @ token]
    lag = max(range(3), key=gaps.__getitem__)
    assert gaps[lag] > 0.1
    for K, eps in ((1.0, 1e-3), (1e3, 1e-6)):
        x = eps * torch.nn.functional.normalize(torch.randn(3, 3, **like(seed + 9)), dim=-1)
        x[0] = token
        columns = torch.einsum("hpd,jd->pjh", V, x[: lag + 1]).flatten(1)
        target = LagOperator(M).apply(x)[lag]
        low = [-math.inf] * 2 + [-K] * (2 * lag)
        alpha = lsq_linear(columns.numpy(), target.numpy(), bounds=(low, [-v for v in low])).x
        error = float((columns @ torch.from_numpy(alpha) - target).norm())
        norms = torch.linalg.matrix_norm(V, 2).sum() * lag * K + torch.linalg.matrix_norm(M[:lag], 2).sum()
        assert error >= gaps[lag] - eps * float(norms) - 1e-9


@pytest.mark.guards("prop-any-logits")
@pytest.mark.parametrize("theta,n", [(0.7, 6), (2.0, 3), (3.0, 3), (-2.5, 3)])
def test_no_positive_weights_make_two_heads_the_rotation_beyond_half_a_turn(theta, n):
    eye, tokens = torch.eye(2, dtype=F64), torch.randn(3, 2, **like(0))
    M = System(rotation(theta, dtype=F64), eye, eye).lags(n)

    def missed(V, lags=M):  # the worst of three lonely tokens, with the best free positive weights
        V = torch.as_tensor(V).reshape(-1, 2, 2)
        return max(cone_error((lags @ x)[..., None], (V @ x)[..., None]) for x in tokens)

    starts = torch.randn(4, 8, **like(1)).numpy()
    found = min(minimize(missed, s, method="Nelder-Mead", options={"maxfev": 250}).fun for s in starts)
    assert found >= half_plane_floor(M, 20_000) * (1 - 1e-3) > 0.001
    three = torch.stack([rotation(2 * math.pi * h / 3, dtype=F64) for h in range(3)])
    assert missed(three) < 1e-12
    made = softmax_heads(System(rotation(theta, dtype=F64), eye, eye), n - 1)
    assert made.H == 2 and missed(made.V, M[: n - 1]) < 1e-12


@pytest.mark.guards("prop-any-logits")
@pytest.mark.parametrize("p,d,H", [(1, 1, 2), (2, 2, 3), (3, 3, 5), (2, 5, 7)])
def test_one_head_more_than_nonsingular_maps_makes_all_weights_positive(p, d, H):
    n, M, x = 7, torch.randn(7, p, d, **like(p)), torch.randn(7, d, **like(d))
    made = bounded_heads(M)
    V = torch.cat([made.V, -made.V.sum(0, keepdim=True)])
    lag = torch.arange(n)[:, None] - torch.arange(n)
    up = 1 + made.bound * torch.linalg.matrix_norm(M, 2)[lag.clamp(min=0)]
    alpha = (torch.cat([made.coefficients(x), torch.zeros(1, n, n, dtype=F64)]) + up).tril()
    assert alpha[:, lag >= 0].min() >= 1 - 1e-9
    scale = 2 * alpha.sum(-1).max()
    weights = alpha / scale
    logits = (weights / (1 - weights.sum(-1, keepdim=True))).log()
    column = torch.zeros(len(V), n, 1, dtype=F64)  # the sink
    softmax = torch.cat([column, logits], -1).softmax(-1)[..., 1:]
    y = torch.einsum("hij,hpd,jd->ip", softmax, scale * V, x)
    assert len(V) == H
    torch.testing.assert_close(y, LagOperator(M).apply(x), rtol=1e-9, atol=1e-9)
