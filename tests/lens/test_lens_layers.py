"""Which layers the lens finds, what it says of the others, and what it refuses to read."""

import pytest
import torch
from helpers import F64, cut
from torch import nn

from ssmbook import lens, maps, scans
from ssmbook.lens.__main__ import main


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


def test_layers_of_any_module_and_a_mixer_alone(build):
    block = nn.ModuleDict({"a": build("mamba"), "b": nn.Linear(3, 3)})
    assert [name for name, *_ in named(block)] == ["a.layers.0.mixer", "a.layers.1.mixer"]
    mixer = build("mamba").layers[0].mixer
    x = torch.randn(9, 24, generator=torch.Generator().manual_seed(0))
    for layer in (mixer, lens.layers(mixer)[0]):
        frozen = lens.operator(layer, x)
        assert frozen.W.n == 9 and frozen.miss() < 1e-5


def test_the_maps_of_the_book_are_read_too():
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


def test_what_mixes_no_tokens_of_one_sequence_is_left_out():
    plain = type("FlashAttention", (nn.Module,), {})  # a mixer by name, without parameters
    parts = {name: maps.SSD(4, 4, H=1, head_width=2, N=3) for name in ("own", "cross", "encoder_attn")}
    model = nn.ModuleDict({**parts, "kernel": plain()})
    assert [layer.name for layer in lens.layers(model)] == ["own"]
    decoder = nn.TransformerDecoderLayer(6, 3, batch_first=True)
    assert [found.name for found in lens.layers(decoder)] == ["self_attn"]


class GatedMixer(nn.GRU):
    """A mixer that no reader knows."""


def test_an_unknown_mixer_is_named_with_the_lines_that_register_one():
    model = nn.ModuleDict({"deep": nn.Sequential(GatedMixer(3, 3))}).eval()
    with pytest.raises(ValueError, match=r"got GatedMixer \(deep.0\)(.|\n)*lens.register"):
        lens.layers(model)
    with pytest.raises(ValueError, match="got none in ModuleDict"):
        lens.layers(model, unknown="skip")
    with pytest.raises(ValueError, match="got GatedMixer"):
        lens.operator(model["deep"][0], torch.zeros(4, 3))


def test_a_layer_that_does_more_than_its_kind_is_refused(build, ids):
    model = build("llama")
    module = model.layers[0].self_attn
    module.v_proj.register_forward_hook(lambda m, args, result: result * (1 + 1e-6 * result.abs()))
    with pytest.raises(ValueError, match="layers.0.self_attn must be read exactly"):
        lens.operator(lens.layers(model)[0], ids(9))


def test_attention_that_cannot_return_its_weights_is_refused(build, ids):
    """Falcon keeps the form it was loaded with: with a mask made for another, a wrong layer would be read."""
    model = build("falcon")
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match="FalconModel stays at sdpa"):
        lens.operator(lens.layers(model)[0], ids(9))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_torch_itself(causal, bias):
    """Compared with its own forward pass in the encoder and with the formula of attention."""
    layer = nn.TransformerEncoderLayer(6, 3, batch_first=True, dropout=0.0, dim_feedforward=8, bias=bias)
    model, n = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval(), 9
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(2, n, 6, generator=generator, dtype=F64)
    mask = nn.Transformer.generate_square_subsequent_mask(n, dtype=F64) if causal else None
    inputs = {"src": x, "mask": mask, "is_causal": causal}
    for layer in lens.layers(model):
        seen = []
        hook = layer.module.register_forward_hook(lambda _, args, y, seen=seen: seen.extend([args[0], y[0]]))
        with torch.no_grad():
            model(**inputs)
        hook.remove()
        frozen = lens.operator(layer, inputs)
        torch.testing.assert_close(frozen.W @ seen[0] + frozen.offset, seen[1])
        Q, K, V = layer.module.in_proj_weight.unflatten(0, (3, 3, 2))
        scores = torch.einsum("bid,hrd,hrc,bjc->bhij", seen[0], Q, K, seen[0]) / 2**0.5
        if not bias:
            alpha = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            torch.testing.assert_close(frozen.W.alpha, alpha)
        values = layer.module.out_proj.weight.unflatten(1, (3, 2)).movedim(1, 0) @ V
        torch.testing.assert_close(frozen.W.V, values)
    assert [found.H for found in lens.report(model, x, permuted=False).layers] == [3, 3]


