"""Heads of trained layers as maps of the book, against what the lens reads of the same layer."""

import pytest
import torch

from ssmbook import lens
from ssmbook.maps import SSD, Attention


@pytest.mark.parametrize(("family", "size"), [("gpt2", 0), ("gpt2", 1), ("bert", 0), ("bert", 1)])
def test_the_heads_of_a_layer_as_a_map(build, ids, family, size):
    model = build(family, size).double()
    layer = lens.layers(model)[1]
    frozen = lens.operator(layer, ids(9))
    core = Attention.from_transformers(layer.module)
    tokens = torch.cat([frozen.x, torch.ones_like(frozen.x[..., :1])], -1)
    alpha = core.coefficients(tokens).detach()
    torch.testing.assert_close(alpha, frozen.W.alpha, rtol=1e-10, atol=1e-12)
    bias = layer.module.c_proj.bias if family == "gpt2" else layer.module.output.dense.bias
    torch.testing.assert_close((core(tokens) + bias).detach(), frozen.y, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("family", "size"), [("mamba2", 0), ("mamba2", 1), ("bamba", 0)])
def test_the_core_of_mamba_2_as_a_map(build, ids, family, size):
    model = build(family, size).double()
    layer = lens.layers(model)[0]
    frozen, mixer, seen = lens.operator(layer, ids(9)), layer.module, {}
    mixer.in_proj.register_forward_hook(lambda module, args, result: seen.update(z=result))
    with torch.no_grad():
        model(ids(1, 9), use_cache=False)
        core, inner = SSD.from_transformers(mixer), mixer.num_heads * mixer.head_dim
        channels = mixer.conv1d.in_channels
        _, convolved, step = seen["z"][0].split([inner, channels, mixer.num_heads], -1)
        driven = torch.nn.functional.silu(mixer.conv1d(convolved.mT[None])[0, :, :9].mT)
        alpha = core.coefficients(torch.cat([driven, step], -1))
        y = core(torch.cat([driven, step], -1)) + driven[:, :inner] * mixer.D.repeat_interleave(
            mixer.head_dim
        )
    skip = mixer.D.detach()[:, None, None] * torch.eye(9, dtype=torch.float64)
    # the model's own pass computes in float32 inside
    torch.testing.assert_close(alpha + skip, frozen.W.alpha, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(y, frozen.y, rtol=1e-4, atol=1e-5)


def test_modules_that_are_no_such_layer(build):
    for kind in (Attention, SSD):
        with pytest.raises(TypeError, match="got Linear"):
            kind.from_transformers(torch.nn.Linear(2, 2))
    attention, mixer = (lens.layers(build(family))[0].module for family in ("gpt2", "mamba2"))
    attention.scale_attn_by_inverse_layer_idx, mixer.time_step_limit = True, (0.001, 0.1)
    with pytest.raises(ValueError, match="divide its logits by sqrt"):
        Attention.from_transformers(attention)
    with pytest.raises(ValueError, match="must not clamp its steps"):
        SSD.from_transformers(mixer)
