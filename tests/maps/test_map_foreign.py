"""Agreement with code that none of this library's authors wrote: torch, scipy."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import torch
from helpers import F64, close, gen, tokens
from torch.nn import functional

from ssmbook.maps import (
    LTISSM,
    RNN,
    Attention,
    Convolution,
    DiagonalSSM,
    SelectiveSSM,
    alibi_bias,
    causal_mask,
    softmax_coefficients,
)


def heads_of(m, x):
    q, k, v = (torch.einsum("hcd,...nd->...hnc", w, x) for w in (m.W_Q, m.W_K, m.W_V))
    return q, k, v


def joined(m, mixed):
    return torch.einsum("hpr,...hnr->...np", m.W_O, mixed)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_attention_is_scaled_dot_product_attention(causal, batch_shape):
    m = Attention(5, 3, H=2, head_width=4, causal=causal, generator=gen(), dtype=F64)
    x = tokens(*batch_shape, 7, 5)
    q, k, v = heads_of(m, x)
    close(m(x), joined(m, functional.scaled_dot_product_attention(q, k, v, is_causal=causal)))


def test_attention_with_alibi_is_sdpa_with_the_slopes_as_mask():
    m = Attention(5, 3, H=8, head_width=4, alibi=True, generator=gen(), dtype=F64)
    x = tokens(2, 7, 5)
    i, j = np.indices((7, 7))
    slopes = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256])
    mask = np.where(j <= i, -slopes[:, None, None] * (i - j), -np.inf)
    q, k, v = heads_of(m, x)
    foreign = functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.tensor(mask))
    close(m(x), joined(m, foreign))


def test_attention_with_learned_bias_is_sdpa_with_that_mask():
    bias = tokens(2, 9, seed=4)
    m = Attention(5, 3, H=2, head_width=4, bias=bias, alibi=True, generator=gen(), dtype=F64)
    x = tokens(7, 5)
    i, j = np.indices((7, 7))
    mask = bias[:, abs(i - j)] + alibi_bias(2, 7, dtype=F64)
    q, k, v = heads_of(m, x)
    foreign = functional.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=mask.masked_fill(~causal_mask(7), float("-inf"))
    )
    close(m(x), joined(m, foreign[0]))


@pytest.mark.parametrize("causal", [True, False])
def test_sink_is_sdpa_with_one_zero_token_in_front(causal):
    m = Attention(5, 3, H=2, head_width=4, causal=causal, sink=True, generator=gen(), dtype=F64)
    x = tokens(2, 7, 5)
    q, k, v = heads_of(m, x)
    seen = functional.pad(causal_mask(7) if causal else torch.ones(7, 7).bool(), (1, 0), value=True)
    k, v = functional.pad(k, (0, 0, 1, 0)), functional.pad(v, (0, 0, 1, 0))
    close(m(x), joined(m, functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)))
    rows = m.coefficients(x).sum(-1)
    assert bool((rows < 1).all())


def test_softmax_coefficients_survive_huge_logits():
    q = 1e3 * tokens(2, 6, 3)
    for sink in (False, True):
        alpha = softmax_coefficients(q, q, sink=sink)
        assert torch.isfinite(alpha).all()
        close(alpha.sum(-1), torch.ones(2, 6, dtype=F64))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rnn_is_torch_rnn(activation):
    m = RNN(3, 5, N=5, activation=activation, generator=gen(), dtype=F64)
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


@pytest.mark.parametrize("width", [1, 3, 9])
def test_convolution_is_conv1d_with_flipped_taps(width):
    m = Convolution(4, 3, width=width, generator=gen(), dtype=F64)
    x = tokens(2, 7, 4)
    kernel = m.K.flip(0).permute(1, 2, 0)
    foreign = functional.conv1d(functional.pad(x.mT, (width - 1, 0)), kernel)
    close(m(x), foreign.mT)


@pytest.mark.parametrize("skip", [False, True])
def test_lti_ssm_is_dlsim(skip):
    m = LTISSM.random(3, 2, N=5, rho=0.95, skip=skip, generator=gen(), dtype=F64)
    x = tokens(11, 3)
    A, B, C = (w.detach().numpy() for w in (m.A, m.B, m.C))
    D = m.D.detach().numpy() if skip else np.zeros((2, 3))
    _, y, _ = scipy.signal.dlsim((A, B, C @ A, C @ B + D, 1), x.numpy())
    close(m(x), torch.from_numpy(y))
    _, impulse = scipy.signal.dimpulse((A, B, C @ A, C @ B + D, 1), n=11)
    close(m.system.lags(11), torch.from_numpy(np.stack(impulse, -1)))


@pytest.mark.parametrize("channel", [0, 2])
def test_diagonal_ssm_is_cont2discrete_and_dlsim(channel):
    m = DiagonalSSM(3, N=4, generator=gen(), dtype=F64)
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
    m = SelectiveSSM(2, N=3, discretization="zoh", generator=gen(), dtype=F64)
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
def test_euler_tends_to_zero_order_hold_as_steps_shrink():
    gaps = []
    for shift in (-8.0, -12.0, -16.0):
        zoh, euler = (
            SelectiveSSM(3, N=4, discretization=name, generator=gen(), dtype=F64) for name in ("zoh", "euler")
        )
        for m in (zoh, euler):
            torch.nn.init.constant_(m.b_delta, shift)
        x = tokens(7, 3)
        kept = zoh(x) - zoh.D * x
        gaps.append(float((kept - (euler(x) - euler.D * x)).norm() / kept.norm()))
    assert gaps[0] > 1e-2
    # the relative gap is proportional to the step, which shrinks by e^4 each time
    assert gaps[0] / gaps[1] == pytest.approx(np.exp(4), rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(np.exp(4), rel=0.1)
