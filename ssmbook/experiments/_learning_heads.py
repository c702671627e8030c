"""Learning heads: students of every class against the floors, on noisy data, and of a hidden spectrum."""

from __future__ import annotations

import math
from functools import partial

import torch

from ssmbook import heads, systems
from ssmbook.experiments._data import train_on_data, train_pairwise, train_plain
from ssmbook.experiments._runs import Experiment
from ssmbook.experiments.learning_heads import train_heads
from ssmbook.experiments.students import CLASSES, class_systems, fit_class

F64 = torch.float64
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
    for name in class_systems():
        for kind in CLASSES:
            found[f"{kind}, {name}"] = partial(_class, given, name, kind)
    found["pairwise"] = partial(_pairwise, given)
    for m in given["data"]:
        found[f"data {m}"] = partial(_on_data, given, m)
    found["spectrum"] = partial(_spectrum, given)
    return found


EXPERIMENT = Experiment("learning-heads", FULL, SMALL, jobs)


def conditioned_system(k, d, p, n, *, rho, condition, least_share=1e-4, generator=None):
    """A system of k states whose poles have radius rho at most, by eigenvectors of a given condition number.

    Drawn until, on n tokens, the last head carries ``least_share`` of the energy: a weaker one is legal but
    trains slowly.
    """
    for _ in range(500):
        modes = torch.linspace(1.0, 0.6, k, dtype=F64)
        angles = torch.rand(k // 2, generator=generator, dtype=F64) * 2.5 + 0.3
        blocks = [rho * float(modes[2 * s]) * systems.rotation(angle) for s, angle in enumerate(angles)]
        blocks += [torch.tensor([[rho * float(modes[-1])]], dtype=F64)] * (k % 2)
        U, V = (torch.linalg.qr(torch.randn(k, k, generator=generator, dtype=F64)).Q for _ in range(2))
        P = U * torch.logspace(0, math.log10(condition), k, dtype=F64) @ V
        A = P @ torch.block_diag(*blocks) @ torch.linalg.inv(P)
        B, C = (torch.randn(shape, generator=generator, dtype=F64) for shape in ((k, d), (p, k)))
        system = systems.System(A, B, C)
        if float(heads.head_floor(system, n)[k - 1]) >= least_share:
            return system
    raise ValueError(f"least_share must be within reach; got {least_share} for k = {k}")


def _trained(M, k, given, seed):
    """Students of 0 … k + 2 heads against the floor; the errors before training beside them."""
    generator = torch.Generator().manual_seed(seed)
    H = list(range(k + 3))
    run = train_heads(M, H, seeds=given["seeds"], steps=given["steps"], generator=generator)
    floor = torch.cat([heads.head_floor(M), torch.zeros(len(H), dtype=F64)])[: len(H)]
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
    trained = _trained(teacher.lags(given["n"]), k, given, seed=i)
    return {"rho": rho, "condition": condition, **trained}


def _shuffled(given):
    """A teacher of three states whose lags have their entries shuffled: the structure goes, the count too."""
    generator = torch.Generator().manual_seed(102)
    sizes = (3, given["d"], given["p"], given["n"])
    M = conditioned_system(*sizes, rho=0.8, condition=1, generator=generator).lags(given["n"])
    shuffled = M.flatten()[torch.randperm(M.numel(), generator=generator)].reshape(M.shape)
    return _trained(shuffled, min(given["n"], M[0].numel()), given, seed=50)


def _class(given, name, kind):
    M = class_systems()[name].lags(20)
    k = int(torch.linalg.matrix_rank(M.flatten(1)))
    H = list(range(1, k + 3))
    generator = torch.Generator().manual_seed(7)
    options = {"seeds": given["seeds"], "steps": given["class_steps"], "generator": generator}
    return {"k": k, "H": H, "trained": torch.stack([fit_class(M, each, kind, **options) for each in H])}


def _pairwise(given):
    """Six independent matrices into two outputs: whether the two pairwise heads that exist are found."""
    generator = torch.Generator().manual_seed(11)
    M = systems.random_stable(6, 4, 2, rho=0.9, generator=generator, dtype=F64).lags(8)
    run = train_pairwise(M, [1, 2, 3], seeds=given["seeds"], steps=given["pairwise_steps"], seed=11)
    return {"k": 6, "floor": heads.head_floor(M), **run}


def _on_data(given, m):
    generator = torch.Generator().manual_seed(21)
    teacher = conditioned_system(4, 3, 3, 16, rho=0.9, condition=1, least_share=1e-3, generator=generator)
    M = teacher.lags(16)
    options = {"seeds": given["seeds"], "steps": given["data_steps"], "noise": 0.1, "seed": m}
    return {"k": 4, "floor": heads.head_floor(M), **train_on_data(M, list(range(7)), m, **options)}


def _spectrum(given):
    """The poles of S4D-Lin behind four inputs and outputs, learned by plain stochastic gradient descent."""
    size = given["spectrum"]
    generator = torch.Generator().manual_seed(31)
    poles = systems.s4d_lin(size["N"], dtype=torch.complex128)
    A = systems.real_modes((poles / 16).exp())
    B = torch.randn(size["N"], size["d"], generator=generator, dtype=F64)
    C = torch.randn(size["d"], size["N"], generator=generator, dtype=F64) / size["N"] ** 0.5
    M = systems.System(A, B, C).lags(size["n"])
    floor = heads.head_floor(M)
    run = train_plain(M, size["H"], seeds=given["seeds"], steps=size["steps"], seed=31)
    return {"states": size["N"], "floor": floor, **run}
