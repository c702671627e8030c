"""Qwen3-Next's gated DeltaNet: linear attention that erases what a key held before it writes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook.lens._capture import Call, watched
from ssmbook.lens._frozen import Frozen, Linear, Reading, convolved, depthwise, diagonal_heads, linear
from ssmbook.maps.activations import secant_slope
from ssmbook.maps.coefficients import decay_matrix

# What the layer adds below the root of a key's squared length.
_LENGTH_EPS = 1e-6


def read_gated_delta(module: nn.Module, call: Call) -> Reading:
    with watched(module.in_proj_qkvz, module.in_proj_ba, module.norm, module.out_proj) as seen:
        call.run(module)
    x, y = call.one(call.x), call.one(seen[module.out_proj][1])
    mixed, steps = seen[module.in_proj_qkvz][1], seen[module.in_proj_ba][1]
    q, k, v, z, b, a = (call.one(t) for t in module.fix_query_key_value_ordering(mixed, steps))
    taps = module.conv1d.weight.squeeze(1)
    drive = depthwise(torch.cat([q.flatten(-2), k.flatten(-2), v.flatten(-2)], dim=-1), taps)
    slope = secant_slope(module.activation, drive)
    keys, values = module.key_dim, module.value_dim
    q, k, u = (drive * slope).split([keys, keys, values], dim=-1)
    W = diagonal_heads(_coefficients(module, q, k, b, a), module.head_v_dim)
    core_y = seen[module.norm][0][0].reshape(*x.shape[:-1], values)
    return Reading(
        core=Frozen(W, u, core_y, casts=True),
        mixer=_mixer(module, W, x, y, core_y, z, (taps[2 * keys :], 0.0, slope[..., 2 * keys :])),
        F=lambda x: call.run(module, x[None])[0],
    )


def _coefficients(module, q: Tensor, k: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """alpha = tril(Q K^T * L) (I + diag(beta) tril(K K^T * L, -1))^{-1} diag(beta), L the decays' products.

    The state is S_i = a_i (I - beta_i k_i k_i^T) S_{i-1} + beta_i k_i v_i^T and y_i = S_i^T q_i: writing
    S_i = sum_j L_ij k_j w_j^T leaves w_i = beta_i (v_i - sum_{j<i} L_ij <k_i, k_j> w_j).
    """
    share = module.num_v_heads // module.num_k_heads
    q, k = (
        part.unflatten(-1, (module.num_k_heads, -1)).transpose(-3, -2).repeat_interleave(share, dim=-3)
        for part in (q, k)
    )
    q, k = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + _LENGTH_EPS) for part in (q, k))
    beta = torch.sigmoid(b).mT
    L = decay_matrix((-module.A_log.exp() * functional.softplus(a + module.dt_bias)).mT)
    erase = beta[..., None] * (k @ k.mT * L).tril(-1)
    read = (q @ k.mT * L).tril() * module.head_k_dim**-0.5
    solved = torch.linalg.solve_triangular(erase, read, upper=False, left=False, unitriangular=True)
    return solved * beta[..., None, :]


def _mixer(module, W, x, y, core_y, z, convolution) -> Frozen:
    """In projection of the values, short convolution with its slopes, core, norm and gate held, out."""
    out = linear("out_proj", module.out_proj)
    heads = core_y.unflatten(-1, (-1, module.head_v_dim))
    scale = torch.rsqrt(heads.square().mean(-1, keepdim=True) + module.norm.variance_epsilon)
    gate = (module.norm.weight * scale * functional.silu(z)).flatten(-2)
    return convolved(W, x, y, _values(module), convolution, gate, out)


def _values(module) -> Linear:
    """The rows of in_proj_qkvz that make the values: each key head's q, k, v and z stand together."""
    width = module.num_v_heads // module.num_k_heads * module.head_v_dim
    groups = (
        part.unflatten(0, (module.num_k_heads, -1)) for part in linear("in_proj_qkvz", module.in_proj_qkvz)
    )
    start = 2 * module.head_k_dim
    return Linear(*(part[:, start : start + width].flatten(0, 1) for part in groups))
