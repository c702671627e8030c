"""The contract that the library ships, kept by every kind of operator (the kinds are in conftest.py)."""

import math

import pytest
import torch
from helpers import F64, close, randn

from ssmbook.operators import DenseOperator, operator_span
from ssmbook.testing import OperatorContract


class TestEveryKind(OperatorContract):
    @pytest.fixture(autouse=True)
    def made(self, kind):
        self.causal = kind.causal
        self.make = lambda random, batch, n: kind.make(random, batch, n, kind.p, kind.d)


PLACES = [(1, 2), (-1, 0), (2, slice(None)), (3, slice(0, 5, 2))]


def test_indices_pick_blocks(kind):
    W, _ = kind.operator((2,))
    dense = W.to_dense()
    for i, j in PLACES:
        close(W[i, j], dense[:, i, j])


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
