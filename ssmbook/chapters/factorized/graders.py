"""Graders of the chapter *factorized*."""

import torch

from ssmbook.exercises import grader
from ssmbook.operators import FactorizedOperator


def _heads(H: int, distinct: int, seed: int, scale: float = 1.0):
    """H heads whose value maps span ``distinct`` dimensions."""
    like = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    V = torch.einsum("hg,gpd->hpd", torch.randn(H, distinct, **like), torch.randn(distinct, 3, 4, **like))
    return scale * torch.randn(H, 6, 6, **like).tril(), V


def _canceling():
    alpha, V = _heads(2, 2, 7)
    return torch.cat([alpha, -alpha[:1]]), torch.cat([V, V[:1]])


def _repeated_table():
    alpha, V = _heads(4, 4, 8)
    return alpha[[0, 1, 1, 0]], V


def _cases():
    yield from (_heads(1, 1, 0), _heads(5, 3, 1), _heads(4, 4, 2), _heads(6, 1, 3, scale=1e-20))
    yield from (_repeated_table(), _canceling())


@grader("factorized/fewest-heads")
def grade_fewest_heads(answer):
    """A function (alpha (H, n, n), V (H, p, d)) -> the same operator's pair with the fewest heads."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    for alpha, V in _cases():
        W, given = FactorizedOperator(alpha, V), f"{len(V)} heads"
        result = answer(alpha.clone(), V.clone())
        if not isinstance(result, tuple) or len(result) != 2:
            return f"return the pair (alpha, V); got {type(result).__name__}"
        fewer = FactorizedOperator(*result)
        dense = W.to_dense()
        if fewer.to_dense().shape != dense.shape:
            return f"the operator must stay one of n = {W.n}, p = {W.p}, d = {W.d}; got {fewer}"
        if not torch.allclose(fewer.to_dense(), dense, rtol=1e-7, atol=1e-9 * float(dense.abs().max())):
            return f"on {given} your pair gives another operator: compare the sums of alpha^h_ij V_h"
        if fewer.H != W.interaction_rank():
            return (
                f"on {given} you return {fewer.H} heads and {W.interaction_rank()} are enough: value maps "
                "may be dependent, and so may tables; count singular values above a relative cut"
            )
    return None
