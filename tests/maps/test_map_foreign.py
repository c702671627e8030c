"""Agreement with code that none of this library's authors wrote: torch, scipy, transformers."""

import math

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


@pytest.mark.parametrize("causal", [True, False])
def test_a_row_whose_keys_are_all_hidden_reads_nothing(causal):
    q, k = tokens(1, 5, 4), tokens(1, 5, 4, seed=2)
    bias = torch.zeros(1, 5, 5, dtype=F64).masked_fill(
        future(5).mT, -torch.inf
    )  # the first token sees itself
    bias[0, 2] = -torch.inf
    mask = bias.masked_fill(future(5), -torch.inf) if causal else bias
    bias.requires_grad_()
    alpha = maps.softmax_coefficients(q, k, causal=causal, bias=bias)
    close(alpha, functional.scaled_dot_product_attention(q, k, torch.eye(5, dtype=F64)[None], attn_mask=mask))
    assert (alpha[0, 2] == 0).all()
    (slope,) = torch.autograd.grad(alpha.square().sum(), bias)
    assert slope.isfinite().all() and (slope[0, 2] == 0).all()


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


class Wide:
    """What a module of transformers finds as ``torch``, with double precision where it asks for single."""

    float32 = torch.float64
    __getattr__ = staticmethod(lambda name: getattr(torch, name))


@torch.no_grad()
@pytest.mark.parametrize("n", [1, 7, 65])
@pytest.mark.parametrize(
    ("rule", "pairs"), [("Gated DeltaNet", 1), ("Gated DeltaNet", 3), ("KDA", 1), ("KDA", 3)]
)
def test_delta_rules_are_those_of_qwen3_next_and_kimi_linear(monkeypatch, rule, pairs, n):
    """Three pairs are DeltaProduct: three updates per token, the decay in the first, read after the last."""
    pytest.importorskip("transformers")
    from transformers.models.kimi_linear import modeling_kimi_linear as kimi
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    for module in (kimi, qwen):
        monkeypatch.setattr(module, "torch", Wide())
    m, x = maps.DeltaNet(5, 3, H=3, head_width=4, rule=rule, pairs=pairs, **like()), tokens(2, n, 5)
    m.b_beta.copy_(tokens(*m.b_beta.shape, seed=3))
    q, k, v, beta, w = (torch.einsum("hcd,bnd->bnhc", W, x) for W in (m.W_Q, m.W_K, m.W_V, m.W_beta, m.W_w))
    updates = [a.unflatten(-1, (pairs, -1)).movedim(-2, 2).flatten(1, 2) for a in (k, v, beta + m.b_beta)]
    k, v, beta = functional.normalize(updates[0], dim=-1), updates[1], updates[2].sigmoid().squeeze(-1)
    g = torch.zeros(2, n, pairs, 3, w.shape[-1], dtype=F64)
    g[:, :, 0] = -functional.softplus(w + m.b_w)
    g = g.flatten(1, 2)
    run = kimi.recurrent_kimi_delta_attention if rule == "KDA" else qwen.torch_recurrent_gated_delta_rule
    g, strength = g if rule == "KDA" else g.squeeze(-1), beta if pairs == 1 else 2 * beta
    q = 2 * q.repeat_interleave(pairs, 1)  # they divide queries by sqrt(4)
    mixed, memory = run(q, k, v, g, strength, initial_state=None, output_final_state=True)
    close(m(x), torch.einsum("hpr,bnhr->bnp", m.W_O, mixed[:, pairs - 1 :: pairs]))
    close(m.run(x)[1], memory)


@torch.no_grad()
@pytest.mark.parametrize("d", [1, 5])
def test_rg_lru_is_that_of_recurrent_gemma(monkeypatch, d):
    transformers = pytest.importorskip("transformers")
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru as Foreign

    monkeypatch.setattr(Foreign._rnn_scan, "__defaults__", (torch.float64,))
    foreign = Foreign(transformers.RecurrentGemmaConfig(lru_width=d, num_attention_heads=1)).double()
    m, x = maps.RGLRU(d, **like()), tokens(2, 9, d)
    m.b_a.copy_(tokens(d, seed=2)), m.b_g.copy_(tokens(d, seed=3))
    found = {"recurrent_param": m.rate, "recurrent_gate_bias": m.b_a[None], "input_gate_bias": m.b_g[None]}
    found |= {"recurrent_gate_weight": m.W_a.mT[None], "input_gate_weight": m.W_g.mT[None]}
    foreign.load_state_dict(found)
    position = torch.arange(1, 10).expand(2, -1)  # their first position, 0, enters without the square root
    wanted = foreign(x, position)  # once: it keeps its last state
    for y in (m(x), m.interaction(x) @ x):
        close(y, wanted)


