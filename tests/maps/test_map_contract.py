"""The contracts that the library ships, kept by every map of the zoo."""

import inspect
import math

import pytest
import torch

import ssmbook.maps
from ssmbook.maps import RecurrentMap, SequenceMap, architectures, zoo
from ssmbook.testing import MapContract, RecurrentMapContract

D, P, LENGTH = 4, 3, 9
NAMES = tuple(zoo(D, P, LENGTH))


def test_every_public_map_is_in_the_zoo_and_so_held_to_the_contract():
    public = [getattr(ssmbook.maps, name) for name in ssmbook.maps.__all__]
    maps = {kind for kind in public if isinstance(kind, type) and issubclass(kind, SequenceMap)}
    missing = {kind for kind in maps if not inspect.isabstract(kind)}
    missing -= {type(layer) for layer in zoo(D, P, LENGTH).values()}
    assert not missing, f"architectures.py has no entry of the zoo for {missing}"


def test_the_maps_with_a_skip_have_one():
    layers = zoo(D, P, LENGTH)
    skips = {
        name: dict(layers[name].named_parameters()).get("D") for name in ("LTI SSM", "LTI SSM with skip")
    }
    assert skips["LTI SSM"] is None and skips["LTI SSM with skip"].abs().min() > 0


ZOOS = {}


def make(name, dtype=torch.float64):
    """One map of the zoo; the zoo of each dtype is drawn once."""
    if dtype not in ZOOS:
        ZOOS[dtype] = zoo(D, P, LENGTH, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return ZOOS[dtype][name]


RECURRENT = tuple(name for name in NAMES if isinstance(make(name), RecurrentMap))


class TestEveryMap(MapContract):
    @pytest.fixture(autouse=True, params=sorted(set(NAMES) - set(RECURRENT)))
    def made(self, request):
        self.make = lambda **new: zoo(D, P, LENGTH, **new)[request.param]


class TestEveryRecurrentMap(RecurrentMapContract):
    @pytest.fixture(autouse=True, params=RECURRENT)
    def made(self, request):
        self.make = lambda **new: zoo(D, P, LENGTH, **new)[request.param]


def test_the_zoo_is_what_the_contracts_run_through():
    assert len(NAMES) >= 26 and len(RECURRENT) >= 14


def test_without_sizes_the_zoo_has_two_heads_of_three_channels_and_four_states():
    """Narrower than the tokens of these tests, so that no value map is of full rank by accident."""
    maps = zoo(5, 5, LENGTH)
    assert maps["attention"].W_V.shape == maps["RetNet"].W_V.shape == (2, 3, 5)
    assert maps["convolution"].interaction(torch.zeros(LENGTH, 5).double()).interaction_rank() == 3  # taps
    assert [maps[name].N for name in ("RNN", "SSD", "LTI SSM", "S4D", "selective SSM, zoh")] == [4] * 5


def test_maps_that_differ_in_one_option_are_what_their_names_say():
    maps = zoo(D, P, LENGTH, dtype=torch.float64)
    assert [maps[name].frequency is None for name in ("S4D", "S4D, real")] == [False, True]
    assert [maps[f"selective SSM, {rule}"].discretization for rule in ("zoh", "Euler")] == ["zoh", "euler"]
    sums = maps["linear attention, normalized"].coefficients(torch.ones(LENGTH, D).double()).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_attention_without_a_query_shows_its_mask_bias_and_sink():
    """With all logits 0 a row is what its name adds: nothing, a slope of the distance, a sink, the future."""
    maps, position = zoo(D, P, LENGTH, dtype=torch.float64), torch.arange(LENGTH).double()
    found = {}
    for name, m in maps.items():
        if name.startswith("attention"):
            torch.nn.init.zeros_(m.W_Q)
            found[name] = m.coefficients(torch.ones(LENGTH, D, dtype=torch.float64)).detach()
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.float64).tril()
    even = (seen / (position + 1)[:, None]).expand(2, -1, -1)
    torch.testing.assert_close(found["attention"], even)
    torch.testing.assert_close(found["attention, not causal"], torch.full_like(even, 1 / LENGTH))
    torch.testing.assert_close(found["attention, sink"], (seen / (position + 2)[:, None]).expand(2, -1, -1))
    nearer = (
        torch.exp(-torch.tensor([2.0**-4, 2.0**-8])[:, None, None] * (position[:, None] - position)) * seen
    )
    torch.testing.assert_close(found["attention, ALiBi"], nearer / nearer.sum(-1, keepdim=True))
    odds = found["attention, relative bias"] / found["attention, relative bias"][..., :1]
    by_lag = maps["attention, relative bias"].bias.detach()
    assert by_lag.shape == (2, LENGTH) and by_lag.std() > 0.1
    torch.testing.assert_close(odds[:, -1].log(), by_lag.flip(1) - by_lag[:, -1:])


@pytest.mark.parametrize("name", NAMES)
def test_messages_name_the_argument_what_came_and_what_was_wanted(name):
    m = make(name)
    zeros = torch.zeros(5, D, dtype=torch.float64)
    bad = [
        (zeros[:, :-1], ValueError, r"x must have shape \(\.\.\., n, d\) with d = 4; got \(5, 3\)"),
        (
            zeros.float(),
            TypeError,
            "x must have the dtype of the parameters, torch.float64; got torch.float32",
        ),
        (zeros.long(), TypeError, "x must be a floating-point torch.Tensor; got dtype torch.int64"),
        (zeros.tolist(), TypeError, "x must be a floating-point torch.Tensor; got list"),
        (zeros.to("meta"), ValueError, "x must"),
    ]
    for x, error, message in bad:
        for call in (m, m.interaction):
            with pytest.raises(error, match=message):
                call(x)


