"""Layers and tokens with one dependency at one distance, and the gradient path measured there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ssmbook import gradients
from ssmbook.maps import RNN, Attention, SelectiveSSM, softmax_coefficients
from ssmbook.maps.elementary import secant_slope
from ssmbook.operators import jacobian_operator
from ssmbook.scans import lti_scan
from ssmbook.systems import System

QUESTION, ANSWER = 0, 1  # the two coordinates of a token that queries and keys read


def linear_recurrence(system: System) -> Callable:
    """Return the map y_i = C h_i, h_i = A h_{i-1} + B x_i of tokens (n, d), computed step by step.

    An FFT would lose every lag below 1e-16 of the largest.
    """
    A, B, C, _ = system
    return lambda x: lti_scan(A, B, C, x, method="recurrence")[0]


class Lanes(NamedTuple):
    """The gradient of a softmax head beside the two bounds of the sigma_2 highway, for each j < i.

    lower: norm over alpha_ij sigma_2(V), at least 1; upper: norm over alpha_ij (sigma_1(V) + ||v_j - y_i||
    ||g_i||), at most 1; bend: norm of dy_i/dx_j / alpha_ij - V orthogonal to g_i, 0 up to rounding.
    """

    lower: torch.Tensor
    upper: torch.Tensor
    bend: torch.Tensor


def lanes(x: torch.Tensor, W_Q: torch.Tensor, W_K: torch.Tensor, V: torch.Tensor) -> Lanes:
    """Compare the gradients of the last token of a causal head with the bounds: x (n, d), V of rank >= 2."""
    alpha = softmax_coefficients((x @ W_Q.mT)[None], (x @ W_K.mT)[None])[0, -1]
    blocks = gradients.softmax_jacobian_row(x, W_Q, W_K, V)[:-1] / alpha[:-1, None, None]
    g = W_K.mT @ (W_Q @ x[-1]) / len(W_Q) ** 0.5
    plane = torch.eye(len(g), dtype=g.dtype) - torch.outer(g, g) / (g @ g)
    values = x @ V.mT
    apart = torch.linalg.vector_norm(values[:-1] - alpha @ values, dim=-1)
    sigma, norms = torch.linalg.svdvals(V), torch.linalg.matrix_norm(blocks, ord=2)
    bend = torch.linalg.matrix_norm((blocks - V) @ plane, ord=2)
    return Lanes(norms / sigma[1], norms / (sigma[0] + apart * torch.linalg.vector_norm(g)), bend)


def attack_lane(x: torch.Tensor, weights: Sequence[torch.Tensor], *, steps: int = 150) -> torch.Tensor:
    """Move tokens x (n, d) by Adam to make the first one's gradient as small as its weight allows."""
    x = x.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        lanes(x, *weights).lower[0].backward()
        optimizer.step()
    return x.detach()


def highway_input(M: torch.Tensor, n: int, c: float, *, generator=None) -> torch.Tensor:
    """Return tokens (n, d) whose first keeps the share c of all that V can send to every later one.

    M (d, d): W_K^T W_Q / sqrt(d_k). One random token w is repeated; the first is w + u M w, of margin
    log(n - 1) + logit c if that is positive. Source: thm-gradient-highway.
    """
    margin = max(0.0, float(gradients.required_margin(c, n)))  # never against the value map
    w = torch.randn(len(M), generator=generator, dtype=M.dtype)
    toward = M @ w
    x = w.repeat(n, 1)
    x[0] += margin * toward / (toward @ toward)
    return x


def matching_head(V: torch.Tensor, *, logit: float, bias: torch.Tensor | None = None) -> Attention:
    """Build a head with value map V (d, d), logits ``logit`` x_i[0] x_j[1] and a bias (L,) by distance."""
    d = len(V)
    head = Attention(d, d, H=1, head_width=d, bias=None if bias is None else bias[None], dtype=V.dtype)
    with torch.no_grad():
        head.W_Q.zero_()[0, 0, QUESTION] = logit * d**0.5  # the layer divides by sqrt(head_width)
        head.W_K.zero_()[0, 0, ANSWER] = 1.0
        head.W_V.copy_(V)
        head.W_O.copy_(torch.eye(d, dtype=V.dtype))
    return head


def place_match(filler: torch.Tensor, distance: int) -> torch.Tensor:
    """Return ``filler`` (n, d), a question (coordinate 0) last and its answer (1) ``distance`` before."""
    x = filler.clone()
    x[:, :2] = 0
    x[-1, QUESTION] = 1
    x[-1 - distance] = 0
    x[-1 - distance, ANSWER] = 1
    return x


def gated_reader(d: int, *, pre_activation: float, generator=None, dtype=None) -> SelectiveSSM:
    """Build a selective SSM, A = -1, of step softplus(``pre_activation``) where x_i[0] = 1, else log 2."""
    layer = SelectiveSSM(d, N=1, generator=generator, dtype=dtype)
    with torch.no_grad():
        layer.b_delta.zero_()
        layer.W_delta.zero_()[:, 0] = pre_activation
    return layer


def place_source(filler: torch.Tensor, distance: int) -> torch.Tensor:
    """Return a source (coordinate 1) and the last ``distance`` tokens of ``filler``, flagged in coordinate 0.

    The source comes first because its own step would also forget a past.
    """
    x = filler[-1 - distance :].clone()
    x[:, 0] = 1
    x[0] = 0
    x[0, 1] = 1
    return x


def placed_profile(F: Callable, place: Callable, distances: Sequence[int]) -> torch.Tensor:
    """Return ||dy_last/dx_source||_2 (len(distances),), each on the tokens place(distance) of its own."""
    blocks = [jacobian_operator(F, place(distance))[-1, -1 - distance] for distance in distances]
    return torch.linalg.matrix_norm(torch.stack(blocks), ord=2)


def transport_norms(slopes: torch.Tensor, A: torch.Tensor) -> torch.Tensor:
    """Return log norms (n,) of the products D_i A D_{i-1} A ..., from the last token back.

    slopes (n, N): the diagonals of D_j; A (N, N). Rescaled at every step, so that nothing underflows.
    """
    product, logs = torch.eye(len(A), dtype=A.dtype), []
    for slope in slopes.flip(0):
        product = product @ (slope[:, None] * A)
        norm = torch.linalg.matrix_norm(product, ord=2)
        product = product / norm
        logs.append(torch.log(norm))
    return torch.stack(logs).cumsum(0)


def rnn_slopes(net: RNN, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tanh network's derivatives tanh'(z) and chords tanh(z)/z, (n, N) each, on x (n, d)."""
    with torch.no_grad():
        z, _ = net._pre_activations(x, net.initial_state())
        return 1 - torch.tanh(z) ** 2, secant_slope("tanh", z)
