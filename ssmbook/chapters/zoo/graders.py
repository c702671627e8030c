"""Graders of the chapter *zoo*."""

import torch

from ssmbook.exercises import agrees, grader
from ssmbook.testing import MapContract


def _selective_table(delta, A, B, C):
    n = len(delta)
    table = torch.zeros(n, n, dtype=delta.dtype)
    for j in range(n):
        h = delta[j] * B[j]
        for i in range(j, n):
            h = h if i == j else torch.exp(delta[i] * A) * h
            table[i, j] = C[i] @ h
    return table


def _case(n: int, N: int, seed: int, scale: float = 1.0):
    like = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    delta, A = scale * torch.rand(n, **like), -torch.rand(N, **like)
    return delta, A, torch.randn(n, N, **like), torch.randn(n, N, **like)


def _gradients(table, case):
    """Gradients by delta, A, B and C of the entries of ``table(*case)``, each with a weight of its own."""
    leaves = [t.clone().requires_grad_() for t in case]
    entries = torch.as_tensor(table(*leaves)).to(torch.float64)
    weights = torch.linspace(1, 2, entries.numel(), dtype=torch.float64).view_as(entries)
    if not entries.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad((weights * entries).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, leaves, strict=True)]


def _gradient_hint(answer, case):
    for name, found, wanted in zip(
        ("delta", "A", "B", "C"), _gradients(answer, case), _gradients(_selective_table, case), strict=True
    ):
        if not found.isfinite().all():
            return (
                f"the table is right, its gradient by {name} is not finite: above the diagonal the "
                "exponential overflows, and backwards 0 times infinity is no number; bound the exponent first"
            )
        if not torch.allclose(found, wanted, rtol=1e-6, atol=1e-9):
            return f"the table is right, its gradient by {name} is not: let autograd see every step"
    return None


@grader("zoo/selective-table")
def grade_selective_table(answer):
    """A function (delta (n,), A (N,), B (n, N), C (n, N)) -> (n, n) table of one selective channel, with its
    gradient.
    """
    cases = [_case(1, 3, 0), _case(7, 1, 1), _case(9, 4, 2), _case(8, 2, 3, scale=400.0)]
    hint = (
        "entry (i, j) is the sum over states of C_i exp(A (delta_{j+1} + ... + delta_i)) delta_j B_j; the "
        "step of token j itself does not decay it, and every entry above the diagonal is 0"
    )
    problem = agrees(answer, _selective_table, cases, hint)
    return problem or next(filter(None, (_gradient_hint(answer, case) for case in cases)), None)


def grade_own_map(answer):
    """A subclass of ``MapContract`` whose ``make`` builds a map that the library does not have."""
    if not (isinstance(answer, type) and issubclass(answer, MapContract)):
        return "expected a class that inherits from MapContract, with the method make(self, **new)"
    laws = [name for name in dir(MapContract) if name.startswith("test_")]
    changed = [
        name for name in (*laws, "cases", "check") if getattr(answer, name) is not getattr(MapContract, name)
    ]
    if changed:
        return f"the laws are those of MapContract; yours changes {changed[0]}"
    made = type(answer().map())
    if made.__module__.startswith("ssmbook."):
        return f"{made.__name__} is a map of the library; make one that it does not have"
    try:
        answer().check()
    except AssertionError as broken:
        return f"a law is broken: {str(broken).splitlines()[0]}"
    return None
