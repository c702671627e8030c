"""Graders of the chapter *structured-dynamics* and of its deeper page."""

from functools import partial

import torch

from ssmbook.chapters._graded import f64, seeded
from ssmbook.exercises import agrees, grader
from ssmbook.systems import System, hankel_matrix, impulse_response, mass_on_spring, phi1, random_stable, zoh


def _flows():
    """Continuous-time systems with an invertible A, each with its step."""
    new = seeded(0)
    yield mass_on_spring(1.0, 0.4, 4.0, dtype=f64), 0.3
    yield System(torch.randn(3, 3, **new), torch.randn(3, 2, **new), torch.randn(2, 3, **new)), 0.7


FREE_MASS = mass_on_spring(2.0, 0.0, 0.0, dtype=f64)  # A is singular
SINGULAR = (
    "right where A is invertible; but a free mass has a singular A, and a step of it exists all the same"
)

HOLD_MISTAKES = {
    "A_bar": {
        "this is Euler's step along the slope": lambda A, B, delta: torch.eye(len(A), dtype=f64) + delta * A,
        "this is the exponential entry by entry; the matrix exponential is meant": (
            lambda A, B, delta: (delta * A).exp()
        ),
        "this is a step of length 1, whatever delta is": lambda A, B, delta: A.matrix_exp(),
    },
    "B_bar": {
        "this is the mixed form: the state stands still while the push lasts": lambda A, B, delta: delta * B,
        "it is too large or too small by the factor delta": lambda A, B, delta: zoh(A, B, delta)[1] / delta,
        "the whole push arrives at the start of the step; it is held all through the step": (
            lambda A, B, delta: delta * (delta * A).matrix_exp() @ B
        ),
    },
}


def _part(k, rule, A, B, delta):
    A_bar, B_bar = rule(A, B, delta)
    return (A_bar, B_bar)[k]


@grader(
    "structured-dynamics/hold",
    formula="the upper rows of the exponential of delta times the block matrix (A B; 0 0) are the two",
)
def grade_hold(answer):
    """A function (A (N, N), B (N, d), delta) -> A_bar (N, N), B_bar (N, d), for every square A."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    done = ""
    for k, part in enumerate(HOLD_MISTAKES):
        found, wanted = (partial(_part, k, rule) for rule in (answer, zoh))
        cases = [(flow.A, flow.B, delta) for flow, delta in _flows()]
        problem = agrees(found, wanted, cases, f"{part} is wrong", mistakes=HOLD_MISTAKES[part])
        if problem or agrees(found, wanted, [(FREE_MASS.A, FREE_MASS.B, 0.5)], "wrong"):
            return f"{done}{part}: {problem or SINGULAR}"
        done = f"{part} is right; "
    return None


def _factor(A, power: int):
    """The matrix phi(A) to a power, for a diagonalizable A."""
    values, vectors = torch.linalg.eig(A)
    return (vectors @ torch.diag(phi1(values) ** power) @ torch.linalg.inv(vectors)).real


TRANSLATE_MISTAKES = {
    "C is unchanged: the library's B_bar still holds the factor that C must undo": lambda A, B, C, delta: C,
    "this is the way back: it reads zero-order hold's weights in the mixed form": (
        lambda A, B, C, delta: C @ _factor(delta * A, 1)
    ),
    "the factor belongs to a step of length 1; here the step is delta": (
        lambda A, B, C, delta: C @ _factor(A, -1)
    ),
}


@grader(
    "structured-dynamics/translate",
    formula="C times the inverse of phi(delta A), where phi(Z) is the sum of Z^m / (m + 1)!",
)
def grade_translate(answer):
    """A function (A, B, C, delta) -> C (p, N), judged on the first 12 lags of zero-order hold with it."""

    def translated(answer):
        def lags(A, B, C, delta):
            C_new = torch.as_tensor(answer(A.clone(), B.clone(), C, delta)).to(f64)
            return impulse_response(System(A, B, C_new).discretize(delta), 12)

        return lags

    def wanted(A, B, C, delta):
        return impulse_response(System(A, B, C).discretize(delta, "mixed"), 12)

    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    cases = [(flow.A, flow.B, flow.C, delta) for flow, delta in _flows()]
    mistakes = {sentence: translated(wrong) for sentence, wrong in TRANSLATE_MISTAKES.items()}
    hint = "the lag operators of zero-order hold with your C are not those of the mixed form"
    found = translated(answer)
    problem = agrees(found, wanted, cases, hint, mistakes=mistakes)
    free = FREE_MASS.A, FREE_MASS.B, FREE_MASS.C, 0.5
    return problem or (SINGULAR if agrees(found, wanted, [free], hint) else None)


def _systems():
    for seed, (N, d, p) in enumerate(((1, 1, 1), (2, 1, 3), (3, 2, 2), (5, 3, 1))):
        yield random_stable(N, d, p, rho=0.9, **seeded(seed))
    eye = torch.eye(3, dtype=f64)
    yield System(eye.roll(1, 1).triu(), eye[:, -1:], eye[:1])  # a delay


def _balanced(M, N, *, power: float = 0.5, lag: int = 1, turned: bool = False):
    """Ho and Kalman's system from the singular value decomposition, with a slip where one is asked for."""
    p, d = M.shape[1:]
    U, S, Vh = torch.linalg.svd(hankel_matrix(M, N, N))
    see, reach = U[:, :N] * S[:N] ** power, (S[:N] ** power)[:, None] * Vh[:N]
    A = torch.linalg.pinv(see) @ hankel_matrix(M[lag:], N, N) @ torch.linalg.pinv(reach)
    return System(A.T.contiguous() if turned else A, reach[:, :d], see[:p])


REALIZE_MISTAKES = {
    "your A is the identity: the table that gives A must start one lag later": partial(_balanced, lag=0),
    "the singular values are in O and in R: the product O R is then not the Hankel matrix": (
        partial(_balanced, power=1.0)
    ),
    "your A is transposed: O stands left of it, R right of it": partial(_balanced, turned=True),
}


@grader(
    "structured-dynamics/realize",
    formula="A is pinv(O) @ (the Hankel matrix that starts at lag 1) @ pinv(R), B the first d columns of R, "
    "C the first p rows of O",
)
def grade_realize(answer):
    """A function (M (n, p, d), N) -> A (N, N), B (N, d), C (p, N), or a `System`, judged on later lags."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    lags = [(impulse_response(system, 4 * system.N), system.N) for system in _systems()]
    cases, shown = [(M[: 2 * N], N) for M, N in lags], {tuple(M.shape): M for M, _ in lags}

    def answered(realize):
        def lags(M, N):
            found = realize(M, N)
            found = found if isinstance(found, System) else System(*found)
            if found.N != N:
                raise ValueError(f"A must have shape {(N, N)}; got {(found.N, found.N)}")
            return impulse_response(found, 4 * N)

        return lags

    def wanted(M, N):
        return shown[(4 * N, *M.shape[1:])]

    mistakes = {sentence: answered(wrong) for sentence, wrong in REALIZE_MISTAKES.items()}
    hint = "your system does not answer as the hidden one does"
    return agrees(answered(answer), wanted, cases, hint, mistakes=mistakes, atol=1e-8)
