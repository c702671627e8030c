"""What a reader meets in ``help()``: a docstring, an example that runs, and types."""

import builtins
import doctest
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import ssmbook
from headsandstates.site.api import ENTRY, SECTION
from headsandstates.site.page import read_pages
from headsandstates.site.public import everything, kind, public_names

ROOT = Path(__file__).resolve().parents[2]
NAMES = {name: value for name, value in everything().items() if kind(value) in ("class", "function")}
# The folder whose functions belong to commands has no examples.
SHOWN = [
    name
    for name in NAMES
    if not re.match(r"headsandstates\.experiments\.|ssmbook\.scans\.distributed\.", name)
]


def examples(name):
    """The examples of a name and its methods. They assume torch, System and the names of their folder."""
    offered = import_module(name.rpartition(".")[0])
    known = {"torch": torch, "System": ssmbook.System}
    known |= {key: getattr(offered, key) for key in public_names(offered)}
    finder = doctest.DocTestFinder(recurse=inspect.isclass(NAMES[name]))
    return [test for test in finder.find(NAMES[name], name, module=False, globs=known) if test.examples]


def test_every_public_name_has_a_docstring():
    assert not [name for name, value in NAMES.items() if not (value.__doc__ or "").strip()]


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name):
    said = []
    for example in examples(name):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            doctest.DocTestRunner().run(example, out=said.append, clear_globs=False)
    import_module("matplotlib.pyplot").close("all")
    assert not said, "".join(said)


def test_every_name_is_shown_in_use():
    """In its own example, in the docstring of another name, in a cell, or in a chapter's own code."""
    cells = [cell.text for page in read_pages(ROOT) for cell in page.code]
    cells += [path.read_text(encoding="utf-8") for path in (ROOT / "headsandstates/chapters").rglob("*.py")]
    for name in SHOWN:
        others = [value.__doc__ for other, value in NAMES.items() if other != name]
        last = name.rpartition(".")[2].removesuffix("_naive")
        assert examples(name) or re.search(rf"\b{last}\b", "\n".join(others + cells)), name


@pytest.mark.parametrize("package", [ssmbook, ssmbook.maps], ids=lambda package: package.__name__)
def test_help_opens_with_an_example_that_runs(package):
    (test,) = doctest.DocTestFinder(recurse=False).find(package, globs={})
    said = []
    assert test.examples and not doctest.DocTestRunner().run(test, out=said.append).failed, "".join(said)


def functions(value):
    """The public functions of a class and its ``__init__``, or the function itself."""
    if not inspect.isclass(value):
        return {"": value}
    members = {
        name: getattr(member, "__func__", getattr(member, "fget", member))
        for name, member in vars(value).items()
    }
    return {name: each for name, each in members.items() if name == "__init__" or name[0] != "_"}


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_and_every_result_has_a_type(name):
    for member, function in functions(NAMES[name]).items():
        if not inspect.isfunction(function) or member.startswith(("test_", "pytest_")):
            continue
        signature = inspect.signature(function)
        untyped = [each.name for each in signature.parameters.values() if each.annotation is each.empty]
        assert not set(untyped) - {"self", "cls"}, member
        assert member == "__init__" or signature.return_annotation is not signature.empty, member


def parameters(function):
    """Their names, in place of ``**new: Unpack[New]`` those of the dictionary's type."""
    for name, given in inspect.signature(function).parameters.items():
        if typed := re.fullmatch(r"Unpack\[(\w+)\]", str(given.annotation)):
            yield from vars(sys.modules[function.__module__])[typed[1]].__annotations__
        elif name not in ("self", "cls"):
            yield name


def long_signatures(value):
    """What has four parameters or more: a function, a public method, a class with a signature of its own."""
    own = [each for name, each in functions(value).items() if not name.startswith(("test_", "__init__"))]
    own += [value] if inspect.isclass(value) and vars(value).keys() & {"__init__", "__new__"} else []
    return [each for each in own if callable(each) and len([*parameters(each)]) >= 4]


def raised(function):
    """The errors that a body raises itself, and ``{"check"}`` where it checks its arguments."""
    body = function.__init__ if inspect.isclass(function) else inspect.unwrap(function)
    try:
        source = inspect.getsource(body)
    except (OSError, TypeError):  # made by a dataclass or a named tuple
        return set()
    return {*re.findall(r"\braise (?:\w+\.)*([A-Z]\w+)", source), *re.findall(r"\b(check)_\w+\(", source)}


def gaps(function):
    """What the sections of a docstring leave out, or say without cause."""
    text = inspect.cleandoc(function.__doc__) + "\n"
    sections = {found[1]: ENTRY.findall(found[2]) for found in SECTION.finditer(text)}
    terms = [term for term, _ in sections.get("Parameters", sections.get("Attributes", []))]
    found = [name.strip(" *") for term in terms for name in term.partition(" : ")[0].split(",")]
    if found != (wanted := [*parameters(function)]):
        yield f"Parameters: {found}, but the signature has {wanted}"
    returns = inspect.isroutine(function) and inspect.signature(function).return_annotation
    if (returns not in (False, None, "None")) != bool(sections.keys() & {"Returns", "Yields"}):
        yield f"Returns: the signature has {returns}"
    said = set(re.findall(r"\w+(?=,|$)", "\n".join(term for term, _ in sections.get("Raises", [])), re.M))
    known = {**vars(builtins), **vars(sys.modules[function.__module__])}
    if not all(issubclass(known.get(error, object), BaseException) for error in said):
        yield f"Raises: {said} must be exceptions"
    checked = {"check"} if said & {"TypeError", "ValueError"} else set()
    if missing := raised(function) - said - checked - {"NotImplementedError"}:
        yield f"Raises: {missing} missing"
    if prose := re.search(r"\b[Rr]aises? `+\w+", SECTION.sub("", text)):
        yield f"Raises: {prose[0]} in the prose, in place of its section"


@pytest.mark.parametrize("name", NAMES)
def test_four_parameters_or_more_have_their_sections(name):
    assert not [f"{each.__name__}: {gap}" for each in long_signatures(NAMES[name]) for gap in gaps(each)]
