"""From lag operators back to a system: the block Hankel matrix, its rank, and the Ho-Kalman realization."""

from __future__ import annotations

import torch

from ssmbook._checks import check_integer, check_shape, check_tensors
from ssmbook.numerics import RankReport, rank_report, to_float64, tolerance
from ssmbook.systems.system import System


def hankel_matrix(M: torch.Tensor, rows: int | None = None, cols: int | None = None) -> torch.Tensor:
    """The block Hankel matrix whose block (r, c) is the lag operator M_{r+c}, from M_0 onward.

    M (..., n, p, d), real or complex -> (..., rows p, cols d), same dtype. By default as
    square as n lags allow: rows = (n + 1) // 2 block rows and cols = n + 1 - rows. M_0 must
    be C B alone: with a skip, pass M[..., 1:, :, :], which is the Hankel matrix of C
    A^{tau+1} B. Raises TypeError/ValueError for a malformed M or rows + cols > n + 1.
    Source: `ho1966effective`.

    >>> hankel_matrix(torch.arange(3.0).reshape(3, 1, 1)).tolist()
    [[0.0, 1.0], [1.0, 2.0]]
    """
    sizes = check_shape("M", M, "... n p d", complex_ok=True)
    n = sizes["n"]
    rows = (n + 1) // 2 if rows is None else check_integer("rows", rows, low=0)
    cols = n + 1 - rows if cols is None else check_integer("cols", cols, low=0)
    if rows + cols > n + 1:
        raise ValueError(f"rows + cols must be at most n + 1 = {n + 1}; got {rows} + {cols}")
    lag = torch.arange(rows, device=M.device)[:, None] + torch.arange(cols, device=M.device)
    blocks = M[..., lag, :, :].transpose(-3, -2)  # (..., rows, p, cols, d)
    return blocks.reshape(*M.shape[:-3], rows * sizes["p"], cols * sizes["d"])


def mcmillan_degree(M: torch.Tensor, *, rtol: float | None = None) -> RankReport:
    """The number of states of a minimal realization: the rank of the block Hankel matrix of the lags.

    The output reads the new state here, so this is the McMillan degree of H(z)/z: one more
    for each chain of delays than in the convention y_i = C h_{i-1} + D x_i.

    M (n, p, d), M_0 = C B -> :class:`~ssmbook.operators.RankReport` with the Hankel
    singular values over this window, float64, descending. ``rtol`` is relative to the
    largest, by default as for every rank (1e-10 in float64). n >= 2 N - 1 lags suffice.
    Modes that decay fast are lost to rounding, and rounding alone looks like a system: see
    the spectrum. Raises TypeError/ValueError for a malformed or non-finite M. Source:
    `ho1966effective`.

    >>> int(mcmillan_degree(0.5 ** torch.arange(8.0).reshape(8, 1, 1)))
    1
    """
    check_tensors(M=(M, "n p d"), finite=True, complex_ok=True)
    H = hankel_matrix(to_float64(M))
    return rank_report(torch.linalg.svdvals(H), tolerance(rtol, M.dtype))


def ho_kalman(M: torch.Tensor, order: int | None = None, *, rtol: float | None = None) -> System:
    """A system with the given lag operators, minimal and balanced over the window, by Ho and Kalman's way.

    M (n, p, d), M_0 = C B -> a `System` with N states in the dtype of M, worked in float64.
    The observability and controllability Gramians over the window are both diag(sigma), the
    Hankel singular values. ``order`` = N; by default the rank of the Hankel matrix at
    ``rtol`` (as :func:`mcmillan_degree`); smaller: balanced truncation of the window. n >=
    2 N lags suffice; errors grow like sigma_1/sigma_N. All lags zero: N = 0. Raises
    TypeError/ValueError for a malformed or non-finite M and for an order beyond the
    numerical rank. Source: `ho1966effective`, `kung1978new`.

    >>> M = 0.5 ** torch.arange(8.0, dtype=torch.float64).reshape(8, 1, 1)
    >>> found = ho_kalman(M)
    >>> found, torch.allclose(found.lags(8), M)
    (System(N=1, d=1, p=1, float64), True)
    """
    sizes = check_tensors(M=(M, "n p d"), finite=True, complex_ok=True)
    rows, cols = sizes["n"] // 2, (sizes["n"] + 1) // 2
    if rows == 0:
        raise ValueError(f"M must hold at least 2 lags, because one does not determine A; got {sizes['n']}")
    H = hankel_matrix(to_float64(M), rows, cols)
    U, S, Vh = torch.linalg.svd(H, full_matrices=False)
    report = rank_report(S, tolerance(rtol, M.dtype))
    order = report.rank if order is None else order
    order = check_integer("order", order, low=0)
    if order > report.rank:
        raise ValueError(f"order must be at most the rank of the Hankel matrix, {report.rank}; got {order}")
    root = S[:order].sqrt()
    U, Vh = U[:, :order], Vh[:order]
    shifted = hankel_matrix(to_float64(M)[1:], rows, cols)
    A = (U.mH @ shifted @ Vh.mH) / torch.outer(root, root)
    B = root[:, None] * Vh[:, : sizes["d"]]
    C = U[: sizes["p"]] * root
    return System(A, B, C).to(M.dtype)
