"""The numbers of a report against other routes: autograd, dense blocks, definitions written out."""

import pytest
import torch
from helpers import F64, randn

from ssmbook import lens
from ssmbook._count import Count
from ssmbook.gradients import gradient_profile, jacobian_blocks
from ssmbook.lens import _gradient, _layers, _measure
from ssmbook.lens._bounds import SpectrumBounds
from ssmbook.lens._capture import capture
from ssmbook.lens._frozen import Softmax
from ssmbook.maps import Attention, SelectiveSSM
from ssmbook.operators import DenseOperator, DiagonalOperator, FactorizedOperator

N = 12


def reading(model, place, text):
    layer = lens.layers(model)[place]
    calls, _ = capture(model, {layer.name: layer.module}, text)
    return layer, calls[layer.name], _layers.read(layer, calls[layer.name])


@pytest.mark.guards("prop-sigma2-highway")
@pytest.mark.parametrize("target", [0, 7, N - 1])
@pytest.mark.parametrize(
    "family", ["bert", "gpt2", "gpt_neox", "falcon", "phi3", "llama", "mistral", "gpt_oss", "qwen3_next"]
)
def test_gradients_of_softmax_heads_are_those_of_autograd(family, target, build, ids):
    model = build(family)
    place = len(lens.layers(model)) - 1
    layer, call, read = reading(model, place, ids(N))
    softmax, x = read.softmax, read.core.x
    sizes, floors = _gradient.head_gradients(softmax, x, target)
    assert not (sizes.requires_grad or floors.requires_grad)
    others = torch.arange(N) != target
    for h in range(read.heads):

        def head(x, h=h):
            # one head in the order in which it is defined: values, weights, output projection
            values = x @ softmax.W_V[h].mT + softmax.b_V[h]
            return (softmax.weights(x)[h] @ values) @ softmax.W_O[h].mT

        wanted = torch.linalg.matrix_norm(jacobian_blocks(head, x, target), ord=2)
        assert float((sizes[h] - wanted)[others].abs().max()) < 2e-6 * float(wanted.max())
    assert bool((sizes >= floors * (1 - 1e-6))[:, others].all())
    assert bool(sizes[:, target].isnan().all())
    if float(floors[:, others].max()) > 0:
        alpha = read.core.W.alpha[:, target]
        second = torch.linalg.svdvals(read.core.W.V)[:, 1]
        assert torch.allclose(floors[:, others], (alpha * second[:, None])[:, others], rtol=1e-9)


def softmax_reading(W_O, W_V, x, logits):
    """Heads whose softmax weights are the same for all tokens x, as a reader gives them."""
    alpha = logits.softmax(-1).expand(len(W_V), *logits.shape[-2:])
    W = FactorizedOperator(alpha, W_O @ W_V)
    softmax = Softmax(W_V, W_O, W_V.new_zeros(W_V.shape[:2]), lambda x: alpha + 0 * x.sum())
    return lens.Reading(lens.Frozen(W, x, W.apply(x)), softmax=softmax)


@pytest.mark.parametrize(("size", "counts"), [(1e-8, True), (1e-11, False)])
def test_a_floor_that_is_rounding_beside_another_decides_no_ratio(size, counts):
    """A wide gap between the singular values of a large head, none in that of a small one."""
    V = torch.stack([torch.diag(torch.tensor([10.0, 1.0], dtype=F64)), size * torch.eye(2, dtype=F64)])
    large, small, both = (
        _measure.gradient_against(
            softmax_reading(torch.eye(2, dtype=F64).expand_as(part), part, randn(16, 2), V.new_zeros(16, 16)),
            0,
        )["ratio"]
        for part in (V[:1], V[1:], V)
    )
    assert (large, small) == (10, 1) and both == (small if counts else large)


