"""Which states the input reaches and the output sees, and the units in which such ranks are decided."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg.lapack import dgebal

from ssmbook._checks import check_matrices
from ssmbook.numerics import RankReport, rank_report, to_float64, tolerance

# States whose units differ by less than this stay as they are.
SIMILAR_UNITS = 2.0**8


class Balanced(NamedTuple):
    """A system in units of its own: its lag operators are C A^tau B times step^tau rows columns^T.

    A (r, r) has norm one, and so have the columns of B (r, d) and the rows of C (p, r),
    unless they are zero. Only the r states on a path from an input to an output are left.
    """

    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    step: torch.Tensor  # ()
    columns: torch.Tensor  # (1, d)
    rows: torch.Tensor  # (p, 1)


def balance(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> Balanced:
    """Choose units for states, inputs, outputs and time in which the numbers of a system can be compared.

    Scaling a state with S changes A, B and C to S A S^-1, S B and C S^-1 but no lag
    operator, so ranks must not depend on it. We close the loop from the outputs back to the
    inputs and let LAPACK make rows and columns of that matrix equally large. Its factors
    are powers of two, so nothing is rounded but the final norms. A, B, C finite, in float64
    or complex128.
    """
    on_path = _reached(A, B) & _reached(A.mT, C.mT)
    A, B, C = A[on_path][:, on_path], B[on_path], C[:, on_path]
    (N, d), p = B.shape, len(C)
    loop = np.zeros((N + d + p, N + d + p))
    loop[:N, :N], loop[:N, N : N + d], loop[N + d :, :N] = (
        part.detach().abs().cpu().numpy() for part in (A, B, C)
    )
    loop[N : N + d, N + d :] = 1
    scale = dgebal(loop, scale=1, permute=0)[3] if N else np.ones(d + p)
    state, column, row = (torch.from_numpy(part).to(A.device) for part in np.split(scale, [N, N + d]))
    if N and state.max() <= SIMILAR_UNITS * state.min():
        state = torch.ones_like(state)
    A, B, C = A * state / state[:, None], B * column / state[:, None], C * state / row[:, None]
    step = torch.linalg.matrix_norm(A, 2) if N else A.new_ones(()).abs()
    units = [torch.where(size > 0, size, 1.0) for size in (step, _norms(B, 0), _norms(C, 1))]
    A, B, C = (part / unit for part, unit in zip((A, B, C), units, strict=True))
    return Balanced(A, B, C, units[0], units[1] / column, units[2] * row[:, None])


def _reached(A, B) -> torch.Tensor:
    """Which states (N,) a path of nonzero entries joins to an input."""
    edges, reached = A != 0, (B != 0).any(1)
    for _ in range(len(A)):
        reached = reached | (edges & reached).any(1)
    return reached


def _norms(tensor, dim) -> torch.Tensor:
    return torch.linalg.vector_norm(tensor, dim=dim, keepdim=True)


def observability_matrix(A: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
    """[C; CA; ...; C A^{N-1}]: its null space holds the states that the output never shows.

    A (..., N, N), C (..., p, N) -> (..., N p, N), same dtype. ``observability_matrix(A.mT,
    B.mT).mT`` is the controllability matrix [B, AB, ..., A^{N-1} B]. For a rank ask
    :func:`observability_rank`: the rows line up with the leading eigenvector. Source:
    `kailath1980linear`.

    >>> A, C = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> observability_matrix(A, C).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    check_matrices(A=A, C=C)
    N, blocks = A.shape[-1], [C]
    for _ in range(N - 1):
        blocks.append(blocks[-1] @ A)
    return torch.cat(blocks, dim=-2) if N else C.new_empty((*C.shape[:-2], 0, 0))


def controllability_rank(A: torch.Tensor, B: torch.Tensor, *, rtol: float | None = None) -> RankReport:
    """The dimension of the reachable space span{B, AB, A^2 B, ...}, by an orthonormal staircase.

    A (N, N), B (N, d), real or complex -> :class:`~ssmbook.operators.RankReport`. Its
    spectrum holds the singular values of every step, relative to ||B||_2 (first step) or
    ||A||_2 (later ones), cut at ``rtol`` (default 1e-10 in float64). Computed in float64.
    The answer depends on the units of the states; `System.minimal` chooses them. Source:
    `kailath1980linear`.

    >>> int(controllability_rank(0.5 * torch.eye(2), torch.ones(2, 1)))  # two equal states move as one
    1
    """
    check_matrices(A=A, B=B, batched=False)
    rtol = tolerance(rtol, A.dtype)
    A, B = to_float64(A.detach()), to_float64(B.detach())
    sizes = (float(torch.linalg.matrix_norm(part, 2)) if part.numel() else 0.0 for part in (A, B))
    decided = _staircase(A, B, rtol, *sizes)[1]
    return rank_report(decided.sort(descending=True).values, rtol, scale=1.0)


def observability_rank(A: torch.Tensor, C: torch.Tensor, *, rtol: float | None = None) -> RankReport:
    """N minus the dimension of the states that the output never shows.

    A (N, N), C (p, N) -> :class:`~ssmbook.operators.RankReport`, as
    :func:`controllability_rank` of (A^T, C^T).

    >>> A, C = torch.tensor([[0.5, 0.0], [0.0, 0.2]]), torch.tensor([[1.0, 0.0]])
    >>> int(observability_rank(A, C))  # the second state is never shown
    1
    """
    check_matrices(A=A, C=C, batched=False)
    return controllability_rank(A.mT, C.mT, rtol=rtol)


def minimal_states(A, B, C, rtol: float):
    """A, B, C on the states that are reached and seen, and the singular values that decided which those are.

    A, B, C balanced. Both changes of basis are orthonormal, so the lag operators stay the
    same.
    """
    reached, seen = _staircase(A, B, rtol)
    A, B, C = reached.mH @ A @ reached, reached.mH @ B, C @ reached
    visible, more = _staircase(A.mH, C.mH, rtol)
    A, B, C = visible.mH @ A @ visible, visible.mH @ B, C @ visible
    return A, B, C, torch.cat([seen, more])


def _staircase(A, B, rtol: float, size_A=1.0, size_B=1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """An orthonormal basis Q (N, r) of the reachable space, and the relative singular values of every step.

    Each new block is A times the *orthonormal* directions found last, without its part in
    the old ones. A direction counts when its singular value exceeds rtol times ``size_B``
    (first block) or ``size_A``.
    """
    N = A.shape[0]
    Q, block, seen, size = A.new_empty((N, 0)), B, [], size_B
    while block.numel():
        for _ in range(2):  # once is not enough when most of the block lies in the old directions
            block = block - Q @ (Q.mH @ block)
        U, S, _ = torch.linalg.svd(block, full_matrices=False)
        S = S / size if size > 0 else S
        seen.append(S)
        new = U[:, S > rtol][:, : N - Q.shape[1]]
        new = torch.linalg.qr(new - Q @ (Q.mH @ new)).Q
        Q = torch.cat([Q, new], dim=1)
        block = A @ new if Q.shape[1] < N else new[:, :0]
        size = size_A
    return Q, torch.cat(seen) if seen else A.new_empty((0,)).abs()
