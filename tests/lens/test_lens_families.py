"""W x + offset is what each layer of each family computes: compared with the model's own forward pass."""

import copy

import pytest
import torch
from helpers import F64
from torch.nn.functional import silu

from ssmbook import lens
from ssmbook.operators import jacobian_operator

FAMILIES = [
    "bert", "gpt2", "gpt_neox", "falcon", "phi3", "llama", "mistral", "gpt_oss", "mamba", "mamba2", "jamba",
    "bamba", "recurrent_gemma", "qwen3_next", "qwen3_5", "olmo_hybrid", "kimi_linear", "falcon_h1", "lfm2",
    "deepseek_v3", "modernbert", "albert",
]  # fmt: skip
N = 13


@torch.no_grad()
def forward(model, ids):
    """One plain forward pass: module -> (positional arguments, result), and layer -> its call."""
    seen, calls = {}, {}
    hooks = [m.register_forward_hook(lambda m, args, y: seen.update({m: (args, y)})) for m in model.modules()]
    for layer in lens.layers(model):
        hooks.append(
            layer.module.register_forward_pre_hook(
                lambda m, args, kwargs: calls.update({m: (args, kwargs)}), with_kwargs=True
            )
        )
    model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return seen, calls


def finished(layer, core, seen):
    """What the rest of the layer makes of the core: gates, norms and the output projection."""
    m = layer.module
    if layer.family == "selective SSM":
        return m.out_proj(core * silu(seen[m.in_proj][1].chunk(2, -1)[1]))
    if layer.family == "SSD" and isinstance(m.norm, torch.nn.Identity):
        gate = (seen[m.in_proj][1] * m.mup_vector)[..., : core.shape[-1]]
        return m.out_proj(core * silu(gate))
    if layer.family == "short convolution":
        return m.out_proj(core * seen[m.in_proj][1].chunk(3, -1)[1])
    if layer.family == "SSD":
        return m.out_proj(m.norm(core, seen[m.norm][0][1]))
    if layer.family == "RG-LRU":
        return m.linear_out(core * m.act_fn(seen[m.linear_y][1]))
    if layer.family == "gated DeltaNet":
        norm, out = (m.norm, m.out_proj) if hasattr(m, "norm") else (m.o_norm, m.o_proj)
        given, z = seen[norm][0]
        return out(norm(core.reshape(given.shape), z).reshape(core.shape))
    if layer.kind in ("Qwen3NextAttention", "Qwen3_5Attention"):
        gate = seen[m.q_proj][1].unflatten(-1, (-1, 2 * m.head_dim))[..., m.head_dim :].flatten(-2)
        return m.o_proj(core * gate.sigmoid())
    return core


def own_output(layer, seen):
    # these modules add the residual too
    inside = {"BertAttention": "output.dense", "AlbertAttention": "dense"}
    inside = inside.get(layer.kind, "")
    result = seen[layer.module.get_submodule(inside)][1]
    return result[0] if isinstance(result, tuple) else result


