"""The blocked scan without a single in-place step or look at a value: what ``torch.compile`` can trace and
fuse.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ._core import WIDE

BLOCK = 16


def traced_scan(a: Tensor, b: Tensor, carry: Tensor | None, log: bool = False) -> Tensor:
    """The recurrence with decays ``a`` (``exp(a)`` if ``log``) and inputs ``b``, (..., T, D), from ``carry``.

    The same two passes as in the eager scan: products close to one by way of their distance from it, the
    recurrence of the block ends in the wide dtype. There is no guard against blocks that overflow.
    """
    T = b.shape[-2]
    if T <= 2 * BLOCK:
        return torch.stack(_run((a.exp() if log else a).unbind(-2), b.unbind(-2), carry), -2)
    n = -(-T // BLOCK)
    pad = (0, 0, 0, n * BLOCK - T)
    a = functional.pad(a, pad, value=0.0 if log else 1.0).unflatten(-2, (n, BLOCK))
    b = functional.pad(b, pad).unflatten(-2, (n, BLOCK))
    au, bu = (a.exp() if log else a).unbind(-2), b.unbind(-2)
    wide = WIDE.get(b.dtype, b.dtype)
    last = _run(au, bu, None)[-1].to(wide)
    carry = torch.zeros_like(last.select(-2, 0)) if carry is None else carry.to(wide)
    ends = traced_scan(_products(a, log, wide), last, carry)
    before = torch.cat((carry.unsqueeze(-2), ends.narrow(-2, 0, n - 1)), -2).to(b.dtype)
    return torch.stack(_run(au, bu, before), -2).flatten(-3, -2).narrow(-2, 0, T)


def _run(au, bu, h: Tensor | None) -> list[Tensor]:
    out = []
    for a_t, b_t in zip(au, bu, strict=True):
        h = b_t if h is None else a_t * h + b_t
        out.append(h)
    return out


def _products(a: Tensor, log: bool, wide: torch.dtype) -> Tensor:
    if log:
        return a.to(wide).sum(-2).exp()
    product, *others = a.unbind(-2)
    defect = 1 - product
    for a_t in others:
        product, defect = product * a_t, defect + (1 - a_t) * (1 - defect)
    return torch.where(defect.abs() < 0.5, 1 - defect.to(wide), product.to(wide))