def test_attention_of_torch_between_other_sequences_is_refused():
    x = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(1), dtype=F64)
    for given in ({"batch_first": False}, {"add_zero_attn": True}, {"kdim": 4}):
        layer = nn.MultiheadAttention(6, 3, **{"batch_first": True, **given}).double().eval()
        keys = x[..., : given.get("kdim", 6)]
        with pytest.raises(ValueError, match="MultiheadAttention must"):
            lens.operator(layer, {"query": x, "key": keys, "value": x})
    layer = nn.MultiheadAttention(6, 3, batch_first=True).double().eval()
    for key, value in ((2 * x, x), (x, x + 1), (x[:, :4], x[:, :4])):
        with pytest.raises(ValueError, match="MultiheadAttention must"):
            lens.operator(layer, {"query": x, "key": key, "value": value})


def test_models_and_inputs_that_cannot_be_read(build, ids):
    model = build("llama")
    layer = lens.layers(model)[0]
    for inputs in (ids(2, 3, 4), torch.full((5, 24), torch.nan)):
        with pytest.raises(ValueError, match="input"):
            lens.operator(layer, inputs)
    with pytest.raises(ValueError, match="got LlamaModel"):
        lens.operator(model, ids(9))
    with torch.no_grad():
        layer.module.o_proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="layers.0.self_attn.* must be finite"):
        lens.operator(layer, ids(9))
    model.train()
    with pytest.raises(ValueError, match="training mode"):
        lens.operator(layer, ids(9))
    model.eval()
    with pytest.raises(ValueError, match="LlamaModel must run on these inputs; got IndexError"):
        lens.operator(layer, ids(9) + 31)
    with pytest.raises(TypeError, match="and their attention_mask; got one of the two"):
        lens.report(model, {"input_ids": ids(1, 9)})
    with pytest.raises(ValueError, match="on the device of the model, cpu; got meta"):
        lens.operator(layer, ids(9).to("meta"))


