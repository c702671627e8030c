"""What position schemes leave out, by other routes: brute force, foreign code, exact cases."""

import pytest
import torch
from helpers import F64, randn
from scipy.optimize import brentq

from headsandstates.chapters.positions import schemes


@pytest.mark.guards("prop-values-read-positions")
def test_weights_stay_positive_where_the_system_asks_for_much_of_the_own_token():
    m = torch.full((20,), -0.9, dtype=F64).index_fill(0, torch.tensor([0]), 1.0)
    layer, *_ = schemes.two_sinkless_heads(m, bound=1.0)
    assert layer(torch.ones(20, dtype=F64))[1].min() > 0


@pytest.mark.guards("prop-values-read-positions")
def test_query_key_heads_miss_in_proportion_to_one_over_q_even_without_a_lag_zero():
    m, x = torch.tensor([0.0, 0.7, -0.7, 1.5], dtype=F64), randn(4, seed=1).clamp(-1, 1)
    y = torch.stack([m[: i + 1].flip(0) @ x[: i + 1] for i in range(4)])
    errors = [(schemes.two_query_key_heads(m, Q)(x) - y).abs().max() for Q in (1e3, 1e5)]
    assert errors[0] < 0.1 and 95 < errors[0] / errors[1] < 105


@pytest.mark.guards("prop-relative-sink")
def test_two_heads_equal_the_decay_on_three_tokens():
    m, r = 0.5 ** torch.arange(3, dtype=F64), torch.tensor([0.3, 0.6], dtype=F64)
    g = torch.tensor([1, 1.5], dtype=F64)
    V = torch.linalg.solve(r / (1 + g[:, None] * r), torch.ones(2, dtype=F64))
    before = 1 + 1.5 * r

    def last(s):  # of row 2, on the line through rows 0 and 1: the denominators, and the lag
        Z = torch.stack([torch.as_tensor(1 / s, dtype=F64), V[1] * r[1] / (1 - V[0] * r[0] * s)])
        return Z - before, float((V * (Z - before) / Z).sum())

    s = brentq(lambda s: last(s)[1] - 0.25, 1e-3, float(1 / before[0]), xtol=1e-15)
    b = torch.cat([r[:, None] * m[:2], last(s)[0][:, None]], 1)
    assert (b > 0).all()
    W = torch.einsum("hij,h->ij", schemes.sink_weights(b.log()), V)
    lag = torch.arange(3)[:, None] - torch.arange(3)
    torch.testing.assert_close(W, m[lag.clamp(min=0)].tril())


@pytest.mark.guards("prop-three-schemes")
def test_buckets_are_those_of_transformers():
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distance = torch.arange(300)
    theirs = t5.T5Attention._relative_position_bucket(-distance, False, 32, 128)
    assert [schemes.t5_bucket(int(tau)) for tau in distance] == theirs.tolist()


@pytest.mark.guards("prop-three-schemes")
def test_no_heads_of_t5_pass_the_floor_and_the_best_operator_of_buckets_reaches_it():
    M, n = randn(40, 1, 1), 40
    bucket = torch.tensor([schemes.t5_bucket(tau) for tau in range(n)])
    missed = 0.0
    for i in range(n):  # least squares on the indicators of the buckets
        seen = torch.nn.functional.one_hot(bucket[: i + 1]).to(F64)
        fit = torch.linalg.lstsq(seen, M[: i + 1, 0], driver="gelsd").solution
        missed += float((M[: i + 1, 0] - seen @ fit).square().sum())
    energy = float((torch.arange(n, 0, -1) * M.flatten().square()).sum())
    assert abs(schemes.t5_floor(M) - missed / energy) < 1e-12
    alpha = schemes.sink_weights(randn(50, 23) @ schemes.basis("T5", n))
    assert schemes.missed(alpha, M) >= schemes.t5_floor(M)


@pytest.mark.guards("prop-three-schemes")
def test_the_best_fading_curves_fit_the_first_alternating_lags_and_beat_any_slopes_drawn():
    tau = torch.arange(12, dtype=F64)
    m, weight = (-0.5) ** tau, 12 - tau
    for H in range(1, 6):
        _, best, share, changes = schemes.alibi_fit(m[:, None, None], H)
        after = (weight * m**2)[H:].sum() / (weight * m**2).sum()
        assert abs(share - after) < 1e-8 and changes == H - 1
        torch.testing.assert_close(best, torch.where(tau < H, m, 0.0), rtol=0, atol=1e-3)
        E = torch.exp(-randn(50, H, 1).abs() * tau) * weight.sqrt()
        V = torch.linalg.pinv(E.mT) @ (m * weight.sqrt())
        missed = (E.mT @ V[..., None]).squeeze(-1) - m * weight.sqrt()
        assert missed.square().sum(1).min() / (weight * m**2).sum() > share
