"""The operator as one writes it: W @ x, W.T, W[i, j], sums and multiples; what survives and what it costs."""

import numpy as np
import pytest
import torch
from helpers import F64, close, gen, randn

from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    LagOperator,
    PointwiseOperator,
    RecurrentOperator,
)
from ssmbook.operators.recurrent import ModalOperator


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_norms_of_blocks_whose_squares_leave_the_range(kind, size):
    W, _ = kind.operator((2,))
    found, wanted = (size * W).block_norms(), W.block_norms()
    assert ((found / size - wanted).abs() <= 1e-13 * wanted.amax()).all()


def test_numbers_and_scalar_tensors_scale():
    W, x = DenseOperator(randn(2, 5, 5, 3, 4)), randn(2, 5, 4, seed=1)
    for factor in (3, np.float64(3), np.int64(3), torch.tensor(3.0), torch.tensor(3)):
        for scaled in (factor * W, W * factor):
            assert scaled.dtype == F64
            close(scaled @ x, 3 * (W @ x))
        close((W / factor) @ x, (W @ x) / 3)
    c = torch.tensor(0.5, dtype=F64, requires_grad=True)
    close(torch.autograd.grad(((c * W) @ x).sum(), c)[0], (W @ x).sum())
    for bad in (torch.ones(3), torch.tensor(1j), "2", None):
        with pytest.raises(TypeError):
            W * bad
    with pytest.raises(ZeroDivisionError):
        W / 0
    for bad in (5, -6, (0, 5)):
        with pytest.raises(IndexError):
            W[bad]
    close(torch.stack(list(W), dim=-4), W.to_dense())


def test_to_dense_is_a_tensor_of_its_own():
    W = DenseOperator(torch.ones(2, 2, 1, 1))
    W.to_dense().zero_()
    assert bool((W.to_dense() == 1).all())


def test_structure_survives_algebra_where_it_can():
    long, short = LagOperator(randn(6, 3, 3)), LagOperator(randn(2, 3, 3), 6)
    heads = FactorizedOperator(randn(2, 6, 6), randn(2, 3, 3))
    more = FactorizedOperator(randn(1, 6, 6, seed=1), randn(1, 3, 3, seed=1))
    points = PointwiseOperator(randn(6, 3, 3))
    assert type(long + short) is LagOperator and (long + short).L == 6
    assert (heads + more).H == 3 and (heads @ more).H == 2 and (heads + heads).interaction_rank() == 2
    assert type(points @ points) is type(points + points) is PointwiseOperator
    for first, second in ((long, short), (short, short), (heads, more), (points, points), (long, heads)):
        product = torch.einsum("ikpq,kjqd->ijpd", first.to_dense(), second.to_dense())
        close((first @ second).to_dense(), product, 1e-12)
        close((first + second).to_dense(), first.to_dense() + second.to_dense(), 1e-12)
    first = DiagonalOperator(LagOperator(randn(4, 5, 1, 1)))
    batched = DiagonalOperator(DenseOperator(randn(2, 4, 5, 5, 1, 1)))
    close((first + batched).to_dense(), first.to_dense() + batched.to_dense())
    close((first @ batched).to_dense(), (DenseOperator(first.to_dense()) @ batched).to_dense())
    with pytest.raises(ValueError, match="channels"):
        DiagonalOperator(LagOperator(randn(4, 5, 2, 1)))


def test_heads_and_channels_are_scalar_operators_of_their_own():
    heads = FactorizedOperator(randn(2, 3, 6, 6).tril(), randn(3, 2, 4))
    assert heads.mixing.shape == (2, 3, 6, 6, 1, 1)
    close(heads.mixing.to_dense()[..., 0, 0], heads.alpha)
    assert heads.mixing.past_future_rank().tolist() == [[3, 3, 3], [3, 3, 3]]
    # Each channel's coefficients are compressed by themselves, behind a transpose too.
    channels = FactorizedOperator(randn(4, 2, 6, 6), randn(4, 2, 1, 1))
    for W in (DiagonalOperator(channels), DiagonalOperator(LagOperator(randn(4, 6, 1, 1)).T)):
        found, wanted = W.spectrum(), DenseOperator(W.to_dense()).spectrum()
        close(found, wanted[: len(found)])


