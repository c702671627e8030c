"""Graders of the chapter *zoo*."""

from functools import partial, reduce

import torch

from ssmbook.chapters._graded import f64, rank, seeded
from ssmbook.exercises import close, grader
from ssmbook.testing import MapContract


def _selective_table(delta, A, B, C, own_step=False):
    """The table by the state itself; with ``own_step`` a token's own step decays it."""
    n = len(delta)
    table = torch.zeros(n, n, dtype=delta.dtype)
    for j in range(n):
        h = delta[j] * B[j]
        for i in range(j, n):
            h = torch.exp(delta[i] * A) * h if i > j or own_step else h
            table[i, j] = C[i] @ h
    return table


def _gradients(table, *case):
    """Gradients by delta, A, B and C of the entries of ``table(*case)``, each with a weight of its own."""
    leaves = [t.clone().requires_grad_() for t in case]
    entries = torch.as_tensor(table(*leaves)).to(f64)
    weights = torch.linspace(1, 2, entries.numel(), dtype=f64).view_as(entries)
    if not entries.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return torch.autograd.grad((weights * entries).sum(), leaves, materialize_grads=True)


def _gradient_hint(answer, *case):
    pairs = zip(_gradients(answer, *case), _gradients(_selective_table, *case), strict=True)
    for name, (found, wanted) in zip(("delta", "A", "B", "C"), pairs, strict=True):
        if not found.isfinite().all():
            return (
                f"the table is right, its gradient by {name} is not finite: above the diagonal the "
                "exponential overflows, and backwards 0 times infinity is no number"
            )
        if close(found, wanted, "wrong"):
            return f"the table is right, its gradient by {name} is not: let autograd see every step"
    return None


@grader(
    "zoo/selective-table",
    right=_selective_table,
    judge=_gradient_hint,
    hint="not the table of the channel",
    mistakes={
        "a token's own step decays it in your table; it decays by the steps after its own": (
            partial(_selective_table, own_step=True)
        ),
        "your tokens enter with B_j alone: they enter with their step, delta_j B_j": (
            lambda delta, A, B, C: _selective_table(delta, A, B, C) / delta
        ),
        "your table is transposed: the first index is that of the output": (
            lambda *case: _selective_table(*case).T
        ),
        "B and C have changed places: C of the output reads, B of the input writes": (
            lambda delta, A, B, C: _selective_table(delta, A, C, B)
        ),
        "nothing decays in your table: where is exp of A times the time between?": (
            lambda delta, A, B, C: _selective_table(delta, 0 * A, B, C)
        ),
    },
    formula="Entry (i, j) is the sum over states of C_i exp(A (delta_{j+1} + ... + delta_i)) delta_j B_j, "
    "and 0 above the diagonal; bound the exponent before you take the exponential",
)
def selective_table_cases():
    """For a function (delta (n,), A (N,), B (n, N), C (n, N)) -> table (n, n) of a channel, with gradient."""
    for seed, (n, N, scale) in enumerate(((1, 3, 1.0), (7, 1, 1.0), (9, 4, 1.0), (8, 2, 400.0))):
        like = seeded(seed)
        delta, A = scale * torch.rand(n, **like), -torch.rand(N, **like)
        yield delta, A, torch.randn(n, N, **like), torch.randn(n, N, **like)


def _delta_table(q, k, beta, *, writes=True, erases=True, own=False, old_first=True):
    """The coefficients of DeltaNet by the state itself; the switches make the natural mistakes."""
    n, r = k.shape
    table, eye = torch.zeros(n, n, dtype=f64), torch.eye(r, dtype=f64)
    G = [eye - beta[i] * torch.outer(k[i], k[i]) * erases for i in range(n)]
    for j in range(n):
        written = (beta[j] if writes else 1.0) * k[j]
        for i in range(j, n):
            erasures = G[j + (not own) : i + 1]
            table[i, j] = reduce(torch.matmul, erasures if old_first else erasures[::-1], written) @ q[i]
    return table


@grader(
    "zoo/delta-table",
    right=_delta_table,
    hint="not DeltaNet's table",
    mistakes={
        "your tokens write with k_j alone: they write with strength beta_j": (
            partial(_delta_table, writes=False)
        ),
        "nothing is erased in your table: that is linear attention": partial(_delta_table, erases=False),
        "your token erases itself: it meets the erasures of later tokens only": (
            partial(_delta_table, own=True)
        ),
        "your erasures stand in the wrong order: that of token j + 1 comes first, next to k_j": (
            partial(_delta_table, old_first=False)
        ),
    },
    formula="Entry (i, j) is beta_j k_j G_{j+1} ... G_i q_i for j <= i, with G_l = I - beta_l k_l k_l^T",
)
def delta_table_cases():
    """For a function (q (n, r), k (n, r), beta (n,)) -> (n, n) coefficients of one DeltaNet head."""
    for seed, (n, r) in enumerate(((1, 2), (5, 2), (8, 3))):
        like = seeded(seed)
        k = torch.nn.functional.normalize(torch.randn(n, r, **like))
        yield torch.randn(n, r, **like), k, torch.rand(n, **like)


def _row_rank(W):
    return max(rank(row.flatten(1)) for row in W)


@grader(
    "zoo/row-rank",
    right=_row_rank,
    hint="not the largest row rank",
    mistakes={
        "that is k, of the whole table: count within each output": lambda W: rank(W.flatten(0, 1).flatten(1)),
        "you look down the columns: an output is a row, W[i]": (
            lambda W: max(rank(column.flatten(1)) for column in W.transpose(0, 1))
        ),
        "that is the rank of a row as one wide matrix; asked is how many of its blocks are independent": (
            lambda W: max(rank(row.transpose(0, 1).flatten(1)) for row in W)
        ),
        "you count in the last output; another may hold more": lambda W: rank(W[-1].flatten(1)),
    },
    formula="For each i take the rank of the n x pd table with rows vec W_ij, and of these ranks the largest",
)
def row_rank_cases():
    """For a function (W (n, n, p, d)) -> largest number of independent blocks within one output."""
    like = seeded(7)
    W = torch.einsum("hij,hpd->ijpd", torch.randn(2, 6, 6, **like).tril(), torch.randn(2, 2, 3, **like))
    more = W.clone()
    more[3] += torch.randn(6, 2, 3, **like)  # the fourth output has more than the last one
    gated_output = W * torch.randn(6, 1, 2, 1, **like)
    return [(W,), (gated_output,), (W * torch.randn(1, 6, 1, 3, **like),), (more,)]


@grader("zoo/own-map")
def grade_own_map(answer):
    """A subclass of ``MapContract`` whose ``make`` builds a map that the library does not have."""
    if not (isinstance(answer, type) and issubclass(answer, MapContract)):
        return "expected a class that inherits from MapContract, with the method make(self, **new)"
    laws = [name for name in dir(MapContract) if name.startswith("test_")]
    changed = [name for name in (*laws, "check") if getattr(answer, name) is not getattr(MapContract, name)]
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
