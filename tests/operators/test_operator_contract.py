"""The contract that the library ships, kept by every kind of operator (the kinds stand in conftest.py)."""

import pytest
import torch

from ssmbook.testing import OperatorContract


class TestEveryKind(OperatorContract):
    @pytest.fixture(autouse=True)
    def made(self, kind):
        self.causal = kind.causal
        self.make = lambda random, batch, n: kind.make(random, batch, n, kind.p, kind.d)


def dense_singular_values(W):
    return torch.linalg.svdvals(W.to_dense().flatten(-4, -3).flatten(-2))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_spectrum_is_the_same_when_read_in_many_parts(kind, batch, monkeypatch):
    monkeypatch.setattr("ssmbook.operators.ranks._PART_ENTRIES", 1)
    W, _ = kind.operator(batch, 25)
    wanted = dense_singular_values(W)
    found = W.spectrum()[..., : wanted.shape[-1]]
    assert torch.allclose(found, wanted[..., : found.shape[-1]], rtol=0, atol=1e-12 * float(wanted.max()))


def test_joint_rank_is_that_of_all_blocks_of_the_batch(kind):
    W, _ = kind.operator((2,), 3)
    matrix = W.to_dense().reshape(-1, kind.p * kind.d)
    joint = W.interaction_rank(joint=True)
    assert isinstance(joint, int) and joint == int(torch.linalg.matrix_rank(matrix))
    assert joint >= int(W.interaction_rank().max())
    assert torch.equal(W.rank_report().rank, W.interaction_rank())
    assert W.rank_report(joint=True).rank == joint


def test_the_short_dtypes_are_ranked_in_float64(kind):
    W, _ = kind.operator((2,), dtype=torch.float32)
    wanted = dense_singular_values(W.to(torch.float64))
    found = W.spectrum()[..., : wanted.shape[-1]]
    assert torch.allclose(found, wanted[..., : found.shape[-1]], rtol=0, atol=1e-6 * float(wanted.max()))


@pytest.mark.parametrize("n", [2, 5])
def test_no_kind_gives_more_value_maps_than_there_can_be(kind, n):
    W, _ = kind.operator(n=n)
    most = min(n * n, W.p * W.d)
    assert W.leading_value_maps(most).shape == (most, W.p, W.d)
    with pytest.raises(ValueError, match=f"H must be between 0 and {most}; got {most + 1}"):
        W.leading_value_maps(most + 1)


def test_tokens_are_counted_from_zero_to_the_last(kind):
    W, _ = kind.operator(n=5)
    asked = (("i", (W.row, W.row_rank)), ("j", (W.column, W.column_rank)))
    for name, call in [(name, call) for name, calls in asked for call in calls]:
        for outside in (-1, 5):
            with pytest.raises(ValueError, match=f"^{name} must be between 0 and 4; got {outside}"):
                call(outside)
        with pytest.raises(TypeError, match=f"^{name} must"):
            call(1.5)
