"""Every public function on a system takes a `System` first, and says so to who brings its matrices."""

import inspect

import pytest
import torch
from helpers import F64

from ssmbook import gradients, heads, maps, systems
from ssmbook.systems import System

A, B, C = (
    torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=F64) / 2
    for shape in ((3, 3), (3, 2), (2, 3))
)
SYSTEM = System(A, B, C)
# What a function needs beside a system and a number of tokens.
MORE = {
    "epsilon_head_count": {"eps": 0.1},
}


def on_systems():
    found = {"LTISSM": maps.LTISSM}
    for room in (heads, systems, gradients):
        found |= {name: getattr(room, name) for name in room.__all__}
    for name, function in found.items():
        plain = inspect.isfunction(function) or function is maps.LTISSM
        parameters = list(inspect.signature(function).parameters) if plain else []
        if parameters[:1] == ["system"]:
            yield pytest.param(function, id=name)


FUNCTIONS = list(on_systems())
# These take exact matrices (A, B, C) in the place of a system too; tests/heads/test_exact.py asks what else.
EXACT = [getattr(heads, name) for name in heads.__all__ if name.startswith("exact_")]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bare_matrices_are_refused_by_name(function):
    for bare in ((A, B, C), (A, B, C, 5), (A, B, C, 5, None), tuple(SYSTEM), (*SYSTEM, 5)):
        with pytest.raises(
            TypeError, match=r"^system must be a System; got Tensor \(make one with System\(A"
        ):
            function(*bare, **MORE.get(function.__name__, {}))
    if function in EXACT:
        return
    for other in ("A", None, [A, B, C]):
        with pytest.raises(TypeError, match=r"^system must be a System; got (str|NoneType|list) \("):
            function(other, *beside(function), **MORE.get(function.__name__, {}))


@pytest.mark.parametrize("function", [each for each in FUNCTIONS if each.values[0] not in EXACT])
def test_lags_stand_for_a_system_or_are_refused_too(function):
    given, more = beside(function), MORE.get(function.__name__, {})
    if "Tensor" not in str(inspect.signature(function).parameters["system"].annotation):
        with pytest.raises(TypeError, match="^system must be a System; got Tensor"):
            function(SYSTEM.lags(4), *given, **more)
        return
    M = SYSTEM.replace(A=0 * A).lags(5)  # without a sink nothing else is within reach
    function(M, **more)
    with pytest.raises(TypeError, match="^n must be left out beside"):
        function(M, 5, **more)
    with pytest.raises(TypeError, match=r"^n must be (given beside a System|an int; got NoneType)"):
        function(SYSTEM, **more)


def beside(function):
    """n, or the tau of a bound, where a function asks for one."""
    parameters = list(inspect.signature(function).parameters)
    return (5,) if parameters[1:2] in (["n"], ["tau"]) else ()


def test_the_functions_are_found():
    names = {parameter.id for parameter in FUNCTIONS}
    assert len(names) >= 12 and {"head_count", "impulse_response", "LTISSM"} <= names
