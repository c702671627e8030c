"""What a reader meets in ``help()``: a docstring, an example that runs, and types."""

import doctest
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import ssmbook
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


def test_a_module_of_a_subpackage_is_there_before_an_import():
    code = "import ssmbook; ssmbook.lens.load, ssmbook.heads.head_count"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_help_opens_with_an_example_that_runs():
    (test,) = doctest.DocTestFinder(recurse=False).find(ssmbook, globs={})
    said = []
    assert test.examples and not doctest.DocTestRunner().run(test, out=said.append).failed, "".join(said)


def test_the_readme_prints_what_it_promises(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\(.*\)  # ([^:\n]+)", code, re.MULTILINE)
    assert len(promised) == len(printed) > 0
    for said, wanted in zip(printed, promised, strict=True):
        assert said.startswith(wanted), (said, wanted)


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
