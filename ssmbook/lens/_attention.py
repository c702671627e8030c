"""Softmax attention of transformers and of torch itself, by where each layer keeps its values.

As GPT-2, Phi-3 and ModernBERT (queries, keys and values stacked in one matrix); as
GPT-NeoX, Bloom and Falcon (stacked group by group of heads); as ``nn.MultiheadAttention``;
as DeepSeek (values made from a latent); as the many with projections of their own: Llama
and its relatives, BERT, ALBERT, T5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from inspect import signature

import torch
from torch import Tensor, nn

from ssmbook.lens._calls import Call, main_result, padding, watch
from ssmbook.lens._caught import Core, own_channels, same
from ssmbook.lens._reading import LayerOperator, Reading, Softmax, has, linear
from ssmbook.operators import FactorizedOperator

_QUERY = ("q_proj", "query", "query_proj", "q_lin", "q")
_VALUE = ("v_proj", "value", "value_proj", "v_lin", "v")
_OUT = ("o_proj", "out_proj", "dense", "out_lin", "o")
_WIDTH = ("head_dim", "attention_head_size", "key_value_proj_dim")
_STACKED = ("c_attn c_proj", "qkv_proj o_proj", "Wqkv Wo", "Wqkv out_proj")


@dataclass(frozen=True)
class Projections:
    """The weights of values and outputs, head by head, and the modules that compute them.

    Parameters
    ----------
    W_V, b_V : Tensor (H, r, d) and (H, r)
        Weights and biases of the values.
    W_O, b_O : Tensor (H, p, r) and (p,)
        Weights and bias of the output.
    out : Module or None
        Where y leaves; ``None`` for attention that calls no module for it, and returns y.
    latent : Module or None
        Whose result the values are made from, where not from the hidden states.
    """

    W_V: Tensor
    b_V: Tensor
    W_O: Tensor
    b_O: Tensor
    out: nn.Module | None
    latent: nn.Module | None = None


def _part(module: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    """The first part of a module that has one of these names."""
    parts = (getattr(module, name, None) for name in names)
    return next((part for part in parts if isinstance(part, nn.Module)), None)


def is_stacked(module: nn.Module) -> bool:
    whole = any(has(pair)(module) for pair in _STACKED)
    return whole and hasattr(module, "head_dim") and not getattr(module, "is_cross_attention", False)


def _inside(module: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Where a layer keeps its projections: itself, or its parts ``self`` and ``output`` (BERT)."""
    inner = getattr(module, "self", None)
    return (module, module) if inner is None else (inner, getattr(module, "output", module))


def is_projected(module: nn.Module) -> bool:
    # a recurrence with queries and keys is no attention
    if hasattr(module, "A_log") or hasattr(module, "dt_bias") or "Delta" in type(module).__name__:
        return False
    inner, outer = _inside(module)
    own = all(_part(inner, names) is not None for names in (_QUERY, _VALUE))
    return own and _part(outer, _OUT) is not None and any(hasattr(inner, name) for name in _WIDTH)


def _stacked(module) -> Projections:
    """All queries, then all keys, then all values."""
    fused, out = next(pair.split() for pair in _STACKED if has(pair)(module))
    (W, b), out_module = linear(fused, getattr(module, fused)), getattr(module, out)
    project = linear(out, out_module)
    first = (W.shape[0] + project.W.shape[1]) // 2  # as many keys as values behind the queries
    return _split(W[first:], b[first:], project, module.head_dim, out_module)


def _grouped(module) -> Projections:
    """Behind the queries of each group of heads stand its one key and its one value."""
    fused, project = linear("query_key_value", module.query_key_value), linear("dense", module.dense)
    r = module.head_dim if hasattr(module, "head_dim") else module.head_size
    groups = (fused.W.shape[0] - project.W.shape[1]) // (2 * r)
    values = (part.unflatten(0, (groups, -1, r))[:, -1].flatten(0, 1) for part in fused)
    return _split(*values, project, r, module.dense)


def _torch(module) -> Projections:
    W, b = module.in_proj_weight, module.in_proj_bias
    plain = not module.add_zero_attn and module.bias_k is None
    if W is None or not module.batch_first or not plain:
        raise ValueError(
            "MultiheadAttention must be batch_first=True, with keys and values of the width of x, no tokens "
            f"added (add_bias_kv, add_zero_attn); got {module}, batch_first={module.batch_first}"
        )
    d = module.embed_dim
    b_V = W.new_zeros(d) if b is None else b[2 * d :]
    return _split(W[2 * d :], b_V, linear("out_proj", module.out_proj), module.head_dim, None)


def _latent(module) -> Projections:
    """For each head the rows of its key, then those of its value, both from the normalized latent."""
    r, project = module.v_head_dim, linear("o_proj", module.o_proj)
    H = project.W.shape[1] // r
    both = linear("kv_b_proj", module.kv_b_proj)
    W, b = (part.unflatten(0, (H, -1))[:, -r:].flatten(0, 1) for part in both)
    return replace(_split(W, b, project, r, module.o_proj), latent=module.kv_a_layernorm)


def _projected(module) -> Projections:
    inner, outer = _inside(module)
    (W, b), out = linear("the values", _part(inner, _VALUE)), _part(outer, _OUT)
    norm = None if inner is module else getattr(module, "LayerNorm", None)  # ESM normalizes inside
    if isinstance(getattr(module, "v_norm", None), nn.Module):  # Gemma 4 normalizes its values
        norm, W, b = module.v_norm, torch.eye(len(W)).to(W), torch.zeros_like(b)
    r = next(getattr(inner, name) for name in _WIDTH if hasattr(inner, name))
    return replace(_split(W, b, linear("the output", out), r, out), latent=norm)