@pytest.mark.parametrize("H", [1, 7])
def test_block_norms_of_heads_have_the_derivatives_of_the_blocks(H):
    alpha, V = randn(H, 4, 4).tril().requires_grad_(), randn(H, 2, 2).requires_grad_()
    lower = torch.ones(4, 4, dtype=torch.bool).tril()
    assert torch.autograd.gradcheck(
        lambda *parts: FactorizedOperator(*parts).block_norms()[lower], (alpha, V)
    )
    gradient = torch.autograd.grad(FactorizedOperator(alpha, V).block_norms().sum(), (alpha, V))
    assert all(bool(part.isfinite().all()) for part in gradient)  # though some blocks are zero
    close(FactorizedOperator(alpha, V).block_norms(), FactorizedOperator(alpha, V).detach().block_norms())


@pytest.mark.parametrize("L", [3, 100, 900])
def test_direct_sums_and_the_fft_agree_with_the_blocks(L):
    # Up to 64 lags or 2^16 pairs of a token and a lag are summed directly.
    W, x = LagOperator(randn(2, L, 2, 3), 900), randn(2, 900, 3)
    close(W @ x, torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x), 1e-11)


def test_nan_in_a_token_stays_with_the_tokens_that_see_it():
    x = torch.ones(5, 1)
    x[2] = float("nan")
    y = LagOperator(torch.ones(2, 1, 1), 5) @ x
    assert y.isnan().squeeze(-1).tolist() == [False, False, True, True, False]


def test_what_does_not_fit_is_refused():
    square, batched = DenseOperator(randn(5, 5, 3, 2)), DenseOperator(randn(4, 5, 5, 3, 2))
    for error, call in (
        (ValueError, lambda: DenseOperator(randn(5, 4, 3, 2))),
        (ValueError, lambda: FactorizedOperator(randn(4, 2, 5, 5), randn(1, 2, 3, 2))),
        (ValueError, lambda: LagOperator(randn(5, 3, 2), 4)),
        (ValueError, lambda: batched @ randn(1, 5, 2)),
        (ValueError, lambda: square + DenseOperator(randn(4, 4, 3, 2))),
        (ValueError, lambda: batched + DenseOperator(randn(3, 5, 5, 3, 2))),
        (ValueError, lambda: square @ square),
        (TypeError, lambda: square @ square.T.to(torch.float32)),
        (TypeError, lambda: square + 1.0),
        (ValueError, lambda: square.coefficients(randn(2, 3, 3))),
        (ValueError, lambda: square.interaction_rank(1.0)),
        (ValueError, lambda: square.best_heads(7)),
        (ValueError, lambda: square.row(5)),
    ):
        with pytest.raises(error):
            call()


@pytest.fixture(scope="module")
def slow_decays():
    n, N = 200, 3
    log_decay = -(torch.arange(N) + 1) / 64 - torch.zeros(n, 1)
    B, C = torch.rand(n, N, 2, generator=gen(1)), torch.rand(n, 2, N, generator=gen(2))
    modal = ModalOperator(log_decay, B, C)
    recurrent = RecurrentOperator(torch.diag_embed(log_decay.exp()), B, C)
    lags = LagOperator(C[0] @ torch.diag_embed(torch.linspace(1, 0, n)[:, None].expand(n, N)) @ B[0])
    return {"recurrent": recurrent, "modal": modal, "lag": lags, "composed": modal @ LagOperator(C @ B)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["recurrent", "modal", "lag", "composed"])
def test_long_sums_in_half_precision_are_taken_in_single(slow_decays, kind, dtype):
    """Two hundred tokens of a slow decay: a state in bfloat16 was off by 3 %, and W_ij far from j by more."""
    n, W = 200, slow_decays[kind].to(dtype)
    x = torch.rand(n, 2, generator=gen(3)).to(dtype)
    wide, x_wide = W.to(F64), x.to(F64)
    for got, wanted in (
        (W @ x, wide @ x_wide),
        (W.T @ x, wide.T @ x_wide),
        (W.row(n - 1), wide.row(n - 1)),
        (W.column(0), wide.column(0)),
        (torch.stack(list(W.rows())), wide.to_dense()),
    ):
        assert got.dtype == dtype
        assert float((got.to(F64) - wanted).abs().max() / wanted.abs().max()) <= 1.01 * torch.finfo(dtype).eps
