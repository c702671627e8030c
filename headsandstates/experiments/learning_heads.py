"""The experiment "learning-heads": whether students trained by gradients find the fewest heads there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from headsandstates.experiments import students
from headsandstates.experiments.training import F64, adam, target_sizes
from ssmbook import systems
from ssmbook._checks import check_integer, check_tensors
from ssmbook.operators import FactorizedOperator, LagOperator
from ssmbook.operators.spectra import covariance_root
from ssmbook.systems import System, random_stable


@dataclass(frozen=True, eq=False)
class TrainedHeads:
    """What a batched training run leaves behind.

    Parameters
    ----------
    heads : int64 Tensor (S,)
        The head count of each student.
    alpha, V : Tensor (S, H, n, n) and (S, H, p, d)
        Their parameters, zero for the heads a student does not have, H the largest head
        count.
    error : Tensor (S,)
        The relative population error at the end.
    steps, history : int64 Tensor (R,) and Tensor (R, S)
        The same error on the way, step 0 first.
    """

    heads: Tensor
    alpha: Tensor
    V: Tensor
    error: Tensor
    steps: Tensor
    history: Tensor

    def errors_of(self, H: int) -> Tensor:
        """Return the final errors of the students with H heads, one for each seed."""
        return self.error[self.heads == H]

    def operator(self, student: int) -> FactorizedOperator:
        """Return the operator of one student, with the heads it has."""
        H = self.heads[student]
        return FactorizedOperator(self.alpha[student, :H], self.V[student, :H])


def draw_teacher(
    k: int, d: int, p: int, n: int, *, generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> System:  # fmt: skip
    """Draw a random stable system with k states whose last head has 1e-4 of the energy or more.

    Its spectral radius is 0.9. A weaker last head would train slowly. Source:
    thm-head-floor.

    Parameters
    ----------
    k : int
        States, 1 <= k <= min(n, p d).
    d, p : int
        Widths of inputs and outputs.
    n : int
        The tokens on which the energy is measured.
    generator : torch.Generator, optional
        Draws the system.
    dtype : torch.dtype, optional
        Of the system; by default torch's.

    Returns
    -------
    System
        Discrete and stable.

    Raises
    ------
    ValueError
        If k is out of its range.
    """
    check_integer("k", k, low=1, high=min(n, p * d))
    system = _draw_until(k, n, 1e-4, lambda: random_stable(k, d, p, rho=0.9, generator=generator, dtype=F64))
    return system.to(dtype or torch.get_default_dtype())


def _draw_until(k: int, n: int, least_share: float, draw: Callable[[], System]) -> System:
    """Draw systems until the floor at k - 1 heads, the share of the last head, is ``least_share`` or more."""
    for _ in range(500):
        system = draw()
        if system.operator(n).floor(k - 1) >= least_share:
            return system
    raise ValueError(f"least_share must be within reach of the systems drawn; got {least_share} for k = {k}")


def population_error(
    alpha: Tensor, V: Tensor, M: Tensor, *,
    time_covariance: Tensor | None = None, channel_covariance: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return E sum_i ||y'_i - y_i||^2 / E sum_i ||y_i||^2 of heads against a system, without drawing inputs.

    The error is ||(W' - W)(L_t ⊗ L_x)||_F^2 over that of W, with covariances Sigma = L L^T;
    the inputs have second moments E x_i x_j^T = time_covariance[i, j] * channel_covariance.
    Source: thm-head-floor.

    Parameters
    ----------
    alpha : Tensor (..., H, n, n)
        The coefficients of the heads, H = 0 allowed.
    V : Tensor (..., H, p, d)
        Their value maps.
    M : Tensor (n, p, d)
        The lags of the system, not zero.
    time_covariance, channel_covariance : Tensor (n, n) and (d, d), optional
        Symmetric positive semidefinite; the identity by default.

    Returns
    -------
    Tensor (...)
        Differentiable in alpha and V.

    Raises
    ------
    ValueError
        If shapes do not fit, or M is zero.
    """
    sizes = target_sizes(M)
    heads = {"alpha": (alpha, "... H n n"), "V": (V, "... H p d")}
    check_tensors(M=(M, "n p d"), **heads, one_batch=True)
    target = LagOperator(M).to_dense()
    missed = torch.einsum("...hij,...hpd->...ijpd", alpha, V) - target
    L_x = covariance_root("channel_covariance", channel_covariance, sizes["d"], M.device).to(M)
    L_t = covariance_root("time_covariance", time_covariance, sizes["n"], M.device).to(M)
    missed, target = (torch.einsum("...ijpd,jl,de->...ilpe", W, L_t, L_x) for W in (missed, target))
    return missed.square().sum((-4, -3, -2, -1)) / target.square().sum()