def _split(W_V, b_V, project, r: int, out) -> Projections:
    """Cut the rows of the values and the columns of the output projection into heads of width r."""
    H, own = project.W.shape[1] // r, W_V.shape[0] // r
    if not own or H % own or H * r != project.W.shape[1]:
        raise ValueError(
            f"attention must have heads of width {r}; got {W_V.shape[0]} rows of values and "
            f"{project.W.shape[1]} columns of the output projection"
        )
    # grouped keys: neighboring query heads share one value head
    share = [part.unflatten(0, (own, r)).repeat_interleave(H // own, dim=0) for part in (W_V, b_V)]
    return Projections(*share, project.W.unflatten(1, (H, r)).movedim(1, 0), project.b, out)


def weights_of(results: Iterable, n: int) -> Tensor:
    """The attention weights (batch, H, n, n) among what a layer and its parts returned."""
    for result in results:  # a bias of the scores, of the same shape, comes before them (T5)
        for part in reversed(result) if isinstance(result, tuple) else ():
            if isinstance(part, Tensor) and part.ndim == 4 and part.shape[-2:] == (n, n):
                return part
    raise ValueError(
        "attention must return its weights (batch, H, n, n); got none of that shape: not self-attention, not "
        "eager, or a window of keys alone"
    )


def read_attention(module: nn.Module, call: Call) -> Reading:
    """Read the weights of each head from what the layer returns, and its value maps from its parameters."""
    found = projections_of(module)
    attend = module
    if found.out is None:
        attend, call = _self_attention(module, call)
    elif "output_attentions" in signature(module.forward).parameters:
        call = replace(call, kwargs={**call.kwargs, "output_attentions": True})
    parts = [_inside(module)[0], found.out, found.latent]

    def run(x):
        with watch(*(part for part in parts if part not in (None, module))) as seen:
            result = call.run(attend, x)
        inner = seen.get(parts[0], (None, None))[1]  # ESM's returns the weights, its layer does not
        return seen, result, weights_of((result, inner), call.x.shape[-2]).to(x.dtype)

    seen, result, alpha = run(call.x)
    alpha = call.one(alpha)
    x = call.one(call.x if found.latent is None else seen[found.latent][1].flatten(2))
    # rows of a head with a sink sum to less than one: a value bias arrives with that weight
    bias = alpha.sum(-1)[..., None] * found.b_V[:, None]
    made = (alpha @ (x[..., None, :, :] @ found.W_V.mT) + bias).transpose(-3, -2).flatten(-2)
    W_O, site = found.W_O, {"site": found.out}
    if found.out is None:
        y = call.one(result[0])
    else:
        y, entered = call.one(seen[found.out][1]), call.one(seen[found.out][0][0])
    offset = alpha.sum(-1).mT @ (W_O @ found.b_V[..., None])[..., 0] + found.b_O
    if found.out is not None and not same(made, entered):  # a gate or a norm stands between core and output
        core = Core(attend, call)
        W_O, site = own_channels(*found.b_V.shape, x), {"enter": core.enter}
        y, offset = (call.one(core.channels(part)) for part in (core.o, bias.reshape(core.o.shape)))
    gone = padding(call)
    if gone is not None:  # what a padded token computes is nobody's: uniform weights, on later tokens too
        alpha = alpha.masked_fill(gone[:, None, :, None], 0)
        x, y, offset = (part.masked_fill(gone[..., None], 0) for part in (x, y, offset))
    core = LayerOperator(FactorizedOperator(alpha, W_O @ found.W_V), x, y, offset)
    if found.latent is not None:  # the weights are no function of the latent alone: no closed form

        def F(x):
            return main_result(run(x[None])[1])[0]

        return Reading(core, F=F, x=call.one(call.x), **site)
    softmax = Softmax(found.W_V, W_O, found.b_V, lambda x: run(x[None])[2][0])
    return Reading(core, softmax=softmax, **site)


_LAYOUTS = {
    is_stacked: _stacked,
    has("query_key_value dense"): _grouped,
    lambda module: isinstance(module, nn.MultiheadAttention): _torch,
    has("kv_a_layernorm kv_b_proj o_proj v_head_dim"): _latent,
    is_projected: _projected,
}


def projections_of(module) -> Projections | None:
    """The weights of an attention module by heads, or ``None`` for any other."""
    return next((find(module) for matches, find in _LAYOUTS.items() if matches(module)), None)


def is_attention(module: nn.Module) -> bool:
    return any(matches(module) for matches in _LAYOUTS)


def _self_attention(module: nn.MultiheadAttention, call: Call) -> tuple[Callable, Call]:
    """Torch's attention as a function of x alone, which shows the weights of each head."""
    given = signature(module.forward).bind(*call.args, **call.kwargs).arguments
    x, *others = (given.pop(name) for name in ("query", "key", "value"))
    if not all(other.shape == x.shape and torch.equal(other, x) for other in others):
        raise ValueError("MultiheadAttention must have one x as its query, key and value; got others")
    given |= {"need_weights": True, "average_attn_weights": False}
    return lambda x, **given: module(x, x, x, **given), Call((x,), given, 0, call.single)
