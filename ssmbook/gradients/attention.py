"""The gradient of a softmax head in closed form, its floor, and what a long context does to its weights."""

from __future__ import annotations

import math

import torch

from ssmbook._checks import as_count, as_real, check_integer, check_shape, check_tensors, together


def _head_sizes(x, W_Q, W_K, target: int, bias) -> tuple[int, int]:
    """Checks of one head's arguments; returns (i, d_k)."""
    given = {"x": (x, "... n d"), "W_Q": (W_Q, "d_k d"), "W_K": (W_K, "d_k d")}
    sizes = check_tensors(**given | ({} if bias is None else {"bias": (bias, "n")}), finite=True)
    target = check_integer("target", target, low=-sizes["n"], high=sizes["n"] - 1)
    return range(sizes["n"])[target], sizes["d_k"]


def softmax_row_weights(
    x: torch.Tensor,
    W_Q: torch.Tensor,
    W_K: torch.Tensor,
    target: int = -1,
    *,
    bias: torch.Tensor | None = None,
    sink: float | None = None,
) -> torch.Tensor:
    """The weights alpha_ij, j <= i = ``target``, of one causal softmax head: logits k_j . q_i / sqrt(d_k).

    x (..., n, d), W_Q and W_K (d_k, d); bias (n,) or None: added to this row's logits (ALiBi: -m (i - j));
    sink: the logit of an extra token of value zero, None for none, 0 for "softmax with + 1". Returns (..., i
    + 1), same dtype; rows sum to 1, with a sink to less. Raises TypeError/ValueError for malformed or
    non-finite arguments. Introduced in *gradient-highway*.

    >>> x, zero = torch.randn(4, 2), torch.zeros(1, 2)
    >>> softmax_row_weights(x, zero, zero).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    i, d_k = _head_sizes(x, W_Q, W_K, target, bias)
    keys, query = x[..., : i + 1, :] @ W_K.mT, x[..., i, :] @ W_Q.mT
    logits = torch.einsum("...jk,...k->...j", keys, query) / math.sqrt(d_k)
    if bias is not None:
        logits = logits + bias[: i + 1]
    if sink is not None:
        extra = torch.full_like(logits[..., :1], float(as_real("sink", sink)))
        logits = torch.cat([logits, extra], dim=-1)
    return torch.softmax(logits, dim=-1)[..., : i + 1]


def softmax_jacobian_block(
    alpha: float | torch.Tensor, V: torch.Tensor, v_j: torch.Tensor, y_i: torch.Tensor, g_i: torch.Tensor
) -> torch.Tensor:
    """A softmax head's gradient to an earlier token, j < i: dy_i/dx_j = alpha_ij [V + (v_j - y_i) g_i^T].

    alpha (...), V (p, d), v_j = V x_j (..., p), y_i (..., p), g_i = W_K^T W_Q x_i / sqrt(d_k) (..., d) ->
    (..., p, d), same dtype. A sink changes nothing but y_i, to which it adds weight and no value; rotary
    positions replace g_i by g_ij. Proof: y_i = sum_l alpha_il v_l, and moving x_j moves v_j and one logit,
    s_ij, by g_i . dx_j; the softmax gives d alpha_il = alpha_il (1_{l=j} - alpha_ij) ds_ij. What joins V in
    the bracket has rank one: the norm is at least alpha_ij sigma_2(V), whatever the tokens
    (prop-sigma2-highway). Raises TypeError/ValueError for malformed arguments. Introduced in
    *gradient-highway*.

    >>> zero = torch.zeros(2)
    >>> softmax_jacobian_block(0.25, torch.eye(2), zero, zero, zero).tolist()  # logits that do not move
    [[0.25, 0.0], [0.0, 0.25]]
    """
    check_shape("V", V, "p d")
    alpha = as_real("alpha", alpha, low=0.0, high=1.0, open_ends=False, like=V)
    vectors = {"v_j": (v_j, "... p"), "y_i": (y_i, "... p"), "g_i": (g_i, "... d")}
    check_tensors(V=(V, "p d"), alpha=(alpha, "..."), **vectors, finite=True, one_batch=True)
    return alpha[..., None, None] * (V + (v_j - y_i)[..., :, None] * g_i[..., None, :])


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

    x, W_Q, W_K, bias, sink as in :func:`softmax_row_weights`; V (p, d). Returns (..., i + 1, p, d), same
    dtype: block j < i is :func:`softmax_jacobian_block`, and j = i adds the path through the query, sum_l
    alpha_il (v_l - y_i) k_l^T W_Q / sqrt(d_k). Without a sink k_l may be centered there, because the weighted
    v_l - y_i then sum to zero; with a sink they sum to alpha_sink y_i, and centering over the real tokens is
    wrong. Raises TypeError/ValueError for malformed arguments. Introduced in *gradient-highway*.

    >>> x, zero = torch.randn(4, 2), torch.zeros(1, 2)  # all logits 0: a mean of four tokens
    >>> softmax_jacobian_row(x, zero, zero, torch.eye(2))[0]
    tensor([[0.2500, 0.0000],
            [0.0000, 0.2500]])
    """
    alpha = softmax_row_weights(x, W_Q, W_K, target, bias=bias, sink=sink)
    i, d_k = alpha.shape[-1] - 1, W_Q.shape[0]
    check_tensors(x=(x, "... n d"), V=(V, "p d"))
    seen = x[..., : i + 1, :]
    values = seen @ V.mT
    y = torch.einsum("...j,...jp->...p", alpha, values)
    g = (seen[..., i, :] @ W_Q.mT) @ W_K / math.sqrt(d_k)
    blocks = softmax_jacobian_block(
        alpha, V, values, y[..., None, :].expand_as(values), g[..., None, :].expand_as(seen)
    )
    weighted = alpha[..., None] * (values - y[..., None, :])
    query_path = torch.einsum("...jp,...jk->...pk", weighted, seen @ W_K.mT) @ W_Q / math.sqrt(d_k)
    own = blocks[..., i, :, :] + query_path
    return torch.cat([blocks[..., :i, :, :], own[..., None, :, :]], dim=-3)


