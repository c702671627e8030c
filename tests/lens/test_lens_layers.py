"""Which layers the lens finds, what it says of the others, and what it refuses to read."""

import copy

import pytest
import torch
from helpers import F64
from torch import nn

from ssmbook import lens, maps
from ssmbook.lens import _capture, _frozen, _readers
from ssmbook.lens._readers.attention import is_bert, is_projected, is_stacked
from ssmbook.operators import FactorizedOperator


def named(model):
    return [(layer.name, layer.kind, layer.family) for layer in lens.layers(model)]


def test_a_hybrid_is_found_layer_by_layer(build):
    assert named(build("jamba")) == [
        ("layers.0.mamba", "JambaMambaMixer", "selective SSM"),
        ("layers.1.self_attn", "JambaAttention", "attention"),
    ]
    assert named(build("recurrent_gemma")) == [
        ("layers.0.temporal_block", "RecurrentGemmaRecurrentBlock", "RG-LRU"),
        ("layers.1.temporal_block", "RecurrentGemmaRecurrentBlock", "RG-LRU"),
        ("layers.2.temporal_block", "RecurrentGemmaAttention", "attention"),
    ]
    assert [family for *_, family in named(build("qwen3_next"))] == ["gated DeltaNet", "attention"]


def test_layers_of_any_module_and_a_mixer_alone(build, ids):
    block = nn.ModuleDict({"a": build("mamba"), "b": nn.Linear(3, 3)})
    assert [name for name, *_ in named(block)] == ["a.layers.0.mixer", "a.layers.1.mixer"]
    mixer = build("mamba").layers[0].mixer
    (layer,) = lens.layers(mixer)
    x = torch.randn(9, 24, generator=torch.Generator().manual_seed(0))
    for frozen in (lens.operator(mixer, x, "mixer"), lens.operator(layer, x, "mixer")):
        with torch.no_grad():
            wanted = mixer(x[None])[0].double()
        gap = (frozen.W.apply(x.double()) + frozen.offset - wanted).abs().max()
        assert float(gap) < 1e-5 * float(wanted.abs().max())
    assert lens.layers(layer.module)[0].model is mixer
    assert repr(layer) == "MixingLayer(name='', family='selective SSM')"  # its weights are no line to read


def test_the_maps_of_the_book_stand_under_the_lens_too():
    seed = torch.Generator().manual_seed(0)
    model = nn.Sequential(
        maps.SSD(5, 6, H=2, head_width=3, N=4, generator=seed, dtype=F64),
        nn.Tanh(),
        maps.SelectiveSSM(6, N=3, generator=seed, dtype=F64),
    ).eval()
    x = torch.randn(8, 5, generator=seed, dtype=F64)
    for layer in lens.layers(model):
        frozen = lens.operator(layer, x)
        assert layer.family == "map of the book" and frozen.miss() < 1e-12
        assert torch.equal(frozen.W.to_dense(), layer.module.interaction(frozen.x).to_dense())


def test_the_models_own_arguments_are_inputs_too(build, ids):
    model, text = build("llama"), ids(1, 9)
    layer = lens.layers(model)[1]
    given = {"input_ids": text, "attention_mask": torch.ones_like(text), "use_cache": True}
    found, wanted = lens.operator(layer, given), lens.operator(layer, text)
    assert found.W.batch_shape == (1,) and torch.equal(found.W.to_dense(), wanted.W.to_dense())
    assert given["use_cache"] is True  # left as it was


def test_layers_that_look_at_another_text_are_left_out():
    parts = {name: maps.SSD(4, 4, H=1, head_width=2, N=3) for name in ("own", "cross", "encoder_attn")}
    assert [layer.name for layer in lens.layers(nn.ModuleDict(parts))] == ["own"]


def test_a_mixer_by_name_that_has_no_parameters_is_no_layer():
    plain = type("FlashAttention", (nn.Module,), {})
    model = nn.ModuleDict({"mixer": maps.SSD(4, 4, H=1, head_width=2, N=3), "kernel": plain()})
    assert [layer.name for layer in lens.layers(model)] == ["mixer"]


def test_the_miss_is_relative_to_the_largest_output_and_absolute_where_there_is_none():
    W = FactorizedOperator(torch.eye(4, dtype=F64)[None], torch.eye(2, dtype=F64)[None])
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    for size in (1e-6, 1.0, 1e6):
        assert lens.Frozen(W, 1.25 * size * x, size * x).miss() == pytest.approx(0.25)
    assert lens.Frozen(W, x, 0 * x).miss() == float(x.abs().max())


