"""Every public function is asked with every wrong value of every argument, and refuses it by name.

The rule stands in ``ssmbook/_checks.py``. A wrong value ends in a ``TypeError`` or ``ValueError`` that names
the argument and says what came, or it is one that the rule takes, and the answer is right.
"""

import copy
import dataclasses
import inspect
import re
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

import ssmbook
from ssmbook.heads import Count, head_count
from ssmbook.operators import InteractionOperator, LagOperator, RankReport
from ssmbook.systems import System

NAN, INF = float("nan"), float("inf")


def poisoned(t, value):
    t = t.clone()
    t.view(-1)[-1] = value
    return t


FLOATING = {
    "integer": lambda t: t.real.long(),
    "complex": lambda t: t.to(torch.complex128),
    "nan": lambda t: poisoned(t, NAN),
    "infinity": lambda t: poisoned(t, INF),
    "without a dimension": lambda t: t[0],
    "list": lambda t: t.tolist(),
    "array": lambda t: t.detach().numpy(),
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "float8": lambda t: t.real.to(torch.float8_e4m3fn),
    "other dtype": lambda t: t.to(torch.complex64 if t.is_complex() else torch.float32),
    "none": lambda t: None,
}
INTEGERS = {"float": lambda t: t.double(), **{k: FLOATING[k] for k in ("list", "array", "meta", "none")}}
MASK = {"float": lambda t: t.double(), **{k: FLOATING[k] for k in ("without a dimension", "list", "meta")}}
COUNT = {
    "fraction": lambda n: 2.5,
    "flag": lambda n: True,
    "word": lambda n: "3",
    "none": lambda n: None,
    "far below": lambda n: -(10**9),
    "tensor of several": lambda n: torch.tensor([n, n]),
    "numpy": np.int64,
    "tensor": torch.tensor,
}
NUMBER = {
    "word": lambda x: "x",
    "flag": lambda x: True,
    "none": lambda x: None,
    "nan": lambda x: NAN,
    "list": lambda x: [x, x],
    "numpy": np.float64,
}
FLAG = {"word": lambda x: "no", "number": lambda x: 1, "none": lambda x: None}
WORD = {"unknown": lambda x: "no such", "number": lambda x: 3, "none": lambda x: None}
OTHER = {"tensor": lambda x: torch.zeros(2, 2), "word": lambda x: "A", "none": lambda x: None}
SEQUENCE = {"number": lambda x: 3, "set": lambda x: {1, 2}, "dictionary": lambda x: {0: 1}, **OTHER}
OPTIONS = {
    "dtype": {"integers": torch.int64, "word": "float32"},
    "device": {"unknown": "gpu"},
    "generator": {"seed": 0},
}
SAME = {"numpy", "tensor"}  # the same number in another dress: the same answer


def kinds(value):
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bool:
            return MASK
        return FLOATING if value.is_floating_point() or value.is_complex() else INTEGERS
    for kind, wrong in (
        (bool, FLAG),
        (int, COUNT),
        (float, NUMBER),
        (str, WORD),
        ((list, tuple), SEQUENCE),
    ):
        if isinstance(value, kind):
            return wrong
    return OTHER


def wrong_values(door):
    for name, value in door.arguments.items():
        for kind, make in kinds(value).items() if name != "self" else ():
            number = isinstance(value, torch.Tensor) and value.dim() == 0
            if not (number and kind in ("without a dimension", "list")):
                yield name, kind, make(value)
    for name in OPTIONS.keys() & inspect.signature(door.function).parameters:
        for kind, value in OPTIONS[name].items():
            yield name, kind, value


