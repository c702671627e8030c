"""Graders of the chapter *gates-and-depth*."""

from functools import partial

import torch

from headsandstates.chapters._graded import block_rows, f64, rank, seeded, seeded_cases
from headsandstates.chapters.gates_and_depth.stacks import residual_stack_operator
from headsandstates.exercises import grader
from ssmbook.operators import LagOperator


def _not_the_powers(layers, A, n, H):
    """What is wrong with layers that should give the powers of A."""
    where, N = f"at N = {len(A)}, n = {n}, H = {H}", len(A)
    alpha, V = (torch.as_tensor(part).detach().to(f64) for part in layers)
    if alpha.shape[1:] != (H, n, n) or V.shape != (len(alpha), H, N, N):
        shapes = f"{tuple(alpha.shape)}, {tuple(V.shape)}"
        return f"{where}, expected alpha (L, H, n, n) and V (L, H, N, N); got {shapes}"
    if (1 + H) ** max(len(alpha) - 1, 0) >= n and len(alpha):
        return f"{where}, {len(alpha) - 1} layers suffice; got {len(alpha)}"
    if alpha.triu(1).any():
        return f"{where}, a head reads a later token: keep alpha lower triangular"
    wanted = LagOperator(torch.stack([torch.linalg.matrix_power(A, tau) for tau in range(n)])).to_dense()
    errors = (residual_stack_operator(alpha, V).to_dense() - wanted).abs().amax((1, 2, 3))
    wrong = ~(errors < 1e-8)
    if not wrong.any():
        return None
    if len(V) and torch.equal(V, A.expand_as(V)):
        return f"{where}, every head has the value map A; one that reads q places back needs A^q"
    first = int(wrong.nonzero()[0])
    return f"{where}, output {first} is the first one off: by {float(errors.max()):.1e}"


@grader(
    "gates-and-depth/layers",
    judge=_not_the_powers,
    formula="Write each lag in base 1 + H: in layer l (from 0) head h = 1, ..., H reads h (1 + H)^l places "
    "back, with that power of A",
)
def layers_cases():
    """For a function (A, n, H) -> alpha (L, H, n, n), V (L, H, N, N): residual layers with lags A^tau."""
    sizes = ((4, 2, 1), (5, 7, 1), (3, 9, 2), (3, 10, 2), (2, 16, 3), (2, 1, 2), (3, 2, 4), (2, 125, 4))
    return [(torch.randn(N, N, **seeded(N + n)) / N**0.5, n, H) for N, n, H in sizes]


def _constant(rows):
    return torch.allclose(rows, rows[:1].expand_as(rows), rtol=1e-9, atol=0)


def _one_head(m):
    ratio = m / m[:, :1]
    return _constant(ratio[1:] / ratio[:-1])


def _by_logarithms(m, *, size=False):
    ratio = m / m[:, :1]
    logs = (ratio.abs() if size else ratio).log()
    return bool(logs.isfinite().all()) and bool(logs.diff(n=2, dim=0).abs().max() < 1e-9)


@grader(
    "gates-and-depth/one-head",
    right=_one_head,
    hint="not the answer",
    look="what the ratio of two channels does from one lag to the next",
    mistakes={
        "compare channels: a common factor c(tau) is allowed": lambda m: _constant(m[1:] / m[:-1]),
        "the ratio may be negative: it has no logarithm then": _by_logarithms,
        "the sign of the ratio counts, too: absolute values lose it": partial(_by_logarithms, size=True),
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
    signs = torch.tensor([1, 1, -1, 1, 1, -1, -1, -1, 1], dtype=f64)[:, None]
    scrambled = torch.cat([0.9**tau, signs * 0.7**tau], 1)  # only its absolute values fit
    sizes = torch.tensor([1.0, 2.0, -3.0], dtype=f64)
    slowing = c * lam.flip(0) ** tau.sqrt()
    systems = (c * lam**tau, two_poles, c * sizes, lam**tau, c * signed**tau, slowing, scrambled)
    return [(m,) for m in systems]


def _by_steps(decays, x, L, *, hand_on=True, late=0):
    h, y = torch.zeros_like(x[0]), []
    for i, token in enumerate(x):
        if i % L == 0:
            h = h * decays**-late if hand_on else 0 * h
        h = decays * h + token
        y.append(h)
    return torch.stack(y)


def _overflow(y, decays, x, L):
    if len(x) == 700 and not torch.as_tensor(y).isfinite().all():
        return "right on short sequences, not finite on 700 tokens: your gates must restart with each chunk"
    return None


@grader(
    "gates-and-depth/chunks",
    right=_by_steps,
    judge=_overflow,
    hint="not the outputs",
    look="by which power each token of a chunk sees the chunk before",
    mistakes={
        "your chunks start from zero: hand the last output on": partial(_by_steps, hand_on=False),
        "token i of a chunk sees the output before it decayed by lambda^(i+1)": partial(_by_steps, late=1),
    },
    formula="In a chunk, lambda^i cumsum(lambda^-i x) with i from 0, plus lambda^(i+1) times the last output "
    "before it",
)
def chunks_cases():
    """For a function (decays (d,), x (n, d), L) -> y (n, d), the running sums that decay, chunk by chunk."""
    like, decays = seeded(3), torch.tensor([1.0, 0.9, 0.1], dtype=f64)
    return [(decays, torch.randn(n, 3, **like), L) for n, L in ((7, 3), (8, 4), (5, 9), (700, 32))]


def _blocks(layer, n, d):
    """The blocks (n, n, p, d) of a linear layer, from a unit vector at each place and channel."""
    units = torch.eye(n * d, dtype=f64).reshape(n, d, n, d)
    answers = [torch.stack([layer(unit) for unit in channels]) for channels in units]
    return torch.stack(answers).permute(2, 0, 3, 1)  # (j, c, i, p) -> (i, j, p, c)


def _heads_inside(layer, n, d):
    return rank(block_rows(_blocks(layer, n, d)))


@grader(
    "gates-and-depth/inside",
    right=_heads_inside,
    hint="not the interaction rank",
    look="which four axes the answers to unit vectors have, and which two of them make a row",
    mistakes={
        "the layer may change with the position: put unit vectors at every place": lambda layer, n, d: rank(
            _blocks(layer, n, d)[:, 0].flatten(1)
        ),
        "this is the rank of the whole matrix: list its blocks as rows first": lambda layer, n, d: rank(
            block_rows(_blocks(layer, n, d).transpose(1, 2))
        ),
    },
    formula="collect the blocks W[i, j] = d y_i / d x_j from unit vectors, and take the rank of the matrix "
    "with rows (i, j) and columns (p, d)",
)
def inside_cases():
    """For a function (layer, n, d) -> the interaction rank of a linear layer (n, d) -> (n, p)."""
    for like, (n, d, p) in seeded_cases((5, 3, 3), (4, 2, 3), (6, 2, 2)):
        G, U, V = torch.randn(n, p, **like), torch.randn(n, d, **like), torch.randn(p, d, **like)
        G[0] = G[0, 0]  # so that the first column alone shows less
        yield lambda x, G=G, U=U, V=V: G * ((U * x).cumsum(0) @ V.mT), n, d
    A, V = torch.randn(3, 1, 5, 5, **seeded(7)).tril(), torch.randn(3, 1, 3, 3, **seeded(8))
    yield residual_stack_operator(A, V).apply, 5, 3