def test_heads_without_a_second_singular_value_have_no_floor():
    read = softmax_reading(randn(2, 3, 1), randn(2, 1, 3, seed=1), randn(16, 3), randn(16, 16, seed=2))
    found = _measure.gradient_against(read, 0)
    assert found["floor"] is None and found["ratio"] is None and found["exact"]
    assert len(found["norm"]) == 2 and min(found["norm"][0]) > 0


def test_a_weight_of_one_on_another_token_passes_its_value_map_whole():
    logits = torch.zeros(16, 16, dtype=F64)
    logits[:, 3] = 1e4
    read = softmax_reading(randn(1, 3, 2), randn(1, 2, 3, seed=1), randn(16, 3), logits)
    sizes, floors = _gradient.head_gradients(read.softmax, read.core.x, 14)
    sigma = torch.linalg.svdvals(read.core.W.V[0])
    assert sizes[0, :14].tolist() == pytest.approx([0.0] * 3 + [float(sigma[0])] + [0.0] * 10)
    assert float(floors[0, 3]) == pytest.approx(float(sigma[1]))


def test_targets_are_of_the_second_half_up_to_the_last_but_one():
    assert _gradient.targets(8) == [4, 6] and _gradient.targets(256) == [128, 192, 254]


@pytest.mark.parametrize(("H", "many"), [(64, False), (65, True)])
def test_more_than_64_heads_are_summed_up(H, many):
    texts = [{"first": torch.linspace(0, 1, H)}] * 2
    heads, quantiles = _measure._heads(texts)
    assert quantiles is many and len(heads["first"]) == (11 if many else H)
    assert heads["first"][0] == 0 and heads["first"][-1] == 1


@pytest.mark.parametrize(("d", "wide"), [(512, False), (513, True)])
def test_more_than_512_channels_are_wide(d, wide):
    channels = DenseOperator(torch.ones(d, 1, 1, 1, 1))
    assert _measure._wide(DiagonalOperator(channels)) is wide
    assert not _measure._wide(FactorizedOperator(torch.ones(1, 1, 1), torch.ones(1, d, d)))


@pytest.mark.parametrize(("missing", "sink"), [(1e-7, False), (1e-5, True)])
def test_what_float32_rounds_off_a_row_is_no_sink(missing, sink):
    rows = (1 - missing) * torch.eye(9, dtype=F64)[None, ..., None, None]
    assert ("outside" in _measure.head_statistics(DenseOperator(rows), softmax=True)) is sink
    assert "outside" not in _measure.head_statistics(DenseOperator(rows), softmax=False)


def test_64_singular_values_are_kept_over_the_largest():
    sigma = torch.linspace(2, 1, 70, dtype=F64)
    found, small = _measure.counted(sigma), _measure.counted(1e-12 * sigma)
    assert (found.rank, found.spectrum) == (70, pytest.approx((sigma / 2)[:64].tolist(), rel=1e-5))
    assert small == found and not found.at_most


@pytest.mark.parametrize(("eps", "size"), [("0.1", 10), ("0.01", 100), ("0.001", 1000)])
def test_heads_that_leave_exactly_the_fraction_are_enough(eps, size):
    assert _measure.counted(torch.ones(size, dtype=F64)).counts[eps] == size - 1


@pytest.mark.parametrize("family", ["mamba", "mamba2", "recurrent_gemma"])
def test_probed_gradients_are_lower_bounds_and_whole_when_all_directions_are_taken(
    family, build, ids, monkeypatch
):
    _, _, read = reading(build(family), 0, ids(N))
    x = read.mixer.x
    wanted = gradient_profile(read.F, x, N - 2)[1].flip(0)
    seed = torch.Generator().manual_seed(0)
    few = _gradient.probed_gradients(read.F, x, N - 2, seed)
    assert bool((few[: N - 1] <= wanted * (1 + 1e-9)).all())
    assert float(few.nan_to_num().max()) > 0.1 * float(wanted.max())
    monkeypatch.setattr(_gradient, "PROBES", 24)
    assert torch.allclose(_gradient.probed_gradients(read.F, x, N - 2, seed)[: N - 1], wanted, rtol=1e-9)