def train_heads(
    M: Tensor, heads: Iterable[int], *, seeds: int = 4, steps: int = 2000,
    generator: torch.Generator | None = None,
) -> TrainedHeads:  # fmt: skip
    """Train students of every head count in ``heads`` and every seed at once, on the white-input error.

    A student is W'_ij = sum_h alpha^h_ij V_h with a free table alpha^h and a free V_h: a
    two-layer linear network, told neither causality nor lags nor time invariance. Both
    start normal with standard deviation 0.3 and are trained by Adam with cosine decay from
    0.1 to 0. Source: thm-head-floor.

    Parameters
    ----------
    M : Tensor (n, p, d)
        The teacher's lags, not zero; float64 to reach the floor to four digits.
    heads : iterable of int
        The head counts.
    seeds : int, default 4
        Students of each head count.
    steps : int, default 2000
        Of Adam; the error is recorded at 40 of them, first and last included.
    generator : torch.Generator, optional
        Draws the students.

    Returns
    -------
    TrainedHeads
        In the dtype of M.
    """
    sizes = target_sizes(M)
    H = torch.tensor([*heads]).repeat_interleave(seeds)
    S, n, width = len(H), sizes["n"], sizes["p"] * sizes["d"]
    # Rows vec W_ij in units of the root mean square row: one learning rate then serves
    # every teacher.
    rows = LagOperator(M.detach()).to_dense().reshape(n * n, width)
    unit = rows.square().sum(1).mean().sqrt()
    rows, energy = rows / unit, (rows / unit).square().sum()
    has_head = torch.arange(int(H.max()))[:, None] < H[:, None, None]
    mask = has_head.expand(-1, -1, n * n).to(M)
    alpha = 0.3 * torch.randn(mask.shape, generator=generator, dtype=F64).to(M) * mask
    V = 0.3 * torch.randn(S, mask.shape[1], width, generator=generator, dtype=F64).to(M)
    V = V * has_head.to(M)
    marks = torch.linspace(0, steps, 40).round().long().unique()

    def loss():
        return ((alpha * mask).mT @ V - rows).square().sum((1, 2)) / energy

    history = adam(loss, [alpha, V], steps=steps, lr=0.1, marks=marks.tolist())
    alpha, V = alpha.detach().unflatten(2, (n, n)), V.detach().unflatten(2, (sizes["p"], sizes["d"])) * unit
    return TrainedHeads(H, alpha, V, history[-1], marks, history)


# k states, spectral radius, condition number of the eigenvectors
TEACHERS = [
    [1, 0.9, 1], [2, 1.0, 1], [3, 0.8, 1], [3, 0.99, 10],
    [4, 0.9, 3], [4, 0.95, 30], [5, 0.95, 3], [6, 0.9, 1],
]  # fmt: skip


SPECTRUM = {"N": 64, "n": 64, "d": 4, "H": 16, "steps": 3000}
FULL = {
    "teachers": TEACHERS, "n": 32, "d": 4, "p": 3, "seeds": 4, "steps": 2000, "class_steps": 800,
    "pairwise_steps": 2000, "data": [64, 256, 1024], "data_steps": 1000, "spectrum": SPECTRUM,
}  # fmt: skip
SMALL = {
    "teachers": TEACHERS[:2], "n": 12, "seeds": 2, "steps": 300, "class_steps": 50, "pairwise_steps": 50,
    "data": [64], "data_steps": 100, "spectrum": {**SPECTRUM, "steps": 100},
}  # fmt: skip


def jobs(given: dict) -> dict:
    """One job for each teacher, class, size of the data, and for the hidden spectrum."""
    found = {f"teacher {i}": partial(_teacher, given, i) for i in range(len(given["teachers"]))}
    found["shuffled target"] = partial(_shuffled, given)
    for name in students.class_systems():
        for kind in students.CLASSES:
            found[f"{kind}, {name}"] = partial(_class, given, name, kind)
    found["pairwise"] = partial(_pairwise, given)
    for m in given["data"]:
        found[f"data {m}"] = partial(_on_data, given, m)
    found["spectrum"] = partial(_spectrum, given)
    return found