def leaves(value):
    """The tensors, numbers and words that a result is made of."""
    if isinstance(value, InteractionOperator):
        value = value.to_dense()
    if isinstance(value, nn.Module):
        value = list(value.state_dict().values())
    if isinstance(value, Count):
        value = (value.low, value.high)
    if isinstance(value, RankReport):
        value = (value.rank, value.spectrum)
    if isinstance(value, (tuple, list, System)):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    elif dataclasses.is_dataclass(value):
        yield from leaves([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif isinstance(value, (torch.Tensor, int, float, str)):
        yield value


def tensors(value):
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def sound(value):
    """Whether there is neither NaN nor infinity; -inf is the logit of what is not seen."""
    return not any(bool((t.isnan() | t.real.isposinf()).any()) for t in tensors(value))


def same(first, second):
    pairs = zip(leaves(first), leaves(second), strict=True)
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b or (a != a and b != b) for a, b in pairs
    )


def taken_by_the_rule(door, name, kind, answer):
    """Whether this value is one the rule takes, and the answer a right one."""
    if f"{name} {kind}" in door.accepts:
        return True
    if kind == "none":
        return door.optional(name)
    if kind in SAME:
        return same(answer, door())
    if kind in ("nan", "infinity"):
        return door.carries and (kind == "infinity" or not sound(answer))
    if kind == "meta":
        return door.carries and all(t.is_meta for t in tensors(answer))
    if kind == "complex":
        return door.complex or door.arguments[name].is_complex()
    if kind == "without a dimension":
        return name in door.loose
    return kind == "other dtype" and sum(t.dtype != torch.int64 for t in door.tensors().values()) == 1


def outcome(door, name, kind, value):
    """What is wrong with the answer to a wrong value; None where nothing is."""
    try:
        answer = door(**{name: value})
    except (TypeError, ValueError) as error:
        says = str(error)
        names = door.called.get(name, "M|W" if name == "system" else name)
        named = re.search(rf"(?<!\w)({name}|{names})(?!\w)", says)
        ours = named and "got" in says and "invalid combination" not in says
        return None if ours else f"{type(error).__name__}: {says}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    taken = taken_by_the_rule(door, name, kind, answer)
    return None if taken else "accepted; a right answer stands under `accepts` in tests/doors/conftest.py"


@pytest.mark.filterwarnings("ignore")
def test_wrong_values_are_refused_by_name(any_door):
    wrong = {}
    for name, kind, value in wrong_values(any_door):
        found = outcome(any_door, name, kind, value)
        if found:
            wrong[f"{name}, {kind}"] = found[:200]
    assert not wrong, "\n".join(f"{where}: {found}" for where, found in wrong.items())


@pytest.mark.filterwarnings("ignore")
def test_real_functions_refuse_complex_numbers_throughout(door):
    """Not only beside real ones, where the dtypes differ."""
    real = {name: t.to(torch.complex128) for name, t in door.tensors().items() if t.is_floating_point()}
    if len(real) > 1 and not door.complex:
        with pytest.raises(TypeError, match="must be a floating-point .*; got dtype torch.complex128"):
            door(**real)


# Where the numbers of each name begin, and where a function's begin elsewhere: sizes at one, lengths and
# counts at none.
LEAST = dict.fromkeys("H L asked cols i j n order rows seed shape".split(), 0) | dict.fromkeys(
    "N c d digits directions distance draws grid groups head_width k m max_steps ncols nrows p points r size "
    "starts steps rounds width".split(),
    1,
)
LAYERS = "Attention DeltaNet GLA LinearAttention RetNet SSD alibi_bias zoo".split()
ELSEWHERE = {
    **{f"{layer} H": 1 for layer in LAYERS},
    **{f"{name} H": 1 for name in ("fit_rank_one_heads", "fit_softmax_heads")},
    **{f"{name} n": 1 for name in ("counts_by_class", "equal_row_operator")},
    "LagOperator n": 5,  # the lags it is given
    "bounded_heads algebra": 1,
    "draw_teacher attempts": 1,
    "path_operator max_points": 4,  # the points it begins with
    "required_margin n": 2,
    "s4d_legs N": 2,
    "s4d_lin N": 2,
    "sinkless_heads n": 1,
    "sinkless_plateau n": 1,
    "sinkless_reach n": 1,
    "softmax_heads_from_ssm n": 1,
    "stacked_pole_kernel L": 1,
    "weight_from_margin n": 2,
}
# From where to where numbers are taken: a round bracket leaves the end itself out.
ENDS = {
    **dict.fromkeys(("rtol", "lag_rtol"), "[0, 1)"),
    **dict.fromkeys("B damping delta eps scale slope step stiffness".split(), "[0, inf)"),
    **dict.fromkeys("T low mass reach temperature vmax".split(), "(0, inf)"),
    "a": "(0, 1)",
    "lam": "(-1, 1)",
    "required_margin alpha": "(0, 1)",
    "alpha": "[0, 1]",
    "rho": "[0, inf)",
    "high": "[0.1, inf)",  # not below ``low``
    "random_stable rho": "(0, 1]",
    "jordan_block lam": "(-inf, inf)",
    "gate_preactivation_for_hold A": "(-inf, inf)",
}
RANGE = r"be at least|be between|lie in|be a number in|be finite|keep|hold at least"


def refused(door, name, value):
    """Whether a number is refused as out of its range; a number that fits no other argument is not."""
    given = door.arguments[name]
    if isinstance(given, torch.Tensor):
        value = torch.tensor(value, dtype=given.dtype)
    try:
        door(**{name: value})
    except ValueError as error:
        says = str(error)
        assert re.match(r"\w+ must ", says), f"{name} = {value}: {says}"
        return bool(re.match(rf"({name}|delta|M) must ({RANGE})\b", says))
    return False


def numbers(door, kind):
    for name, value in door.arguments.items():
        scalar = isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point()
        if not isinstance(value, bool) and (isinstance(value, kind) or kind is float and scalar):
            yield name, f"{door.function.__name__} {name}"


@pytest.mark.filterwarnings("ignore")
def test_counts_begin_where_the_rule_says(door):
    for name, place in numbers(door, int):
        if name != "target":  # a place counted from either end
            least = ELSEWHERE.get(place, LEAST.get(name))
            found = [refused(door, name, value) for value in (least - 1, least)]
            assert found == [True, False], f"{place} does not begin at {least}"


@pytest.mark.filterwarnings("ignore")
def test_numbers_end_where_the_rule_says(door):
    for name, place in numbers(door, float):
        if place in ENDS or name in ENDS:
            span = ENDS.get(place, ENDS.get(name))
            low, high = map(float, span[1:-1].split(","))
            for end, beyond, closed in ((low, -1e-9, span[0] == "["), (high, 1e-9, span[-1] == "]")):
                if abs(end) < INF:
                    found = [refused(door, name, value) for value in (end - beyond, end, end + beyond)]
                    assert found == [False, not closed, True], f"{place} does not end at {end} as {span}"


def public(room):
    """The names that a room lists, or the functions of a module that lists none."""
    own = {name: f for name, f in vars(room).items() if inspect.isfunction(f) and name[0] != "_"}
    return set(getattr(room, "__all__", [name for name, f in own.items() if f.__module__ == room.__name__]))


def test_every_public_function_has_a_valid_call(tables, without_a_door):
    rooms = {import_module(f"ssmbook.{name}") for name in ssmbook._SUBPACKAGES if name != "experiments"}
    assert rooms <= tables.keys()
    for room, table in tables.items():
        doors = {name.split(" of ")[0] for name in table}
        missing = public(room) - doors - without_a_door[room]
        assert not missing, (
            f"no valid call of {sorted(missing)} of {room.__name__} in tests/doors/conftest.py"
        )
        assert not doors & without_a_door[room]
        functions = [name for name in without_a_door[room] if inspect.isfunction(getattr(room, name))]
        assert set(functions) <= {"agrees", "close", "judged", "show", "table", "use_style", "register"}


@pytest.mark.filterwarnings("ignore")
def test_valid_calls_are_answered_in_numbers_and_leave_their_arguments(door):
    before = {name: t.clone() for name, t in door.tensors().items()}
    assert sound(door())
    assert all(torch.equal(t, before[name]) for name, t in door.tensors().items())


def moves(door, where):
    """Whether all that a door is made of can be elsewhere."""
    return where not in door.accepts and hasattr(door.arguments.get("self", torch.empty(0)), "to")


def changed(value, *to):
    """A tensor, or what is made of tensors, in another dtype or on another device."""
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to(*to)
    if isinstance(value, torch.Tensor):
        return value if to[0] != "meta" and not value.is_floating_point() else value.to(*to)
    return value.to(*to) if hasattr(value, "to") else value


@pytest.mark.filterwarnings("ignore")
def test_what_carries_numbers_works_out_shapes_on_meta(door):
    if not (door.carries and moves(door, "all meta")):
        return
    answer = door(**{name: changed(value, "meta") for name, value in door.arguments.items()})
    assert all(t.is_meta for t in tensors(answer))
    assert [t.shape for t in tensors(answer)] == [t.shape for t in tensors(door())]


@pytest.mark.filterwarnings("ignore")
def test_half_precision_is_computed_in_single(door):
    """The answer for bfloat16 is that for the same numbers in float64, to the digits that it has."""
    half = {name: changed(value, torch.bfloat16) for name, value in door.arguments.items()}
    if not moves(door, "half") or all(half[name] is value for name, value in door.arguments.items()):
        return
    wide = {name: changed(value, torch.float64) for name, value in half.items()}
    for got, wanted in zip(leaves(door(**half)), leaves(door(**wide)), strict=True):
        if isinstance(got, torch.Tensor):
            torch.testing.assert_close(got.double(), wanted.double(), rtol=0.05, atol=0.05)
        elif not isinstance(got, str):
            assert got == pytest.approx(wanted, rel=0.05, abs=0.05, nan_ok=True)


def trained(value):
    """The same, with a gradient wanted: a tensor, or what is made of tensors."""
    if isinstance(value, torch.Tensor):
        return value.clone().requires_grad_() if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, System):
        return System(*(None if part is None else trained(part) for part in value))
    return value._mapped(trained) if isinstance(value, InteractionOperator) else value


