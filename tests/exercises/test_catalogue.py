"""Every exercise of the book: what is near a right answer is refused, and each mistake gets its sentence."""

import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers import F64, fewest_layers, wide_layers
from torch import nn

import headsandstates
from headsandstates.exercises import check
from headsandstates.exercises.grading import find
from ssmbook.maps import LinearAttention, SequenceMap
from ssmbook.operators import FactorizedOperator
from ssmbook.scans import diagonal_scan, diagonal_scan_naive
from ssmbook.systems import hankel_matrix, rotation
from ssmbook.testing import MapContract

FILES = sorted((Path(headsandstates.__file__).parent / "chapters").glob("*/graders.py"))
NAMES = [name for file in FILES for name in re.findall(r'@grader\(\s*"([^"]+)"', file.read_text("utf-8"))]
COMPARED = [name for name in NAMES if find(name).right]


def each_mistake(name):
    """Every mistake of the catalogue gets its sentence, and at the second time one hint more."""
    exercise = find(name)
    for sentence, wrong in exercise.mistakes.items():
        ask = eval("lambda name, answer: check(name, answer)", {"check": check})  # a new learner
        assert ask(name, wrong).hint == sentence
        assert ask(name, wrong).hint == f"{sentence}. {exercise.steps[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_each_mistake_gets_its_sentence(name):
    each_mistake(name)
    assert not check(name, 3)


def off(function, share):
    """The function with each number of its result too large by a share of itself."""

    def larger(part):
        return part.add(part, alpha=share) if isinstance(part, torch.Tensor) else part * (1 + share)

    def answer(*case):
        found = function(*case)
        return tuple(map(larger, found)) if isinstance(found, tuple) else larger(found)

    return answer


# An integral is wanted to four digits; a start is a logarithm of a logarithm, and that of a rounded pole
# stays close to it; copiers and attention are trained, and read with a tolerance.
SHARES = {
    "interaction-operator/path": (9e-5, 1e-3),
    "gradient-flow/start-for": (9e-10, 1e-7),
    "tasks/copier": (1e-7, 1e-2),
    "two-ways-to-mix/fading": (1e-6, 1e-3),
}
NO_SIZES = (  # yes or no, thirds of a circle, a system
    *("tasks/look", "tasks/clock", "interaction-rank-gap/hole", "gates-and-depth/one-head"),
    "structured-dynamics/realize",
    "how-many-heads-really/sink",
)


@pytest.mark.parametrize("name", [name for name in COMPARED if name not in NO_SIZES])
def test_rounding_is_forgiven_and_a_visible_error_is_not(name):
    near, far = SHARES.get(name, (1e-8, 1e-3))
    assert check(name, off(find(name).right, near))
    assert not check(name, off(find(name).right, far))


# Exercises with many right answers: one of them, and answers near it that are wrong.


def fewest(alpha, V):
    best = FactorizedOperator(alpha, V)
    best = best.best_heads(best.interaction_rank())
    return best.alpha, best.V


def test_fewest_heads():
    name = "factorized/fewest-heads"
    assert check(name, fewest) and check(name, off(fewest, 1e-9))
    assert not check(name, off(fewest, 1e-6))
    assert not check(name, lambda alpha, V: (alpha, V))
    reduced_maps = lambda alpha, V: fewest_of(V, alpha)[::-1]  # noqa: E731
    assert not check(name, reduced_maps)


def fewest_of(rows, others):
    """Independent rows of one factor alone, the other one mixed: what ignores dependent others."""
    U, S, Vh = torch.linalg.svd(rows.flatten(1), full_matrices=False)
    k = int((S > 1e-9 * S[0]).sum())
    kept = Vh[:k].unflatten(1, rows.shape[1:])
    return kept, torch.einsum("hk,h...->k...", U[:, :k] * S[:k], others)


def test_narrow_heads():
    def narrow(alpha, V, r):
        parts = []
        for A_h, V_h in zip(alpha, V, strict=True):
            left, right = torch.linalg.qr(V_h)  # rank columns first: V has random factors
            rank = int(torch.linalg.matrix_rank(V_h))
            left, right = left[:, :rank], left[:, :rank].T @ V_h
            parts += [(A_h, left[:, i : i + r], right[i : i + r]) for i in range(0, rank, r)]
        outs = [torch.nn.functional.pad(out, (0, r - out.shape[1])) for _, out, _ in parts]
        ins = [torch.nn.functional.pad(into, (0, 0, 0, r - len(into))) for *_, into in parts]
        return torch.stack([A for A, *_ in parts]), torch.cat(outs, 1), torch.stack(ins)

    def truncated(alpha, V, r):
        U, S, Vh = torch.linalg.svd(V)
        W_O = (U[..., :r] * S[:, None, :r]).permute(1, 0, 2).flatten(1)
        return alpha, W_O, Vh[:, :r]

    name = "factorized/narrow"
    assert check(name, narrow) and not check(name, lambda alpha, V, r: (alpha, V, V))
    assert "cannot hold" in check(name, truncated).hint


