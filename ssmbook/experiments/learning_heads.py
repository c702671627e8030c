"""Learning heads: teachers of known head count, batched students, their population error in closed form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ssmbook._checks import check_integer, check_like, check_rtol, check_sequence, check_tensors
from ssmbook.experiments._data import adam, target_sizes
from ssmbook.heads import head_floor
from ssmbook.operators import FactorizedOperator, LagOperator
from ssmbook.operators.spectra import covariance_root
from ssmbook.systems import System, random_stable


@dataclass(frozen=True, eq=False)
class TrainedHeads:
    """What a batched training run leaves behind (introduced in *head-count*).

    heads (S,) int64: head count of each student. alpha (S, H, n, n), V (S, H, p, d): their
    parameters, zero for the heads a student does not have, H the largest head count. error (S,): relative
    population error at the end. steps (R,) int64, history (R, S): the same error on the way, step 0 first.
    """

    heads: torch.Tensor
    alpha: torch.Tensor
    V: torch.Tensor
    error: torch.Tensor
    steps: torch.Tensor
    history: torch.Tensor

    def errors_of(self, H: int) -> torch.Tensor:
        """Return the final errors of the students with H heads, one for each seed."""
        return self.error[self.heads == H]

    def operator(self, student: int) -> FactorizedOperator:
        """Return the operator of one student, with the heads it has."""
        H = self.heads[student]
        return FactorizedOperator(self.alpha[student, :H], self.V[student, :H])


def draw_teacher(
    k: int,
    d: int,
    p: int,
    n: int,
    *,
    least_share: float = 1e-4,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    attempts: int = 200,
) -> System:
    """Draw a random stable system with k states whose last head has ``least_share`` of the energy or more.

    k, d, p, n ints with 1 <= k <= min(n, p d); 0 <= least_share < 1: systems of radius 0.9 are drawn until
    the floor at k - 1 heads, sigma_k^2 / energy, reaches it. A weaker last head is legal but trains slowly.
    Returns a `System` in ``dtype`` (default: torch's), judged in float64.

    Raises ``TypeError``/``ValueError`` for arguments outside these ranges, ``ValueError`` when ``attempts``
    draws found none. Source: thm-head-floor. Introduced in *head-count*.
    """
    counts = (("d", d), ("p", p), ("n", n), ("attempts", attempts))
    d, p, n, attempts = (check_integer(*count, low=1) for count in counts)
    k = check_integer("k", k, low=1, high=min(n, p * d))
    least_share = check_rtol(least_share, "least_share")
    check_like(generator=generator, dtype=dtype)
    best = 0.0
    for _ in range(attempts):
        system = random_stable(k, d, p, rho=0.9, generator=generator, dtype=torch.float64)
        share = float(head_floor(system, n)[k - 1])
        if share >= least_share:
            return system.to(dtype or torch.get_default_dtype())
        best = max(best, share)
    raise ValueError(
        f"least_share must be within reach of random systems; got {least_share:.1e}, the best of {attempts} "
        f"draws with k = {k}, p = {p}, d = {d}, n = {n} had {best:.1e}"
    )


def population_error(
    alpha: torch.Tensor,
    V: torch.Tensor,
    M: torch.Tensor,
    *,
    time_covariance: torch.Tensor | None = None,
    channel_covariance: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return E sum_i ||y'_i - y_i||^2 / E sum_i ||y_i||^2 of heads against a system, without drawing inputs.

    alpha (..., H, n, n), V (..., H, p, d), H = 0 allowed; M (n, p, d), not zero; the inputs have second
    moments E x_i x_j^T = time_covariance[i, j] * channel_covariance, (n, n) and (d, d), symmetric positive
    semidefinite (``None``: the identity). Then the error is ||(W' - W)(L_t ⊗ L_x)||_F^2 over that of W,
    Sigma = L L^T. One dtype and device; result (...), differentiable in alpha and V.

    Raises ``TypeError``/``ValueError`` for dtypes, devices, shapes, a zero system, a covariance that is not
    positive semidefinite. Source: thm-head-floor. Introduced in *head-count*.
    """
    sizes = target_sizes(M)
    heads = {"alpha": (alpha, "... H n n"), "V": (V, "... H p d")}
    check_tensors(M=(M, "n p d"), **heads, one_batch=True)
    target = LagOperator(M).to_dense()
    missed = torch.einsum("...hij,...hpd->...ijpd", alpha, V) - target
    L_x = covariance_root("channel_covariance", channel_covariance, sizes["d"], M.device)
    L_t = covariance_root("time_covariance", time_covariance, sizes["n"], M.device)
    if L_x is not None:
        missed, target = missed @ L_x.to(M), target @ L_x.to(M)
    if L_t is not None:
        missed, target = (torch.einsum("...ijpd,jl->...ilpd", W, L_t.to(M)) for W in (missed, target))
    return missed.square().sum((-4, -3, -2, -1)) / target.square().sum()


def train_heads(
    M: torch.Tensor,
    heads: Iterable[int],
    *,
    seeds: int = 4,
    steps: int = 2000,
    generator: torch.Generator | None = None,
) -> TrainedHeads:
    """Train students of every head count in ``heads`` and every seed at once, on the white-input error.

    M (n, p, d), not zero: the teacher's lags. heads: ints >= 0, all different; seeds >= 1 students of each.
    A student is W'_ij = sum_h alpha^h_ij V_h with a free table alpha^h and a free V_h: a two-layer linear
    network, told neither causality nor lags nor time invariance. Both start normal with standard deviation
    0.3. ``steps`` of Adam with cosine decay from 0.1 to 0, in the dtype of M (float64 to reach the floor to
    four digits). Adam works entry by entry, so the students do not see each other. The error is recorded at
    40 steps, first and last among them.

    Raises ``TypeError``/``ValueError`` for bad arguments or a zero system. Source: thm-head-floor.
    Introduced in *head-count*.
    """
    sizes = target_sizes(M)
    H = _students(heads, seeds)
    steps = check_integer("steps", steps, low=0)
    check_like(generator=generator)
    S, n, width = len(H), sizes["n"], sizes["p"] * sizes["d"]
    # Rows vec W_ij in units of the root mean square row: one learning rate then serves every teacher.
    rows = LagOperator(M.detach()).to_dense().reshape(n * n, width)
    unit = rows.square().sum(1).mean().sqrt()
    has_head = torch.arange(int(H.max()))[:, None] < H[:, None, None]
    mask = has_head.expand(-1, -1, n * n).to(M)
    alpha = 0.3 * torch.randn(mask.shape, generator=generator, dtype=torch.float64).to(M) * mask
    V = 0.3 * torch.randn(S, mask.shape[1], width, generator=generator, dtype=torch.float64).to(M)
    V = V * has_head.to(M)
    marks = torch.linspace(0, steps, 40).round().long().unique()
    history = _fitted(alpha, V, rows / unit, mask, steps=steps, lr=0.1, marks=marks.tolist())
    alpha, V = alpha.detach().unflatten(2, (n, n)), V.detach().unflatten(2, (sizes["p"], sizes["d"])) * unit
    return TrainedHeads(H, alpha, V, history[-1], marks, history)


def _fitted(alpha, V, rows, mask, **training):
    """Adam in place on alpha (S, H, n^2), V (S, H, p d); returns the relative errors at the marked steps."""
    energy = rows.square().sum()
    return adam(lambda: ((alpha * mask).mT @ V - rows).square().sum((1, 2)) / energy, [alpha, V], **training)


def _students(heads, seeds):
    """The head count of each student, the seeds of one count side by side."""
    heads = [check_integer("heads", H, low=0) for H in check_sequence("heads", heads, "head counts")]
    if not heads or len(set(heads)) < len(heads):
        raise ValueError(f"heads must hold different head counts, at least one; got {heads}")
    seeds = check_integer("seeds", seeds, low=1)
    return torch.tensor(heads).repeat_interleave(seeds)
