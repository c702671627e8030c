"""What is lost when a layer's operator is replaced: three errors that are easily taken for one another."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ssmbook._checks import check_integer, check_number, check_shape
from ssmbook.lens._frozen import Reading
from ssmbook.numerics import item_if_scalar
from ssmbook.operators import DiagonalOperator, FactorizedOperator, InteractionOperator
from ssmbook.operators.spectra import psd_root, tail_energies


class Errors(NamedTuple):
    """Three shares of what is lost when W' takes the place of W; none bounds another.

    ``operator``: sum ‖W_ij - W'_ij‖² over sum ‖W_ij‖², which looks at no token. ``uncorrelated``: of the
    output, for tokens with the second moments of x but no correlation between positions. ``output``: of the
    output on x itself, ‖(W - W') x‖² over ‖W x‖²: a layer's terms add up or cancel there.
    """

    operator: float
    uncorrelated: float
    output: float


def errors(W: InteractionOperator, other: InteractionOperator, x: Tensor) -> Errors:
    """Return the three errors of ``other`` in place of ``W`` on tokens x (..., n, d), over the whole batch.

    Computed in float64. Raises ``ValueError`` where the shapes of operators and tokens differ.

    >>> from ssmbook.operators import FactorizedOperator
    >>> W = FactorizedOperator(torch.ones(2, 4, 4), torch.eye(2)[:, None] * torch.eye(2))  # heads a and b
    >>> one = FactorizedOperator(W.alpha[:1], W.V[:1])
    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])  # b's inputs cancel
    >>> errors(W, one, x)
    Errors(operator=0.5, uncorrelated=0.5, output=0.0)
    """
    W, other, x = (each.to(torch.float64) for each in (W, other, x))
    lost, whole = energies(W - other, x), energies(W, x)
    return Errors(*(float(a / b) if b > 0 else 0.0 for a, b in zip(lost, whole, strict=True)))


def energies(W: InteractionOperator, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sum ‖W_ij‖², sum ‖W_ij L‖² with L Lᵀ the second moments of x, and ‖W x‖²; of the whole batch."""
    output = W.apply(x).square().sum()
    tokens = x.flatten(0, -2)
    moments = tokens.mT @ tokens / len(tokens)
    if isinstance(W, FactorizedOperator):
        alphas, V = gram(W.alpha), W.V
        seen = torch.einsum("...gpd,de,...hpe->...gh", V, moments, V)
        plain = torch.einsum("...gpd,...hpd->...gh", V, V)
        return (alphas * plain).sum().clamp_min(0), (alphas * seen).sum().clamp_min(0), output
    if isinstance(W, DiagonalOperator):
        channels = W.channels.block_norms().square().sum((-2, -1))
        return channels.sum(), (channels * moments.diagonal()).sum(), output
    # such as the difference of two operators of channels
    rows = [(row.square().sum(), ((row @ moments) * row).sum()) for row in W.rows()]
    plain, seen = (torch.stack(part).sum() for part in zip(*rows, strict=True))
    return plain, seen, output


def gram(alpha: Tensor) -> Tensor:
    """Inner products of attention matrices (..., H, n, n), (..., H, H)."""
    flat = alpha.flatten(-2)
    return flat @ flat.mT


class Mixture(NamedTuple):
    """Mixed coefficients alpha'_g = sum_h P_gh alpha_h with P = A Bᵀ of rank k: A and B (H, k)."""

    A: Tensor
    B: Tensor

    @property
    def P(self) -> Tensor:
        return self.A @ self.B.mT


def mixture(alphas: Tensor, maps: Tensor, H: int) -> Mixture:
    """Return the P of rank H with the least ‖sum_g (alpha_g - alpha'_g) ⊗ V_g‖, from two Gram matrices.

    ``alphas``: of the attention matrices, added up over texts; ``maps``: of the value maps V_g, which all
    texts share, as they are or weighted by second moments. With their square roots R_α and R_V that norm is
    ‖R_V (I - P) R_α‖, so that P = R_α U Uᵀ R_α⁻¹ with the first H left singular vectors U of R_α R_V
    (Eckart–Young).
    """
    root = psd_root(alphas)
    U = torch.linalg.svd(root @ psd_root(maps)).U[:, :H]
    return Mixture(root @ U, torch.linalg.pinv(root, rtol=1e-8, hermitian=True) @ U)


