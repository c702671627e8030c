"""Recurrent layers of transformers: Mamba, Mamba-2, RecurrentGemma's RG-LRU and the gated DeltaNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook.lens._calls import Call, watch
from ssmbook.lens._frozen import Frozen, Reading, convolve, heads_of_channels
from ssmbook.maps.key_side import decay_matrix, scalar_decay_coefficients
from ssmbook.maps.layers import secant_slope
from ssmbook.operators import DiagonalOperator
from ssmbook.operators.recurrent import ModalOperator


def _reading(module: nn.Module, call: Call, core: Frozen, site: nn.Module, **where) -> Reading:
    """A core, where it enters the rest of the layer, and the whole layer as a function of its tokens."""

    def F(x):
        result = call.run(module, x[None])
        return (result[0] if isinstance(result, tuple) else result)[0]

    return Reading(core, F=F, x=call.one(call.x), site=site, **where)


# Mamba, Falcon-Mamba and Jamba: a selective diagonal recurrence in every channel.


def read_selective(module: nn.Module, call: Call) -> Reading:
    norms = [
        getattr(module, name)
        for name in ("dt_layernorm", "b_layernorm", "c_layernorm")
        if hasattr(module, name)
    ]
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
    W = DiagonalOperator(_selective_channels(module, delta, B, C))
    gate = functional.silu(call.one(seen[module.in_proj][1]).chunk(2, dim=-1)[1])
    y = call.one(seen[module.out_proj][0][0]) / torch.where(gate == 0, 1.0, gate)
    # where the gate is exactly zero the output does not depend on the core: nothing is compared there
    core = Frozen(W, u, torch.where(gate == 0, W.apply(u), y), casts=True)
    return _reading(module, call, core, module.out_proj, enters=True, put=lambda y: y * gate)


def _selective_channels(module, delta: Tensor, B: Tensor, C: Tensor) -> ModalOperator:
    """One recurrence per channel: h_i = exp(Delta_i A) h_{i-1} + Delta_i B_i u_i, y_i = C_i h_i + D u_i."""
    log_decay = delta.mT[..., None] * -module.A_log.exp()[:, None]
    entered = delta.mT[..., None, None] * B[..., None, :, :, None]
    *batch, d, n, N = log_decay.shape
    read = C[..., None, :, None, :].expand(*batch, d, n, 1, N)
    skip = module.D[:, None, None, None].expand(*batch, d, n, 1, 1)
    return ModalOperator(log_decay, entered, read, skip)


# Mamba-2 and Bamba: one scalar decay per head (state space duality), followed by a gated norm.


def read_ssd(module: nn.Module, call: Call) -> Reading:
    with watch(module.in_proj, module.norm, module.out_proj) as seen:
        call.run(module)
    projected, y = call.one(seen[module.in_proj][1]), call.one(seen[module.norm][0][0])
    inner, H = y.shape[-1], module.num_heads
    _, convolved, step = projected.split([inner, projected.shape[-1] - inner - H, H], dim=-1)
    taps, bias = module.conv1d.weight.squeeze(1), module.conv1d.bias
    drive = convolve(convolved, taps) + (0 if bias is None else bias)
    drive = drive * secant_slope(module.activation, drive)
    u, B, C = drive.split([inner, *[(len(taps) - inner) // 2] * 2], dim=-1)
    W = heads_of_channels(_ssd_coefficients(module, B, C, step), inner // H)
    return _reading(module, call, Frozen(W, u, y.to(u.dtype), casts=True), module.norm, enters=True)


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
    return _reading(module, call, Frozen(W, u, call.one(y), casts=True), module.rg_lru)


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


# Qwen3-Next's gated DeltaNet: linear attention that erases what a key held before it writes.


def read_gated_delta(module: nn.Module, call: Call) -> Reading:
    with watch(module.in_proj_qkvz, module.in_proj_ba, module.norm) as seen:
        call.run(module)
    mixed, steps = seen[module.in_proj_qkvz][1], seen[module.in_proj_ba][1]
    q, k, v, _, b, a = (call.one(t) for t in module.fix_query_key_value_ordering(mixed, steps))
    drive = torch.cat([q.flatten(-2), k.flatten(-2), v.flatten(-2)], dim=-1)
    drive = convolve(drive, module.conv1d.weight.squeeze(1))
    drive = drive * secant_slope(module.activation, drive)
    q, k, u = drive.split([module.key_dim, module.key_dim, module.value_dim], dim=-1)
    W = heads_of_channels(_delta_coefficients(module, q, k, b, a), module.head_v_dim)
    y = seen[module.norm][0][0].reshape(*u.shape)
    return _reading(module, call, Frozen(W, u, y, casts=True), module.norm, enters=True)


def _delta_coefficients(module, q: Tensor, k: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """alpha = tril(Q K^T * L) (I + diag(beta) tril(K K^T * L, -1))^{-1} diag(beta), L the decays' products.

    The state is S_i = a_i (I - beta_i k_i k_i^T) S_{i-1} + beta_i k_i v_i^T and y_i = S_i^T q_i: writing
    S_i = sum_j L_ij k_j w_j^T leaves w_i = beta_i (v_i - sum_{j<i} L_ij <k_i, k_j> w_j).
    """
    share = module.num_v_heads // module.num_k_heads
    q, k = (
        part.unflatten(-1, (module.num_k_heads, -1)).transpose(-3, -2).repeat_interleave(share, dim=-3)
        for part in (q, k)
    )
    # the layer adds 1e-6 to a key's squared length
    q, k = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + 1e-6) for part in (q, k))
    beta = torch.sigmoid(b).mT
    L = decay_matrix((-module.A_log.exp() * functional.softplus(a + module.dt_bias)).mT)
    erase = beta[..., None] * (k @ k.mT * L).tril(-1)
    read = (q @ k.mT * L).tril() * module.head_k_dim**-0.5
    solved = torch.linalg.solve_triangular(erase, read, upper=False, left=False, unitriangular=True)
    return solved * beta[..., None, :]