def layers(A, n, H):
    return wide_layers(A, n, H, fewest_layers(n, H))


def test_layers():
    name = "gates-and-depth/layers"
    assert check(name, layers) and not check(name, off(layers, 1e-6))
    assert not check(name, lambda A, n, H: wide_layers(A, n, H, fewest_layers(n, H) + 1))
    assert not check(name, lambda A, n, H: (layers(A, n, H)[0].mT, layers(A, n, H)[1]))
    same = lambda A, n, H: (layers(A, n, H)[0], A.expand_as(layers(A, n, H)[1]))  # noqa: E731
    assert "value map A" in check(name, same).hint


def best_heads(M, H):
    """From the operator with every lag as often as it occurs."""
    rows = torch.cat([lag.flatten().expand(len(M) - tau, -1) for tau, lag in enumerate(M)])
    V = torch.linalg.svd(rows, full_matrices=False).Vh[:H]
    return V @ M.flatten(1).T, V.reshape(H, *M.shape[1:])


def test_best_heads():
    name = "head-count/best-heads"
    assert check(name, best_heads) and not check(name, off(best_heads, 1e-2))


def turning(theta, n):
    """Maps at the ends of the arc, or at the corners of a triangle, and what the lags are made of."""
    width, lags = (n - 1) * theta, rotation(theta * torch.arange(n, dtype=F64)).flatten(1).T
    wide = abs(width) >= math.pi
    at = [0, 2 * math.pi / 3, 4 * math.pi / 3] if wide else [-0.01 * width, 1.01 * width]
    V = rotation(torch.tensor(at, dtype=F64))
    alpha = torch.linalg.pinv(V.flatten(1).T) @ lags + 2 * wide  # the three maps sum to zero
    return alpha / (2 * n * alpha.amax()), V * 2 * n * alpha.amax()


def test_rotation():
    name = "how-many-heads-really/rotation"
    assert check(name, turning) and not check(name, off(turning, 1e-6))
    assert not check(name, lambda theta, n: (-turning(theta, n)[0], -turning(theta, n)[1]))
    one_more = lambda theta, n: [torch.cat([part, part[:1] / 2]) for part in turning(theta, n)]  # noqa: E731
    assert not check(name, one_more)


def lonely(V, M):
    kernel = torch.linalg.svd(V).Vh[torch.linalg.matrix_rank(V) :]
    tokens = torch.cat([torch.eye(V.shape[1], dtype=F64), kernel, torch.randn(3, V.shape[1], dtype=F64)])
    for x in tokens:
        v, m = V @ x, M @ x
        apart = torch.linalg.matrix_rank(torch.stack([v, m]), rtol=1e-9) == 2
        if (apart and v.norm() > 1e-9) or v.norm() < 1e-9 < m.norm():
            return x
    return None


def test_lonely_token():
    name = "interaction-rank-gap/lonely-token"
    assert check(name, lonely)
    assert not check(name, lambda V, M: None)
    assert not check(name, lambda V, M: torch.eye(V.shape[1], dtype=F64)[0])
    assert not check(name, lambda V, M: torch.ones(V.shape[1]))


def test_selective_coefficients_need_a_finite_gradient():
    def coefficients(delta, A, B, C, most=0.0):
        elapsed = delta.cumsum(0)
        decay = torch.exp((A * (elapsed[:, None] - elapsed)[..., None]).clamp(max=most))
        return torch.einsum("is,ijs,js->ij", C, decay, delta[:, None] * B).tril()

    name = "zoo/selective-coefficients"
    assert check(name, coefficients)
    for wrong in (partial(coefficients, most=math.inf), lambda *case: coefficients(*case).detach()):
        assert "gradient by delta" in check(name, wrong).hint


def test_chunks_must_restart_their_gates():
    one_chunk = lambda decays, x, L: (  # noqa: E731
        decays ** torch.arange(len(x))[:, None] * (decays ** -torch.arange(len(x))[:, None] * x).cumsum(0)
    )
    assert "restart" in check("gates-and-depth/chunks", one_chunk).hint


