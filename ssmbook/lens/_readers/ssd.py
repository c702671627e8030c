"""Mamba-2 and Bamba: one scalar decay a head (state space duality), a gated norm behind it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook.lens._capture import Call, watched
from ssmbook.lens._frozen import Frozen, Linear, Reading, convolved, depthwise, diagonal_heads, linear
from ssmbook.maps.activations import secant_slope
from ssmbook.maps.coefficients import scalar_decay_coefficients


def read_ssd(module: nn.Module, call: Call) -> Reading:
    with watched(module.in_proj, module.norm, module.out_proj) as seen:
        call.run(module)
    x, y, projected = call.one(call.x), call.one(seen[module.out_proj][1]), call.one(seen[module.in_proj][1])
    core_y, gate = (call.one(part) for part in seen[module.norm][0])
    inner, H = core_y.shape[-1], module.num_heads
    _, convolved, step = projected.split([inner, projected.shape[-1] - inner - H, H], dim=-1)
    taps = module.conv1d.weight.squeeze(1)
    bias = taps.new_zeros(len(taps)) if module.conv1d.bias is None else module.conv1d.bias
    drive = depthwise(convolved, taps) + bias
    slope = secant_slope(module.activation, drive)
    u, B, C = (drive * slope).split([inner, *[(len(taps) - inner) // 2] * 2], dim=-1)
    W = diagonal_heads(_coefficients(module, B, C, step), inner // H)
    return Reading(
        core=Frozen(W, u, core_y.to(u.dtype), casts=True),
        mixer=_mixer(module, W, x, y, core_y, gate, (taps[:inner], bias[:inner], slope[..., :inner])),
        F=lambda x: call.run(module, x[None])[0],
    )


def _coefficients(module, B: Tensor, C: Tensor, step: Tensor) -> Tensor:
    """alpha (..., H, n, n), the skip D on its diagonal."""
    H, groups = module.num_heads, module.n_groups
    B, C = (
        part.unflatten(-1, (groups, -1)).transpose(-3, -2).repeat_interleave(H // groups, dim=-3)
        for part in (B, C)
    )
    delta = functional.softplus(step + module.dt_bias).clamp(*module.time_step_limit).mT
    log_a = -module.A_log.exp()[:, None] * delta
    alpha = scalar_decay_coefficients(C, delta[..., None] * B, log_a)
    return alpha + module.D[:, None, None] * torch.eye(alpha.shape[-1]).to(alpha)


def _mixer(module, W, x, y, core_y, gate, convolution) -> Frozen:
    """In projection, short convolution with its slopes, core, gate and root mean square held, out."""
    inner, groups = core_y.shape[-1], module.n_groups
    project, out = linear("in_proj", module.in_proj), linear("out_proj", module.out_proj)
    project = Linear(project.W[inner : 2 * inner], project.b[inner : 2 * inner])
    gate = functional.silu(gate)
    mean_square = (core_y * gate).unflatten(-1, (groups, -1)).square().mean(-1, keepdim=True)
    scale = torch.rsqrt(mean_square + module.norm.variance_epsilon).expand(*[-1] * gate.ndim, inner // groups)
    gate = gate * module.norm.weight * scale.flatten(-2)
    return convolved(W, x, y, project, convolution, gate, out)
