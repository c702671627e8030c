"""Graders of Part III: right-looking formulas that are wrong, and answers that must not be asked for more."""

import math

import pytest
import torch
from helpers import F64, fewest_layers, rotation, wide_layers

from ssmbook.exercises import check


def logarithm_layers(n, H):  # log(125) / log(5) is 3.0000000000000004
    return math.ceil(math.log(n) / math.log(1 + H))


def answered(number):
    return lambda A, n, H: wide_layers(A, n, H, number(n, H))


def test_a_rounded_logarithm_is_one_layer_too_many():
    assert logarithm_layers(125, 4) == 4 and fewest_layers(125, 4) == 3
    assert check("gates-and-depth/layers", answered(fewest_layers))
    verdict = check("gates-and-depth/layers", answered(logarithm_layers))
    assert not verdict and "n = 125, H = 4, 3 layers suffice; got 4" in verdict.hint


def positive_rotation(theta, n, slack=0.25):
    angles, arc = theta * torch.arange(n, dtype=F64), (n - 1) * abs(theta)
    if arc < math.pi:
        middle, half = theta * (n - 1) / 2, arc / 2 + slack * (math.pi - arc)
        at = [middle - half, middle + half]
    else:
        at = [0.0, 2 * math.pi / 3, 4 * math.pi / 3]
    V = torch.stack([rotation(a) for a in at])
    alpha = torch.linalg.pinv(V[:, :, 0].T) @ torch.stack([angles.cos(), angles.sin()])
    alpha += 2.0 * (len(at) == 3)
    size = 2 * alpha.sum(1)
    return alpha / size[:, None], size[:, None, None] * V


def test_the_rotation_is_asked_for_two_tokens_or_more():
    lengths = []

    def answer(theta, n):
        lengths.append(n)
        return positive_rotation(theta, n)

    assert check("how-many-heads-really/rotation", answer)
    assert min(lengths) == 2 and len(lengths) >= 8


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda alpha, V: (alpha[0], V), "expected alpha (H, n) and V (H, 2, 2); got (2,), (2, 2, 2)"),
        (lambda alpha, V: (alpha * (alpha > alpha.min()), V), "a coefficient is not positive"),
        (lambda alpha, V: (3 * alpha, V / 3), "the coefficients of a head sum to 1 or more"),
        (
            lambda alpha, V: (torch.full_like(alpha, 0.5), V),
            "at theta = 0.7, n = 2, the coefficients of a head sum to 1 or more",
        ),
        (lambda alpha, V: (alpha, (1 + 1e-6) * V), "the heads miss a lag operator by"),
        (lambda alpha, V: (alpha, math.nan * V), "the heads miss a lag operator by nan"),
        (lambda alpha, V: (alpha.repeat(2, 1), V.repeat(2, 1, 1) / 2), "2 heads suffice; got 4"),
    ],
)
def test_heads_that_are_no_sink_heads_fail(answer, words):
    verdict = check("how-many-heads-really/rotation", lambda *case: answer(*positive_rotation(*case)))
    assert not verdict and words in verdict.hint


def test_rounding_is_forgiven():
    def rounded(theta, n):
        alpha, V = positive_rotation(theta, n)
        return torch.nn.Parameter(alpha), torch.nn.Parameter((1 + 1e-10) * V)

    assert check("how-many-heads-really/rotation", rounded)


def test_value_maps_inside_the_arc_fail():
    verdict = check("how-many-heads-really/rotation", lambda theta, n: positive_rotation(theta, n, -0.1))
    assert not verdict and "a coefficient is not positive" in verdict.hint
