"""Graders of the chapter *structured-dynamics*."""

import torch

from ssmbook.exercises import agrees, grader
from ssmbook.systems import System, impulse_response, random_stable


def _delay(N: int):
    A = torch.diag(torch.ones(N - 1, dtype=torch.float64), 1)
    eye = torch.eye(N, dtype=torch.float64)
    return System(A, eye[:, -1:], eye[:1])


def _systems():
    for seed, (N, d, p) in enumerate(((1, 1, 1), (2, 1, 3), (3, 2, 2), (5, 3, 1))):
        generator = torch.Generator().manual_seed(seed)
        yield random_stable(N, d, p, rho=0.9, generator=generator, dtype=torch.float64)
    yield _delay(3)


@grader("structured-dynamics/realize")
def grade_realize(answer):
    """A function (M (n, p, d), N) -> A (N, N), B (N, d), C (p, N), or a `System`, judged on later lags."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    shown, cases = {}, []
    for system in _systems():
        N = system.N
        M = impulse_response(system, 4 * N)
        shown[tuple(M.shape)] = M
        cases.append((M[: 2 * N], N))

    def lags(M, N):
        found = answer(M, N)
        found = found if isinstance(found, System) else System(*found)
        if found.N != N:
            raise ValueError(f"A must have shape {(N, N)}; got {(found.N, found.N)}")
        return impulse_response(found, 4 * N)

    def wanted(M, N):
        return shown[(4 * N, *M.shape[1:])]

    hint = (
        "A is pinv(O) @ (the Hankel matrix that starts at lag 1) @ pinv(R), B the first d columns of R, "
        "C the first p rows of O"
    )
    return agrees(lags, wanted, cases, hint, rtol=1e-6, atol=1e-8)
