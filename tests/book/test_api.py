"""The API page: every public name with a sentence, and docstrings made reST without a change of meaning."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

import ssmbook
from headsandstates.site.api import _LABEL, rest, typeset
from headsandstates.site.built import HTML, soup
from headsandstates.site.claims import collect
from headsandstates.site.public import SUBPACKAGES, everything, public_names

ROOT = Path(__file__).resolve().parents[2]
APPENDIX = ROOT / HTML / "chapters/appendix"
PAGE = APPENDIX / "api.html"


@pytest.mark.parametrize(
    ("plain", "wanted"),
    [
        ("of *words*, |a|, W_ij, W_ and *batch", r"of *words*, \|a\|, W_ij, W\_ and \*batch"),
        ("``a * b | c`` a * b", r"``a * b | c`` a \* b"),
        (
            "After `gu2024mamba` (`miller2023attention`).",
            "After :cite:`gu2024mamba` (:cite:`miller2023attention`).",
        ),
        ("as :func:`zoh` and :cite:`gu2024mamba`", "as :func:`zoh` and :cite:`gu2024mamba`"),
        ("the default `alpha`", "the default ``alpha``"),
        (r"a \ b", r"a \\ b"),
        ("see thm-gap, ``thm-gap``", "see :prf:ref:`thm-gap`, ``thm-gap``"),
        ("a * b\n\n>>> f(*a) | b\n... # `x`\n\na | b", "a \\* b\n\n>>> f(*a) | b\n... # `x`\n\na \\| b"),
    ],
)
def test_a_plain_docstring_becomes_rest(plain, wanted):
    assert rest(plain) == wanted


def test_sections_become_definitions_and_an_example_ends_them():
    assert (
        typeset("Raises\n------\nE\n    If.\n\n>>> f\n    1")
        == ":Raises:\n\n    E\n        If.\n\n\n>>> f\n    1"
    )
    assert typeset("Returns\n-------\nx : E\n    It.\n") == ":Returns:\n\n    **x** : E\n        It.\n\n"
    assert typeset("Examples\n--------\n>>> f") == ".. rubric:: Examples\n\n>>> f"


def docstrings(root):
    """(where, text) of every docstring of the library, public or not."""
    for path in sorted(path for path in root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield f"{path.name}: {getattr(node, 'name', 'module')}", ast.get_docstring(node) or ""


def leads(text, works, labels):
    """What a docstring refers to without its being there."""
    found = [key for key in re.findall(r"\b[a-z]+(?:19|20)[0-9]{2}[a-z]+\b", text) if key not in works]
    found += [key for key in re.findall(r"(?<!`)\b[a-z]+(?:19|20)[0-9]{2}[a-z]+\b(?!`)", text)]
    found += re.findall(r"\{cite\}`[^`]+`", text)  # the form of the pages; a docstring has the key alone
    return found + [label for label in _LABEL.findall(text) if label not in labels]


def test_references_lead_somewhere():
    works = set(re.findall(r"@\w+\{([^,]+),", (ROOT / "chapters/references.bib").read_text(encoding="utf-8")))
    labels = {claim.label for claim in collect(ROOT)[0]}
    assert min(map(len, (works, labels))) > 20
    for where, text in [*docstrings(ROOT / "ssmbook"), *docstrings(ROOT / "headsandstates")]:
        assert not leads(text, works, labels), where
    lost = "Source: thm-none, `none2020nothing`. After zhou1996robust and {cite}`zhou1996robust`."
    assert set(leads(lost, {"zhou1996robust"}, {"thm-gap"})) == {
        *("none2020nothing", "zhou1996robust", "thm-none", "{cite}`zhou1996robust`")
    }


ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| \{py:obj\}`([^`]+) <(ssmbook[\w.]+)>` \|$", re.MULTILINE)
CALLS = ROW.findall((ROOT / "chapters/appendix/api.md").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def at_hand():
    """What the page's first table speaks of, small."""

    class TestMine(ssmbook.testing.MapContract):
        def make(self, **new):
            return ssmbook.maps.SSD(3, 3, H=1, head_width=2, N=2, **new)

    turn, generator = [[0, -1], [1, 0]], torch.Generator().manual_seed(0)
    system = ssmbook.System(0.9 * torch.tensor(turn).double(), *torch.eye(2).double().expand(2, 2, 2))
    layer = ssmbook.maps.SSD(2, 2, H=2, head_width=2, N=3, generator=generator, dtype=torch.float64).eval()
    x = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    names = {name: getattr(ssmbook, name) for name in SUBPACKAGES} | {"TestMine": TestMine}
    names |= {"system": system, "n": 8, "H": 1, "M": system.lags(8), "A": turn, "B": turn, "C": turn}
    names |= {"layer": layer, "F": layer, "model": layer, "x": x, "inputs": x[None]}
    return names | {"W": layer.interaction(x), "a": x.sigmoid(), "b": x}


@pytest.mark.parametrize(("have", "want", "call", "entry"), CALLS, ids=[row[2] for row in CALLS])
def test_what_the_table_says_can_be_called(at_hand, have, want, call, entry):
    eval(call, dict(at_hand))
    folder, *path = entry.split(".")[1:]
    value = import_module(f"ssmbook.{folder}")
    assert path[0] in public_names(value)
    for name in path:
        value = getattr(value, name)
    assert path[-1] in call.partition("(")[0].split(".")


def test_the_overview_has_a_sentence_for_every_public_name_and_leads_to_its_entry():
    if not PAGE.is_file():
        pytest.skip("The book is not built: run `make book` first.")
    entries = {
        f"{path.name}#{node['id']}"
        for path in APPENDIX.glob("api-*.html")
        for node in soup(path).select("dl.py > dt[id]")
    }
    sentences = {}
    for line in soup(PAGE).select("table.autosummary tr"):
        link, words = line.find("a"), line.find_all("td")[-1].get_text(strip=True)
        assert link["href"] in entries
        sentences[link["href"].partition("#")[2]] = words
    assert sentences.keys() == everything().keys()
    assert min(map(len, sentences.values())) > 5
    links = {link["href"] for link in soup(PAGE).select("table:not(.autosummary) td a")} & entries
    assert {entry for *_, entry in CALLS} == {link.partition("#")[2] for link in links}


def test_names_in_cells_lead_to_their_entries():
    """A function of a folder, a class by its name alone, a class method; each once in a cell."""
    page = APPENDIX.parent / "1-one-operator/zoo.html"
    if not page.is_file():
        pytest.skip("The book is not built: run `make book` first.")
    for cell in soup(page).select("div.cell_input pre"):
        links = [link["href"] for link in cell.select("a.code-link")]
        assert len(links) == len(set(links))
    found = {
        (link.get_text(), link["href"].rpartition("/")[2])
        for page in (APPENDIX.parent / "1-one-operator").glob("*.html")
        for link in soup(page).select("a.code-link")
    }
    for text, name in (
        ("maps.DeltaNet", "maps.DeltaNet"),
        ("FactorizedOperator", "operators.FactorizedOperator"),
    ):
        assert (text, f"api-{name.partition('.')[0]}.html#ssmbook.{name}") in found
