"""The operator as one writes it: W @ x, W.T, W[i, j], W.to, sums and multiples, for every kind."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import F64, close

from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    LagOperator,
    SumOperator,
    TransposedOperator,
)

BATCHES = [(), (2,), (3, 2), (0,)]


INDICES = [
    (1, 2),
    (-1, 0),
    (2, slice(None)),
    (slice(None), 3),
    (slice(1, 4), -2),
    (0, slice(4, None, -2)),
    (slice(3, 0, -1), slice(None, None, 2)),
    (slice(2, 2), slice(0, 4)),
    (np.int64(3), torch.tensor(1)),
]


@pytest.mark.parametrize("batch", [(), (2,)])
def test_indices_pick_blocks(kind, batch):
    W, _ = kind.operator(batch)
    dense = W.to_dense()
    for i, j in INDICES:
        places = [torch.tensor(range(5)[k], dtype=torch.int64) for k in (i, j)]
        wanted = dense.index_select(-4, places[0].reshape(-1)).index_select(-3, places[1].reshape(-1))
        if places[1].dim() == 0:
            wanted = wanted.squeeze(-3)
        if places[0].dim() == 0:
            wanted = wanted.squeeze(-4 if places[1].dim() else -3)
        close(W[i, j], wanted)
    close(W[2], dense[..., 2, :, :, :])
    close(torch.stack(list(W), dim=-4), dense)
    for bad in (5, -6, (0, 5), 1.0, "a", (0, 1, 2), True, None):
        with pytest.raises(IndexError, match="token|indexed by"):
            W[bad]


def test_a_block_is_made_without_its_row(monkeypatch):
    """Of heads, and what stands on them: a row of a wide layer is gigabytes."""
    random = torch.Generator().manual_seed(0)
    shapes = (2, 5, 5), (2, 3, 4), (5, 5, 3, 4)
    alpha, V, blocks = (torch.randn(*shape, generator=random, dtype=F64) for shape in shapes)
    heads = FactorizedOperator(alpha, V)
    channels = FactorizedOperator(alpha[:, None], V[:, None, :1, :1])
    for W in (heads, heads.T, heads + DenseOperator(blocks), DiagonalOperator(channels)):
        dense = W.to_dense()
        with monkeypatch.context() as patch:
            patch.setattr(FactorizedOperator, "_row", None)
            patch.setattr(FactorizedOperator, "_column", None)
            close(W[1, 3], dense[1, 3])
            close(W[:2, -1], dense[:2, -1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_to_and_detach_keep_the_kind_and_the_numbers(kind, dtype):
    W, random = kind.operator((2,))
    short = W.to(dtype)
    assert type(short) is type(W) and short.dtype == dtype and W.dtype == F64
    rough = 1e-5 if dtype == torch.float32 else 0.1
    miss = (short.to_dense().to(F64) - W.to_dense()).norm()
    assert float(miss) <= rough * float(W.to_dense().norm())
    assert torch.equal(W.to("cpu").to_dense(), W.to_dense())
    scale = torch.ones((), dtype=F64, requires_grad=True)
    held = scale * W
    x = random(2, 5, kind.d)
    assert (held @ x).requires_grad and not (held.detach() @ x).requires_grad
    assert type(held.detach()) is type(held)
    close(held.detach().to_dense(), held.to_dense().detach())


def test_numbers_and_scalar_tensors_scale(kind):
    W, random = kind.operator((2,))
    x = random(2, 5, kind.d)
    y = W @ x
    factors = [
        3,
        3.0,
        np.float64(3),
        np.int64(3),
        Fraction(3),
        torch.tensor(3.0),
        torch.tensor(3),
        torch.tensor(3, dtype=F64),
    ]
    for factor in factors:
        for scaled in (factor * W, W * factor):
            assert scaled.dtype == F64
            close(scaled @ x, 3 * y)
        close((W / factor) @ x, y / 3)
    c = torch.tensor(0.5, dtype=F64, requires_grad=True)
    (grad,) = torch.autograd.grad(((c * W) @ x).sum(), c)
    assert torch.allclose(grad, y.sum())
    for bad in (torch.ones(3), torch.ones(1), torch.tensor(1j)):
        with pytest.raises(TypeError, match="a number or a real 0-dimensional tensor; got shape"):
            W * bad
    for bad in ("2", None, [1.0], True):
        with pytest.raises(TypeError):
            W * bad
        with pytest.raises(TypeError):
            W / ("2" if bad is True else bad)
    with pytest.raises(ZeroDivisionError):
        W / 0


def test_sum_of_a_list(kind):
    W, random = kind.operator((2,))
    other, _ = kind.operator((2,), seed=1)
    x = random(2, 5, kind.d)
    close(sum([W, other, W]) @ x, 2 * (W @ x) + other @ x)
    assert sum([W]) is W
    for bad in (1, 0.5, torch.zeros(())):
        with pytest.raises(TypeError):
            bad + W


@pytest.mark.parametrize("batch", [(), (2,)])
def test_two_of_a_kind_compose_in_their_order(kind, batch):
    W, random = kind.operator(batch)
    square, _ = kind.operator(batch, p=kind.d, d=kind.d, seed=1)
    x = random(*batch, 5, kind.d)
    close((W @ square) @ x, W @ (square @ x), 1e-11)
    close((W @ square).to_dense(), (W @ DenseOperator(square.to_dense())).to_dense(), 1e-11)


def test_two_of_a_kind_stay_of_that_kind_where_they_can():
    def random(*shape):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=F64)

    lags = LagOperator(random(4, 5, 1, 1))
    dense = DenseOperator(random(4, 5, 5, 1, 1))
    first, second = DiagonalOperator(lags), DiagonalOperator(LagOperator(random(4, 3, 1, 1), 5))
    for W in (first + second, first @ second):
        assert type(W) is DiagonalOperator and type(W.channels) is LagOperator
    assert type(DiagonalOperator(dense).T.channels) is DenseOperator
    batched = DiagonalOperator(DenseOperator(random(2, 4, 5, 5, 1, 1)))
    assert type(first + batched) is SumOperator
    close((first + batched).to_dense(), first.to_dense() + batched.to_dense())
    close((first @ batched).to_dense(), DenseOperator(first.to_dense()).__matmul__(batched).to_dense())
    with pytest.raises(TypeError, match="channels must be an InteractionOperator; got Tensor"):
        DiagonalOperator(random(4, 5, 5))
    for wrong in (LagOperator(random(5, 1, 1)), LagOperator(random(4, 5, 2, 1))):
        with pytest.raises(
            ValueError, match=r"channels must have p = d = 1 and batch shape \(\.\.\., d\); got"
        ):
            DiagonalOperator(wrong)


def test_heads_and_channels_are_scalar_operators_of_their_own():
    def random(*shape):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=F64)

    heads = FactorizedOperator(random(2, 3, 6, 6).tril(), random(3, 2, 4))
    assert heads.mixing.shape == (2, 3, 6, 6, 1, 1)
    assert heads.mixing.past_future_rank().tolist() == [[3, 3, 3], [3, 3, 3]]
    # Each channel's coefficients are compressed by themselves, behind a transpose too.
    channels = TransposedOperator(FactorizedOperator(random(4, 2, 6, 6), random(4, 2, 1, 1)))
    W = DiagonalOperator(channels)
    found, wanted = W.spectrum(), DenseOperator(W.to_dense()).spectrum()
    close(found, wanted[: len(found)])


@pytest.mark.parametrize("H", [1, 3, 7])
def test_block_norms_of_heads_have_the_derivatives_of_the_blocks(H):
    generator = torch.Generator().manual_seed(H)
    alpha = torch.randn(H, 4, 4, generator=generator, dtype=F64).tril().requires_grad_()
    V = torch.randn(H, 2, 2, generator=generator, dtype=F64).requires_grad_()
    lower = torch.ones(4, 4, dtype=torch.bool).tril()

    def norms(alpha, V):
        return FactorizedOperator(alpha, V).block_norms()[lower]

    assert torch.autograd.gradcheck(norms, (alpha, V)) and torch.autograd.gradgradcheck(norms, (alpha, V))
    both = torch.autograd.grad(FactorizedOperator(alpha, V).block_norms().sum(), (alpha, V))
    alone = [
        FactorizedOperator(*given).block_norms().sum() for given in ((alpha, V.detach()), (alpha.detach(), V))
    ]
    for norms, leaf, wanted in zip(alone, (alpha, V), both, strict=True):
        (grad,) = torch.autograd.grad(norms, leaf)
        assert bool(grad.isfinite().all()) and torch.equal(grad, wanted)


def test_block_norms_of_heads_that_cancel_keep_their_digits():
    generator = torch.Generator().manual_seed(0)
    alpha = torch.randn(1, 4, 4, generator=generator, dtype=F64)
    V, small = torch.randn(2, 1, 3, 3, generator=generator, dtype=F64)
    near = FactorizedOperator(torch.cat([alpha, alpha]), torch.cat([V + 1e-9 * small, -V]))
    wanted = alpha[0].abs() * torch.linalg.matrix_norm(near.V.sum(0))
    assert torch.allclose(near.block_norms(), wanted, rtol=1e-5)
