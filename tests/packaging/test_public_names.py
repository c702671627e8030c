"""What a reader meets in ``help()``: an example that runs, types, and references that lead somewhere."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

import ssmbook
from ssmbook._book.api import kind, public_modules, public_names

ROOT = Path(__file__).resolve().parents[2]
# All folders but the one whose functions belong to a command.
SHOWN = tuple(name for name in ssmbook.__all__ if name not in ("System", "__version__", "experiments"))
# Functions and classes of these folders without an example of their own, and why.
WITHOUT_EXAMPLE = {
    "display.show": "what it does is seen in a notebook only",
    "display.use_style": "what it does is seen in a notebook only",
    "exercises.grader": "a grader belongs to an exercise of a chapter",
    "lens.Call": "made by the lens for a reader that is registered",
    "lens.FrozenMap": "made by such a reader",
    "lens.Reading": "returned by such a reader",
    "lens.register": "teaches the lens for good",
    "testing.Contract": "what the contracts share",
    "testing.RecurrentMapContract": "used as the MapContract is",
}
# Methods and properties that the first hour with the library needs.
METHODS = {
    "operators.InteractionOperator": ["block_norms"],
    "operators.Spectral": [
        *("spectrum", "interaction_rank", "floor", "epsilon_heads", "best_heads", "past_future_rank"),
    ],
    "systems.System": ["lags", "response", "discretize", "minimal", "from_scipy"],
    "maps.SequenceMap": ["interaction"],
    "maps.RecurrentMap": ["step"],
}


def everything(folders):
    """(name without ``ssmbook.``, value) of every public name."""
    for folder in folders:
        for module in public_modules(folder):
            for name in public_names(module):
                yield f"{module.__name__}.{name}".removeprefix("ssmbook."), getattr(module, name)


def own_members(value):
    """The public functions that a class defines itself, and its ``__init__``."""
    for name, member in vars(value).items():
        member = getattr(member, "__func__", getattr(member, "fget", member))
        if inspect.isfunction(member) and (name == "__init__" or name[0] != "_"):
            yield name, member


def examples():
    """Every docstring with an example, by name. They assume torch, System and their folder's names."""
    for name, value in everything(SHOWN):
        if kind(value) == "data":
            continue
        offered = import_module(f"ssmbook.{name.partition('.')[0]}")
        known = {"torch": torch, "System": ssmbook.System}
        known |= {key: getattr(offered, key) for key in public_names(offered)}
        finder = doctest.DocTestFinder(recurse=inspect.isclass(value))
        for test in finder.find(value, name, module=False, globs=known):
            if test.examples:
                yield test
    checks = import_module("ssmbook._checks")
    yield from (test for test in doctest.DocTestFinder().find(checks) if test.examples)


EXAMPLES = {test.name: test for test in examples()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_what_happens(name):
    plt = import_module("matplotlib.pyplot")
    said = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = doctest.DocTestRunner().run(EXAMPLES[name], out=said.append, clear_globs=False)
    plt.close("all")
    assert not found.failed, "".join(said)


def test_every_name_has_an_example():
    wanted = {
        name
        for name, value in everything(SHOWN)
        if kind(value) in ("class", "function") and not name.endswith("_naive")
    }
    assert wanted >= WITHOUT_EXAMPLE.keys()
    wanted -= WITHOUT_EXAMPLE.keys()
    wanted |= {f"{name}.{method}" for name, methods in METHODS.items() for method in methods}
    assert not wanted - EXAMPLES.keys()
    assert not WITHOUT_EXAMPLE.keys() & EXAMPLES.keys()


def test_no_example_stands_where_none_is_run():
    files = (ROOT / "ssmbook").rglob("*.py")
    standing = sum(
        len(re.findall(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)) for path in files
    )
    opening = ssmbook.__doc__.count(">>> ")
    assert standing == opening + sum(len(test.examples) for test in EXAMPLES.values())


def test_help_opens_with_a_quick_start():
    (test,) = doctest.DocTestFinder(recurse=False).find(ssmbook, globs={})
    assert ssmbook.__doc__.splitlines()[2].startswith(">>> import torch") and len(test.examples) == 9
    said = []
    assert not doctest.DocTestRunner().run(test, out=said.append).failed, "".join(said)


def test_the_readme_does_what_it_says(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\(.*\)  # ([^:\n]+)", code, re.MULTILINE)
    assert len(promised) == len(printed) == code.count("print(") > 3
    for said, wanted in zip(printed, promised, strict=True):
        assert said.startswith(wanted), (said, wanted)


def untyped(function):
    """The parameters without a type, and "return" if that has none."""
    found = inspect.signature(function)
    named = [each.name for each in found.parameters.values() if each.annotation is each.empty]
    named = [name for name in named if name not in ("self", "cls")]
    if found.return_annotation is found.empty and function.__name__ != "__init__":
        named.append("return")
    return named


def test_every_parameter_and_every_result_has_a_type():
    missing = {}
    for name, value in everything([*ssmbook._SUBPACKAGES, "scans.distributed"]):
        functions = dict(own_members(value)) if inspect.isclass(value) else {"": value}
        for member, function in functions.items():
            by_pytest = member.startswith(("test_", "pytest_"))  # the laws of a contract
            if inspect.isfunction(function) and not by_pytest and (names := untyped(function)):
                missing[f"{name}.{member}".rstrip(".")] = names
    assert not missing
    assert untyped(lambda a: a) == ["a", "return"]