@pytest.fixture
def warned_each_time():
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.filterwarnings("error:Converting a tensor with requires_grad")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("warned_each_time")
def test_parameters_of_a_model_are_answered_alike_and_without_a_word(door):
    wanted = door()
    got = door(**{name: trained(value) for name, value in door.arguments.items()})
    for one, other in zip(tensors(got), tensors(wanted), strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), equal_nan=True)


# What is float64 whatever came: spectra and what is read off them, certificates, layers under the lens.
WIDE = set(
    "controllability_rank fit_rank_one_heads fit_softmax_heads head_floor mcmillan_degree observability_rank "
    "operator sinkless_heads spectrum operators.DenseOperator.rank_report softmax_heads_from_ssm "
    "span_matrix".split()
)
SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}


@pytest.mark.filterwarnings("ignore")
def test_results_have_the_dtype_of_what_came(door, request):
    single = {name: changed(value, torch.float32) for name, value in door.arguments.items()}
    if not moves(door, "half") or all(single[name] is value for name, value in door.arguments.items()):
        return
    got, wide = ([t.dtype for t in tensors(answer)] for answer in (door(**single), door()))
    name = request.node.callspec.id
    if WIDE & {name, *re.split("[. ]", name)}:
        assert torch.float64 in got
    else:
        assert got == [SINGLE.get(dtype, dtype) for dtype in wide]