def relative(got, wanted):
    assert got.shape == wanted.shape
    return float((got - wanted).abs().max() / wanted.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_core_and_what_follows_it_are_the_layer(family, size, build, ids):
    # the experts of GPT-OSS know no float64
    model = build(family, size) if family == "gpt_oss" else build(family, size).double()
    layers = lens.layers(model)
    both = family == "falcon_h1"  # attention and recurrence side by side in each block
    assert len(layers) == (1 if family == "albert" else (1 + both) * model.config.num_hidden_layers)
    seen, _ = forward(model, ids(1, N))
    for layer in layers:
        frozen = lens.operator(layer, ids(1, N), call=1 if family == "albert" else None)
        core = frozen.W @ frozen.x + (0 if frozen.offset is None else frozen.offset)
        wanted = own_output(layer, seen).double()
        # the others compute the softmax in float32 when they return its weights, not in the plain pass
        tolerance = 1e-10 if family in {"bert", "gpt2", "albert"} else 1e-5
        assert relative(finished(layer, core, seen), wanted) < tolerance
        assert frozen.miss() < (1e-10 if layer.family in ("attention", "short convolution") else 1e-5)
        # coefficients off by one in a thousand are far outside the tolerance
        wrong = lens.LayerOperator(1.001 * frozen.W, frozen.x, frozen.y, frozen.offset, frozen.casts)
        assert wrong.miss() > 10 * frozen.tolerance
        if family not in ("bert", "modernbert", "albert"):
            assert not bool(frozen.W.block_norms().triu(1).any())


@pytest.mark.parametrize(
    "family",
    ["bert", "mistral", "mamba", "mamba2", "recurrent_gemma", "kimi_linear", "lfm2", "deepseek_v3"],
)
def test_a_batch_of_texts_is_each_text_alone(family, build, ids):
    layer, texts = lens.layers(build(family))[-1], ids(3, 7)
    together = lens.operator(layer, texts)
    for b in range(3):
        alone = lens.operator(layer, texts[b])
        assert alone.W.batch_shape == () and isinstance(alone.W.interaction_rank(), int)
        assert relative(together.W.to_dense()[b], alone.W.to_dense()) < 1e-5


def rotated(t, base):
    """Rotary positions written with complex numbers: pairs (c, c + r/2) turn by position * base^(-2c/r)."""
    n, r = t.shape[-2:]
    angle = torch.arange(n, dtype=t.dtype)[:, None] * base ** (-torch.arange(0, r, 2, dtype=t.dtype) / r)
    turned = torch.complex(*t.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_weights_with_rotary_positions_grouped_keys_and_windows(family, build, ids):
    model = build(family)
    base = model.config.rope_parameters["rope_theta"]
    layer = lens.layers(model)[0]
    frozen, module = lens.operator(layer, ids(N)), layer.module
    q, k = ((frozen.x @ getattr(module, p).weight.detach().double().mT) for p in ("q_proj", "k_proj"))
    q, k = (rotated(t.unflatten(-1, (-1, 6)).transpose(0, 1), base) for t in (q, k))
    logits = q @ k.repeat_interleave(2, dim=0).mT / 6**0.5
    i = torch.arange(N)
    lag = i[:, None] - i
    window = 5 if family == "mistral" else N
    logits = logits.masked_fill((lag < 0) | (lag >= window), -torch.inf)
    assert float((frozen.W.alpha - logits.softmax(-1)).abs().max()) < 1e-5


def as_function(layer, calls):
    """The layer as a function of its hidden states (n, d), in float64, and the states of that call."""

    def double(value):
        if isinstance(value, tuple):
            return tuple(map(double, value))
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    args, kwargs = (
        map(double, calls[layer.module][0]),
        {k: double(v) for k, v in calls[layer.module][1].items()},
    )
    twin, args = copy.deepcopy(layer.module).double(), list(args)
    x = kwargs.pop("hidden_states") if "hidden_states" in kwargs else args.pop(0)
    return (lambda x: twin(x[None], *args, **kwargs)), x[0]


def mean_norms(F, x, edges):
    """Gradient norms of F at the tokens 6, 9 and 11, and their means at each distance."""
    pairs = [(i, torch.linalg.matrix_norm(jacobian_operator(F, x)[i], ord=2)) for i in (6, 9, 11)]
    bins = list(zip(edges, [*edges[1:], len(x)], strict=True))
    lags = [(torch.arange(len(x)) - i).abs() for i, _ in pairs]
    rows = [
        torch.stack([norms[(lag >= low) & (lag < high)].mean() for low, high in bins])
        for lag, (_, norms) in zip(lags, pairs, strict=True)
    ]
    return pairs, torch.stack(rows).nanmean(0)


@pytest.mark.guards("prop-sigma2-highway")
@pytest.mark.parametrize("family", ["bert", "gpt2", "gpt_neox", "falcon", "phi3", "llama", "mistral"])
def test_gradients_of_softmax_heads_are_those_of_autograd(family, build, ids):
    model, ratios = build(family), []
    if family != "falcon":
        model.set_attn_implementation("eager")
    layer = lens.layers(model)[-1]
    found = lens.report(model, ids(N), permuted=False).layers[-1].trained.gradient
    W = lens.operator(layer, ids(N)).W
    run, x = as_function(layer, forward(model, ids(1, N))[1])
    for h, V in enumerate(W.V):
        pairs, wanted = mean_norms(
            lambda x, h=h, V=V: run(x)[1][0, h].double() @ (x @ V.mT), x, found["distance"]
        )
        got, least = torch.tensor(found["norm"][h], dtype=F64), 1e-5 * float(wanted[~wanted.isnan()].max())
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=least, equal_nan=True)
        for i, norms in pairs:
            floor = W.alpha[h, i] * torch.linalg.svdvals(V)[1]
            ratios += (norms / floor)[(floor > 1e-9) & (torch.arange(N) != i)].tolist()
    assert found["exact"] and 1 - 1e-5 < found["ratio"] == pytest.approx(min(ratios), rel=1e-3)


@pytest.mark.parametrize("family", ["mamba", "mamba2", "recurrent_gemma"])
def test_other_gradients_are_lower_bounds(family, build, ids):
    model = build(family)
    found = lens.report(model, ids(N), permuted=False).layers[0].trained.gradient
    run, x = as_function(lens.layers(model)[0], forward(model, ids(1, N))[1])
    first = lambda result: (result[0] if isinstance(result, tuple) else result)[0]  # noqa: E731
    _, wanted = mean_norms(lambda x: first(run(x)), x, found["distance"])
    got, known = torch.tensor(found["norm"][0], dtype=F64), ~wanted.isnan()
    assert not found["exact"] and bool((got <= wanted * (1 + 1e-4))[known].all())
    assert float(got[known].max()) > 0.1 * float(wanted[known].max())


def test_the_model_is_left_as_it_was(build, ids):
    model = build("jamba")
    model.set_attn_implementation("sdpa")
    before = {name: p.clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        wanted = model(ids(1, N), use_cache=False).last_hidden_state
    found = lens.report(model, ids(N), gradient=False)
    assert found.notes == ["attention ran as eager instead of sdpa, which returns no weights"]
    assert model.config._attn_implementation == "sdpa"
    assert all(torch.equal(p, before[name]) and p.requires_grad for name, p in model.named_parameters())
    with torch.no_grad():
        assert torch.equal(model(ids(1, N), use_cache=False).last_hidden_state, wanted)