def required_margin(alpha: float | torch.Tensor, n: int | torch.Tensor) -> torch.Tensor:
    """The margin that gives weight alpha among n tokens: log(n - 1) + logit(alpha), necessary and sufficient.

    The margin is its logit minus the *log-mean-exp* of the n - 1 others. alpha in (0, 1), a number or
    tensor; n >= 2, an int or integer tensor, of equal shapes unless one is a single number. Returns float64,
    or the dtype of a tensor alpha. Proof: alpha/(1 - alpha) = e^{s_j} / sum_{l != j} e^{s_l}; take
    logarithms. Raises TypeError/ValueError outside. Introduced in *gradient-highway*.

    >>> required_margin(0.5, n=torch.tensor([2, 1001]))  # log 1000
    tensor([0.0000, 6.9078], dtype=torch.float64)
    """
    alpha = as_real("alpha", alpha, low=0.0, high=1.0)
    n = as_count("n", n, low=2)
    together(alpha=alpha, n=n)
    return torch.log((n - 1).to(alpha.dtype)) + torch.logit(alpha)


def weight_from_margin(margin: float | torch.Tensor, n: int | torch.Tensor) -> torch.Tensor:
    """The weight that a margin over n - 1 competitors earns: the inverse of :func:`required_margin`.

    margin: a number or tensor; n >= 2 as there. Returns float64, or the dtype of a tensor margin, in [0, 1].
    Raises TypeError/ValueError as there. Introduced in *gradient-highway*.

    >>> weight_from_margin(required_margin(0.7, n=100), n=100)
    tensor(0.7000, dtype=torch.float64)
    """
    margin = as_real("margin", margin)
    n = as_count("n", n, low=2)
    together(margin=margin, n=n)
    return torch.sigmoid(margin - torch.log((n - 1).to(margin.dtype)))


def dilution_bound(B: float | torch.Tensor, n: int | torch.Tensor) -> torch.Tensor:
    """Dilution: logits in [-B, B] give no token of n more than e^{2B}/(e^{2B} + n - 1) of the weight.

    B >= 0, a number or tensor; n >= 1, an int or integer tensor. Returns float64, or the dtype of a tensor
    B. Tight: one logit at B, the rest at -B. A sink or further competitors only lower the weight. Raises
    TypeError/ValueError outside. Introduced in *gradient-highway*.

    >>> dilution_bound(B=0.0, n=torch.tensor([10, 1000]))  # equal logits: 1 / n
    tensor([0.1000, 0.0010], dtype=torch.float64)
    """
    B = as_real("B", B, low=0.0, open_ends=False)
    n = as_count("n", n, low=1)
    together(B=B, n=n)
    return torch.sigmoid(2 * B - torch.log((n - 1).to(B.dtype)))


def alibi_bound(
    B: float | torch.Tensor, slope: float | torch.Tensor, distance: int | torch.Tensor
) -> torch.Tensor:
    """ALiBi: logits in [-B, B] less slope times distance give at most e^{2B - slope (i - j)} of the weight.

    B >= 0 and slope >= 0, numbers; distance >= 0, an int or integer tensor. Returns float64 of the shape of
    distance. Proof: alpha_ij <= e^{s_ij - s_ii} for the nearest competitor, j = i itself. It says something
    once slope times distance exceeds 2B. Raises TypeError/ValueError outside. Source:
    `press2022train`. Introduced in *gradient-highway*.

    >>> alibi_bound(B=0.0, slope=0.5, distance=torch.tensor([0, 10]))
    tensor([1.0000, 0.0067], dtype=torch.float64)
    """
    B = as_real("B", B, low=0.0, open_ends=False)
    slope = as_real("slope", slope, low=0.0, open_ends=False)
    distance = as_count("distance", distance, low=0)
    together(distance=distance, B=B, slope=slope)
    return torch.exp(2 * B - slope * distance)
