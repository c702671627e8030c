"""Well-conditioned generators of span{C A^tau B}: the powers A^tau hide small modes from a rank test."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ssmbook.systems.reachability import minimal_states

# Beyond this condition number of the eigenvectors the modal route loses more digits than the Krylov route.
EIGENVECTOR_LIMIT = 1e6


class SpanRows(NamedTuple):
    """Rows (m, p*d) that span the lag operators; how they were found; degree of the recurrence."""

    rows: torch.Tensor
    method: str
    degree: int
    kept: float  # smallest quantity counted as non-zero on the way to the rows (inf: no decision was needed)
    dropped: float  # largest quantity counted as zero on the way


def span_rows(A, B, C, n, rtol) -> SpanRows:
    """Generate span{C A^tau B, 0 <= tau < n} for float64 A, B, C in standard form."""
    if n == 0 or A.shape[0] == 0 or not B.any():
        return SpanRows(C.new_zeros(0, C.shape[0] * B.shape[1]), "zero", 0, float("inf"), 0.0)
    values, vectors = torch.linalg.eig(A)
    inverse, info = torch.linalg.inv_ex(vectors)
    condition = torch.linalg.vector_norm(vectors) * torch.linalg.vector_norm(inverse)
    if info == 0 and condition <= EIGENVECTOR_LIMIT:  # a NaN or inf from a defective A compares as False
        return _modal_rows(values, vectors, inverse, B, C, n, rtol)
    return _krylov_rows(A, B, C, n, rtol)


def cluster(values, rtol):
    """Label eigenvalues, one label for those joined by steps <= rtol; return labels and the two gaps."""
    values = values.detach()
    distance = (values.unsqueeze(0) - values.unsqueeze(1)).abs()
    near = distance <= rtol
    for _ in range(len(values).bit_length()):
        near = (near.double() @ near.double()) > 0
    labels = torch.unique(near.double().argmax(1), return_inverse=True)[1]
    apart = distance[~near]
    within = float(distance[near].max())
    return labels, (float(apart.min()) if apart.numel() else float("inf")), within


def _modal_rows(values, vectors, inverse, B, C, n, rtol):
    """Residues C P_s B of the distinct eigenvalues; below their number, orthonormal polynomials of them."""
    labels, kept, dropped = cluster(values, rtol)
    left, right = C.to(values.dtype) @ vectors, inverse @ B.to(values.dtype)
    terms = torch.einsum("as,sb->sab", left, right).flatten(1)
    # The rounding noise of a residue is in proportion to its weight.
    weight = torch.linalg.vector_norm(inverse, dim=1)
    count = int(labels.max()) + 1
    weights = weight.new_zeros(count).scatter_reduce(0, labels, weight, "amax")
    nodes = values.new_zeros(count).index_add(0, labels, values) / torch.bincount(labels)
    residues = terms.new_zeros(count, terms.shape[1]).index_add(0, labels, terms) / weights.unsqueeze(1)
    size = torch.linalg.vector_norm(residues, dim=1)
    alive = size > rtol
    kept = min([kept, *size[alive].tolist()])
    dropped = max([dropped, *size[~alive].tolist()])
    nodes, residues, weights = nodes[alive], residues[alive], weights[alive]
    rows = torch.cat([residues.real, residues.imag])
    if n < len(nodes):
        basis, _, _ = orthonormal_powers(lambda q: nodes * q, weights.to(nodes.dtype), n, 0.0)
        rows = (basis @ residues).real
    return SpanRows(rows, "modal", len(nodes), kept, dropped)


def _krylov_rows(A, B, C, n, rtol):
    """C times an orthonormal basis of span{A^tau B}, after the unobservable states are cut away."""
    A, B, C, decided = minimal_states(A, B, C, rtol)
    kept = float(decided[decided > rtol].min()) if (decided > rtol).any() else float("inf")
    dropped = float(decided[decided <= rtol].max()) if (decided <= rtol).any() else 0.0
    if A.shape[0] == 0:
        return SpanRows(C.new_zeros(0, C.shape[0] * B.shape[1]), "krylov", 0, kept, dropped)
    shape = B.shape
    basis, smallest, last = orthonormal_powers(
        lambda q: (A @ q.reshape(shape)).reshape(-1), B.reshape(-1), A.shape[0], rtol
    )
    rows = (C @ basis[:n].reshape(-1, *shape)).flatten(1)
    return SpanRows(rows, "krylov", len(basis), min(kept, smallest), max(dropped, last))


def orthonormal_powers(step, start, steps, rtol):
    """Arnoldi: an orthonormal basis of span{step^tau(start)}, smallest growth kept, growth dropped."""
    room = start.new_empty(min(steps, 16), len(start))
    room[0] = start / torch.linalg.vector_norm(start)
    count, kept = 1, float("inf")
    while count < steps:
        basis, new = room[:count], step(room[count - 1])
        for _ in range(2):  # twice is enough
            new = new - (basis.conj() @ new) @ basis
        growth = float(torch.linalg.vector_norm(new.detach()))
        if growth <= rtol:
            return basis, kept, growth
        kept = min(kept, growth)
        if count == len(room):  # one copy for every doubling, not for every step
            room = torch.cat([room, torch.empty_like(room)])
        room[count] = new / growth
        count += 1
    return room[:count], kept, 0.0
