"""How many states carry a causal head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssmbook._checks import check_integer, check_number, check_shape
from ssmbook.numerics import item_if_scalar
from ssmbook.operators.spectra import tail_energies


def grown(n: int) -> list[int]:
    """A quarter, a half and the whole of a text."""
    return [n // 4, n // 2, n]


def fewest(alpha: Tensor, shares: Sequence[float], first: bool, cuts: int = 7) -> Tensor:
    """Return ``states`` of heads without padding (..., n, n) for several shares: (shares, ...).

    By squares of singular values, at two thirds of the cost; they are right to 1e-16 of the largest.
    """
    n, lead = alpha.shape[-1], [1] * (alpha.ndim - 1)
    eps = torch.tensor(shares, dtype=torch.float64, device=alpha.device).view(-1, *lead)
    found = [torch.zeros(len(shares), *alpha.shape[:-2], dtype=torch.int64, device=alpha.device)]
    for t in sorted({round(n * c / (cuts + 1)) for c in range(1, cuts + 1)} & set(range(1, n))):
        block = alpha[..., t:, 0 if first else 1 : t].to(torch.float64)
        block = block if block.shape[-2] <= block.shape[-1] else block.mT
        squares = torch.linalg.eigvalsh(block @ block.mT).flip(-1).clamp_min(0)
        found.append((tail_energies(squares.sqrt()) > eps).sum(-1))
    return torch.stack(found).amax(0)


def states(alpha: Tensor, eps: float = 0.01, *, first: bool = True, cuts: int = 7) -> int | Tensor:
    """Return how many states a recurrence needs to carry a causal head: its rank between past and future.

    The block of a cut t, alpha[t:, :t], takes the tokens before t to the outputs from t
    onward. Counted are the fewest singular values that leave at most the fraction ``eps``
    of the block's squared entries, at the cut that needs most. Padding, tokens without
    weights before or after the others, is no part of the text.

    Parameters
    ----------
    alpha : Tensor (..., n, n)
        The coefficients of heads, causal.
    eps : float, default 0.01
        The fraction that may be left, from 0 to 1.
    first : bool, default True
        Whether the first key that is read counts; many trained heads put weight there that they do not need.
    cuts : int, default 7
        How many evenly spaced cuts are tried; n - 1 are all.

    Returns
    -------
    int, or int64 Tensor (...) when batched
        The states that each head needs.

    Raises
    ------
    ValueError
        If alpha is not causal, or a number is out of its range.

    Examples
    --------
    >>> fades = 0.5 ** (torch.arange(16.0)[:, None] - torch.arange(16)).tril() * torch.ones(16, 16).tril()
    >>> states(fades), states(torch.eye(16)), states(torch.full((16, 16), 0.1).tril() + fades)
    (1, 0, 2)
    """
    n = check_shape("alpha", alpha, "... n n")["n"]
    check_number("eps", eps, 0.0, 1.0)
    cuts = check_integer("cuts", cuts, low=1)
    if bool((alpha.triu(1) != 0).any()):
        raise ValueError("alpha must be causal, alpha_ij = 0 for j > i: a recurrence carries the past alone")
    used = ((alpha != 0).any(-1) | (alpha != 0).any(-2)).view(-1, n)
    if not bool((used == used[0]).all()):  # texts that are padded unlike one another
        found = [states(each, eps, first=first, cuts=cuts) for each in alpha]
        return torch.stack([torch.as_tensor(each, device=alpha.device) for each in found])
    if bool(used.any()):  # without the padding before and after the text
        start, end = (int(place) for place in used[0].nonzero()[[0, -1], 0])
        alpha = alpha[..., start : end + 1, start : end + 1]
    return item_if_scalar(fewest(alpha, [eps], first, cuts)[0])
