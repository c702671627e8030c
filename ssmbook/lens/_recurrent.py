"""Recurrent layers of transformers: Mamba, Mamba-2, RecurrentGemma, gated DeltaNets; LFM2's convolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook.lens._calls import Call, main_result, watch, without_padding
from ssmbook.lens._reading import LayerOperator, Reading, convolve, has, heads_of_channels
from ssmbook.maps.elementary import secant_slope
from ssmbook.maps.linear_attention import decayed_products, scalar_decay_coefficients
from ssmbook.maps.selective_ssm import selective_operator
from ssmbook.operators import DiagonalOperator, LagOperator
from ssmbook.operators.recurrent import ModalOperator


def _reading(module: nn.Module, call: Call, core: LayerOperator, site: nn.Module, **where) -> Reading:
    """A core, where it enters the rest of the layer, and the whole layer as a function of its tokens."""

    def F(x):
        return main_result(call.run(module, x[None]))[0]

    return Reading(core, F=F, x=call.one(call.x), site=site, **where)


def _gated(module, call, W, u: Tensor, entered: Tensor, gate: Tensor, offset=None, casts=True) -> Reading:
    """The reading of a core whose result, times a gate, entered the output projection.

    Where the gate is exactly zero the output does not depend on the core: nothing is
    compared there.
    """
    free = W.apply(u) if offset is None else W.apply(u) + offset
    y = torch.where(gate == 0, free, entered / torch.where(gate == 0, 1.0, gate))
    core = LayerOperator(W, u, y, offset, casts=casts)
    return _reading(module, call, core, module.out_proj, enters=True, put=lambda y: y * gate)


# Mamba, Falcon-Mamba and Jamba: a selective diagonal recurrence in every channel.


def read_selective(module: nn.Module, call: Call) -> Reading:
    parts = {name.lower(): part for name, part in module.named_children()}
    norms = [parts[name] for name in ("dt_layernorm", "b_layernorm", "c_layernorm") if name in parts]
    with watch(module.in_proj, module.x_proj, module.out_proj, *norms) as seen:
        call.run(module)
    u = call.one(seen[module.x_proj][0][0])
    if norms:
        selected = [seen[norm][1] for norm in norms]
    else:
        N = module.A_log.shape[1]
        selected = seen[module.x_proj][1].split([module.dt_proj.in_features, N, N], dim=-1)
    step, B, C = (call.one(part) for part in selected)
    delta = functional.softplus(step @ module.dt_proj.weight.mT + module.dt_proj.bias)
    W = selective_operator(delta, -module.A_log.exp(), delta[..., None] * B[..., None, :], C, module.D)
    gate = functional.silu(call.one(seen[module.in_proj][1]).chunk(2, dim=-1)[1])
    return _gated(module, call, W, u, call.one(seen[module.out_proj][0][0]), gate)


# Mamba-2, Bamba and Falcon-H1: one scalar decay per head (state space duality), followed by
# a gated norm.


def read_ssd(module: nn.Module, call: Call) -> Reading:
    plain = isinstance(module.norm, nn.Identity)  # Falcon-H1 may multiply by the gate without a norm
    with watch(module.in_proj, module.norm, module.out_proj) as seen:
        call.run(module)
    projected = call.one(seen[module.in_proj][1] * getattr(module, "mup_vector", 1.0))
    y = call.one(seen[module.out_proj if plain else module.norm][0][0])
    inner, H = y.shape[-1], module.num_heads
    gate, convolved, step = projected.split([inner, projected.shape[-1] - inner - H, H], dim=-1)
    taps, bias = module.conv1d.weight.squeeze(1), module.conv1d.bias
    drive = convolve(convolved, taps) + (0 if bias is None else bias)
    drive = without_padding(call, drive * secant_slope(module.activation, drive))
    u, B, C = drive.split([inner, *[(len(taps) - inner) // 2] * 2], dim=-1)
    W = heads_of_channels(_ssd_coefficients(module, B, C, step), inner // H)
    if plain:
        return _gated(module, call, W, u, y.to(u.dtype), functional.silu(gate))
    return _reading(module, call, LayerOperator(W, u, y.to(u.dtype), casts=True), module.norm, enters=True)


def _ssd_coefficients(module, B: Tensor, C: Tensor, step: Tensor) -> Tensor:
    """alpha (..., H, n, n), with the skip D on its diagonal."""
    share = module.num_heads // module.n_groups
    B, C = (
        part.unflatten(-1, (module.n_groups, -1)).transpose(-3, -2).repeat_interleave(share, dim=-3)
        for part in (B, C)
    )
    delta = functional.softplus(step + module.dt_bias).clamp(*module.time_step_limit).mT
    log_a = -module.A_log.exp()[:, None] * delta
    alpha = scalar_decay_coefficients(C, delta[..., None] * B, log_a)
    return alpha + module.D[:, None, None] * torch.eye(alpha.shape[-1]).to(alpha)


# RecurrentGemma: a real gated linear recurrent unit in every channel.


def read_rg_lru(module: nn.Module, call: Call) -> Reading:
    with watch(module.rg_lru) as seen:
        call.run(module)
    given, y = seen[module.rg_lru]
    u = call.one(given[0])
    W = DiagonalOperator(_rg_lru_channels(module.rg_lru, u))
    return _reading(module, call, LayerOperator(W, u, call.one(y), casts=True), module.rg_lru)


def _rg_lru_channels(unit: nn.Module, u: Tensor) -> ModalOperator:
    """One state per channel: h_i = a_i h_{i-1} + sqrt(1 - a_i^2) g_i u_i, but g_0 u_0 for the first token."""
    enter = _block_gate(unit.input_gate_weight, unit.input_gate_bias, u)
    rate = _block_gate(unit.recurrent_gate_weight, unit.recurrent_gate_bias, u)
    log_a = -8.0 * rate * functional.softplus(unit.recurrent_param)  # Griffin's c = 8
    normalized = torch.sqrt(-torch.expm1(2 * log_a))
    first = torch.arange(u.shape[-2], device=u.device)[:, None] == 0
    entered = (enter * torch.where(first, 1.0, normalized)).mT[..., None, None]
    return ModalOperator(log_a.mT[..., None], entered, torch.ones_like(entered))


def _block_gate(weight: Tensor, bias: Tensor, u: Tensor) -> Tensor:
    """A sigmoid gate with block-diagonal weights: weight (blocks, w, w), bias (blocks, w), u (..., n, c)."""
    blocks = u.unflatten(-1, bias.shape)
    return torch.sigmoid(torch.einsum("...bi,bij->...bj", blocks, weight) + bias).flatten(-2)


# Gated DeltaNets: linear attention that erases what a key held before it writes.
# Qwen3-Next, Qwen3.5 and OLMo-Hybrid have one decay per head, Kimi Linear one per key
# channel.

_DELTA_NAMES = (
    "in_proj_qkvz in_proj_ba A_log dt_bias norm out_proj",  # Qwen3-Next
    "in_proj_qkv in_proj_b in_proj_a A_log dt_bias norm out_proj",  # Qwen3.5
    "q_proj k_proj v_proj b_proj a_proj A_log dt_bias o_norm o_proj",  # OLMo-Hybrid
    "q_proj k_proj v_proj b_proj forget_gate o_norm o_proj",  # Kimi Linear
)


def is_gated_delta(module: nn.Module) -> bool:
    return hasattr(module, "conv1d") and any(has(names)(module) for names in _DELTA_NAMES)


def read_gated_delta(module: nn.Module, call: Call) -> Reading:
    with watch(*module.children()) as seen:
        call.run(module)

    def made(name: str) -> Tensor:
        return call.one(seen[getattr(module, name)][1])

    if hasattr(module, "in_proj_qkvz"):
        mixed, steps = seen[module.in_proj_qkvz][1], seen[module.in_proj_ba][1]
        q, k, v, _, b, a = (call.one(t) for t in module.fix_query_key_value_ordering(mixed, steps))
        drive = torch.cat([q.flatten(-2), k.flatten(-2), v.flatten(-2)], dim=-1)
    elif hasattr(module, "in_proj_qkv"):
        drive, b, a = made("in_proj_qkv"), made("in_proj_b"), made("in_proj_a")
    else:
        drive, b = torch.cat([made(f"{name}_proj") for name in "qkv"], dim=-1), made("b_proj")
        a = None if hasattr(module, "forget_gate") else made("a_proj")
    if a is None:
        log_a = made("forget_gate").transpose(-3, -2).to(drive)
    else:
        log_a = (-module.A_log.exp() * functional.softplus(a + module.dt_bias)).mT[..., None]
    beta = torch.sigmoid(b).mT * (2.0 if getattr(module, "allow_neg_eigval", False) else 1.0)
    drive = convolve(without_padding(call, drive), module.conv1d.weight.squeeze(1))
    drive = drive * secant_slope(module.activation, drive)
    H, width = beta.shape[-2], module.head_v_dim if hasattr(module, "head_v_dim") else module.head_dim
    q, k, u = drive.tensor_split([(drive.shape[-1] - H * width) // 2, drive.shape[-1] - H * width], dim=-1)
    r = getattr(module, "head_k_dim", width)
    q, k = (part.unflatten(-1, (-1, r)).transpose(-3, -2) for part in (q, k))
    W = heads_of_channels(_delta_coefficients(q, k, beta, log_a), width)
    norm = module.norm if hasattr(module, "norm") else module.o_norm
    y = seen[norm][0][0].reshape(*u.shape)
    return _reading(module, call, LayerOperator(W, u, y, casts=True), norm, enters=True)


def _delta_coefficients(q: Tensor, k: Tensor, beta: Tensor, log_a: Tensor) -> Tensor:
    """alpha = read (I + diag(beta) erase)^{-1} diag(beta) of decayed products of queries and keys.

    The state is S_i = (I - beta_i k_i k_i^T) A_i S_{i-1} + beta_i k_i v_i^T and y_i = S_i^T
    q_i, with A_i diagonal. Writing S_i = sum_j A_i ... A_{j+1} k_j w_j^T leaves w_i =
    beta_i (v_i - sum_{j<i} <k_i, A_i ... A_{j+1} k_j> w_j). q, k (..., H, n, r), or fewer,
    shared by neighboring heads; beta (..., H, n); log_a (..., H, n, r or 1).
    """
    share = beta.shape[-2] // q.shape[-3]
    # the layers add 1e-6 to a squared length
    q, k = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + 1e-6) for part in (q, k))
    q, k = (part.repeat_interleave(share, dim=-3) for part in (q, k))
    erase = beta[..., None] * decayed_products(k, k, log_a).tril(-1)
    read = decayed_products(q, k, log_a) * k.shape[-1] ** -0.5
    solved = torch.linalg.solve_triangular(erase, read, upper=False, left=False, unitriangular=True)
    return solved * beta[..., None, :]


# LFM2: a short causal convolution of every channel, between two gates.


def is_short_convolution(module: nn.Module) -> bool:
    conv = getattr(module, "conv", None)
    depthwise = isinstance(conv, nn.Conv1d) and conv.groups == conv.in_channels
    return depthwise and has("in_proj out_proj")(module)


def read_short_convolution(module: nn.Module, call: Call) -> Reading:
    with watch(module.in_proj, module.out_proj) as seen:
        call.run(module)
    enter, leave, x = call.one(seen[module.in_proj][1]).chunk(3, dim=-1)
    u, taps, bias = enter * x, module.conv.weight.squeeze(1).flip(-1), module.conv.bias
    n, c = u.shape[-2:]
    lags = taps[:, :n, None, None].expand(*u.shape[:-2], c, -1, 1, 1)
    offset = None if bias is None else bias.expand_as(u)
    y = call.one(seen[module.out_proj][0][0])
    return _gated(module, call, DiagonalOperator(LagOperator(lags, n)), u, y, leave, offset, casts=False)
