"""Layers of any module, read without knowing their parts: the core is caught while the module runs.

The core is one product of coefficients (batch, H, n, n) with values (batch, H, n, r): torch's
own attention function, or a matrix product of these shapes. The values must be linear in
what the module receives; that is found by running it on unit vectors. Where the output is
linear in the core, with the same weights at every token, it counts as the output of the
heads; else, behind a gate or a norm, the layer is read up to its core.
"""

from __future__ import annotations

import re
from types import FunctionType

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ssmbook.lens._calls import Call, main_result, padding, without_padding
from ssmbook.lens._reading import LayerOperator, Reading, Softmax
from ssmbook.operators import FactorizedOperator

_PRODUCTS = (torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__)
_ATTENTION = re.compile(r"(Attention|Attn)$")


def may_be_caught(module: nn.Module) -> bool:
    """Whether a module calls torch's attention in code of its own, or is attention by its class."""
    own = (part for part in vars(type(module)).values() if isinstance(part, FunctionType))
    called = any("scaled_dot_product_attention" in part.__code__.co_names for part in own)
    return called or bool(_ATTENTION.search(type(module).__name__))


def softmax_weights(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the coefficients of torch's attention function, and the values of every head; no dropout."""
    H = query.shape[-3]
    key, value = (part.repeat_interleave(H // part.shape[-3], -3) for part in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1), value


class Catch(TorchFunctionMode):
    """Catch the core of attention over n tokens while the block runs, or put another result in its place.

    ``cores``: the coefficients, values and result of each; ``softmax``: whether it was
    torch's attention. ``put`` (batch, H, n, r) takes the place of the last of ``count``.
    """

    def __init__(self, n: int, put: Tensor | None = None, count: int = 0) -> None:
        super().__init__()
        self.n, self.put, self.count = n, put, count
        self.cores: list[tuple[Tensor, Tensor, Tensor]] = []
        self.softmax = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is functional.scaled_dot_product_attention:
            self.softmax = True
            alpha, value = softmax_weights(*args, **(kwargs or {}))
        elif func in _PRODUCTS and len(args) == 2:
            alpha, value = args
        else:
            return result
        if alpha.shape[-2:] != (self.n, self.n) or value.ndim not in (3, 4):
            return result
        self.cores.append((alpha, value, result))
        if self.put is None or len(self.cores) != self.count:
            return result
        return self.put.to(result).reshape(result.shape)


class Core:
    """The core of one call of a module, caught: coefficients, values, result, and what the module returns."""

    def __init__(self, module: nn.Module, call: Call, x: Tensor | None = None) -> None:
        self.module, self.call = module, call
        x = call.x if x is None else x
        self.batch, self.n, self.d = x.shape
        with Catch(self.n) as caught:
            self.y = main_result(call.run(module, x))
        self.count, self.softmax = len(caught.cores), caught.softmax
        # with heads as wide as the text is long, scores are a product of these shapes too
        cores = [core for core in caught.cores[:-1] if core[2].shape[-1] != self.n] + caught.cores[-1:]
        if len(cores) != 1 or not isinstance(self.y, Tensor):
            raise ValueError(
                f"{type(module).__name__} must mix tokens by one product of coefficients (batch, H, n, n) "
                f"and values (batch, H, n, r); got {len(cores)} such products"
            )
        self.alpha, self.values, self.o = (
            part.reshape(self.batch, -1, *part.shape[-2:]) for part in cores[0]
        )

    def put(self, o: Tensor) -> Catch:
        """Put a result (batch, H, n, r) in the place of this core's, while the block runs."""
        return Catch(self.n, o, self.count)

    def with_result(self, o: Tensor) -> Tensor:
        """What the module makes of another result of its core."""
        with self.put(o):
            return main_result(self.call.run(self.module))

    def value_maps(self) -> tuple[Tensor, Tensor]:
        """W_V (H, r, d) and b_V (H, r), from runs on unit vectors."""
        x = self.call.x
        bias = Core(self.module, self.call, torch.zeros_like(x)).values[0, :, 0]
        columns = []
        for part in torch.eye(self.d, dtype=x.dtype, device=x.device).split(self.n):
            unit = torch.cat([part, x.new_zeros(self.n - len(part), self.d)]).expand(x.shape)
            columns.append(Core(self.module, self.call, unit).values[0, :, : len(part)] - bias[:, None])
        return torch.cat(columns, -2).mT, bias

    def output_maps(self) -> tuple[Tensor, Tensor] | None:
        """W_O (H, p, r) and what the output has without the core, or ``None`` where it is no such map."""
        (H, r), o = (self.o.shape[1], self.o.shape[-1]), self.o
        free = self.with_result(torch.zeros_like(o))
        if free.shape[:2] != (self.batch, self.n):
            return None
        columns = []
        for part in torch.eye(H * r, dtype=o.dtype, device=o.device).split(self.n):
            unit = torch.cat([part, o.new_zeros(self.n - len(part), H * r)])
            made = self.with_result(unit.unflatten(-1, (H, r)).transpose(0, 1).expand(o.shape))
            columns.append((made - free)[0, : len(part)])
        W_O = torch.cat(columns).unflatten(0, (H, r)).mT
        return (W_O, free) if same(torch.einsum("bhnr,hpr->bnp", o, W_O) + free, self.y) else None

    def channels(self, o: Tensor) -> Tensor:
        """A result (batch, H, n, r) as the channels of all heads, (batch, n, H r)."""
        return o.transpose(1, 2).flatten(2)

    def enter(self, y: Tensor) -> Catch:
        """Put the channels of all heads, (batch, n, H r), in this core's place, while the block runs."""
        return self.put(y.reshape(self.batch, self.n, *self.o.shape[1::2]).transpose(1, 2))


def same(got: Tensor, wanted: Tensor) -> bool:
    """Whether two results with the same numbers are equal, to half of the digits of their dtype."""
    if got.numel() != wanted.numel():
        return False
    gap = (got - wanted.reshape(got.shape)).abs().max()
    return bool(gap <= torch.finfo(got.dtype).eps ** 0.5 * wanted.abs().max())


def own_channels(H: int, r: int, like: Tensor) -> Tensor:
    """Output maps W_O (H, H r, r) of heads that each write channels of their own."""
    return torch.eye(H * r, dtype=like.dtype, device=like.device).unflatten(1, (H, r)).movedim(1, 0)


def read_caught(module: nn.Module, call: Call) -> Reading:
    """Read a call of any module with one core, or refuse it with the reason (``ValueError``)."""
    core = Core(module, call)
    W_V, b_V = core.value_maps()
    found = core.output_maps()
    alpha, bias = core.alpha, core.alpha.sum(-1)[..., None] * b_V[:, None]  # (batch, H, n, r)
    if found is None:  # a gate or a norm follows
        W_O, y, offset = own_channels(*b_V.shape, b_V), core.channels(core.o), core.channels(bias)
    else:
        W_O, y = found[0], core.y
        offset = torch.einsum("bhnr,hpr->bnp", bias, W_O) + found[1]
    gone = padding(call)
    if gone is not None:
        alpha = alpha.masked_fill(gone[:, None, :, None], 0)
    x, y, offset = (call.one(without_padding(call, part)) for part in (call.x, y, offset))
    frozen = LayerOperator(FactorizedOperator(call.one(alpha), W_O @ W_V), x, y, offset)
    miss, enter = frozen.miss(), core.enter if found is None else None
    if not miss <= frozen.tolerance and y.dtype == torch.float64:
        raise ValueError(
            f"{type(module).__name__} must make its values by a linear map of each token it receives; got a "
            f"relative miss of {miss:.3g}"
        )
    if core.softmax:
        softmax = Softmax(W_V, W_O, b_V, lambda x: Core(module, call, x[None]).alpha[0])
        return Reading(frozen, softmax=softmax, enter=enter)
    return Reading(frozen, F=lambda x: main_result(call.run(module, x[None]))[0], x=x, enter=enter)
