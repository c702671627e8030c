"""Which states the input reaches and the output sees, by an orthonormal staircase, not by powers of A."""

from __future__ import annotations

import torch

from ssmbook._checks import check_matrices
from ssmbook.numerics import RankReport, double, rank_report, tolerance


def controllability_matrix(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """[B, AB, ..., A^{N-1} B]: its column space is what the input can reach.

    A (..., N, N), B (..., N, d) -> (..., N, N d), same dtype. For looking at: its columns line up with the
    leading eigenvector, so ask :func:`controllability_rank` for the rank. Raises TypeError/ValueError for a
    malformed system. Source: `kailath1980linear`. Introduced in *structured-dynamics*.

    >>> A, B = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[0.0], [1.0]])
    >>> controllability_matrix(A, B).tolist()  # the input fills the second state, which moves to the first
    [[0.0, 1.0], [1.0, 0.0]]
    """
    check_matrices(A=A, B=B)
    N, blocks = A.shape[-1], [B]
    for _ in range(N - 1):
        blocks.append(A @ blocks[-1])
    return torch.cat(blocks, dim=-1) if N else B.new_empty((*B.shape[:-2], 0, 0))


def observability_matrix(A: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
    """[C; CA; ...; C A^{N-1}]: its null space is what the output never shows.

    A (..., N, N), C (..., p, N) -> (..., N p, N), same dtype. Raises TypeError/ValueError for a malformed
    system. Source: `kailath1980linear`. Introduced in *structured-dynamics*.

    >>> A, C = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> observability_matrix(A, C).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    check_matrices(A=A, C=C)
    return controllability_matrix(A.mT, C.mT).mT


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.matrix_norm(tensor.detach(), 2)) if tensor.numel() else 0.0


def _staircase(A, B, rtol: float, scale_A=1.0, scale_B=1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """A basis Q (N, r), orthonormal, of the reachable space, and every decision's relative singular values.

    Each new block is A times the *orthonormal* directions found last, freed of the old ones; a direction
    counts when its singular value exceeds rtol times ``scale_B`` (first block) or ``scale_A`` (later ones):
    the norms of the system as it was given, since that is what its rounding errors are relative to.
    """
    N = A.shape[0]
    Q, block, seen = A.new_empty((N, 0)), B, []
    scale = scale_B
    while block.numel():
        for _ in range(2):  # once is not enough when most of the block lies in the old directions
            block = block - Q @ (Q.mH @ block)
        U, S, _ = torch.linalg.svd(block, full_matrices=False)
        S = S / scale if scale > 0 else S
        seen.append(S)
        new = U[:, S > rtol][:, : N - Q.shape[1]]
        new = torch.linalg.qr(new - Q @ (Q.mH @ new)).Q
        Q = torch.cat([Q, new], dim=1)
        block = A @ new if Q.shape[1] < N else new[:, :0]
        scale = scale_A
    return Q, torch.cat(seen) if seen else A.new_empty((0,)).abs()


def controllability_rank(A: torch.Tensor, B: torch.Tensor, *, rtol: float | None = None) -> RankReport:
    """The dimension of the reachable space span{B, AB, A^2 B, ...}.

    A (N, N), B (N, d), real or complex -> :class:`~ssmbook.operators.RankReport`; its spectrum holds the
    singular values of every staircase step relative to ||B||_2 (first) or ||A||_2 (later), cut at ``rtol``,
    by default as for every rank (1e-10 in float64). Worked in float64. The answer depends on the units of
    the states: scale them first. Raises TypeError/ValueError for a malformed or batched system. Source:
    `kailath1980linear`. Introduced in *structured-dynamics*.

    >>> int(controllability_rank(0.5 * torch.eye(2), torch.ones(2, 1)))  # two equal states move as one
    1
    """
    check_matrices(A=A, B=B, batched=False)
    rtol = tolerance(rtol, A.dtype)
    A, B = double(A), double(B)
    decided = _staircase(A, B, rtol, _norm(A), _norm(B))[1]
    return rank_report(decided.sort(descending=True).values, rtol, scale=1.0)


def observability_rank(A: torch.Tensor, C: torch.Tensor, *, rtol: float | None = None) -> RankReport:
    """N minus the dimension of the states that the output never shows.

    A (N, N), C (p, N) -> :class:`~ssmbook.operators.RankReport`, as :func:`controllability_rank` of (A^T,
    C^T). Introduced in *structured-dynamics*.

    >>> A, C = torch.tensor([[0.5, 0.0], [0.0, 0.2]]), torch.tensor([[1.0, 0.0]])
    >>> int(observability_rank(A, C))  # the second state is never shown
    1
    """
    check_matrices(A=A, C=C, batched=False)
    return controllability_rank(A.mT, C.mT, rtol=rtol)


def minimal_states(A, B, C, rtol: float):
    """A, B, C on the states that are reached and seen, and the singular values that decided which those are.

    A, B, C in standard form, float64 or complex128; both changes of basis are orthonormal, so the lag
    operators stay the same. A direction counts when its singular value exceeds rtol.
    """
    reached, seen = _staircase(A, B, rtol)
    A, B, C = reached.mH @ A @ reached, reached.mH @ B, C @ reached
    visible, more = _staircase(A.mH, C.mH, rtol)
    A, B, C = visible.mH @ A @ visible, visible.mH @ B, C @ visible
    return A, B, C, torch.cat([seen, more])
