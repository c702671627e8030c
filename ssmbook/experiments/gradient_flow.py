"""Layers and tokens that ask for one thing at one distance, and the gradient path measured there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ssmbook import gradients
from ssmbook._checks import (
    as_real,
    check_finite,
    check_integer,
    check_like,
    check_number,
    check_shape,
    check_tensors,
)
from ssmbook.maps import RNN, Attention, SelectiveSSM
from ssmbook.maps.layers import secant_slope
from ssmbook.scans import lti_scan
from ssmbook.systems.system import System, check_system

QUESTION, ANSWER = 0, 1  # the two coordinates of a token that queries and keys read


def linear_recurrence(system: System) -> Callable:
    """The map y_i = C h_i, h_i = A h_{i-1} + B x_i, step by step, of tokens (n, d).

    One `System` without a skip, n >= 1. Returns a function (n, d) -> (n, p) that autograd can differentiate
    at any distance: an FFT would drown every lag below 1e-16 of the largest one. Raises TypeError for what
    is no System, ValueError for a batch and for a skip. Introduced in *gradient-highway*.
    """
    A, B, C, D = check_system(system, batched=False)
    if D is not None:
        raise ValueError("system must have no skip; drop it with replace(D=None)")

    return lambda x: lti_scan(A, B, C, x, method="recurrence")[0]


class Lanes(NamedTuple):
    """The gradient of a softmax head beside the two bounds of the sigma_2 highway, for each j < i.

    lower: norm over alpha_ij sigma_2(V), at least 1; upper: norm over alpha_ij (sigma_1(V) + ||v_j - y_i||
    ||g_i||), at most 1; bend: norm of (dy_i/dx_j - alpha_ij V) on the hyperplane orthogonal to g_i, over
    alpha_ij, 0 up to rounding. Introduced in *gradient-highway*.
    """

    lower: torch.Tensor
    upper: torch.Tensor
    bend: torch.Tensor


def lanes(x: torch.Tensor, W_Q: torch.Tensor, W_K: torch.Tensor, V: torch.Tensor) -> Lanes:
    """What the sigma_2 highway says about the last token of one causal head, bounds beside the exact blocks.

    x (n, d), n >= 2, W_Q and W_K (d_k, d), V (p, d) of rank at least 2, no weight exactly 0. Returns
    :class:`Lanes` of (n - 1,) each, same dtype, differentiable in x through the closed form. Raises
    TypeError/ValueError for malformed arguments. Introduced in *gradient-highway*.
    """
    alpha = gradients.softmax_row_weights(x, W_Q, W_K)
    blocks = gradients.softmax_jacobian_row(x, W_Q, W_K, V)[:-1] / alpha[:-1, None, None]
    g = W_K.mT @ (W_Q @ x[-1]) / len(W_Q) ** 0.5
    plane = torch.eye(len(g), dtype=g.dtype, device=g.device) - torch.outer(g, g) / (g @ g)
    values = x @ V.mT
    apart = torch.linalg.vector_norm(values[:-1] - alpha @ values, dim=-1)
    sigma, norms = torch.linalg.svdvals(V), torch.linalg.matrix_norm(blocks, ord=2)
    bend = torch.linalg.matrix_norm((blocks - V) @ plane, ord=2)
    return Lanes(norms / sigma[1], norms / (sigma[0] + apart * torch.linalg.vector_norm(g)), bend)


def attack_lane(x: torch.Tensor, weights: Sequence[torch.Tensor], *, steps: int = 150) -> torch.Tensor:
    """Tokens moved by Adam to make the first token's gradient as small as its weight allows.

    x (n, d), left untouched; weights: W_Q, W_K, V as for :func:`lanes`; steps >= 0. Returns (n, d), same
    dtype. Raises as :func:`lanes`. Introduced in *gradient-highway*.
    """
    steps = check_integer("steps", steps, low=0)
    x = x.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        lanes(x, *weights).lower[0].backward()
        optimizer.step()
    return x.detach()


def highway_input(
    M: torch.Tensor, n: int, c: float, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Tokens whose first keeps the share c of all that V can send, at each of the n - 1 later ones.

    M (d, d), nonzero: W_K^T W_Q / sqrt(d_k); n >= 2; c in (0, 1). Returns (n, d), same dtype: one random
    token w, repeated, and first w + u M w, u >= 0, of margin log(n - 1) + logit c if that is positive. It
    has weight at least c everywhere, and each singular value of dy_i/dx_0 is at least c times that of V,
    whatever V is. Raises TypeError/ValueError outside, ValueError when M w = 0. Source:
    thm-gradient-highway. Introduced in *gradient-highway*.
    """
    d = check_shape("M", M, "d d")["d"]
    check_finite("M", M)
    check_like(generator=generator)
    n = check_integer("n", n, low=2)
    c = check_number("c", c, "a number in (0, 1)", lambda value: 0 < value < 1)
    margin = max(0.0, float(gradients.required_margin(c, n)))  # never against the value map
    w = torch.randn(d, generator=generator, dtype=M.dtype, device=M.device)
    toward = M @ w
    if not bool(toward.any()):
        raise ValueError("M must not send the random token to zero; got M w = 0")
    x = w.repeat(n, 1)
    x[0] += margin * toward / (toward @ toward)
    return x


