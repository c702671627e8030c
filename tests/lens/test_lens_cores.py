"""Heads of trained layers as maps of the book, against what the lens reads of the same layer."""

import pytest
import torch

from ssmbook import lens
from ssmbook.maps import Attention


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


def test_other_modules_and_other_scales(build):
    with pytest.raises(TypeError, match="parts of BERT's or GPT-2's attention; got Linear"):
        Attention.from_transformers(torch.nn.Linear(2, 2))
    mixer = lens.layers(build("gpt2"))[0].module
    mixer.scale_attn_by_inverse_layer_idx = True
    with pytest.raises(ValueError, match="divide its logits by sqrt"):
        Attention.from_transformers(mixer)