def output_mixture(start: Mixture, outputs: Tensor) -> Mixture:
    """Lower the error of the output on these tokens, starting from a mixture, by alternating least squares.

    ``outputs`` (H, H, H, H): ⟨alpha_h v_g, alpha_h' v_g'⟩ at [g, h, g', h']. Each half of a step is a linear
    least-squares problem, so the error never rises; a local minimum is all that is promised.
    """
    A, B = start
    H, k = A.shape
    own = torch.einsum("ghaa->gh", outputs)  # with what all heads make together
    for _ in range(20):
        B = torch.linalg.qr(B).Q
        A = _least(torch.einsum("hm,ghab,bk->gmak", B, outputs, B), B.mT @ own.mT, H, k)
        A = torch.linalg.qr(A).Q
        B = _least(torch.einsum("gm,ghab,ak->hmbk", A, outputs, A), A.mT @ own, H, k)
    return Mixture(A, B)


def _least(normal: Tensor, right: Tensor, H: int, k: int) -> Tensor:
    """Solve normal equations (H k, H k) for one factor (H, k)."""
    inverse = torch.linalg.pinv(normal.reshape(H * k, H * k), rtol=1e-12, hermitian=True)
    return (inverse @ right.mT.reshape(-1)).view(H, k)


def lost_by(P: Tensor, outputs: Tensor) -> float:
    """The share of the output on these tokens that is lost with coefficients P alpha."""
    E = torch.eye(len(P), dtype=P.dtype, device=P.device) - P
    return float(torch.einsum("gh,ghab,ab->", E, outputs, E) / torch.einsum("ggaa->", outputs))


def factors(reading: Reading) -> tuple[Tensor, Tensor]:
    """Value maps of a layer with heads as products V_h = W_O[h] W_V[h]: (H, p, r) and (H, r, d)."""
    if reading.softmax is not None:
        return reading.softmax.W_O, reading.softmax.W_V
    V = reading.core.W.V
    return torch.eye(V.shape[-2], dtype=V.dtype, device=V.device).expand(*V.shape[:-2], -1, -1), V


def output_grams(alpha: Tensor, x: Tensor, W_O: Tensor, W_V: Tensor) -> Tensor:
    """Return ⟨alpha_h V_g x, alpha_h' V_g' x⟩ at [g, h, g', h'] for one text, alpha (H, n, n), x (n, d)."""
    H = len(alpha)
    Z = torch.einsum("hij,gjr->ghir", alpha, x @ W_V.mT)  # (g, h, n, r)
    found = alpha.new_empty(H, H, H, H)
    for g in range(H):
        for a in range(g, H):
            right = Z[a] @ (W_O[g].mT @ W_O[a]).mT
            found[g, :, a] = Z[g].flatten(1) @ right.flatten(1).mT
            found[a, :, g] = found[g, :, a].mT
    return found


def states(alpha: Tensor, eps: float = 0.01, *, first: bool = True, cuts: int = 7) -> int | Tensor:
    """Return how many states a recurrence needs to carry a causal head: its rank between past and future.

    ``alpha`` (..., n, n), causal; the block of a cut t, alpha[t:, :t], takes the tokens before t to the
    outputs from t onward. The count is the fewest singular values that leave at most the fraction ``eps`` of
    the block's squared entries, at the cut that needs most, of ``cuts`` evenly spaced ones; n - 1 are all
    cuts. ``first=False``: without the first key, where many trained heads put weight that they do not need.
    int64.

    >>> fades = 0.5 ** (torch.arange(16.0)[:, None] - torch.arange(16)).tril() * torch.ones(16, 16).tril()
    >>> states(fades), states(torch.eye(16)), states(torch.full((16, 16), 0.1).tril() + fades)
    (1, 0, 2)
    """
    n = check_shape("alpha", alpha, "... n n")["n"]
    check_number("eps", eps, 0.0, 1.0)
    cuts = check_integer("cuts", cuts, low=1)
    if bool((alpha.triu(1) != 0).any()):
        raise ValueError("alpha must be causal, alpha_ij = 0 for j > i: a recurrence carries the past alone")
    places = sorted({round(n * c / (cuts + 1)) for c in range(1, cuts + 1)} & set(range(1, n)))
    found = [torch.zeros(alpha.shape[:-2], dtype=torch.int64, device=alpha.device)]
    for t in places:
        block = alpha[..., t:, 0 if first else 1 : t].to(torch.float64)
        found.append((tail_energies(torch.linalg.svdvals(block)) > eps).sum(-1))
    return item_if_scalar(torch.stack(found).amax(0))