class Elsewhere(torch.Tensor):
    """A tensor that says it is on a device without float64."""

    device = property(lambda self: torch.device("mps"))


def test_ranks_ask_for_a_device_with_float64():
    M = torch.ones(3, 2, 2)
    W = LagOperator(M.as_subclass(Elsewhere))
    asked = {
        "W": (
            W.spectrum,
            W.interaction_rank,
            lambda: W.row_rank(0),
            W.past_future_rank,
            lambda: W.best_heads(1),
        ),
        "M": (lambda: head_count(M.as_subclass(Elsewhere)),),
    }
    for name, questions in asked.items():
        for question in questions:
            with pytest.raises(TypeError, match=f"^{name} must be on a device with float64, .*; got mps"):
                question()


def test_every_option_is_asked_with_wrong_values(tables):
    asked, options = {}, {}
    for table in tables.values():
        for door in table.values():
            function = door.function
            asked.setdefault(function.__qualname__, {"self"}).update(door.arguments, OPTIONS)
            several = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
            parameters = inspect.signature(function).parameters.values()
            options[function.__qualname__] = {each.name for each in parameters if each.kind not in several}
    asked["grader"] |= {"right", "judge", "formula"}  # written by the book's own exercises
    missing = {name: options[name] - asked[name] for name in options if options[name] - asked[name]}
    assert not missing