@pytest.mark.parametrize("name", RECURRENT)
def test_messages_name_the_state(name):
    m = make(name)
    state, x_t = m.initial_state((2,)), torch.zeros(2, D, dtype=torch.float64)
    small = state[..., :1, :-1] if state.dim() > 2 else state[..., :-1]
    other = torch.complex64 if state.is_complex() else torch.float32
    bad = [
        (lambda: m.step(x_t, m.initial_state()), ValueError, "state must"),
        (lambda: m.run(x_t[:, None].expand(2, 5, D), small), ValueError, "state must"),
        (lambda: m.step(x_t, []), TypeError, "state must be a floating-point .*; got list"),
        (lambda: m.step(x_t, state.to(other)), TypeError, "state must have the dtype of the initial state"),
        (lambda: m.step(x_t[:, :3], state), ValueError, r"x_t must have shape \(\.\.\., d\) with d = 4; got"),
    ]
    for call, error, message in bad:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("name", NAMES)
def test_matrices_are_drawn_with_variance_one_over_what_they_sum_over(name):
    """So that outputs keep the size of inputs, whatever the widths: within 5 deviations of the estimate."""
    m = zoo(40, 50, LENGTH, generator=torch.Generator().manual_seed(1))[name]
    for path, W in m.named_parameters():
        leaf = path.rpartition(".")[2]
        linear = leaf in ("B", "C", "D") and W.ndim == 2  # of a state: A is scaled by its radius
        if leaf.startswith("W_") or leaf in ("K", "slopes") or linear:
            # Over heads, over steps; a KAN reads one hat of its grid, not the sum of all.
            summed = W.shape[-2] if leaf == "slopes" else W.shape[-1]
            summed *= W.shape[0] if leaf in ("W_O", "K") else 1
            assert abs(W.std() * summed**0.5 - 1) < 5 / (2 * W.numel()) ** 0.5, path


def counted_from_one(value):
    return torch.arange(1, value.shape[-1] + 1).double().expand(value.shape)


# What a map starts with beside its random matrices: (kind, parameter or buffer) -> the value, read from it.
STARTS = {
    ("GLA", "b_a"): torch.zeros_like,
    ("DeltaNet", "b_beta"): torch.zeros_like,
    ("RetNet", "decay"): lambda value: 1 - 2.0 ** -(counted_from_one(value) + 4),
    ("SSD", "log_A"): lambda value: counted_from_one(value).log(),
    ("SelectiveSSM", "log_A"): lambda value: counted_from_one(value).log(),
    ("SelectiveSSM", "D"): torch.ones_like,
    ("DiagonalSSM", "log_decay"): lambda value: torch.full_like(value, math.log(0.5)),
    ("S4D, real", "log_decay"): lambda value: counted_from_one(value).log(),
    ("DiagonalSSM", "frequency"): lambda value: math.pi * (counted_from_one(value) - 1),
}
DRAWN = {"A", "B", "C", "D", "K", "bias", "slopes", "b_delta", "log_delta"}  # and each W_…


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_drawn_starts_as_documented(name):
    for module in make(name).modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for leaf, value in own:
            kind, value = type(module).__name__, value.detach()
            start = STARTS.get((name, leaf)) or STARTS.get((kind, leaf))
            if start:
                torch.testing.assert_close(value, start(value))
            else:
                assert leaf in DRAWN or leaf.startswith("W_"), f"{kind}.{leaf} is in neither table"
                assert value.unique().numel() == value.numel(), f"{kind}.{leaf} repeats numbers"


@pytest.mark.parametrize("name", NAMES)
def test_on_meta_shapes_alone_are_had(name):
    x = torch.empty(2, 5, D, dtype=torch.float64, device="meta")
    m, twin = zoo(D, P, LENGTH, device="meta")[name], make(name)
    assert all(t.is_meta for t in m.state_dict().values())
    y = m(x)
    assert y.is_meta and y.shape == twin(torch.zeros(2, 5, D, dtype=torch.float64)).shape
    assert m.interaction(x).to_dense().is_meta


STEPPED = [name for name in NAMES if {"log_delta", "b_delta"} & dict(make(name).named_parameters()).keys()]


@pytest.mark.parametrize("name", STEPPED)
def test_steps_are_drawn_log_uniformly_between_a_thousandth_and_a_tenth(name):
    m = zoo(120, 120, 1, H=120, head_width=1, generator=torch.Generator().manual_seed(2))[name]
    steps = m.log_delta.exp() if hasattr(m, "log_delta") else torch.nn.functional.softplus(m.b_delta)
    assert len(steps) == 120 and steps.min() > 0.999e-3 and steps.max() < 0.1001
    thirds = torch.histc(steps.log10(), 3, -3, -1)
    assert thirds.min() > 40 - 25 and abs(steps.log10().mean() + 2) < 0.3
    assert steps.min() < 1.2e-3 and steps.max() > 0.08  # the whole range: else one draw in 400 sets of 120


def test_the_zoo_has_as_many_draws_as_there_are_seeds(monkeypatch):
    """One number from the generator seeds it, of 31 bits: forty draws have forty different maps."""
    factories = {"one": lambda new: torch.rand(1, generator=new["generator"])}
    monkeypatch.setattr(architectures, "_factories", lambda **sizes: factories)
    generator = torch.Generator().manual_seed(0)
    assert len({float(zoo(2, 2, 3, generator=generator)["one"]) for _ in range(40)}) == 40