@torch.no_grad()
@pytest.mark.parametrize(
    "shift", [-9.0, 0.0, 3.0]
)  # the normalizer is 1 for nearly all rows, some, nearly none
def test_mlstm_is_that_of_xlstm(shift):
    pytest.importorskip("transformers")
    from transformers.models.xlstm import modeling_xlstm as foreign

    m, x = maps.MLSTM(5, 3, H=2, head_width=3, **like()), tokens(2, 9, 5)
    m.b_I.copy_(shift + tokens(2, seed=2)), m.b_F.copy_(tokens(2, seed=3))
    q, k, v, i, f = (torch.einsum("hcd,bnd->bhnc", W, x) for W in (m.W_Q, m.W_K, m.W_V, m.W_I, m.W_F))
    i, f = (a.squeeze(-1) + b[:, None] for a, b in ((i, m.b_I), (f, m.b_F)))
    mixed = foreign.mlstm_recurrent_sequence_native(q, k, v, i, f, eps=0.0, dtype_state=F64)
    mixed = mixed[0] if isinstance(mixed, tuple) else mixed
    for y in (m(x), m.interaction(x) @ x):
        close(y, torch.einsum("hpr,bhnr->bnp", m.W_O, mixed))


@torch.no_grad()
@pytest.mark.parametrize(("d", "H", "rope"), [(9, 3, 4), (5, 1, 2)])
def test_latent_attention_is_that_of_deepseek(monkeypatch, d, H, rope):
    transformers = pytest.importorskip("transformers")
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek

    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(deepseek, "torch", Wide())
    sizes = {"hidden_size": d, "num_attention_heads": H, "num_key_value_heads": H, "q_lora_rank": None}
    sizes |= {"kv_lora_rank": 4, "qk_nope_head_dim": 4, "v_head_dim": 4, "qk_rope_head_dim": rope}
    config = transformers.DeepseekV2Config(attn_implementation="eager", **sizes)
    foreign = deepseek.DeepseekV2Attention(config, layer_idx=0).double().eval()
    foreign.kv_a_layernorm = torch.nn.Identity()
    for seed, parameter in enumerate(foreign.parameters()):
        parameter.copy_(tokens(*parameter.shape, seed=seed))
    m, x = maps.LatentAttention(d, d, H=H, head_width=4, latent=4, rope=rope, **like()), tokens(2, 9, d)
    W_D, W_R = foreign.kv_a_proj_with_mqa.weight.split([4, rope])
    W_K, W_V = foreign.kv_b_proj.weight.unflatten(0, (H, 8)).split(4, dim=1)
    found = {"W_D": W_D, "W_R": W_R, "W_K": W_K, "W_V": W_V}
    found["W_Q"] = foreign.q_proj.weight.unflatten(0, (H, 4 + rope))
    found["W_O"] = foreign.o_proj.weight.unflatten(1, (H, 4)).transpose(0, 1)
    m.load_state_dict(found)
    frequency = 10000.0 ** -(torch.arange(0, rope, 2, dtype=F64) / rope)
    turns = torch.polar(torch.ones(1, 9, rope // 2, dtype=F64), (torch.arange(9)[:, None] * frequency)[None])
    hidden = torch.full((9, 9), -torch.inf, dtype=F64).triu(1)[None, None]
    y, alpha = foreign(x, attention_mask=hidden, position_embeddings=turns)
    close(m(x), y), close(m.coefficients(x), alpha)


@torch.no_grad()
@pytest.mark.parametrize(("n", "N", "R"), [(13, 6, 1), (13, 6, 3), (7, 2, 2)])
def test_mamba3_is_torchmamba(n, N, R):
    """The package wants Python 3.12; where it is missing, the recurrence in complex numbers judges alone."""
    m, x = maps.Mamba3(5, 3, H=2, head_width=3, N=N, R=R, **like()), tokens(2, n, 5)
    for seed, b in enumerate((m.b_B, m.b_C, m.b_delta, m.log_A)):
        b.copy_(tokens(*b.shape, seed=seed + 5))
    B, C = (torch.einsum("rNd,bnd->bnrN", W, x)[:, :, None] + b for W, b in ((m.W_B, m.b_B), (m.W_C, m.b_C)))
    step, lam = (torch.einsum("hd,bnd->bnh", W[:, 0], x) for W in (m.W_delta, m.W_lam))
    step, lam = functional.softplus(step + m.b_delta), lam.sigmoid()
    angle = step[..., None] * (x @ m.W_theta.mT)[:, :, None]  # (b, n, H, N / 2)
    v = torch.einsum("hrd,bnd->bnhr", m.W_V, x)[..., None, :] * m.x_R  # (b, n, H, R, width)
    a = torch.exp(-m.log_A.exp() * step)
    read = _complex_mamba3(a, angle, step, lam, B, C, v)
    close(m(x), torch.einsum("hpr,bnhr->bnp", m.W_O, (read * m.o_R).sum(-2)))
    torchmamba = pytest.importorskip("torchmamba")
    # Its steps are part of B, so both ends of a step share one: scale B and lambda to ours, token by token.
    scale, weight = [step[:, 0]], [lam[:, 0]]
    for i in range(1, n):
        weight.append(1 - (1 - lam[:, i]) * step[:, i] / scale[-1])
        scale.append(lam[:, i] * step[:, i] / weight[-1])
    scale, weight = torch.stack(scale, 1), torch.stack(weight, 1)
    B, C, v = ((scale[..., None, None] * B).mT, C.mT, v.mT)
    mixed, _ = torchmamba.mimo_loop(v, a.log(), B, C, -angle, weight)
    close(mixed.mT, read, tol=1e-9)


def _complex_mamba3(a, angle, step, lam, B, C, v):
    """The recurrence as written, on complex states (b, H, width, N / 2), for reads (b, n, H, R, width)."""
    B, C = (torch.view_as_complex(z.unflatten(-1, (-1, 2)).contiguous()) for z in (B, C))
    state, last, read = 0, 0, []
    for i in range(a.shape[1]):
        write = torch.einsum("bhrN,bhrp->bhpN", B[:, i], v[:, i].to(B.dtype))
        turn = (a[:, i, :, None] * torch.exp(1j * angle[:, i]))[:, :, None]
        now, later = (w[:, :, None, None] for w in (lam[:, i] * step[:, i], (1 - lam[:, i]) * step[:, i]))
        state, last = turn * (state + later * last) + now * write, write
        read.append(torch.einsum("bhrN,bhpN->bhrp", C[:, i].conj(), state).real)
    return torch.stack(read, 1)


@torch.no_grad()
@pytest.mark.parametrize("pairs", [1, 3])
def test_rwkv7_is_the_recurrence_of_its_paper(pairs):
    """S_t = S_{t-1} (diag(w_t) - kappa^T (a_t * kappa)) + v_t^T k_t with rows as vectors, value by key."""
    m, x = maps.DeltaNet(5, 3, H=2, head_width=3, rule="RWKV-7", pairs=pairs, **like()), tokens(9, 5)
    for seed, b in enumerate((m.b_beta, m.b_w, m.xi, m.eta)):
        b.copy_(tokens(*b.shape, seed=seed + 5))
    y = torch.zeros(9, 3, dtype=F64)
    for h in range(2):
        S = torch.zeros(3, 3, dtype=F64)
        for i in range(9):
            decay = torch.exp(-math.exp(-0.5) * (m.W_w[h] @ x[i] + m.b_w[h]).sigmoid())
            for t in range(pairs):
                at = slice(3 * t, 3 * t + 3)
                k, v = m.W_K[h, at] @ x[i], m.W_V[h, at] @ x[i]
                rate = (m.W_beta[h, at] @ x[i] + m.b_beta[h, at]).sigmoid() * (1 if pairs == 1 else 2)
                kappa = k * m.xi[h, at] / (k * m.xi[h, at]).norm()
                w = decay if t == 0 else torch.ones(3, dtype=F64)
                S = S @ (w.diag() - torch.outer(kappa, rate * kappa))
                S = S + torch.outer(v, k * torch.lerp(torch.ones(3, dtype=F64), rate, m.eta[h, at]))
            y[i] += m.W_O[h] @ S @ m.W_Q[h] @ x[i]
    close(m(x), y)


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