@pytest.mark.parametrize("family", ["mamba", "mamba2"])
def test_a_short_convolution_may_do_without_a_bias(family, build, ids):
    model = build(family)
    layer = lens.layers(model)[0]
    layer.module.conv1d.bias = None
    for part in ("core", "mixer"):
        assert lens.operator(layer, ids(9), part).miss() < 1e-5


def test_what_is_no_number_or_no_matrix_is_named():
    W, x = FactorizedOperator(torch.ones(1, 4, 4), torch.ones(1, 2, 2)), torch.ones(4, 2)
    for which, given in (("input", (torch.inf * x, x)), ("output", (x, torch.inf * x))):
        with pytest.raises(ValueError, match=f"the {which} of a layer must be finite"):
            _frozen.check_frozen("a layer", lens.Frozen(W, *given))
    with pytest.raises(TypeError, match="q_proj must be a floating-point torch.Tensor; got NoneType"):
        _frozen.linear("q_proj", nn.Identity())


def test_float32_is_allowed_its_rounding():
    W, x = FactorizedOperator(torch.ones(1, 4, 4), torch.ones(1, 2, 2)), torch.ones(4, 2)
    assert lens.Frozen(W, x, x).tolerance == lens.Frozen(W, x, x.double(), casts=True).tolerance == 1e-5
    assert lens.Frozen(W, x, x.double()).tolerance == 1e-10


@pytest.mark.parametrize("family", ["bert", "jamba", "mamba2", "recurrent_gemma", "qwen3_next"])
def test_an_operator_is_batched_as_the_inputs_were(build, ids, family):
    model, text = build(family), ids(9)
    for layer in lens.layers(model):
        alone, batch = lens.operator(layer, text), lens.operator(layer, text[None])
        rank = alone.W.interaction_rank()
        assert alone.W.batch_shape == () and isinstance(rank, int)
        assert batch.W.batch_shape == (1,) and batch.W.interaction_rank().tolist() == [rank]


