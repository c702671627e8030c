"""What many tests make: seeded draws, rotations, random systems; and what many ask."""

import math

import numpy as np
import torch

from ssmbook.operators import InteractionOperator
from ssmbook.systems import System
from ssmbook.testing import draws as like

F64 = torch.float64
EYE = torch.eye(2, dtype=F64)


def cut(heads):
    """The change of the lens that leaves out these heads."""
    from ssmbook import lens

    return lens.only(lens.Change("cut", torch.zeros_like), heads)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(shape, **like(seed))


def tokens(*shape, seed=1):
    """Inputs: not the numbers that ``like()`` gives to parameters."""
    return randn(*shape, seed=seed)


def rotation(theta, rho=1.0):
    c, s = math.cos(theta), math.sin(theta)
    return rho * torch.tensor([[c, -s], [s, c]], dtype=F64)


def diagonal(*entries):
    return torch.diag(torch.tensor(entries, dtype=F64))


def seen(A):
    """The system of a state matrix whose states are all driven and read."""
    return System(A, *torch.eye(len(A), dtype=F64).expand(2, *A.shape))


def random_system(N, d, p, rho, seed, batch=()):
    """(A, B, C, D) with the spectral radius rho, drawn in this order from one generator."""
    generator = gen(seed)
    A, B, C, D = (
        torch.randn(*batch, *shape, generator=generator, dtype=F64)
        for shape in ((N, N), (N, d), (p, N), (p, d))
    )
    return A * (rho / torch.linalg.eigvals(A).abs().amax(-1))[..., None, None], B, C, D


def plain_lags(system, n):
    """The lags of a system by the plain recurrence."""
    A, B, C, D = system
    found, state = [], B
    for tau in range(n):
        found.append(C @ state + (D if tau == 0 and D is not None else 0))
        state = A @ state
    return torch.stack(found, -3)


def in_another_basis(A, B, C, generator):
    """The same system with its states mixed, and the condition number of the mixing."""
    T = torch.eye(len(A), dtype=F64) + 0.1 * torch.randn(A.shape, generator=generator, dtype=F64)
    inverse = torch.linalg.inv(T)
    return System(T @ A @ inverse, T @ B, C @ inverse), float(torch.linalg.cond(T))


def floats(*matrices):
    """Integer matrices in float64; None stays None."""
    return tuple(None if m is None else m.double() for m in matrices)


def clock(theta=0.7, rho=1.0, n=12):
    """The lags of a state that turns and fades, seen whole."""
    return System(rotation(theta, rho), EYE, EYE).lags(n)


def mlp(activation, seed=0):
    """A map from width 3 to width 2: a hidden layer that reads the running sum."""
    W1, W2 = randn(9, 3, seed=seed), randn(2, 9, seed=seed + 1)
    return lambda x: activation(x.cumsum(-2) @ W1.mT) @ W2.mT


def fewest_layers(n, H):
    """The layers of H heads that n tokens take: (1 + H)^L >= n."""
    L = 0
    while (1 + H) ** L < n:
        L += 1
    return L


def wide_layers(A, n, H, L):
    """L residual layers whose lags are the powers of A, lags written in base 1 + H."""
    alpha, V = A.new_zeros(L, H, n, n), A.new_zeros(L, H, *A.shape)
    for layer in range(L):
        for h in range(H):
            places = (h + 1) * (1 + H) ** layer
            alpha[layer, h] = A.new_ones(n, n).tril(-places).triu(-places)
            V[layer, h] = torch.linalg.matrix_power(A, places)
    return alpha, V


def toeplitz(M):
    """(n, n, p, d) of the lag operators (n, p, d): M_{i-j} at (i, j), 0 in the future."""
    steps = torch.arange(M.shape[0])
    lag = steps[:, None] - steps
    return torch.where((lag >= 0)[..., None, None], M[lag.clamp(min=0)], torch.zeros((), dtype=M.dtype))


def future(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def causal_softmax(*shape, seed=0, scale=1.0):
    """Coefficients (..., n, n) of causal heads with random scores."""
    return (scale * randn(*shape, seed=seed)).masked_fill(future(shape[-1]), -torch.inf).softmax(-1)


def rank(matrix):
    return int(torch.linalg.matrix_rank(matrix, rtol=1e-10))


def points(line):
    """Where a drawn line goes, (m, 2)."""
    return np.asarray(line.get_xydata(), dtype=float)


def crossed(ax, slack=1.0):
    """Which texts of the axes lie within ``slack`` pixels of a line or a dot of theirs, on a drawn canvas."""
    ax.figure.canvas.draw()
    found = set()
    for line in ax.get_lines():
        places = ax.transData.transform(points(line))
        if line.get_linestyle() != "None":
            part = np.linspace(0, 1, 100)[:, None, None]
            places = (places[:-1] + part * np.diff(places, axis=0)).reshape(-1, 2)
        for text in ax.texts:
            box = text.get_window_extent().padded(slack)
            if text.get_text() and any(box.contains(*place) for place in places):
                found.add(text.get_text())
    return found


def shown(ax):
    """The numbers behind a picture, NaN where nothing is drawn."""
    return np.ma.filled(ax.get_images()[0].get_array().astype(float), np.nan)


def close(got, wanted, tol=1e-12):
    """One shape and dtype, and no error above ``tol`` times the largest entry."""
    got, wanted = got.detach(), wanted.detach()
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    largest = float(wanted.abs().max()) if wanted.numel() else 0.0
    assert torch.allclose(got, wanted, rtol=0.0, atol=tol * largest)


class Total(InteractionOperator):
    """y_i = V (x_0 + … + x_i): an operator that writes no more than it must."""

    def __init__(self, V, n):
        super().__init__(V, V.shape[:-2], n, *V.shape[-2:])
        self.V = V

    def _apply(self, x):
        return x.cumsum(-2) @ self.V.mT

    def _scaled(self, factor):
        return type(self)(factor * self.V, self.n)

    def _mapped(self, change):
        return type(self)(change(self.V), self.n)
