"""Graders of the chapter *gates-and-depth*."""

from functools import partial

import torch

from ssmbook.chapters._graded import f64, seeded
from ssmbook.chapters.gates_and_depth.stacks import residual_stack_operator
from ssmbook.exercises import agrees, grader
from ssmbook.operators import LagOperator


def _layers_problem(V, A, H):
    """What is recognizably wrong with value maps of layers that do not give the powers of A, if anything."""
    L = len(V)
    if L and all(torch.equal(V[layer, h], A) for layer in range(L) for h in range(H)):
        return "every head has the value map A; one that reads q places back needs A^q"
    strides = [torch.linalg.matrix_power(A, (h + 1) * 2**layer) for layer in range(L) for h in range(H)]
    if H > 1 and L and torch.allclose(V.flatten(0, 1), torch.stack(strides)):
        return "your layers step in powers of two: with H heads each layer multiplies the reach by 1 + H"
    return None


def _layers_hint(answer, N, n, H):
    A, where = torch.randn(N, N, **seeded(N + n)) / N**0.5, f"at N = {N}, n = {n}, H = {H}"
    alpha, V = (torch.as_tensor(part).detach().to(f64) for part in answer(A, n, H))
    if alpha.shape[1:] != (H, n, n) or V.shape != (len(alpha), H, N, N):
        shapes = f"{tuple(alpha.shape)}, {tuple(V.shape)}"
        return f"{where}, expected alpha (L, H, n, n) and V (L, H, N, N); got {shapes}"
    if (1 + H) ** max(len(alpha) - 1, 0) >= n and len(alpha):
        return f"{where}, {len(alpha) - 1} layers suffice; got {len(alpha)}"
    if alpha.triu(1).any():
        return f"{where}, a head reads a later token: keep alpha lower triangular"
    lags = torch.stack([torch.linalg.matrix_power(A, tau) for tau in range(n)])
    wanted = LagOperator(lags).to_dense()
    errors = (residual_stack_operator(alpha, V).to_dense() - wanted).abs().amax((1, 2, 3))
    if bool((errors < 1e-8).all()):
        return None
    first = int((~(errors < 1e-8)).nonzero()[0])
    known = _layers_problem(V, A, H)
    return f"{where}, {known or f'output {first} is the first one off: by {float(errors.max()):.1e}'}"


@grader(
    "gates-and-depth/layers",
    judge=_layers_hint,
    formula="Write each lag in base 1 + H: in layer l (from 0) head h = 1, ..., H reads h (1 + H)^l places "
    "back, with that power of A",
)
def layers_cases():
    """For a function (A, n, H) -> alpha (L, H, n, n), V (L, H, N, N): residual layers with lags A^tau."""
    return [(4, 2, 1), (5, 7, 1), (3, 9, 2), (3, 10, 2), (2, 16, 3), (2, 1, 2), (3, 2, 4), (2, 125, 4)]


def _constant(rows):
    return torch.allclose(rows, rows[:1].expand_as(rows), rtol=1e-9, atol=0)


def _one_head(m):
    ratio = m / m[:, :1]
    return _constant(ratio[1:] / ratio[:-1])


def _positive_only(m):
    logs = (m / m[:, :1]).log()
    return bool(logs.isfinite().all()) and bool(logs.diff(n=2, dim=0).abs().max() < 1e-9)


@grader(
    "gates-and-depth/one-head",
    right=_one_head,
    hint="not the answer",
    mistakes={
        "you ask each channel to be a power; a common factor c(tau) is allowed, so compare channels": (
            lambda m: _constant(m[1:] / m[:-1])
        ),
        "you take logarithms of the ratio: it may be negative, or alternate, and still be r lambda^tau": (
            _positive_only
        ),
        "you ask for a constant ratio; the ratio of two channels may be r lambda^tau": (
            lambda m: _constant(m / m[:, :1])
        ),
        "you compare the first two channels only": lambda m: _one_head(m[:, :2]),
    },
    formula="Divide all channels by the first; the ratio of each to itself one lag earlier must be constant",
)
def one_head_cases():
    """For a function (m (n, d), no zeros) -> whether diag(m[tau]) is one head between two gates."""
    tau = torch.arange(9, dtype=f64)[:, None]
    c = 0.5 + torch.rand(9, 1, **seeded(0))
    lam = torch.tensor([0.9, 0.7, 0.4], dtype=f64)
    two_poles = torch.cat([0.8**tau, 0.8**tau, 0.9**tau + 0.5**tau], 1)
    signed = torch.tensor([0.9, -0.7], dtype=f64)
    sizes = torch.tensor([1.0, 2.0, -3.0], dtype=f64)
    tables = (c * lam**tau, two_poles, c * sizes, lam**tau, c * signed**tau, c * lam.flip(0) ** tau.sqrt())
    return [(m,) for m in tables]


def _by_steps(decays, x, L, *, hand_on=True, late=0):
    h, y = torch.zeros_like(x[0]), []
    for i, token in enumerate(x):
        if i % L == 0:
            h = h * decays**-late if hand_on else 0 * h
        h = decays * h + token
        y.append(h)
    return torch.stack(y)


CHUNK_MISTAKES = {
    "each of your chunks starts from nothing: hand the last output on": partial(_by_steps, hand_on=False),
    "what you hand on is one step too young: token i of a chunk sees it decayed by lambda^(i+1)": (
        partial(_by_steps, late=1)
    ),
}


@grader(
    "gates-and-depth/chunks",
    formula="In a chunk, lambda^i cumsum(lambda^-i x) with i from 0, plus lambda^(i+1) times the last output "
    "before it",
)
def grade_chunks(answer):
    """A function (decays (d,), x (n, d), L) -> y (n, d), the running sums that decay, chunk by chunk."""
    like, decays = seeded(3), torch.tensor([1.0, 0.9, 0.1], dtype=f64)
    cases = [(decays, torch.randn(n, 3, **like), L) for n, L in ((7, 3), (8, 4), (5, 9), (700, 32))]
    problem = agrees(answer, _by_steps, cases, "not the outputs", mistakes=CHUNK_MISTAKES)
    if problem and agrees(answer, _by_steps, cases[:-1], "short") is None:
        if not torch.as_tensor(answer(*cases[-1])).isfinite().all():
            restart = "your gates must restart with each chunk"
            return f"right on short sequences, not finite on 700 tokens: {restart}"
    return problem
