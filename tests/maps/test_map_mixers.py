"""Our cores are those of the Mamba and Mamba-2 mixers that the transformers package computes."""

import pytest
import torch
from helpers import F64, close
from torch.nn import functional

from ssmbook.maps import SSD, SelectiveSSM

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def float_means_double(monkeypatch):
    """The mixers cast parts of their work to float32; here those parts stay in float64."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def scramble(module, generator):
    """Random values everywhere: none of torch's global draws, no parameter silently one or zero."""
    module = module.double().eval()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(0.6 * torch.randn(p.shape, generator=generator, dtype=F64))
    return module


def short_convolution(conv1d, x):
    """Depthwise causal convolution and SiLU: (batch, n, channels), written out with shifted sums."""
    taps = conv1d.weight.squeeze(1)
    width, n = taps.shape[-1], x.shape[-2]
    padded = functional.pad(x, (0, 0, width - 1, 0))
    return functional.silu(sum(padded[:, s : s + n] * taps[:, s] for s in range(width)) + conv1d.bias)


@torch.no_grad()
def test_mamba_mixer_is_projection_convolution_selective_ssm_gate():
    from transformers.models.mamba.modeling_mamba import MambaMixer

    generator = torch.Generator().manual_seed(0)
    config = transformers.MambaConfig(
        hidden_size=6,
        state_size=4,
        expand=2,
        conv_kernel=3,
        time_step_rank=2,
        num_hidden_layers=1,
        vocab_size=8,
    )
    mixer = scramble(MambaMixer(config, layer_idx=0), generator)
    x = torch.randn(2, 11, 6, generator=generator, dtype=F64)

    core = SelectiveSSM.from_transformers(mixer)
    inner, gate = mixer.in_proj(x).chunk(2, dim=-1)
    u = short_convolution(mixer.conv1d, inner)
    wanted = mixer(x)
    for y in (core(u), core.interaction(u).apply(u), core.run(u)[0]):
        close(mixer.out_proj(y * functional.silu(gate)), wanted, tol=1e-12)

    exact = SelectiveSSM(12, N=4, discretization="zoh", dtype=F64)
    exact.load_state_dict(core.state_dict())
    gap = mixer.out_proj(exact(u) * functional.silu(gate)) - wanted
    assert float(gap.abs().max()) > 1e-3 * float(wanted.abs().max())


@pytest.mark.parametrize("part", ["b_layernorm", "rms_eps"])  # as in Jamba, as in Falcon-Mamba
def test_a_mixer_that_does_not_select_linearly_is_refused(part):
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = transformers.MambaConfig(hidden_size=6, state_size=4, num_hidden_layers=1, vocab_size=8)
    mixer = MambaMixer(config, layer_idx=0)
    setattr(mixer, part, torch.nn.LayerNorm(4))
    with pytest.raises(ValueError, match="norms on its steps, in MambaMixer"):
        SelectiveSSM.from_transformers(mixer)
    with pytest.raises(TypeError, match="x_proj, dt_proj, A_log and D; got Linear"):
        SelectiveSSM.from_transformers(torch.nn.Linear(2, 2))


def selection(rows, width):
    """A matrix that picks the listed channels out of ``width``."""
    return torch.eye(width, dtype=F64)[rows]


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("n", [11, 16])
def test_mamba2_mixer_is_projection_convolution_ssd_gate_norm(groups, n):
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    heads, head_width, N, inner = 4, 3, 5, 12
    generator = torch.Generator().manual_seed(0)
    config = transformers.Mamba2Config(
        hidden_size=6, state_size=N, expand=2, conv_kernel=3, num_heads=heads, head_dim=head_width,
        n_groups=groups, chunk_size=4, num_hidden_layers=1, vocab_size=8,
    )  # fmt: skip
    mixer = scramble(Mamba2Mixer(config, layer_idx=0), generator)
    x = torch.randn(2, n, 6, generator=generator, dtype=F64)

    conv_width = inner + 2 * groups * N
    gate, to_convolve, step = mixer.in_proj(x).split([inner, conv_width, heads], dim=-1)
    # the core reads the convolved channels and the raw steps, side by side
    u = torch.cat([short_convolution(mixer.conv1d, to_convolve), step], dim=-1)
    width = conv_width + heads
    value_rows = torch.arange(inner).reshape(heads, head_width)
    B_rows = inner + torch.arange(groups * N).reshape(groups, N)
    core = SSD(width, inner, H=heads, head_width=head_width, N=N, groups=groups, dtype=F64)
    core.load_state_dict(
        {
            "W_V": selection(value_rows, width),
            "W_O": selection(value_rows, inner).mT,
            "W_B": selection(B_rows, width),
            "W_C": selection(B_rows + groups * N, width),
            "W_delta": selection(conv_width + torch.arange(heads)[:, None], width),
            "b_delta": mixer.dt_bias,
            "log_A": mixer.A_log,
        }
    )
    skip = mixer.D.repeat_interleave(head_width) * u[..., :inner]

    seen = []
    mixer.norm.register_forward_hook(lambda module, arguments, result: seen.append(arguments[0]))
    wanted = mixer(x)
    for y in (core(u), core.interaction(u).apply(u), core.run(u)[0]):
        close(y + skip, seen[0], tol=1e-12)
    gated = ((core(u) + skip) * functional.silu(gate)).unflatten(-1, (groups, inner // groups))
    normed = gated / torch.sqrt(gated.pow(2).mean(-1, keepdim=True) + mixer.norm.variance_epsilon)
    # the mixer's norm always works in float32
    close(mixer.out_proj(mixer.norm.weight * normed.flatten(-2)), wanted, tol=2e-6)
