"""The gradient of a softmax head in closed form, and the margin that a weight among n tokens takes."""

from __future__ import annotations

import math

import torch

from ssmbook._checks import as_real, check_integer, check_tensors
from ssmbook.numerics import sink_softmax


def softmax_jacobian_row(
    x: torch.Tensor,
    W_Q: torch.Tensor,
    W_K: torch.Tensor,
    V: torch.Tensor,
    target: int = -1,
    *,
    bias: torch.Tensor | None = None,
    sink: float | None = None,
) -> torch.Tensor:
    """Every block dy_i/dx_j, j <= i = ``target``, of one causal softmax head, in closed form.

    Its weights are alpha_ij = softmax_j(k_j . q_i / sqrt(d_k)). For j < i the block is
    alpha_ij (V + (v_j - y_i) g_i^T) with v_j = V x_j and g_i = W_K^T W_Q x_i / sqrt(d_k); j
    = i adds the path through the query (prop-softmax-jacobian).

    Parameters
    ----------
    x : Tensor (..., n, d)
        The tokens.
    W_Q, W_K : Tensor (d_k, d)
        The maps of queries and keys.
    V : Tensor (p, d)
        The value map.
    target : int, default -1
        The output position i.
    bias : Tensor (n,), optional
        Added to this row's logits.
    sink : float, optional
        The logit of an extra token of value zero.

    Returns
    -------
    Tensor (..., i + 1, p, d)
        In the dtype of the arguments.

    Raises
    ------
    TypeError, ValueError
        For malformed or non-finite arguments.

    Examples
    --------
    >>> x, zero = torch.randn(4, 2), torch.zeros(1, 2)  # all logits 0: a mean of four tokens
    >>> softmax_jacobian_row(x, zero, zero, torch.eye(2))[0]
    tensor([[0.2500, 0.0000],
            [0.0000, 0.2500]])
    """
    given = {"x": (x, "... n d"), "W_Q": (W_Q, "d_k d"), "W_K": (W_K, "d_k d"), "V": (V, "p d")}
    sizes = check_tensors(**given | ({} if bias is None else {"bias": (bias, "n")}), finite=True)
    n, scale = sizes["n"], math.sqrt(sizes["d_k"])
    i = range(n)[check_integer("target", target, low=-n, high=n - 1)]
    seen = x[..., : i + 1, :]
    logits = torch.einsum("...jk,...k->...j", seen @ W_K.mT, x[..., i, :] @ W_Q.mT) / scale
    if bias is not None:
        logits = logits + bias[: i + 1]
    alpha = sink_softmax(logits, sink)
    values = seen @ V.mT
    y = torch.einsum("...j,...jp->...p", alpha, values)
    g = (seen[..., i, :] @ W_Q.mT) @ W_K / scale
    gaps = values - y[..., None, :]  # v_j - y_i
    blocks = alpha[..., None, None] * (V + gaps[..., :, None] * g[..., None, None, :])
    # Keys must not be centered here: with a sink the weighted gaps do not sum to zero.
    query_path = torch.einsum("...j,...jp,...jk->...pk", alpha, gaps, seen @ W_K.mT) @ W_Q / scale
    own = blocks[..., i, :, :] + query_path
    return torch.cat([blocks[..., :i, :, :], own[..., None, :, :]], dim=-3)


def required_margin(alpha: float | torch.Tensor, n: int | torch.Tensor) -> torch.Tensor:
    """The margin that gives weight alpha among n tokens: log(n - 1) + logit(alpha), necessary and sufficient.

    The margin is a logit minus the *log-mean-exp* of the n - 1 others. alpha strictly
    between 0 and 1, a number or tensor; n >= 2. Returns float64, or the dtype of a tensor
    alpha. Raises ``ValueError`` for other alpha or n.

    >>> required_margin(0.5, n=torch.tensor([2, 1001]))  # log 1000
    tensor([0.0000, 6.9078], dtype=torch.float64)
    """
    alpha = as_real("alpha", alpha, low=0.0, high=1.0)
    if bool(((alpha == 0) | (alpha == 1)).any()):
        ends = float(alpha[(alpha == 0) | (alpha == 1)][0])
        raise ValueError(f"alpha must lie between 0 and 1, since no margin gives them; got {ends}")
    return torch.logit(alpha) + _log_competitors(n, alpha)


def weight_from_margin(margin: float | torch.Tensor, n: int | torch.Tensor) -> torch.Tensor:
    """The weight that a margin over n - 1 competitors earns: the inverse of :func:`required_margin`.

    margin: a number or tensor; n >= 2 as there. Returns float64, or the dtype of a tensor
    margin, in [0, 1].

    >>> weight_from_margin(required_margin(0.7, n=100), n=100)
    tensor(0.7000, dtype=torch.float64)
    """
    margin = as_real("margin", margin)
    return torch.sigmoid(margin - _log_competitors(n, margin))


def _log_competitors(n: int | torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    n = torch.as_tensor(n)
    if not bool((n >= 2).all()):
        raise ValueError(f"n must be at least 2, a token and its competitors; got {n.min().item()}")
    return torch.log(n.to(like) - 1)
