"""The laws of every kind of operator, each against its dense blocks (the kinds are in conftest.py)."""

import math

import pytest
import torch
from helpers import F64, close, randn

from ssmbook.operators import DenseOperator, operator_span


def test_it_acts_as_the_sum_over_its_blocks(kind):
    for batch, n in (((), 5), ((2,), 5), ((), 0)):
        W, random = kind.operator(batch, n)
        assert (tuple(W.batch_shape), W.n) == (batch, n)
        x = random(*batch, n, W.d)
        before = x.clone()
        close(W @ x, torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x))
        assert torch.equal(x, before)


def test_rows_columns_and_blocks_are_those_of_the_whole(kind):
    W, _ = kind.operator((2,))
    dense = W.to_dense()
    close(W.block_norms(), torch.linalg.matrix_norm(dense))
    for i, j in [(1, 2), (-1, 0), (2, slice(None)), (3, slice(0, 5, 2))]:
        close(W[i, j], dense[:, i, j])
    for k in range(5):
        close(W.row(k), dense[:, k])
        close(W.column(k), dense[:, :, k])


def test_the_transpose_is_the_adjoint(kind):
    W, random = kind.operator((2,))
    y, dense = random(2, 5, W.p), W.to_dense()
    close(W.T.to_dense(), dense.transpose(-4, -3).mT)
    close(W.T @ y, torch.einsum("...ijpd,...ip->...jd", dense, y))
    assert torch.equal(W.T.interaction_rank(), W.interaction_rank())


def test_sums_multiples_and_compositions(kind):
    W, random = kind.operator((2,))
    again = kind.operator((2,), seed=1)[0]
    other, after = DenseOperator(random(2, 5, 5, W.p, W.d)), DenseOperator(random(5, 5, 2, W.p))
    before = DenseOperator(random(5, 5, W.d, 2))
    x, y = random(2, 5, W.d), random(5, 2)
    close((W + other) @ x, W @ x + other @ x)
    close((W - again) @ x, W @ x - again @ x)
    close((3 * W) @ x, 3 * (W @ x))
    close((after @ W) @ x, after @ (W @ x))
    close((W @ before) @ y, W @ (before @ y))
    close((W.T @ W) @ x, W.T @ (W @ x))


def test_spectrum_and_rank_are_those_of_its_blocks(kind):
    W, _ = kind.operator((2,))
    sigma = torch.linalg.svdvals(W.to_dense().flatten(-4, -3).flatten(-2))  # of the rows vec W_ij
    size = min(sigma.shape[-1], W.spectrum().shape[-1])
    close(W.spectrum()[:, :size], sigma[:, :size])
    assert torch.equal(W.interaction_rank(), (sigma > 1e-10 * sigma[:, :1]).sum(-1))


def test_a_causal_operator_has_a_memory(kind):
    W, _ = kind.operator((2,))
    if not kind.causal:
        return
    dense = W.to_dense()
    assert (dense[:, torch.ones(5, 5, dtype=torch.bool).triu(1)] == 0).all()
    cuts = [dense[:, t:, :t].transpose(-3, -2).flatten(-2).flatten(-3, -2) for t in range(1, 5)]
    wanted = torch.stack([torch.linalg.matrix_rank(cut, rtol=1e-9) for cut in cuts]).amax(0)
    assert torch.equal(W.past_future_rank(), wanted)


def test_dtype_is_kept(kind):
    W, random = kind.operator((2,))
    short = W.to(torch.float32)
    assert type(short) is type(W)
    parts = [short @ random(2, 5, W.d).float(), short.row(1), short.block_norms(), short.T.to_dense()]
    assert {part.dtype for part in parts} == {torch.float32}
    close(short.to_dense().double(), W.to_dense(), 1e-5)


def test_gradients_flow_and_stop_where_they_should(kind):
    W, random = kind.operator((2,), 3)
    x, y = random(2, 3, W.d).requires_grad_(), random(2, 3, W.p).requires_grad_()
    torch.autograd.gradcheck(W.apply, (x,))
    torch.autograd.gradcheck(W.T.apply, (y,))
    scale = torch.ones((), dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad((scale * W @ x).sum(), scale)
    close(slope, (W @ x).sum())
    assert not (scale * W).detach().to_dense().requires_grad


@pytest.mark.guards("thm-nearest-heads")
def test_ranks_and_spans_are_those_of_the_blocks(kind):
    W, _ = kind.operator((2,), 3)
    dense = W.to_dense()
    for k in range(3):
        assert torch.equal(W.row_rank(k), torch.linalg.matrix_rank(dense[:, k].flatten(-2)))
        assert torch.equal(W.column_rank(k), torch.linalg.matrix_rank(dense[:, :, k].flatten(-2)))
    rows = dense.reshape(-1, W.p * W.d)
    joint = W.interaction_rank(joint=True)
    assert joint == W.rank_report(joint=True).rank == int(torch.linalg.matrix_rank(rows))
    basis = operator_span(W).flatten(-2)
    close(basis @ basis.mT, torch.eye(joint, dtype=F64))
    close(rows @ basis.mT @ basis, rows)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_blocks_that_are_not_finite_are_not_ranked(kind, bad):
    W = bad * kind.operator()[0]
    for call in (
        W.interaction_rank,
        W.floor,
        W.spectrum,
        W.past_future_rank,
        lambda: W.best_heads(1),
        lambda: operator_span(W),
    ):
        with pytest.raises(ValueError, match="finite"):
            call()
    for call in (W.row_rank, W.column_rank):
        with pytest.raises(ValueError, match="finite"):
            call(2)


def test_a_tall_operator_is_read_in_parts():
    W = DenseOperator(randn(150, 150, 2, 3))
    wanted = torch.linalg.svdvals(W.to_dense().flatten(0, 1).flatten(1))
    assert torch.allclose(W.spectrum(), wanted, rtol=1e-12)
