"""W x + offset is what each layer of each family puts out: held against hooks on the model's own forward."""

import pytest
import torch

from ssmbook import lens

FAMILIES = [
    "bert", "gpt2", "opt", "gpt_neox", "bloom", "falcon", "phi", "phi3", "llama", "mistral", "gpt_oss",
    "mamba", "falcon_mamba", "mamba2", "jamba", "bamba", "recurrent_gemma", "qwen3_next",
]  # fmt: skip
N = 13


def own_outputs(model, layers, ids):
    """What hooks of this test see in one plain forward pass: (x, y) of each layer by name."""
    seen, hooks = {}, []
    for layer in layers:
        # BERT's and Bloom's modules add the residual too
        inside = {"BertAttention": "output.dense", "BloomAttention": "dense"}.get(layer.kind, "")
        source = layer.module.get_submodule(inside)

        def entered(module, args, kwargs, name=layer.name):
            given = [*args, *kwargs.values()]
            seen[name] = [next(g for g in given if isinstance(g, torch.Tensor) and g.ndim == 3)]

        def left(module, args, result, name=layer.name):
            seen[name].append(result[0] if isinstance(result, tuple) else result)

        hooks += [
            layer.module.register_forward_pre_hook(entered, with_kwargs=True),
            source.register_forward_hook(left),
        ]
    with torch.no_grad():
        model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return seen


def relative(got, wanted):
    assert got.shape == wanted.shape
    return float((got - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_mixer_is_the_layer_to_the_last_digits(family, size, build, ids):
    # the experts of GPT-OSS know no float64
    model = build(family, size) if family == "gpt_oss" else build(family, size).double()
    layers = lens.layers(model)
    assert len(layers) == model.config.num_hidden_layers
    seen = own_outputs(model, layers, ids(1, N))
    for layer in layers:
        frozen = lens.operator(layer, ids(1, N), part="mixer")
        x, y = (tensor.double() for tensor in seen[layer.name])
        got = frozen.W.apply(x) + frozen.offset
        softmax = layer.family == "attention"
        assert frozen.casts is not softmax
        # the others take the softmax in float32 when they return its weights, not in the plain pass
        assert relative(got, y) < (1e-10 if family in {"bert", "gpt2"} else 1e-5)
        assert frozen.miss() < (1e-10 if softmax else 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_core_is_what_the_layer_computes_inside(family, build, ids):
    for layer in lens.layers(build(family)):
        frozen = lens.operator(layer, ids(N))
        assert frozen.W.batch_shape == () and frozen.x.dtype == torch.float64
        assert float(frozen.y.abs().max()) > 1e-6
        assert frozen.miss() < frozen.tolerance
        assert relative(frozen.W.apply(2 * frozen.x), 2 * frozen.W.apply(frozen.x)) < 1e-12
        # coefficients off by one in a thousand are far outside the tolerance
        wrong = lens.Frozen(1.001 * frozen.W, frozen.x, frozen.y, frozen.offset, frozen.casts)
        assert wrong.miss() > 10 * frozen.tolerance


@pytest.mark.parametrize("family", ["bert", "mistral", "mamba", "mamba2", "recurrent_gemma", "qwen3_next"])
@pytest.mark.parametrize("part", ["core", "mixer"])
def test_a_batch_of_texts_is_each_text_alone(family, part, build, ids):
    layer, texts = lens.layers(build(family))[-1], ids(3, 7)
    together = lens.operator(layer, texts, part)
    assert together.W.batch_shape == (3,)
    probe = torch.randn(7, together.W.d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for b in range(3):
        alone = lens.operator(layer, texts[b], part)
        assert alone.W.batch_shape == ()
        assert relative(together.W.apply(probe)[b], alone.W.apply(probe)) < 1e-5


@pytest.mark.parametrize(
    "family", ["opt", "llama", "mistral", "mamba", "bamba", "recurrent_gemma", "qwen3_next"]
)
def test_causal_families_have_no_weight_on_later_tokens(family, build, ids):
    for layer in lens.layers(build(family)):
        norms = lens.operator(layer, ids(N)).W.block_norms()
        assert float(norms.triu(1).abs().max()) == 0
        assert float(norms.tril(-1).abs().max()) > 0


def test_bert_looks_both_ways(build, ids):
    alpha = lens.operator(lens.layers(build("bert"))[0], ids(N)).W.alpha
    assert float(alpha.triu(1).abs().max()) > 0


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
    assert float(frozen.W.alpha[:, lag >= window].abs().sum()) == 0


def test_a_sink_takes_its_share(build, ids):
    model = build("gpt_oss")
    for layer in lens.layers(model):
        rest = 1 - lens.operator(layer, ids(N)).W.alpha.sum(-1)
        assert float(rest.min()) > 0
        with torch.no_grad():
            layer.module.sinks.fill_(-1e4)
        assert float((1 - lens.operator(layer, ids(N)).W.alpha.sum(-1)).abs().max()) < 1e-6


@torch.no_grad()
def test_the_gated_delta_rule_token_by_token(build, ids):
    layer = lens.layers(build("qwen3_next"))[0]
    frozen = lens.operator(layer, ids(N))
    # the state S (key width, value width) of head h, driven by unit values at one token after the other
    from ssmbook.lens._readers import delta

    kept = {}
    original = delta._coefficients

    def spy(module, q, k, b, a):
        kept.update(module=module, q=q, k=k, b=b, a=a)
        return original(module, q, k, b, a)

    delta._coefficients = spy
    try:
        lens.operator(layer, ids(N))
    finally:
        delta._coefficients = original
    module = kept["module"]
    h, share = 3, module.num_v_heads // module.num_k_heads
    q, k = (kept[c].unflatten(-1, (module.num_k_heads, -1))[:, h // share] for c in "qk")
    q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    beta = kept["b"][:, h].sigmoid()
    decay = torch.exp(
        -module.A_log[h].exp() * torch.nn.functional.softplus(kept["a"][:, h] + module.dt_bias[h])
    )
    S, rows = torch.zeros(q.shape[-1], N, dtype=q.dtype), []
    for t in range(N):
        S = decay[t] * S
        v = torch.zeros(N, dtype=q.dtype)
        v[t] = 1
        S = S + beta[t] * torch.outer(k[t], v - k[t] @ S)
        rows.append(q[t] @ S / q.shape[-1] ** 0.5)
    assert relative(frozen.W.alpha[h], torch.stack(rows)) < 1e-9


def test_the_model_is_left_as_it_was(build, ids):
    model = build("jamba")
    model.set_attn_implementation("sdpa")
    before = {name: p.clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        wanted = model(ids(1, N), use_cache=False).last_hidden_state
    for layer in lens.layers(model):
        notes = lens.operator(layer, ids(N)).notes
        assert notes == ("attention ran as eager instead of sdpa, which returns no weights",)
    assert model.config._attn_implementation == "sdpa"
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(p, before[name]) and p.requires_grad for name, p in model.named_parameters())
    with torch.no_grad():
        assert torch.equal(model(ids(1, N), use_cache=False).last_hidden_state, wanted)
