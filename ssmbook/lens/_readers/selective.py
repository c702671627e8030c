"""Mamba, Falcon-Mamba and Jamba: a selective diagonal recurrence in every channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook.lens._capture import Call, watched
from ssmbook.lens._frozen import Frozen, Linear, Reading, convolved, depthwise, linear
from ssmbook.maps.activations import secant_slope
from ssmbook.operators import DiagonalOperator, ModalOperator

_NORMS = ("dt_layernorm", "b_layernorm", "c_layernorm")


def read_selective(module: nn.Module, call: Call) -> Reading:
    norms = [getattr(module, name) for name in _NORMS if hasattr(module, name)]
    with watched(module.in_proj, module.x_proj, module.out_proj, *norms) as seen:
        call.run(module)
    x, y = call.one(call.x), call.one(seen[module.out_proj][1])
    u = call.one(seen[module.x_proj][0][0])
    selected = [call.one(part) for part in _selected(module, seen, norms)]
    delta = functional.softplus(selected[0] @ module.dt_proj.weight.mT + module.dt_proj.bias)
    W = DiagonalOperator(_channels(module, delta, *selected[1:]))
    projected = call.one(seen[module.in_proj][1])
    inner, gate = projected.chunk(2, dim=-1)
    gate = functional.silu(gate)
    core_y = call.one(seen[module.out_proj][0][0]) / torch.where(gate == 0, 1.0, gate)
    return Reading(
        # where the gate is exactly zero the output says nothing of the core: nothing is compared there
        core=Frozen(W, u, torch.where(gate == 0, W.apply(u), core_y), casts=True),
        mixer=_mixer(module, W, x, y, inner, gate),
        F=lambda x: call.run(module, x[None])[0],
    )


def _selected(module, seen, norms) -> list[Tensor]:
    """What the tokens select: the step before its projection, B and C, after their norms if there are any."""
    if norms:
        return [seen[norm][1] for norm in norms]
    N = module.A_log.shape[1]
    return list(seen[module.x_proj][1].split([module.dt_proj.in_features, N, N], dim=-1))


def _channels(module, delta: Tensor, B: Tensor, C: Tensor) -> ModalOperator:
    """One recurrence a channel: h_i = exp(Delta_i A) h_{i-1} + Delta_i B_i u_i, y_i = C_i h_i + D u_i."""
    log_decay = delta.mT[..., None] * -module.A_log.exp()[:, None]
    entered = delta.mT[..., None, None] * B[..., None, :, :, None]
    *batch, d, n, N = log_decay.shape
    read = C[..., None, :, None, :].expand(*batch, d, n, 1, N)
    skip = module.D[:, None, None, None].expand(*batch, d, n, 1, 1)
    return ModalOperator(log_decay, entered, read, skip)


def _mixer(module, W, x, y, inner: Tensor, gate: Tensor) -> Frozen:
    """In projection, short convolution, SiLU as its secant slope, core, gate, out projection."""
    project, out = linear("in_proj", module.in_proj), linear("out_proj", module.out_proj)
    taps, channels = module.conv1d.weight.squeeze(1), inner.shape[-1]
    bias = 0 if module.conv1d.bias is None else module.conv1d.bias
    slope = secant_slope(module.activation, depthwise(inner, taps) + bias)
    project = Linear(project.W[:channels], project.b[:channels])
    return convolved(W, x, y, project, (taps, bias, slope), gate, out)
