"""RecurrentGemma's recurrent block: a real gated linear recurrent unit in every channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook.lens._capture import Call, watched
from ssmbook.lens._frozen import Frozen, Reading, convolved, linear
from ssmbook.operators import DiagonalOperator, ModalOperator

# The exponent of the recurrence gate (Griffin's c).
_EXPONENT = 8.0


def read_rg_lru(module: nn.Module, call: Call) -> Reading:
    with watched(module.linear_y, module.rg_lru, module.linear_out) as seen:
        call.run(module)
    given, core_y = seen[module.rg_lru]
    u, core_y = call.one(given[0]), call.one(core_y)
    W = DiagonalOperator(_channels(module.rg_lru, u))
    gate = module.act_fn(call.one(seen[module.linear_y][1]))
    x, y = call.one(call.x), call.one(seen[module.linear_out][1])
    project, out = linear("linear_x", module.linear_x), linear("linear_out", module.linear_out)
    taps = module.conv_1d.weight.squeeze(1)
    return Reading(
        core=Frozen(W, u, core_y, casts=True),
        mixer=convolved(W, x, y, project, (taps, module.conv_1d.bias, 1.0), gate, out),
        F=lambda x: call.run(module, x[None])[0][0],
    )


def _gate(weight: Tensor, bias: Tensor, u: Tensor) -> Tensor:
    """A sigmoid gate with block-diagonal weights: weight (blocks, w, w), bias (blocks, w), u (..., n, c)."""
    blocks = u.unflatten(-1, bias.shape)
    return torch.sigmoid(torch.einsum("...bi,bij->...bj", blocks, weight) + bias).flatten(-2)


def _channels(unit: nn.Module, u: Tensor) -> ModalOperator:
    """One state a channel: h_i = a_i h_{i-1} + sqrt(1 - a_i^2) g_i u_i, but g_0 u_0 for the first token."""
    enter = _gate(unit.input_gate_weight, unit.input_gate_bias, u)
    rate = _gate(unit.recurrent_gate_weight, unit.recurrent_gate_bias, u)
    log_a = -_EXPONENT * rate * functional.softplus(unit.recurrent_param)
    normalized = torch.sqrt(-torch.expm1(2 * log_a))
    first = torch.arange(u.shape[-2], device=u.device)[:, None] == 0
    entered = (enter * torch.where(first, 1.0, normalized)).mT[..., None, None]
    return ModalOperator(log_a.mT[..., None], entered, torch.ones_like(entered))
