"""What the head count is made of: residues of the modes, in float64 (`modal_exact`: over the rationals)."""

from __future__ import annotations

import torch

from ssmbook.heads._target import check_real
from ssmbook.heads.fixed._span import EIGENVECTOR_LIMIT, cluster
from ssmbook.numerics import tolerance
from ssmbook.systems._units import ldexp, standard_form
from ssmbook.systems.system import System, system_first


@system_first
def modal_residues(system: System, rtol: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distinct eigenvalues and residues of a diagonalizable system: M_tau = sum_s lam_s^tau R_s.

    A real `System`; eigenvalues closer than rtol * ||A||_2 (``None``: as
    `head_count`) are one, in units where the states compare. Result lam (S,), R (S, p, d), complex128, 0^0 =
    1: a skip is a mode of eigenvalue 0. States that no entries join to an input and an output have no mode.

    Raises ``ValueError`` where the eigenvectors' condition number exceeds 1e6 (defective A: use
    `exact_modal_residues`), and as `head_count`. Source: prop-what-k-is. Introduced in *head-count*.

    >>> system = System(torch.diag(torch.tensor([0.9, 0.5])), torch.eye(2), torch.eye(2))
    >>> lam, R = modal_residues(system)
    >>> lam.real, R.shape
    (tensor([0.9000, 0.5000], dtype=torch.float64), torch.Size([2, 2, 2]))
    """
    *matrices, D = check_real(system).double()
    form, rtol = standard_form(*matrices, D, dtype=system.dtype), tolerance(rtol, system.dtype)
    A, B, C = form.A, form.B, form.C
    values, vectors = torch.linalg.eig(A)
    inverse, info = torch.linalg.inv_ex(vectors)
    condition = float(torch.linalg.vector_norm(vectors) * torch.linalg.vector_norm(inverse))
    if int(info) or not condition <= EIGENVECTOR_LIMIT:
        raise ValueError(f"A must be diagonalizable; got eigenvectors of condition {condition:.1e}")
    left, right = C.to(values.dtype) @ vectors, inverse @ B.to(values.dtype)
    terms = torch.einsum("as,sb->sab", left, right)
    terms = ldexp(terms * form.rows[0] * form.columns[0], form.rows[1] + form.columns[1])
    if D is not None:
        values = torch.cat([values, values.new_zeros(1)])
        terms = torch.cat([terms, D.to(terms.dtype).unsqueeze(0)])
    if len(values) == 0:
        return values, terms
    labels = cluster(values, rtol)[0]
    count = int(labels.max()) + 1
    nodes = values.new_zeros(count).index_add(0, labels, values) / torch.bincount(labels)
    nodes = torch.where(nodes.abs() <= rtol, torch.zeros_like(nodes), nodes)
    return ldexp(nodes * form.step[0], form.step[1]), terms.new_zeros(count, *terms.shape[1:]).index_add(
        0, labels, terms
    )
