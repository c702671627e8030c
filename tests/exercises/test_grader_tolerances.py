"""Every grader of numbers forgives rounding, and no more."""

import inspect
import math
from importlib import import_module
from unittest.mock import patch

import pytest
import torch
from helpers import fewest_layers, wide_layers

from ssmbook.exercises import _grader, agrees, check
from ssmbook.operators import FactorizedOperator
from ssmbook.systems import ho_kalman, zoh

CHAPTERS = _grader._chapters()
GRADERS = {name: import_module(f"ssmbook.chapters.{name.replace('-', '_')}.graders") for name in CHAPTERS}


def compared(name):
    """How an answer to an exercise is compared, ``agrees(answer, right, cases, **options)``, or None."""
    found = _grader._find(name)
    if inspect.signature(found.function).parameters:
        return None  # takes the answer itself
    with patch.object(_grader, "agrees", return_value="stop") as call:
        found.grade(None)
    return call.call_args


COMPARED = [name for name in sorted(_grader._GRADERS) if name.partition("/")[0] in GRADERS and compared(name)]


def larger(part, share):
    """By a share of itself; without a product that a grader counts."""
    return part.add(part, alpha=share) if isinstance(part, torch.Tensor) else part * (1 + share)


def off(function, share, place=None):
    """The function with its result, or one part of it, too large by a share of itself."""

    def answer(*case):
        found = function(*case)
        if isinstance(found, tuple):
            return tuple(larger(part, share) if k == place else part for k, part in enumerate(found))
        return larger(found, share)

    return answer


# An integral is asked for to four digits; a start is a logarithm of a logarithm, and that of a rounded pole
# stays close to it.
OTHER_SHARES = {"interaction-operator/path": (9e-5, 1e-3), "gradient-flow/start-for": (9e-10, 1e-7)}


@pytest.mark.parametrize("name", COMPARED)
def test_rounding_is_forgiven_and_one_in_ten_thousand_is_not(name):
    (_, right, cases), options = compared(name)
    wanted = [right(*case) for case in cases]
    asked = [(k,) for k in range(len(wanted))]
    options |= {"hint": "wrong", "mistakes": None}
    near, far = OTHER_SHARES.get(name, (1e-7, 1e-4))
    for place in range(len(options.get("parts", "1"))):
        for share, said in ((near, None), (far, "wrong")):
            found = off(wanted.__getitem__, share, place)
            assert agrees(found, wanted.__getitem__, asked, **options) == said


def layers(A, n, H):
    return wide_layers(A, n, H, fewest_layers(n, H))


def halves(W, H, n):
    U, S, Vh = torch.linalg.svd(W.reshape(n * n, -1), full_matrices=False)
    return (U[:, :H] * S[:H]).T.reshape(H, n, n), Vh[:H].reshape(H, *W.shape[2:])


def fewest(alpha, V):
    W = FactorizedOperator(alpha, V)
    return halves(W.to_dense(), W.interaction_rank(), W.n)


def gradients(a, state, h, d):
    found = GRADERS["scans"]._by_hand(a, state, h, d)
    return found[: len(d)], found[len(d) : -1], found[-1]


def read(layer, x):
    of = GRADERS["trained-layers"]
    return of._weights_reported(layer, x), of._maps_probed(layer, x), of._offset_probed(layer, x)


def realized(M, N):
    found = ho_kalman(M, N)
    return found.A, found.B, found.C


def translated(A, B, C, delta):
    """phi by its series."""
    terms = (torch.linalg.matrix_power(delta * A, m) / math.factorial(m + 1) for m in range(20))
    return C @ torch.linalg.inv(sum(terms))


# exercise: a right answer, which of its parts go wrong, an error that is forgiven and one that is not
ANSWERS = {
    "factorized/fewest-heads": (fewest, [1], 1e-8, 1e-6),
    "gates-and-depth/chunks": (GRADERS["gates-and-depth"]._by_steps, [None], 1e-7, 1e-4),
    "gates-and-depth/layers": (layers, [1], 1e-10, 1e-6),
    "head-count/best-heads": (GRADERS["head-count"]._svd_heads, [1], 1e-7, 1e-5),
    "interaction-operator/heads": (lambda W, H: halves(W, H, len(W)), [1], 1e-7, 1e-4),
    "scans/backward": (gradients, [0, 1, 2], 1e-7, 1e-4),
    "scans/tree": (GRADERS["scans"]._tree, [None], 1e-7, 1e-4),
    "structured-dynamics/hold": (zoh, [0, 1], 1e-7, 1e-4),
    "structured-dynamics/realize": (realized, [2], 1e-7, 1e-4),
    "structured-dynamics/translate": (translated, [None], 1e-7, 1e-4),
    "tasks/copier": (GRADERS["tasks"]._copier, [1], 5e-5, 1e-3),
    "trained-layers/merge": (GRADERS["trained-layers"]._merged, [1], 1e-7, 1e-4),
    "trained-layers/read": (read, [0, 1, 2], 1e-7, 1e-4),
    "two-ways-to-mix/fading": (GRADERS["two-ways-to-mix"]._fading_heads, [1], 8e-6, 1e-3),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_judges_forgive_rounding_and_no_visible_error(name):
    answer, places, near, far = ANSWERS[name]
    for place in places:
        assert check(name, off(answer, near, place))
        assert not check(name, off(answer, far, place))


def each_part(function, change):
    """The function with every tensor of its result changed."""

    def answer(*case):
        found = function(*case)
        return tuple(map(change, found)) if isinstance(found, tuple) else change(found)

    return answer


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_made_of_parameters_passes(name):
    assert check(name, each_part(ANSWERS[name][0], torch.nn.Parameter))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_overwrites_its_arguments_harms_nobody(name):
    def greedy(*case):
        given = [part.clone() if isinstance(part, torch.Tensor) else part for part in case]
        for part in case:
            if isinstance(part, torch.Tensor):
                part.zero_()
        return ANSWERS[name][0](*given)

    assert check(name, greedy) and check(name, greedy)


DOUBLE = {  # in double precision alone: what they are judged by cancels
    *("factorized/fewest-heads", "gates-and-depth/layers", "interaction-operator/heads"),
    *("structured-dynamics/translate", "trained-layers/merge"),
}


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - DOUBLE))
def test_an_answer_in_single_precision_passes(name):
    single = lambda part: part.to(torch.complex64 if part.is_complex() else torch.float32)  # noqa: E731
    assert check(name, each_part(ANSWERS[name][0], single))


PAIRS = (
    "factorized/fewest-heads",
    "interaction-operator/heads",
    "tasks/copier",
    "trained-layers/merge",
    "two-ways-to-mix/fading",
)


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_no_pair_is_named(name):
    right = ANSWERS[name][0]
    for wrong, came in ((lambda *case: [*right(*case)], "list"), (lambda *case: (*right(*case), 0), "tuple")):
        hint = check(name, wrong).hint
        assert "return the pair (" in hint and f"got {came}" in hint