def test_realize_in_other_coordinates():
    def other(M, N):
        A, B, C = ho_kalman(M, N)
        T = torch.eye(N, dtype=F64) + 0.3 * torch.ones(N, N, dtype=F64).triu(1)
        return T @ A @ torch.linalg.inv(T), T @ B, C @ torch.linalg.inv(T)

    def ho_kalman(M, N):
        U, S, Vh = torch.linalg.svd(hankel_matrix(M, N, N))
        A = U[:, :N].T @ hankel_matrix(M[1:], N, N) @ Vh[:N].T / S[:N]
        return A, S[:N, None] * Vh[:N, : M.shape[2]], U[: M.shape[1], :N]

    assert check("structured-dynamics/realize", other)
    assert not check("structured-dynamics/realize", lambda M, N: other(M, N + 1))


def test_copiers():
    def ring(L, radius=1.1):
        poles = torch.exp(2j * math.pi * torch.arange(L) / L)
        return radius * poles, radius**-L * torch.ones(L, dtype=F64) / L

    assert check("tasks/copier", ring)
    assert not check("tasks/copier", lambda L: ring(L + 1))
    assert "real" in check("tasks/copier", lambda L: (torch.linspace(0.5, 0.9, L), torch.ones(L))).hint


def test_look_takes_any_attention():
    def softened(tokens):
        alike = sum((tokens.roll(s)[:, None] == tokens.roll(s)).to(F64) for s in (1, 2))
        lag = torch.arange(len(tokens))[:, None] - torch.arange(len(tokens))
        return (30 * (alike + (lag % 3 == 0)).masked_fill(lag < 1, -torch.inf)).softmax(1)

    assert check("tasks/look", softened)
    assert not check("tasks/look", lambda tokens: -softened(tokens))
    assert not check("tasks/look", lambda tokens: torch.ones(len(tokens), len(tokens)))


def tree(a, b):
    """Two sweeps by Blelloch, over a length that is a power of two."""
    T, size = len(b), 1 << (len(b) - 1).bit_length()
    P, H = torch.cat((a, a.new_ones(size - T, a.shape[1]))), torch.cat((b, b.new_zeros(size - T, b.shape[1])))
    stride = 1
    while stride < size:
        late, early = slice(2 * stride - 1, None, 2 * stride), slice(stride - 1, None, 2 * stride)
        H[late], P[late] = P[late] * H[early] + H[late], P[late] * P[early]
        stride *= 2
    while stride > 1:
        middle = slice(stride + stride // 2 - 1, None, stride)
        H[middle] = P[middle] * H[stride - 1 :: stride][: len(H[middle])] + H[middle]
        stride //= 2
    return H[:T]


def doubling(a, b):
    shift = 1
    while shift < len(b):
        b = torch.cat((b[:shift], a[shift:] * b[:-shift] + b[shift:]))
        a, shift = torch.cat((a[:shift], a[shift:] * a[:-shift])), 2 * shift
    return b


def test_a_tree_is_right_and_cheap():
    assert check("scans/tree", tree)
    assert "one after the other" in check("scans/tree", lambda a, b: diagonal_scan_naive(a, b)[0]).hint
    assert "multiplications a step" in check("scans/tree", doubling).hint
    assert "counted" in check("scans/tree", lambda a, b: diagonal_scan(a, b)[0]).hint
    assert not check("scans/tree", lambda a, b: 2 * tree(a, b))


class GatedMean(SequenceMap):
    """The solution: the mean of what has come so far, gated by the present token."""

    def __init__(self, d, p, **new):
        super().__init__(d, p)
        self.u = nn.Parameter(torch.randn(d, **new))
        self.V = nn.Parameter(torch.randn(p, d, **new))

    def coefficients(self, x):
        return torch.sigmoid(x @ self.u) / torch.arange(1, x.shape[-2] + 1).to(x)

    def _forward(self, x):
        return self.coefficients(x)[..., None] * (x.cumsum(-2) @ self.V.mT)

    def _interaction(self, x):
        rows = self.coefficients(x)[..., None].expand(*x.shape[:-1], x.shape[-2])
        return FactorizedOperator(rows.tril()[..., None, :, :], self.V[None])


class FrozenMean(GatedMean):
    def _interaction(self, x):
        return super()._interaction(x).detach()


def contract(kind, **more):
    return type("TestMine", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new), **more})


def linear_attention(d, p, **new):
    return LinearAttention(d, p, H=1, head_width=2, **new)


def test_own_map():
    assert check("zoo/own-map", contract(GatedMean))
    own_check = contract(GatedMean, check=None)
    for wrong in (GatedMean, contract(FrozenMean), contract(linear_attention), own_check):
        assert not check("zoo/own-map", wrong)
    assert "carries_gradients" in check("zoo/own-map", contract(FrozenMean)).hint