def matching_head(V: torch.Tensor, *, logit: float, bias: torch.Tensor | None = None) -> Attention:
    """One softmax head that gives the logit ``logit`` to an answer token seen by a question token, else 0.

    V (d, d), d >= 2: the value map. The logit is ``logit`` x_i[0] x_j[1]; bias (L,) or None: added per
    distance, for at most L tokens. Returns an ``Attention`` in the dtype and on the device of V. Raises
    TypeError/ValueError for a V that is not square, smaller than 2 or non-finite. Introduced in
    *gradient-highway*.
    """
    d = check_shape("V", V, "d d")["d"]
    d = check_integer("d", d, low=2)
    check_finite("V", V)
    logit = as_real("logit", logit)
    if bias is not None:
        check_tensors(V=(V, "d d"), bias=(bias, "L"))
        bias = bias[None]
    head = Attention(d, d, H=1, head_width=d, bias=bias, dtype=V.dtype, device=V.device)
    with torch.no_grad():
        head.W_Q.zero_()[0, 0, QUESTION] = logit * d**0.5  # the layer divides by sqrt(head_width)
        head.W_K.zero_()[0, 0, ANSWER] = 1.0
        head.W_V.copy_(V[None])
        head.W_O.copy_(torch.eye(d, dtype=V.dtype, device=V.device)[None])
    return head


def place_match(filler: torch.Tensor, distance: int) -> torch.Tensor:
    """The tokens ``filler`` with a question at the end and its answer ``distance`` tokens before.

    filler (n, d), d >= 2, left untouched: coordinates 0 and 1 are cleared, the question is a 1 in coordinate
    0 of the last token; the answer token is a 1 in coordinate 1 and nothing else, wherever it stands. 1 <=
    distance < n. Returns (n, d), same dtype. Raises TypeError/ValueError outside. Introduced in
    *gradient-highway*.
    """
    distance = _distance(filler, distance)
    x = filler.clone()
    x[:, :2] = 0
    x[-1, QUESTION] = 1
    x[-1 - distance] = 0
    x[-1 - distance, ANSWER] = 1
    return x