def test_the_layer_as_a_function_is_the_mixer(build, ids):
    for family in ("mamba", "falcon_mamba", "mamba2", "bamba", "recurrent_gemma", "qwen3_next"):
        _, _, read = reading(build(family), 0, ids(N))
        assert torch.equal(read.F(read.mixer.x), read.mixer.y)


def test_bins_hold_every_distance_once():
    assert _gradient.distance_bins(20) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert _gradient.distance_bins(2) == [1]
    for n, target in ((20, 13), (9, 0), (33, 32)):
        ones = _gradient.binned(torch.ones(3, n, dtype=F64), target)
        assert ones.shape == (3, len(_gradient.distance_bins(n)))
        assert bool(((ones == 1) | ones.isnan()).all())
    lag = (torch.arange(20, dtype=F64) - 13).abs()
    assert _gradient.binned(lag, 13)[:5].tolist() == pytest.approx([1, 2, 3, 4.5, 19 / 3])


def floor_by_definition(blocks, H):
    """The energy that no H heads reach: what is left after projecting on the H best value maps."""
    rows = blocks.flatten(0, 1).flatten(1)
    U, sigma, Vh = torch.linalg.svd(rows, full_matrices=False)
    best = (U[:, :H] * sigma[:H]) @ Vh[:H]
    return float((rows - best).square().sum() / rows.square().sum())


def test_counts_are_the_fewest_heads_of_the_dense_blocks(build, ids):
    model = build("gpt2", 1)
    texts = [ids(N, seed=s) for s in (0, 1)]
    reads = [reading(model, 1, text)[2] for text in texts]
    found = _measure.measure(reads, 0, False)
    for t, read in enumerate(reads):
        blocks, x = read.core.W.to_dense(), read.core.x
        root = torch.linalg.cholesky(x.mT @ x / N + 1e-13 * torch.eye(x.shape[-1], dtype=F64))
        for eps in _measure.EPSILONS:
            key = f"{eps:g}"
            for kept, given in ((found.counts, blocks), (found.weighted, blocks @ root)):
                H = kept[key][t]
                assert floor_by_definition(given, H) <= eps < floor_by_definition(given, H - 1)
    both = torch.cat([read.core.W.to_dense() for read in reads])
    for eps in _measure.EPSILONS:
        H = found.common[f"{eps:g}"]
        assert floor_by_definition(both, H) <= eps < floor_by_definition(both, H - 1)
        assert H >= max(found.counts[f"{eps:g}"]) - 1
    assert found.rank == [5, 5]


def test_planted_heads_are_counted():
    V = randn(4, 5, 6)
    alpha = randn(4, 9, 9, seed=1).tril()
    alpha[2] = 0.5 * alpha[0] - alpha[1]
    x = randn(9, 6, seed=2)
    W = FactorizedOperator(torch.cat([alpha[:3], alpha[:1]]), torch.cat([V[:3], V[:1]]))
    read = lens.Reading(lens.Frozen(W, x, W.apply(x)))
    found = _measure.measure([read], 0, False)
    # three value maps, two coefficient tables: two heads are enough
    assert found.rank == [2] and found.common == {"0.1": 2, "0.01": 2, "0.001": 2} and read.heads == 4
    dense = lens.Reading(lens.Frozen(DenseOperator(W.to_dense()), x, W.apply(x)))
    other = _measure.measure([dense], 0, False)
    assert (other.rank, other.counts, other.weighted) == (found.rank, found.counts, found.weighted)
    assert dense.heads == 1 and set(other.heads) == {"first", "distance", "states", "states_1%"}