class GatedMixer(nn.Module):
    """A mixer that no reader knows: y_i = sigmoid(w . x_i) times the mean of the tokens so far."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

    def forward(self, x):
        seen = torch.arange(1, x.shape[-2] + 1, dtype=x.dtype)[:, None]
        return torch.sigmoid(x @ self.w)[..., None] * x.cumsum(-2) / seen


@pytest.fixture
def families():
    """The registry, put back as it was."""
    before = list(_readers.FAMILIES)
    yield
    _readers.FAMILIES[:] = before


def test_an_unknown_mixer_is_named_with_the_lines_that_register_one(families):
    model = nn.ModuleDict({"deep": nn.Sequential(GatedMixer())}).eval()
    with pytest.raises(ValueError, match=r"got GatedMixer \(deep.0\)") as refusal:
        lens.layers(model)
    assert refusal.value.args[0].count("\n") == 3
    with pytest.raises(ValueError, match="layer that mixes tokens; got none in ModuleDict"):
        lens.layers(model, unknown="skip")

    @lens.register("GatedMixer")
    def read(mixer, call):
        x = call.one(call.x)
        n = x.shape[-2]
        alpha = (
            torch.sigmoid(x @ mixer.w)[..., None]
            * torch.ones(n, n).tril()
            / torch.arange(1.0, n + 1)[:, None]
        )
        W = FactorizedOperator(alpha[..., None, :, :], torch.eye(3, dtype=x.dtype)[None])
        return lens.Reading(lens.Frozen(W, x=x, y=call.one(mixer(*call.args, **call.kwargs))))

    (layer,) = lens.layers(model)
    assert (layer.name, layer.family) == ("deep.0", "GatedMixer")
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    assert lens.operator(model["deep"][0], x).miss() < 1e-12


def test_a_reader_that_is_wrong_is_refused_with_its_miss(families):
    @lens.register("GatedMixer", family="gates")
    def read(mixer, call):
        n = call.x.shape[-2]
        alpha = torch.ones(1, n, n, dtype=F64).tril()
        W = FactorizedOperator(alpha, torch.eye(3, dtype=F64)[None])
        return lens.Reading(lens.Frozen(W, x=call.x, y=mixer(call.x)))

    x = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(0))
    assert [layer.family for layer in lens.layers(GatedMixer())] == ["gates"]
    with pytest.raises(ValueError, match=r"exactly, y == W x \+ offset to 1e-10; got a relative miss of"):
        lens.operator(GatedMixer().eval(), x)


def test_a_layer_that_does_more_than_its_kind_is_refused(build, ids):
    model = build("llama")
    module = model.layers[0].self_attn
    module.v_proj.register_forward_hook(lambda m, args, result: result * (1 + 1e-6 * result.abs()))
    with pytest.raises(ValueError, match="layers.0.self_attn .core. must be read exactly"):
        lens.operator(lens.layers(model)[0], ids(9))


def test_attention_that_cannot_be_made_to_show_its_weights_is_refused(build, ids):
    """Falcon keeps the form it was loaded with: with a mask made for another, a wrong layer would be read."""
    model = build("falcon")
    model.config._attn_implementation = "sdpa"
    with pytest.raises(
        ValueError, match='FalconModel stays at sdpa: load it with attn_implementation="eager"'
    ):
        lens.operator(lens.layers(model)[0], ids(9))


def torch_encoder(seed=0, **given):
    settings = {"batch_first": True, "dropout": 0.0, "dim_feedforward": 8, **given}
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 3, **settings), 2, enable_nested_tensor=False
    ).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_torch_itself(causal, bias):
    """Held against its own forward pass in the encoder and against the formula of attention."""
    model, n = torch_encoder(bias=bias), 9
    x = torch.randn(2, n, 6, generator=torch.Generator().manual_seed(1), dtype=F64)
    mask = nn.Transformer.generate_square_subsequent_mask(n, dtype=F64) if causal else None
    inputs = {"src": x, "mask": mask, "is_causal": causal}
    assert [layer.name for layer in lens.layers(model)] == ["layers.0.self_attn", "layers.1.self_attn"]
    for layer in lens.layers(model):
        seen = []
        hook = layer.module.register_forward_hook(
            lambda _, args, result, seen=seen: seen.extend([args[0], result[0]])
        )
        with torch.no_grad():
            model(**inputs)
        hook.remove()
        frozen = lens.operator(layer, inputs)
        torch.testing.assert_close(frozen.x, seen[0])
        torch.testing.assert_close(frozen.W @ seen[0] + frozen.offset, seen[1])
        Q, K, V = layer.module.in_proj_weight.unflatten(0, (3, 3, 2))
        scores = torch.einsum("bid,hrd,hrc,bjc->bhij", seen[0], Q, K, seen[0]) / 2**0.5
        if not bias:
            alpha = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            torch.testing.assert_close(frozen.W.alpha, alpha)
        values = layer.module.out_proj.weight.unflatten(1, (3, 2)).movedim(1, 0) @ V
        torch.testing.assert_close(frozen.W.V, values)
    assert [found.H for found in lens.report(model, x, permuted=False).layers] == [3, 3]


def test_attention_of_torch_that_is_no_matrix_of_one_sequence_is_refused():
    x = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(1), dtype=F64)
    for given in ({"batch_first": False}, {"add_zero_attn": True}, {"add_bias_kv": True}, {"kdim": 4}):
        layer = nn.MultiheadAttention(6, 3, **{"batch_first": True, **given}).double().eval()
        with pytest.raises(ValueError, match="MultiheadAttention must be batch_first=True, with keys"):
            _readers.attention.heads_of(layer)
    layer = nn.MultiheadAttention(6, 3, batch_first=True).double().eval()
    for others in (
        {"key": 2 * x, "value": x},
        {"key": x, "value": x + 1},
        {"key": x[:, :4], "value": x[:, :4]},
    ):
        with pytest.raises(ValueError, match="one x as its query, key and value"):
            lens.operator(layer, {"query": x, **others})
    frozen = lens.operator(layer, {"query": x, "key": x, "value": x})
    torch.testing.assert_close(frozen.W @ x + frozen.offset, layer(x, x, x)[0])
    decoder = nn.TransformerDecoderLayer(6, 3, batch_first=True)
    assert [found.name for found in lens.layers(decoder)] == ["self_attn"]


@pytest.mark.parametrize("missing", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_projections_make_attention_only_together(missing):
    projections = {name: nn.Linear(3, 3) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    layer = nn.ModuleDict(projections)
    assert is_projected(layer)
    del layer[missing]
    assert not is_projected(layer)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_attention_is_known_by_all_of_its_parts(family, build):
    layer = lens.layers(build(family))[0].module
    known = {"bert": is_bert, "gpt2": is_stacked}[family]
    parts = {"bert": ("self.query", "self.key", "self.value", "output.dense"), "gpt2": ("c_attn", "c_proj")}
    assert known(layer)
    for part in parts[family]:
        less = copy.deepcopy(layer)
        owner, _, name = part.rpartition(".")
        delattr(less.get_submodule(owner), name)
        assert not known(less), part
    if family == "gpt2":
        for name, value in (("head_dim", None), ("is_cross_attention", True)):
            other = copy.deepcopy(layer)
            delattr(other, name) if value is None else setattr(other, name, value)
            assert not known(other), name


@pytest.mark.parametrize(("rows", "columns"), [(6, 7), (1, 6), (4, 6)])
def test_attention_whose_projections_do_not_fit_is_named(rows, columns):
    """Half a head; not one head of values; two for three of queries."""
    layer = nn.ModuleDict({"q_proj": nn.Linear(6, 6), "k_proj": nn.Linear(6, 6)})
    layer["v_proj"], layer["o_proj"], layer.head_dim = nn.Linear(6, rows), nn.Linear(columns, 6), 2
    with pytest.raises(ValueError, match=f"width 2; got {rows} rows of values and {columns} columns"):
        _readers.attention.heads_of(layer)


def test_hidden_states_as_many_as_they_are_wide_are_no_weights():
    states, weights = torch.zeros(1, 5, 5), torch.ones(1, 2, 5, 5)
    assert _readers.attention.weights_of((states, None, weights), 5) is weights
    with pytest.raises(ValueError, match="must return its weights"):
        _readers.attention.weights_of((states, None, weights), 6)


def test_a_mixer_is_scaled_and_not_cast(build, ids):
    (layer, *_), text = lens.layers(build("mamba")), ids(9)
    mixer = lens.operator(layer, text, part="mixer")
    torch.testing.assert_close((3 * mixer.W).apply(mixer.x), 3 * mixer.W.apply(mixer.x))
    with pytest.raises(TypeError, match="not moved or cast"):
        mixer.W.to(torch.float32)


@pytest.mark.parametrize("family", ["mamba", "mamba2", "recurrent_gemma", "qwen3_next"])
def test_a_mixer_takes_batches_of_inputs_as_any_operator_does(family, build, ids):
    layer = lens.layers(build(family))[0]
    alone, one = lens.operator(layer, ids(9), "mixer"), lens.operator(layer, ids(9)[None], "mixer")
    wanted = alone.W.apply(alone.x)
    several = torch.stack([alone.x, 2 * alone.x])
    torch.testing.assert_close(alone.W.apply(several), torch.stack([wanted, 2 * wanted]))
    for x in (one.x, alone.x):  # a batch of operators, of inputs with it or without
        torch.testing.assert_close(one.W.apply(x), wanted[None])
    with pytest.raises(ValueError, match="x must have the batch shape of W"):
        one.W.apply(several)


def test_models_that_keep_states_are_asked_for_none(build, ids):
    """A kept state would cost the memory of every layer; a model that knows no such option is not told."""
    for inputs in (ids(9), {"input_ids": ids(1, 9)}, {"input_ids": ids(1, 9), "use_cache": True}):
        kwargs, _ = _capture.check_inputs(build("llama"), inputs)
        assert kwargs["use_cache"] is False
    plain, x = maps.SSD(4, 4, H=1, head_width=2, N=3).eval(), torch.zeros(5, 4)
    assert "use_cache" not in _capture.check_inputs(plain, x)[0]


def test_without_a_mixing_layer():
    with pytest.raises(ValueError, match="must hold a layer that mixes tokens; got none in Sequential"):
        lens.layers(nn.Sequential(nn.Linear(3, 3), nn.Conv1d(3, 3, 2)))
    with pytest.raises(TypeError, match="model must be a torch.nn.Module; got str"):
        lens.layers("gpt2")
    with pytest.raises(ValueError, match="unknown must be one of refuse, skip; got 'ignore'"):
        lens.layers(nn.Linear(3, 3), unknown="ignore")
    with pytest.raises(ValueError, match=r"can read; got GRU \(the model itself\)"):
        lens.operator(nn.GRU(3, 3), torch.zeros(4, 3))
    with pytest.raises(TypeError, match="layer must be one of lens.layers.model. or a module; got int"):
        lens.operator(3, torch.zeros(4, 3))


def test_inputs_that_cannot_be_read(build, ids):
    model = build("llama")
    layer = lens.layers(model)[0]
    refused = [
        (ids(2, 3, 4), ValueError, r"token ids \(n,\) or \(batch, n\) .* got shape \(2, 3, 4\)"),
        (torch.zeros(0, dtype=torch.int64), ValueError, r"not empty; got shape \(0,\)"),
        ("a text", TypeError, "inputs must be a tensor or the model's keyword arguments; got str"),
        (ids(9).to("meta"), ValueError, "inputs must be on the model's device, cpu; got meta"),
        ({"input_ids": ids(1, 3000)}, ValueError, "at most 2048 tokens, what the model allows; got 3000"),
        (
            {"input_ids": ids(2, 4), "attention_mask": torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])},
            ValueError,
            "without padding; got 2 padded tokens",
        ),
        (
            torch.full((5, 24), torch.nan),
            ValueError,
            "inputs, the input of layers.0.self_attn, must be finite; got 120",
        ),
        (torch.zeros(5, 24) + 0j, TypeError, "inputs must be a floating-point torch.Tensor; got dtype"),
        (torch.zeros(5, 23), ValueError, "inputs must suit LlamaModel; its forward pass said RuntimeError"),
        (ids(9) + 9999, ValueError, "inputs must suit LlamaModel; its forward pass said IndexError: index"),
    ]
    for inputs, error, words in refused:
        with pytest.raises(error, match=words):
            lens.operator(layer, inputs)
    with pytest.raises(ValueError, match="inputs must suit LlamaAttention; its forward pass said TypeError"):
        lens.operator(layer.module, torch.zeros(5, 24))  # alone it is not told the positions
    with pytest.raises(ValueError, match="one of lens.layers.model.; got the model, a LlamaModel"):
        lens.operator(model, ids(9))
    with pytest.raises(ValueError, match="part must be one of core, mixer; got 'head'"):
        lens.operator(layer, ids(9), part="head")


def test_models_that_cannot_be_read(build, ids):
    model = build("llama")
    layer = lens.layers(model)[0]
    model.train()
    with pytest.raises(ValueError, match="evaluation mode; got training mode, with dropout"):
        lens.operator(layer, ids(9))
    model.eval().half()
    with pytest.raises(ValueError, match="float32 or float64 on a CPU; got float16"):
        lens.operator(layer, ids(9))


def test_bfloat16_is_read_from_a_float64_copy(build, ids):
    model = build("llama").bfloat16()
    frozen = lens.operator(lens.layers(model)[1], ids(9))
    assert frozen.W.dtype == F64 and frozen.miss() < 1e-10


def test_a_layer_that_is_not_reached_or_runs_twice(build, ids):
    model, other = build("mamba"), build("mamba", seed=1)
    (layer, _) = lens.layers(other)
    stray = lens.MixingLayer("elsewhere", layer.module, layer.family, model)
    with pytest.raises(ValueError, match="must call elsewhere; its forward pass did not reach it"):
        lens.operator(stray, ids(9))
    model.layers[1].mixer = model.layers[0].mixer
    with pytest.raises(ValueError, match="layers.0.mixer must be called once in a forward pass"):
        lens.operator(lens.layers(model)[0], ids(9))


class SilentAttention(nn.Module):
    """Looks like attention, and keeps its weights to itself."""

    def __init__(self):
        super().__init__()
        self.head_dim = 3
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        return self.o_proj(self.v_proj(x).cumsum(-2))


def test_attention_that_returns_no_weights():
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"must return its weights \(batch, H, n, n\); got none"):
        lens.operator(SilentAttention().eval(), x)


def test_a_watched_module_keeps_no_hook():
    module, x = nn.Linear(2, 2), torch.ones(2)
    with pytest.raises(KeyError), _capture.watched(module) as seen:
        y = module(x)
        raise KeyError
    assert not module._forward_hooks
    (given,), found = seen[module]
    assert given is x and found is y


def test_numbers_that_are_none(build, ids):
    model = build("llama")
    first, second = lens.layers(model)
    with torch.no_grad():
        first.module.o_proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="the output of layers.0.self_attn.* must be finite; got"):
        lens.operator(first, ids(9))
    with pytest.raises(ValueError, match="the input of layers.1.self_attn, must be finite; got"):
        lens.operator(second, ids(9))


def test_a_layer_is_called_again_without_the_states_of_earlier_calls():
    x, mask = torch.randn(1, 3, 4), (True, False, True)
    given = {"mask": mask, "past_key_values": object(), "cache_params": object()}
    assert _capture._as_call("mixer", (x,), given, False).kwargs == {"mask": mask}
    assert lens.Call((x,), {}, 0).one(x) is x  # a batch, unless said otherwise
    call = _capture._as_call("mixer", (), {"hidden_states": x, "use_cache": True}, False)
    assert call.x is not x and torch.equal(call.x, x) and call.kwargs["use_cache"] is False
