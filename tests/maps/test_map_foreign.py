"""Agreement with code that none of this library's authors wrote: torch, scipy, transformers."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import torch
from helpers import F64, close, future, like, tokens
from torch.nn import functional

from ssmbook import maps

SLOPES = torch.tensor([2.0**-h for h in range(1, 9)], dtype=F64)[:, None, None]
DISTANCE = (torch.arange(7)[:, None] - torch.arange(7)).abs()
BIAS = tokens(8, 9, seed=4)


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, torch.zeros(8, 7, 7, dtype=F64)),
        ({"alibi": True}, -SLOPES * DISTANCE),
        ({"alibi": True, "bias": BIAS}, BIAS[:, DISTANCE] - SLOPES * DISTANCE),
    ],
    ids=["plain", "ALiBi", "learned bias and ALiBi"],
)
def test_attention_is_scaled_dot_product_attention(options, mask, causal, sink):
    m = maps.Attention(5, 3, H=8, head_width=4, causal=causal, sink=sink, **options, **like())
    x = tokens(2, 7, 5)
    q, k, v = (torch.einsum("hcd,...nd->...hnc", w, x) for w in (m.W_Q, m.W_K, m.W_V))
    mask = mask.masked_fill(future(7), float("-inf")) if causal else mask
    if sink:  # a token of zeros in front, which everyone sees
        k, v, mask = (
            functional.pad(t, padding)
            for t, padding in ((k, (0, 0, 1, 0)), (v, (0, 0, 1, 0)), (mask, (1, 0)))
        )
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    close(m(x), torch.einsum("hpr,...hnr->...np", m.W_O, mixed))
    rows = m.coefficients(x).sum(-1)
    assert bool((rows < 1).all()) if sink else torch.allclose(rows, torch.ones_like(rows))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rnn_is_torch_rnn(activation):
    m = maps.RNN(3, 5, N=5, activation=activation, **like())
    with torch.no_grad():
        m.C.copy_(torch.eye(5))
    foreign = torch.nn.RNN(3, 5, nonlinearity=activation, bias=False, batch_first=True, dtype=F64)
    foreign.load_state_dict({"weight_ih_l0": m.B.detach(), "weight_hh_l0": m.A.detach()})
    x, h = tokens(2, 7, 3), tokens(2, 5, seed=2)
    y, last = foreign(x)
    close(m(x), y)
    close(m.run(x)[1], last[0])
    y, last = foreign(x, h[None])
    close(m.run(x, h)[0], y)


def test_convolution_is_conv1d_with_flipped_taps():
    width = 3
    m = maps.Convolution(4, 3, width=width, **like())
    x = tokens(2, 7, 4)
    kernel = m.K.flip(0).permute(1, 2, 0)
    foreign = functional.conv1d(functional.pad(x.mT, (width - 1, 0)), kernel)
    close(m(x), foreign.mT)


def test_lti_ssm_is_dlsim():
    m = maps.LTISSM.random(3, 2, N=5, rho=0.95, skip=True, **like())
    x = tokens(11, 3)
    A, B, C, D = (w.detach().numpy() for w in (m.A, m.B, m.C, m.D))
    _, y, _ = scipy.signal.dlsim((A, B, C @ A, C @ B + D, 1), x.numpy())
    close(m(x), torch.from_numpy(y))
    _, impulse = scipy.signal.dimpulse((A, B, C @ A, C @ B + D, 1), n=11)
    close(m.system.lags(11), torch.from_numpy(np.stack(impulse, -1)))


def test_diagonal_ssm_is_cont2discrete_and_dlsim():
    channel = 2
    m = maps.DiagonalSSM(3, N=4, **like())
    x = tokens(13, 3)
    decay, frequency = m.log_decay.detach().exp()[channel], m.frequency.detach()[channel]
    blocks = [np.array([[-a, -w], [w, -a]]) for a, w in zip(decay.tolist(), frequency.tolist(), strict=True)]
    A, B = scipy.linalg.block_diag(*blocks), np.array([[1.0], [0], [1], [0]])
    C = (2 * m.C.detach()[channel] * torch.tensor([1.0, -1.0])).reshape(1, 4).numpy()
    delta, D = float(m.log_delta.detach().exp()[channel]), float(m.D.detach()[channel])
    A_bar, B_bar, _, _, _ = scipy.signal.cont2discrete((A, B, C, np.zeros((1, 1))), delta, method="zoh")
    _, y, _ = scipy.signal.dlsim((A_bar, B_bar, C @ A_bar, C @ B_bar + D, 1), x[:, channel].numpy())
    close(m(x)[:, channel], torch.from_numpy(y[:, 0]))


@pytest.mark.parametrize("wide", [1.0, 1e3])
def test_selective_zero_order_hold_is_the_matrix_exponential(wide):
    m = maps.SelectiveSSM(2, N=3, discretization="zoh", **like())
    x = wide * tokens(4, 2)
    delta, A, B_bar, _ = (t.detach() for t in m.selection(x))
    B = x @ m.W_B.detach().mT
    for i in range(4):
        for c in range(2):
            joint = np.zeros((4, 4))
            joint[:3, :3], joint[:3, 3] = np.diag(A[c].numpy()), B[i].numpy()
            held = scipy.linalg.expm(joint * float(delta[i, c]))
            close(B_bar[i, c], torch.from_numpy(held[:3, 3]), tol=1e-11)


@torch.no_grad()
def test_mamba_mixer_is_projection_convolution_selective_ssm_gate(monkeypatch):
    transformers = pytest.importorskip("transformers")
    from transformers.models.mamba.modeling_mamba import MambaMixer

    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # parts of the mixer cast to float32
    config = transformers.MambaConfig(hidden_size=6, state_size=4, num_hidden_layers=1, vocab_size=8)
    mixer, x = MambaMixer(config, layer_idx=0).double().eval(), tokens(2, 11, 6)
    for seed, parameter in enumerate(mixer.parameters()):
        parameter.copy_(0.6 * tokens(*parameter.shape, seed=seed))  # none is silently one or zero
    core = maps.SelectiveSSM.from_transformers(mixer)
    inner, gate = mixer.in_proj(x).chunk(2, dim=-1)
    u = functional.silu(mixer.conv1d(inner.mT)[..., :11].mT)
    for y in (core(u), core.interaction(u).apply(u), core.run(u)[0]):
        close(mixer.out_proj(y * functional.silu(gate)), mixer(x))
    mixer.rms_eps = 1e-6  # norms on its steps, as in Falcon-Mamba: not linear in the steps
    with pytest.raises(ValueError):
        maps.SelectiveSSM.from_transformers(mixer)