def test_a_batch_of_frozen_maps_takes_one_input_for_all():
    factors, x = randn(2, 1, 1), randn(9, 6, seed=1)
    W = lens.FrozenMap([lambda y: factors * y], x, (2,), 9, 6, 6)
    torch.testing.assert_close(W @ x, factors * x)
    same = lens.FrozenMap([lambda y: 2 * y], x, (2,), 9, 6, 6)
    torch.testing.assert_close(same @ x, (2 * x).expand(2, 9, 6))


def test_head_statistics_by_their_definitions():
    n, alpha = 10, torch.zeros(4, 10, 10, dtype=F64)
    i = torch.arange(n)
    alpha[0, i, i] = 1
    alpha[1, :, 0] = 1
    alpha[2] = torch.ones(n, n, dtype=F64).tril() / (i[:, None] + 1)
    alpha[3] = (0.4 * 0.5 ** (i[:, None] - i).clamp_min(0)).to(F64).tril()
    mixing = DenseOperator(alpha[..., None, None])
    found = _measure.head_statistics(mixing, softmax=True)
    assert found["first"][:2].tolist() == [0, 1]
    # tokens 1 to 9 weigh the first among i + 1 alike: the mean of 1/2, ..., 1/10
    assert float(found["first"][2]) == pytest.approx(sum(1 / k for k in range(2, 11)) / 9)
    assert found["distance"][:3].tolist() == pytest.approx([0, 4.5, 2.25])
    assert found["states"].tolist() == mixing.past_future_rank().tolist() == [0, 1, 1, 1]
    assert float(found["outside"][1]) == 0 and 0.2 < float(found["outside"][3]) < 0.4
    assert "outside" not in _measure.head_statistics(DenseOperator(alpha[:3, ..., None, None]), softmax=True)
    both_ways = DenseOperator(randn(1, n, n, 1, 1))
    assert "states" not in _measure.head_statistics(both_ways, softmax=False)


@pytest.mark.parametrize(("second", "share", "states"), [(0.12, 0.0142, 2), (0.08, 0.0064, 1)])
def test_states_for_all_but_a_hundredth_of_the_energy(second, share, states):
    assert second**2 / (1 + second**2) == pytest.approx(share, rel=0.01)
    alpha = torch.eye(4, dtype=F64)
    alpha[2, 0], alpha[3, 1] = 1, second  # from the past to the future, beside the tokens' own weights
    found = _measure.head_statistics(DenseOperator(alpha[None, ..., None, None]), softmax=False)
    assert (int(found["states"]), int(found["states_1%"])) == (2, states)


@pytest.mark.parametrize("family", ["gpt2", "mamba", "mamba2", "recurrent_gemma", "qwen3_next"])
def test_states_at_the_middle_are_at_most_the_past_future_rank(family, build, ids):
    _, _, read = reading(build(family), 0, ids(N))
    most = read.mixing.past_future_rank()
    assert bool((_measure.statistics(read)["states"] <= most).all())
    assert most.shape == (read.heads,)


@pytest.mark.parametrize("family", ["gpt2", "mamba", "mamba2", "recurrent_gemma"])
def test_counts_are_those_of_the_operators_own_floor(family, build, ids):
    reads = [reading(build(family), 0, ids(N, seed=seed))[2] for seed in (0, 1)]
    found = _measure.measure(reads, 0, False)
    for t, read in enumerate(reads):
        W, x = read.core.W, read.core.x
        moments = x.mT @ x / N
        for eps in _measure.EPSILONS:
            assert found.counts[f"{eps:g}"][t] == W.epsilon_heads(eps)
            assert found.weighted[f"{eps:g}"][t] == W.epsilon_heads(eps, channel_covariance=moments)
        assert found.rank[t] == W.interaction_rank()
    pooled = sum(read.core.x.mT @ read.core.x for read in reads)
    root = torch.linalg.cholesky(pooled + 1e-12 * torch.eye(len(pooled), dtype=F64))
    blocks = torch.cat([read.core.W.to_dense() for read in reads])
    for given, kept in ((blocks, found.common), (blocks @ root, found.common_weighted)):
        sigma = torch.linalg.svdvals(given.flatten(0, 1).flatten(1))
        tails = sigma.flip(0).square().cumsum(0).flip(0) / sigma.square().sum()
        assert kept == {f"{eps:g}": int((tails > eps).sum()) for eps in _measure.EPSILONS}