class Mix(nn.Module):
    """Attention as small language models write it: fused weights, torch's function, a projection."""

    def __init__(self, d, H, gate=None, norm=None, groups=None):
        super().__init__()
        self.H, self.groups = H, groups or H
        self.together = nn.Linear(d, d + 2 * d * self.groups // H)
        self.back = nn.Linear(d, d)
        self.gate, self.norm = gate, norm

    def forward(self, x):
        r = x.shape[-1] // self.H
        heads = self.together(x).unflatten(-1, (-1, r)).transpose(1, 2)
        q, k, v = heads.split([self.H, self.groups, self.groups], 1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = y.transpose(1, 2).flatten(2)
        y = y if self.gate is None else y * self.gate(x).sigmoid()
        return self.back(y if self.norm is None else self.norm(y))


@pytest.mark.parametrize("kind", ["plain", "grouped", "gated", "normed"])
def test_attention_of_any_module_is_caught(kind):
    """Its weights written out; behind a gate or a norm the core is what enters it."""
    torch.manual_seed(0)
    given = {
        "gated": {"gate": nn.Linear(8, 8)},
        "normed": {"norm": nn.LayerNorm(8)},
        "grouped": {"groups": 2},
    }
    mix = Mix(8, 4, **given.get(kind, {}))
    model, x = nn.Sequential(nn.Linear(8, 8), mix).double().eval(), torch.randn(2, 9, 8, dtype=F64)
    (layer,) = lens.layers(model)
    assert (layer.name, layer.family) == ("1", "caught")
    found, u = lens.operator(layer, x), model[0](x).detach()
    K = 4 if kind != "grouped" else 2
    q, k, v = mix.together(u).detach().unflatten(-1, (-1, 2)).transpose(1, 2).split([4, K, K], 1)
    k, v = (part.repeat_interleave(4 // K, 1) for part in (k, v))
    late = torch.ones(9, 9, dtype=torch.bool).triu(1)
    alpha = (q @ k.mT / 2**0.5).masked_fill(late, -torch.inf).softmax(-1)
    torch.testing.assert_close(found.W.alpha, alpha)
    core = (alpha @ v).transpose(1, 2).flatten(2)
    wanted = mix.back(core).detach() if kind in ("plain", "grouped") else core
    torch.testing.assert_close(found.W @ found.x + found.offset, wanted)
    kept = model(x).detach()
    with torch.no_grad():
        with lens.replace(model, {0: cut([])}):
            torch.testing.assert_close(model(x), kept)
        with lens.replace(model, {0: cut([1])}):
            changed = model(x)
        mix.together.weight[8 + 2 * K :].view(K, 2, 8)[1 * K // 4] = 0
        if kind != "grouped":  # the bias of a dropped head stays
            torch.testing.assert_close(changed, model(x))
    gradient = lens.report(model, x, permuted=False).layers[0].trained.gradient
    assert gradient["exact"] and gradient["ratio"] >= 1 - 1e-9


def test_what_cannot_be_caught_is_refused_with_the_reason():
    mix = Mix(8, 4).double().eval()
    mix.together = nn.Sequential(mix.together, nn.Tanh())
    with pytest.raises(ValueError, match="must make its values by a linear map of each token(.|\n)*register"):
        lens.operator(mix, torch.randn(9, 8, dtype=F64))
    twice = type(
        "TwiceAttention", (Mix,), {"forward": lambda self, x: Mix.forward(self, Mix.forward(self, x))}
    )
    with pytest.raises(ValueError, match="one product of coefficients(.|\n)*got 2 such products"):
        lens.operator(twice(8, 4).double().eval(), torch.randn(9, 8, dtype=F64))


class Scanned(nn.Module):
    """A layer of one's own around a scan of the book, with a gate behind it."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.made, self.back = kind, nn.Linear(6, 32), nn.Linear(6, 6)
        self.A, self.D = nn.Parameter(-torch.rand(6, 4)), nn.Parameter(torch.randn(6))

    def parts(self, x):
        u, step, B, C, gate = self.made(x).split([6, 6, 7, 7, 6], -1)
        return u, nn.functional.softplus(step), B[..., :4], C[..., :4], gate.sigmoid()

    def core(self, u, step, B, C):
        """Its values and coefficients (batch, channels, n, n), written out."""
        if self.kind == "diagonal":
            decay, enter, read = (
                -step[..., None],
                torch.ones_like(u)[..., None],
                torch.ones_like(u)[..., None],
            )
        elif self.kind == "selective":
            decay, enter = step[..., None] * self.A, step[..., None] * B[..., None, :]
            read = C[..., None, :].expand_as(enter)
        else:
            heads = [t.unsqueeze(-2).expand(*t.shape[:-1], 6, 4) for t in (B, C)]
            decay, (enter, read) = -step[..., :2].repeat_interleave(3, -1)[..., None], heads
        total = decay.cumsum(1)
        lag = (total[:, :, None] - total[:, None]).masked_fill(
            torch.ones(9, 9).triu(1)[..., None, None] > 0, -torch.inf
        )
        alpha = torch.einsum(
            "bidk,bijdk,bjdk->bdij", read, lag.exp().expand(*lag.shape[:-1], enter.shape[-1]), enter
        )
        return alpha + torch.diag_embed(self.D[:, None].expand(6, 9)) * (self.kind == "selective")

    def forward(self, x):
        u, step, B, C, gate = self.parts(x)
        if self.kind == "diagonal":
            y, _ = scans.diagonal_scan(-step, u, log=True)
        elif self.kind == "selective":
            y, _ = scans.selective_scan(u, step, self.A, B, C, self.D, discretization="mixed")
        else:
            B, C = (t.unsqueeze(-2).expand(*t.shape[:-1], 2, 4) for t in (B, C))
            y = scans.ssd_scan(u.unflatten(-1, (2, 3)), -step[..., :2], B, C)[0].flatten(-2)
        return self.back(y * gate)


@pytest.mark.parametrize("kind", ["diagonal", "selective", "ssd"])
def test_a_scan_of_the_book_is_caught_in_any_module(kind):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 6), Scanned(kind)).double().eval(), torch.randn(2, 9, 6, dtype=F64)
    (layer,), kept = lens.layers(model), model(x).detach()
    assert (layer.name, layer.family) == ("1", "caught")
    *given, gate = (part.detach() for part in model[1].parts(model[0](x)))
    alpha, found = model[1].core(*given).detach(), lens.operator(layer, x)
    core = torch.einsum("bdij,bjd->bid", alpha, given[0])
    torch.testing.assert_close(found.W @ given[0], core)
    torch.testing.assert_close(found.x, given[0])
    torch.testing.assert_close(lens.operator(layer, x[0]).W @ given[0][0], core[0])
    with torch.no_grad():
        with lens.replace(model, {0: cut([])}):
            torch.testing.assert_close(model(x), kept)
        with lens.replace(model, {0: cut([1])}):
            changed = model(x)
        core[..., slice(3, 6) if kind == "ssd" else 1] = 0
        torch.testing.assert_close(changed, model[1].back(core * gate))
    twice = type(
        "Twice",
        (Scanned,),
        {"forward": lambda self, x: scans.diagonal_scan(x, x)[0] + Scanned.forward(self, x)},
    )
    with pytest.raises(ValueError, match="one real scan(.|\n)*register"):
        lens.operator(twice(kind).double().eval(), x)
    begun = type(
        "Begun", (Scanned,), {"forward": lambda self, x: scans.diagonal_scan(x.sigmoid(), x, x[:, 0])[0]}
    )
    with pytest.raises(ValueError, match="must be read exactly"):
        lens.operator(begun(kind).double().eval(), x)


class Blend(nn.Module):
    """Mixes tokens by a convolution, under a name that says nothing."""

    def __init__(self, d):
        super().__init__()
        self.up, self.taps = nn.Linear(d, d), nn.Conv1d(d, d, 3, padding=2)

    def forward(self, x):
        return self.taps(self.up(x).mT)[..., : x.shape[-2]].mT


def test_a_mixer_with_any_name_is_found_by_trial_and_listed(tmp_path, build, ids):
    """The embedding, norms and feed-forward layers beside it are not taken for mixers."""
    model = build("llama")
    model.layers[1].mlp = nn.Sequential(model.layers[1].mlp, Blend(24)).eval()
    found = lens.report(model, ids(12), permuted=False, gradient=False)
    assert len(found.layers) == 2
    (note,) = (note for note in found.notes if note.startswith("not read"))
    assert note.startswith("not read: layers.1.mlp.1 (Blend): no reader knows it; register one: @ssmbook")
    with pytest.raises(ValueError, match=r"got none in Sequential that the lens can read, but Blend \(0\)"):
        lens.report(nn.Sequential(Blend(5)).eval(), torch.randn(9, 5), permuted=False)


def test_the_command_lists_what_no_reader_knows(ids, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    config = transformers.MiniMaxConfig(
        hidden_size=16, num_hidden_layers=2, vocab_size=31, intermediate_size=24, num_attention_heads=4,
        num_key_value_heads=2, layer_types=["linear_attention", "full_attention"], block_size=8, head_dim=4,
        num_local_experts=2, num_experts_per_tok=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    transformers.MiniMaxModel(config).save_pretrained(tmp_path / "model")
    (tmp_path / "ids.txt").write_text(" ".join(map(str, ids(12).tolist())), "utf-8")
    given = [tmp_path / "model", "--ids", tmp_path / "ids.txt", "--tokens", 12, "--out", tmp_path]
    assert main([*map(str, given), "--no-permuted", "--no-gradient"]) == 0
    found = lens.Report.from_json(tmp_path / "report.json")
    (note,) = (note for note in found.notes if note.startswith("not read"))
    assert len(found.layers) == 1 and "MiniMaxLightningAttention must mix tokens by one product" in note
    assert '@ssmbook.lens.register("MiniMaxLightningAttention")' in note


def test_a_layer_that_is_called_again_and_again_is_read_each_time(build, ids):
    """ALBERT runs one layer twelve times; nothing is shared but the weights."""
    model = build("albert").double()
    (layer,) = lens.layers(model)
    found = lens.report(model, ids(12), permuted=False, gradient=False)
    assert [each.name for each in found.layers] == [f"{layer.name}, call {k}" for k in (1, 2)]
    seen = []
    layer.module.dense.register_forward_hook(lambda module, args, y: seen.append(y[0]))
    with torch.no_grad():
        model(ids(1, 12))
    for call, y in enumerate(seen[:2]):
        frozen = lens.operator(layer, ids(12), call=call)
        torch.testing.assert_close(frozen.W @ frozen.x + frozen.offset, y)
    with pytest.raises(ValueError, match="must be called once in a forward pass; got 2 calls"):
        lens.operator(layer, ids(12))
    with pytest.raises(ValueError, match="call must be between 0 and 1; got 2"):
        lens.operator(layer, ids(12), call=2)


class Adapted(nn.Linear):
    """A linear layer with a low-rank adapter, as peft makes them."""

    def __init__(self, plain):
        super().__init__(*plain.weight.shape[::-1], bias=False)
        self.weight, d = plain.weight, plain.in_features
        self.lora_A, self.lora_B = nn.Linear(d, 2, bias=False), nn.Linear(2, len(plain.weight), bias=False)

    def forward(self, x):
        return super().forward(x) + self.lora_B(self.lora_A(x))


class Packed(nn.Module):
    """A quantized layer, whose ``weight`` is a method."""

    def __init__(self, d, p):
        super().__init__()
        self.packed = nn.Parameter(torch.randint(-8, 8, (p, d), dtype=torch.int8), requires_grad=False)

    def weight(self):
        return self.packed

    def forward(self, x):
        return 0.1 * x @ self.packed.to(x).mT


def test_layers_that_cannot_be_read_are_listed_with_the_next_step(build, ids):
    model, texts = build("jamba"), ids(12)
    model.layers[1].self_attn.v_proj = Packed(24, 12)
    model.unused = build("llama").layers[0].self_attn  # a part that the forward pass does not reach
    found = lens.report(model, texts, permuted=False, gradient=False)
    assert [layer.name for layer in found.layers] == ["layers.0.mamba"]  # the others are still read
    listed = [note for note in found.notes if note.startswith("not read")]
    assert "layers.1.self_attn" in listed[0] and "load the model without quantization" in listed[0]
    assert "unused" in listed[1] and "did not reach it" in listed[1] and len(listed) == 2
    model.layers[1].self_attn.v_proj = nn.Sequential(nn.Linear(24, 12))
    found = lens.report(model, texts, permuted=False, gradient=False)
    assert any(": v_proj" not in note and note.endswith("got Sequential") for note in found.notes)


@pytest.mark.parametrize("part", ["v_proj", "o_proj", "q_proj"])
def test_a_low_rank_adapter_is_merged_for_reading(part, build, ids):
    model = build("llama").double()
    attention = model.layers[0].self_attn
    adapted = Adapted(getattr(attention, part)).double()
    setattr(attention, part, adapted)
    found = lens.operator(lens.layers(model)[0], ids(12))
    merged = nn.Linear(*adapted.weight.shape[::-1], bias=False, dtype=F64)
    merged.weight.data = adapted.weight.data + adapted.lora_B.weight.data @ adapted.lora_A.weight.data
    setattr(attention, part, merged)
    wanted = lens.operator(lens.layers(model)[0], ids(12))
    torch.testing.assert_close(found.W.to_dense(), wanted.W.to_dense())