def gated_reader(
    d: int,
    *,
    pre_activation: float,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> SelectiveSSM:
    """A selective SSM with A = -1 and step softplus(``pre_activation``) on flagged tokens, log 2 on others.

    d >= 2 channels of one state each; the flag is coordinate 0 of a token; B_i and C_i random linear in x_i.
    Returns a ``SelectiveSSM``. Raises TypeError/ValueError for bad sizes or a non-finite pre-activation.
    Introduced in *gradient-highway*.
    """
    d = check_integer("d", d, low=2)
    value = as_real("pre_activation", pre_activation)
    layer = SelectiveSSM(d, N=1, generator=generator, dtype=dtype)
    with torch.no_grad():
        layer.b_delta.zero_()
        layer.W_delta.zero_()[:, 0] = value
    return layer


def place_source(filler: torch.Tensor, distance: int) -> torch.Tensor:
    """A source token followed by the last ``distance`` tokens of ``filler``, these flagged in coordinate 0.

    filler (n, d), d >= 2, left untouched; the source is a 1 in coordinate 1 and nothing else; it stands
    first because its own step would also forget a past. 1 <= distance < n. Returns (distance + 1, d), same
    dtype. Raises TypeError/ValueError outside. Introduced in *gradient-highway*.
    """
    x = filler[-1 - _distance(filler, distance) :].clone()
    x[:, 0] = 1
    x[0] = 0
    x[0, 1] = 1
    return x


def _distance(filler, distance) -> int:
    sizes = check_shape("filler", filler, "n d")
    check_integer("d", sizes["d"], low=2)
    return check_integer("distance", distance, low=1, high=sizes["n"] - 1)


def placed_profile(F: Callable, place: Callable, distances: Sequence[int]) -> torch.Tensor:
    """||dy_last/dx_source||_2 by autograd when each distance gets an input of its own.

    F as in ``gradients.gradient_profile``; place(distance) gives its tokens (n, d), the source standing
    ``distance`` before the last. Returns (len(distances),), in the dtype of the tokens. Raises
    ValueError/TypeError as ``gradients.jacobian_blocks``. Introduced in *gradient-highway*.
    """
    norms = []
    for distance in distances:
        blocks = gradients.jacobian_blocks(F, place(distance))
        norms.append(torch.linalg.matrix_norm(blocks[-1 - distance], ord=2))
    if not norms:
        raise ValueError("distances must hold at least one distance; got none")
    return torch.stack(norms)


def transport_norms(slopes: torch.Tensor, A: torch.Tensor) -> torch.Tensor:
    """Log norms of the products D_i A D_{i-1} A ... D_{i-tau+1} A that carry a recurrent network's past.

    slopes (n, N): the diagonals of D_j, derivatives or secants; A (N, N). Returns (n,), for tau = 1, ..., n,
    products taken from the last token back, rescaled at every step so that nothing underflows. Raises
    TypeError/ValueError for malformed arguments. Introduced in *gradient-highway*.
    """
    sizes = check_tensors(slopes=(slopes, "n N"), A=(A, "N N"), finite=True)
    product, log_scale, logs = torch.eye(sizes["N"], dtype=A.dtype, device=A.device), A.new_zeros(()), []
    for slope in slopes.flip(0):
        product = product @ (slope[:, None] * A)
        norm = torch.linalg.matrix_norm(product, ord=2)
        log_scale = log_scale + torch.log(norm)
        product = product / norm
        logs.append(log_scale)
    return torch.stack(logs) if logs else A.new_empty((0,))


def rnn_slopes(net: RNN, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tanh network's slopes along its trajectory: the derivatives tanh'(z) and the chords tanh(z)/z.

    net: an ``RNN`` with activation "tanh"; x (n, d). Returns two (n, N), detached. Raises
    TypeError/ValueError for malformed tokens or another activation. Introduced in *gradient-highway*.
    """
    if not isinstance(net, RNN):
        raise TypeError(f"net must be an RNN; got {type(net).__name__}")
    check_tensors({"d": net.d}, B=(net.B, "N d"), x=(x, "n d"), finite=True)
    if net.activation != "tanh":
        raise ValueError(f"net must have the activation tanh; got {net.activation!r}")
    with torch.no_grad():
        z = net._pre_activations(x)
        return 1 - torch.tanh(z) ** 2, secant_slope("tanh", z)
