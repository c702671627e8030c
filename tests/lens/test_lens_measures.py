"""The numbers of a report by another route: dense blocks, planted heads, definitions written out."""

import pytest
import torch
from helpers import F64, randn
from torch import nn

from ssmbook import lens
from ssmbook.operators import DiagonalOperator, FactorizedOperator
from ssmbook.operators.recurrent import ModalOperator

N = 12
EPS = ("0.1", "0.01", "0.001")


class PlantedMixer(nn.Module):
    """Holds an operator that its reader returns; ``seen`` collects what the reader found in ``weight``."""

    def __init__(self, W):
        super().__init__()
        self.planted, self.seen = [W], []
        self.weight, self.bias = nn.Parameter(torch.arange(6.0).view(2, 3)), nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        return self.planted[0] @ x

    def __deepcopy__(self, memo):
        twin = PlantedMixer(self.planted[0])
        twin.seen = self.seen
        return twin


@lens.register("PlantedMixer")
def read(mixer, call):
    mixer.seen.append((mixer.weight.clone(), mixer.bias.clone()))
    x = call.one(call.x)
    return lens.Reading(lens.LayerOperator(mixer.planted[0], x=x, y=mixer(x)))


def measured(W, x, **options):
    return lens.report(PlantedMixer(W).eval(), x, **{"permuted": False, "gradient": False, **options}).layers[
        0
    ]


def count(blocks, eps):
    """The fewest value maps that leave at most eps of the energy of blocks (rows, p, d)."""
    sigma = torch.linalg.svdvals(blocks.flatten(1))
    tails = sigma.flip(0).square().cumsum(0).flip(0) / sigma.square().sum()
    return int((tails > eps).sum())


@pytest.mark.parametrize("family", ["gpt2", "mamba", "mamba2", "recurrent_gemma", "qwen3_next"])
def test_counts_are_those_of_the_dense_blocks(build, ids, family):
    model, texts = build(family), ids(2, N)
    layer = lens.layers(model)[0]
    found = lens.report(model, texts, permuted=False, gradient=False).layers[0].trained
    reads = [lens.operator(layer, text) for text in texts]
    blocks = [read.W.to_dense().flatten(0, 1) for read in reads]
    for eps in EPS:
        assert found.counts[eps] == [count(each, float(eps)) for each in blocks]
        assert found.common[eps] == count(torch.cat(blocks), float(eps))
    assert found.rank == [int(torch.linalg.matrix_rank(each.flatten(1), rtol=1e-10)) for each in blocks]
    sigma = torch.linalg.svdvals(torch.cat(blocks).flatten(1))
    spectrum = torch.tensor(found.spectrum, dtype=F64)
    torch.testing.assert_close(spectrum, (sigma / sigma[0])[: len(spectrum)], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dead", [0, 3])
def test_a_wide_layer_is_counted_as_exactly(dead):
    """Of 512 channels and more by a Gram matrix, and by QR where some channels repeat others."""
    d, n = 520, 34
    log_decay = -torch.rand(d, n, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    B, C = randn(d, n, 2, 1, seed=1), randn(d, n, 1, 2, seed=2)
    for part in (log_decay, B, C):
        part[:dead] = part[dead : 2 * dead]
    W = DiagonalOperator(ModalOperator(log_decay, B, C))
    found = measured(W, randn(n, d, seed=3)).trained
    sigma = torch.linalg.svdvals(W.channels.to_dense().view(d, n * n).mT)
    tails = sigma.flip(0).square().cumsum(0).flip(0) / sigma.square().sum()
    assert found.rank == [d - dead]
    assert found.counts == {eps: [int((tails > float(eps)).sum())] for eps in EPS}
    torch.testing.assert_close(
        torch.tensor(found.spectrum, dtype=F64), (sigma / sigma[0])[:64], rtol=1e-5, atol=0
    )


def test_planted_heads_are_counted_and_looked_at():
    alpha = torch.zeros(4, 10, 10, dtype=F64)
    i = torch.arange(10)
    alpha[0, i, i] = 1
    alpha[1, :, 0] = 1
    alpha[2] = torch.ones(10, 10, dtype=F64).tril() / (i[:, None] + 1)
    alpha[3] = 0.5 * alpha[0] - alpha[1]  # no third table
    V = randn(4, 5, 6)
    V[2] = V[1] - V[0]
    found = measured(FactorizedOperator(alpha, V), randn(10, 6, seed=2))
    assert (found.n, found.p, found.d, found.H) == (10, 5, 6, 4)
    assert found.trained.rank == [3] and found.trained.common["0.001"] <= 3
    heads = found.trained.heads
    assert heads["first"][:2] == [0, 1] and heads["distance"][:3] == pytest.approx([0, 4.5, 2.25])
    # tokens 1 to 9 weigh the first among i + 1 alike: the mean of 1/2, ..., 1/10
    assert heads["first"][2] == pytest.approx(sum(1 / k for k in range(2, 11)) / 9, rel=1e-5)
    assert heads["states"][:3] == [0, 1, 1] and "outside" not in heads
    zero = measured(FactorizedOperator(0 * alpha, V), randn(10, 6, seed=2)).trained
    assert zero.rank == [0] and zero.counts["0.001"] == [0] and zero.spectrum == []


def test_states_sinks_and_quantiles_of_trained_kinds(build, ids):
    few = {"permuted": False, "gradient": False}
    found = lens.report(build("mamba"), ids(2, 24), **few)
    assert all(set(layer.trained.heads["states"]) == {4.0} for layer in found.layers)
    assert min(lens.report(build("gpt_oss"), ids(2, 24), **few).layers[0].trained.heads["outside"]) > 0
    both_ways = lens.report(build("bert"), ids(2, 24), **few).layers[0].trained.heads
    assert "states" not in both_ways and "outside" not in both_ways
    wide = lens.report(build("mamba", 1), ids(16), **few).layers[0]
    assert wide.H == 80 and len(wide.trained.heads["first"]) == 11


def test_permuted_weights_keep_their_entries_and_biases_stay():
    mixers = [
        PlantedMixer(FactorizedOperator(torch.ones(1, 8, 8, dtype=F64), torch.eye(2, dtype=F64)[None]))
        for _ in "ab"
    ]
    for seed, mixer in enumerate(mixers):
        lens.report(mixer.eval(), randn(8, 2), seed=seed, gradient=False)
    (plain, bias), (moved, _) = mixers[0].seen
    assert torch.equal(plain, torch.arange(6.0).double().view(2, 3)) and torch.equal(
        bias, mixers[0].bias.double()
    )
    assert torch.equal(moved.flatten().sort()[0], plain.flatten()) and not torch.equal(moved, plain)
    assert torch.equal(mixers[0].seen[1][1], bias) and not torch.equal(mixers[1].seen[1][0], moved)