def test_a_wide_layer_is_counted_by_certified_bounds(build, ids, monkeypatch):
    reads = [reading(build("mamba"), 0, ids(N, seed=seed))[2] for seed in (0, 1)]
    exact = _measure.measure(reads, 0, False)
    monkeypatch.setattr(_measure, "_WIDE", 40)
    wide = _measure.measure(reads, 0, False)
    assert wide.common == {} and wide.heads == exact.heads and not exact.at_most
    assert wide.spectrum[0] == exact.spectrum[0] == 1
    for kept, other in ((wide.counts, exact.counts), (wide.weighted, exact.weighted)):
        assert kept == other
    assert all(a >= b for a, b in zip(wide.rank, exact.rank, strict=True))
    monkeypatch.setattr(_measure, "_SPECTRUM", 2)
    assert _measure.measure(reads, 0, False).spectrum == wide.spectrum[:2]
    monkeypatch.setattr(SpectrumBounds, "rank", lambda self: Count(7, 9, "bounds"))  # one of four is open
    loose = _measure.measure(reads, 0, False)
    assert loose.at_most and loose.rank == [9, 9] and loose.counts == wide.counts


def test_states_of_a_selective_layer_are_its_states(build, ids):
    model = build("mamba")
    found = lens.report(model, ids(2, 24), permuted=False, gradient=False)
    assert all(set(layer.trained.heads["states"]) == {4.0} for layer in found.layers)


def test_permuted_weights_keep_their_entries_and_nothing_else_moves(build):
    module = build("mamba").layers[0].mixer
    before = {name: p.clone() for name, p in module.named_parameters()}
    _measure.permute_weights(3)(module)
    for name, p in module.named_parameters():
        matrix = name in {
            "in_proj.weight",
            "x_proj.weight",
            "dt_proj.weight",
            "out_proj.weight",
            "conv1d.weight",
        }
        assert torch.equal(p.flatten().sort().values, before[name].flatten().sort().values)
        assert torch.equal(p, before[name]) is not matrix
    again = build("mamba").layers[0].mixer
    _measure.permute_weights(3)(again)
    assert all(torch.equal(p, q) for p, q in zip(module.parameters(), again.parameters(), strict=True))


def test_permuted_weights_of_the_maps_of_the_book():
    for layer in (Attention(4, 4, H=2, head_width=3), SelectiveSSM(4, N=3)):
        before = {name: p.clone() for name, p in layer.named_parameters()}
        _measure.permute_weights(3)(layer)
        for name, p in layer.named_parameters():
            assert torch.equal(p.flatten().sort().values, before[name].flatten().sort().values)
            assert torch.equal(p, before[name]) is not name.startswith("W_")


def test_wide_layers_are_summed_up_by_quantiles(build, ids):
    layer = lens.report(build("mamba", 1), ids(16), permuted=False, gradient=False).layers[0]
    assert layer.H == 80 and layer.trained.quantiles
    first = layer.trained.heads["first"]
    assert len(first) == 11 and first == sorted(first)


def test_a_layer_that_writes_nothing_has_no_heads_to_count():
    W = FactorizedOperator(torch.zeros(2, 9, 9, dtype=F64), randn(2, 3, 3))
    x = randn(9, 3)
    found = _measure.measure([lens.Reading(lens.Frozen(W, x, W.apply(x)))], 0, False)
    assert found.rank == [0] and found.counts["0.001"] == [0] and found.spectrum == []
    assert (
        _measure.gradient_against(lens.Reading(lens.Frozen(W, x, W.apply(x))), 0) is None
    )  # no function of x