def conditioned_system(
    k: int, d: int, p: int, n: int, *, rho: float, condition: float, least_share: float = 1e-4,
    generator: torch.Generator | None = None,
) -> System:  # fmt: skip
    """Draw k states with poles of radius rho at most and eigenvectors of a given condition number.

    Parameters
    ----------
    k : int
        States.
    d, p : int
        Widths of inputs and outputs.
    n : int
        The tokens on which the energy is measured.
    rho : float
        The largest radius of a pole; the least is 0.6 of it.
    condition : float
        Of the eigenvectors.
    least_share : float, default 1e-4
        The share of the energy that the last head has at least.
    generator : torch.Generator, optional
        Draws the system.

    Returns
    -------
    System
        Discrete, float64.
    """

    def draw():
        modes = torch.linspace(1.0, 0.6, k, dtype=F64)
        angles = torch.rand(k // 2, generator=generator, dtype=F64) * 2.5 + 0.3
        blocks = [rho * float(modes[2 * s]) * systems.rotation(angle) for s, angle in enumerate(angles)]
        blocks += [torch.tensor([[rho * float(modes[-1])]], dtype=F64)] * (k % 2)
        U, V = (torch.linalg.qr(torch.randn(k, k, generator=generator, dtype=F64)).Q for _ in range(2))
        P = U * torch.logspace(0, math.log10(condition), k, dtype=F64) @ V
        A = P @ torch.block_diag(*blocks) @ torch.linalg.inv(P)
        B, C = (torch.randn(shape, generator=generator, dtype=F64) for shape in ((k, d), (p, k)))
        return systems.System(A, B, C)

    return _draw_until(k, n, least_share, draw)


def _train(M, k, given, seed):
    """Students of 0 … k + 2 heads against the floor; the errors before training beside them."""
    generator = torch.Generator().manual_seed(seed)
    H = list(range(k + 3))
    run = train_heads(M, H, seeds=given["seeds"], steps=given["steps"], generator=generator)
    floor = torch.cat([LagOperator(M).floor(), torch.zeros(len(H), dtype=F64)])[: len(H)]
    return {
        "k": k, "floor": floor, "H": H,
        "trained": torch.stack([run.errors_of(each) for each in H]),
        "untrained": run.history[0].unflatten(0, (len(H), -1)),
    }  # fmt: skip


def _teacher(given, i):
    k, rho, condition = given["teachers"][i]
    generator = torch.Generator().manual_seed(100 + i)
    sizes = (k, given["d"], given["p"], given["n"])
    teacher = conditioned_system(*sizes, rho=rho, condition=condition, generator=generator)
    trained = _train(teacher.lags(given["n"]), k, given, seed=i)
    return {"rho": rho, "condition": condition, **trained}


def _shuffled(given):
    """A teacher of three states whose lags have their entries shuffled: the structure goes, the count too."""
    generator = torch.Generator().manual_seed(102)
    sizes = (3, given["d"], given["p"], given["n"])
    M = conditioned_system(*sizes, rho=0.8, condition=1, generator=generator).lags(given["n"])
    shuffled = M.flatten()[torch.randperm(M.numel(), generator=generator)].reshape(M.shape)
    return _train(shuffled, min(given["n"], M[0].numel()), given, seed=50)


def _class(given, name, kind):
    M = students.class_systems()[name].lags(20)
    k = int(torch.linalg.matrix_rank(M.flatten(1)))
    H = list(range(1, k + 3))
    generator = torch.Generator().manual_seed(7)
    options = {"seeds": given["seeds"], "steps": given["class_steps"], "generator": generator}
    return {
        "k": k,
        "H": H,
        "trained": torch.stack([students.fit_class(M, each, kind, **options) for each in H]),
    }


def _pairwise(given):
    """Six independent matrices into two outputs: whether the two pairwise heads that exist are found."""
    generator = torch.Generator().manual_seed(11)
    M = systems.random_stable(6, 4, 2, rho=0.9, generator=generator, dtype=F64).lags(8)
    run = students.train_pairwise(M, [1, 2, 3], seeds=given["seeds"], steps=given["pairwise_steps"], seed=11)
    return {"k": 6, "floor": LagOperator(M).floor(), **run}


def _on_data(given, m):
    generator = torch.Generator().manual_seed(21)
    teacher = conditioned_system(4, 3, 3, 16, rho=0.9, condition=1, least_share=1e-3, generator=generator)
    M = teacher.lags(16)
    options = {"seeds": given["seeds"], "steps": given["data_steps"], "noise": 0.1, "seed": m}
    run = students.train_on_data(M, list(range(7)), m, **options)
    return {"k": 4, "floor": LagOperator(M).floor(), **run}


def _spectrum(given):
    """The poles of S4D-Lin behind four inputs and outputs, learned by plain stochastic gradient descent."""
    size = given["spectrum"]
    generator = torch.Generator().manual_seed(31)
    poles = systems.s4d_lin(size["N"], dtype=torch.complex128)
    A = systems.real_modes((poles / 16).exp())
    B = torch.randn(size["N"], size["d"], generator=generator, dtype=F64)
    C = torch.randn(size["d"], size["N"], generator=generator, dtype=F64) / size["N"] ** 0.5
    M = systems.System(A, B, C).lags(size["n"])
    floor = LagOperator(M).floor()
    run = students.train_plain(M, size["H"], seeds=given["seeds"], steps=size["steps"], seed=31)
    return {"states": size["N"], "floor": floor, **run}
