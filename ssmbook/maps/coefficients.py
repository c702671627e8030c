"""Mixing coefficients alpha (..., H, n, n) of the attention side, from queries, keys and decays."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_alike, check_flags, check_integer, check_like, check_shape, check_tensors
from ssmbook.numerics import in_single

_HEADS = "... H n width"


def causal_mask(n: int, device: torch.device | str | None = None) -> Tensor:
    """True where token i may see token j (j <= i): bool (n, n). Introduced in *zoo*.

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    n = check_integer("n", n, low=0)
    check_like(device=device)
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def distances(n: int, device: torch.device | str | None = None) -> Tensor:
    """Distances |i - j| between n tokens: int64 (n, n). Introduced in *zoo*.

    >>> distances(3).tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """
    n = check_integer("n", n, low=0)
    check_like(device=device)
    place = torch.arange(n, device=device)
    return (place[:, None] - place).abs()


def alibi_bias(
    H: int, n: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    """ALiBi, the linear distance penalty -m_h |i - j| with slopes m_h = 2^(-8 h / H), h = 1 ... H.

    Returns (H, n, n) in ``dtype`` on ``device``, to be added to the logits (`press2022train`). Raises
    ``ValueError``/``TypeError`` for bad sizes. Introduced in *zoo*.

    >>> (-alibi_bias(8, 3)[0]).tolist()  # the first of eight heads has slope 1/2
    [[0.0, 0.5, 1.0], [0.5, 0.0, 0.5], [1.0, 0.5, 0.0]]
    """
    H = check_integer("H", H, low=1)
    n = check_integer("n", n, low=0)
    check_like(dtype=dtype, device=device)
    h = torch.arange(1, H + 1, dtype=dtype or torch.get_default_dtype(), device=device)
    return -torch.exp2(-8 * h / H)[:, None, None] * distances(n, device)


def softmax_coefficients(
    q: Tensor, k: Tensor, *, causal: bool = True, bias: Tensor | None = None, sink: bool = False
) -> Tensor:
    """Softmax attention: alpha_ij = exp(s_ij) / sum_l exp(s_il), s_ij = <q_i, k_j> / sqrt(width) + bias.

    q, k: (..., H, n, width); bias: (H, n, n) or (..., H, n, n); causal: only j <= i is seen; sink: one more
    key with logit 0 and value 0, so that the denominator gains 1 and rows sum to less than 1
    (`miller2023attention`).
    Returns (..., H, n, n), exactly 0 at hidden pairs. Raises ``ValueError``/``TypeError`` for unlike shapes,
    dtypes or devices. Introduced in *zoo*.

    >>> q = k = torch.zeros(1, 2, 1)
    >>> softmax_coefficients(q, k).tolist()
    [[[1.0, 0.0], [0.5, 0.5]]]
    >>> softmax_coefficients(q, k, sink=True)[0]  # the sink takes a share of every row
    tensor([[0.5000, 0.0000],
            [0.3333, 0.3333]])
    """
    size = check_tensors(q=(q, _HEADS), k=(k, _HEADS), one_batch=True)
    check_flags(causal=causal, sink=sink)
    logits = q @ k.mT / size["width"] ** 0.5
    if bias is not None:
        check_shape("bias", bias, "... H n n", size)
        check_alike(q=q, bias=bias)
        logits = logits + bias
    if causal:
        logits = logits.masked_fill(~causal_mask(size["n"], q.device), float("-inf"))
    if not sink:
        return torch.softmax(logits, dim=-1)
    return torch.softmax(functional.pad(logits, (0, 1)), dim=-1)[..., :-1]


def linear_coefficients(q: Tensor, k: Tensor, *, normalized: bool = False) -> Tensor:
    """Causal linear attention: alpha_ij = <q_i, k_j> for j <= i, divided by its row sum if normalized.

    q, k: (..., H, n, width), features already applied. A row whose sum is exactly 0 gets coefficients 0.
    Returns (..., H, n, n) (`katharopoulos2020transformers`). Raises as ``softmax_coefficients``.
    Introduced in *zoo*.

    >>> q = k = torch.ones(1, 3, 1)
    >>> linear_coefficients(q, k)[0].tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    check_tensors(q=(q, _HEADS), k=(k, _HEADS), one_batch=True)
    check_flags(normalized=normalized)
    alpha = (q @ k.mT).tril()
    if not normalized:
        return alpha
    return alpha * safe_reciprocal(alpha.sum(-1, keepdim=True))


def safe_reciprocal(a: Tensor) -> Tensor:
    """1 / a, and 0 where a is 0 (same shape, dtype)."""
    zero = a == 0
    return torch.where(zero, 0.0, 1 / torch.where(zero, 1.0, a))


def decay_matrix(log_a: Tensor) -> Tensor:
    """Products of scalar decays between two tokens: L_ij = a_{j+1} ... a_i for j <= i, exactly 0 above.

    log_a: (..., n), the logarithms of the decays a_1 ... a_n. Each product is a sum of its own logarithms (no
    differences of running sums), so it keeps full relative accuracy. Returns (..., n, n).
    Raises ``TypeError`` for anything but a floating-point tensor. Introduced in *zoo*.

    >>> decay_matrix(torch.tensor([0.5, 0.5, 0.25]).log())
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 1.0000, 0.0000],
            [0.1250, 0.2500, 1.0000]])
    """
    n = check_shape("log_a", log_a, "... n")["n"]
    later = causal_mask(n, log_a.device).tril(-1).mT
    # row j of this layout runs along i, which is the fast direction to sum in
    sums = torch.where(later, log_a[..., None, :], 0.0).cumsum(-1).mT
    return sums.exp().tril()


def scalar_decay_coefficients(q: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
    """Scalar decay on the key side (RetNet, SSD): alpha_ij = <q_i, k_j> a_{j+1} ... a_i for j <= i.

    q, k: (..., H, n, width); log_a: (..., H, n) log-decays, one per head and token. Returns (..., H, n, n)
    (`sun2023retentive`, `dao2024transformers`). Raises as ``softmax_coefficients``. Introduced in *zoo*.

    >>> q = k = torch.ones(1, 3, 1)
    >>> scalar_decay_coefficients(q, k, torch.full((1, 3), 0.5).log())[0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 1.0000, 0.0000],
            [0.2500, 0.5000, 1.0000]])
    """
    size = check_tensors(q=(q, _HEADS), k=(k, _HEADS), one_batch=True)
    check_shape("log_a", log_a, "... H n", size)
    check_alike(q=q, log_a=log_a)
    return (q @ k.mT) * decay_matrix(log_a)


def vector_decay_coefficients(q: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
    """Vector decay on the key side (GLA): alpha_ij = sum_c q_i[c] k_j[c] (a_{j+1} ... a_i)[c] for j <= i.

    q, k, log_a: (..., H, n, width), one log-decay per key channel and token. Returns (..., H, n, n)
    (`yang2024gated`). Raises as ``softmax_coefficients``. Introduced in *zoo*.

    >>> q = k = torch.ones(1, 3, 2)
    >>> log_a = torch.tensor([0.5, 0.25]).log().expand(1, 3, 2)
    >>> vector_decay_coefficients(q, k, log_a)[0]
    tensor([[2.0000, 0.0000, 0.0000],
            [0.7500, 2.0000, 0.0000],
            [0.3125, 0.7500, 2.0000]])
    """
    check_tensors(q=(q, _HEADS), k=(k, _HEADS), log_a=(log_a, _HEADS), one_batch=True)
    parts = zip(q.unbind(-1), k.unbind(-1), log_a.unbind(-1), strict=True)
    return sum(q_c[..., :, None] * k_c[..., None, :] * decay_matrix(a_c) for q_c, k_c, a_c in parts)


@in_single
def delta_coefficients(q: Tensor, k: Tensor, beta: Tensor) -> Tensor:
    """The delta rule: alpha_ij = beta_j k_j^T E_{j+1} ... E_i q_i with E_l = I - beta_l k_l k_l^T.

    q, k: (..., H, n, width), k meant to have unit length; beta: (..., H, n) writing strengths. One triangular
    solve: alpha = tril(Q K^T) (I + diag(beta) tril(K K^T, -1))^{-1} diag(beta) (`yang2024parallelizing`).
    Returns (..., H, n, n). Raises as ``softmax_coefficients``. Introduced in *zoo*.

    >>> q = k = torch.ones(1, 3, 1)  # one key written thrice: only the last writing is left
    >>> delta_coefficients(q, k, torch.ones(1, 3))[0].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    size = check_tensors(q=(q, _HEADS), k=(k, _HEADS), one_batch=True)
    check_shape("beta", beta, "... H n", size)
    check_alike(q=q, beta=beta)
    erase = beta[..., None] * (k @ k.mT).tril(-1)
    reads = torch.linalg.solve_triangular(
        erase, (q @ k.mT).tril(), upper=False, left=False, unitriangular=True
    )
    return reads * beta[..., None, :]
