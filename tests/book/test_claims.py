"""The verification index: what it reads, and what it refuses."""

import json
from pathlib import Path

import pytest

from headsandstates.site.claims import PROVED_KINDS, SENTENCES, collect, guards
from headsandstates.site.lists import written

THEOREM = ":::{prf:theorem} Gap, $|A| = 1$\n:label: thm-gap\n:class: paper\n\nText.\n:::\n"
PROOF = ":::{prf:proof}\nDone.\n:::\n"


def code_cell(source, *tags):
    return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}}


def markdown_cell(source):
    return {"cell_type": "markdown", "source": [line + "\n" for line in source.splitlines()], "metadata": {}}


@pytest.fixture
def write(tmp_path):
    (tmp_path / "chapters/1-part").mkdir(parents=True)
    (tmp_path / "tests").mkdir()

    def write(*cells, test=""):
        (tmp_path / "chapters/1-part/a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
        (tmp_path / "tests/test_a.py").write_text(test, encoding="utf-8")
        return tmp_path

    return write


def test_a_checked_and_guarded_theorem(write):
    test = "import pytest\n\n\n@pytest.mark.guards('thm-gap')\ndef test_gap():\n    pass\n"
    checks = code_cell("import torch\n# why\nassert rank(A) == 2\n", "checks-thm-gap")
    root = write(markdown_cell(THEOREM + "\n" + PROOF), code_cell("x = 1"), checks, test=test)
    [claim], problems = collect(root)
    assert not problems
    found = claim.kind, claim.label, claim.title, claim.origin
    assert found == ("theorem", "thm-gap", "Gap, $|A| = 1$", "paper")
    assert claim.proved and claim.guards == ["tests/test_a.py::test_gap"]
    assert [(c.number, c.line) for c in claim.checks] == [(2, "assert rank(A) == 2")]
    line = written("verification.md", "chapters/appendix/verification", claims=[claim])[-1]
    for part in (r"$\|A\| = 1$", "../../chapters/1-part/a.html#checks-thm-gap", "| yes |"):
        assert part in line


@pytest.mark.parametrize(
    ("cells", "test", "problem"),
    [
        ([markdown_cell(THEOREM)], "", "theorem thm-gap has no code cell tagged checks-thm-gap"),
        ([markdown_cell(THEOREM.replace(":class: paper\n", ""))], "", "exactly one :class:"),
        ([markdown_cell(THEOREM.replace("paper", "paper ours"))], "", "exactly one :class:"),
        ([markdown_cell(THEOREM.replace(":label: thm-gap\n", ""))], "", "has no :label:"),
        ([markdown_cell(THEOREM + THEOREM)], "", "the label thm-gap is used twice"),
        ([code_cell("x", "checks-thm-none")], "", "the cell tag checks-thm-none names no statement"),
        ([], "pytestmark = [pytest.mark.guards('thm-none')]", "tests/test_a.py guards thm-none"),
    ],
)
def test_what_is_wrong_is_said(write, cells, test, problem):
    _, problems = collect(write(*cells, test=test))
    assert any(problem in sentence for sentence in problems), problems


def test_a_statement_says_where_it_stands_and_what_it_means(write):
    root = write(markdown_cell(THEOREM + "\n" + PROOF), code_cell("assert x", "checks-thm-gap"))
    (root / SENTENCES).write_text("thm-gap: Two | three.\nthm-none: Nothing.\n", encoding="utf-8")
    [claim], problems = collect(root)
    assert problems == [f"{SENTENCES}: thm-none names no statement."]
    assert (claim.plain, claim.depth) == ("Two | three.", "core")
    line = written("verification.md", "chapters/appendix/verification", claims=[claim])[-1]
    assert r"<br>Two \| three." in line and "| paper<br>core |" in line


def test_every_statement_of_the_book_has_one_plain_sentence():
    claims, problems = collect(Path(__file__).resolve().parents[2])
    assert not problems
    bare = [claim.label for claim in claims if claim.kind in PROVED_KINDS and not claim.plain]
    assert not bare, f"{SENTENCES} has no sentence for {bare}"
    for claim in claims:
        sentence = claim.plain
        assert not sentence or (sentence[0].isupper() and sentence.endswith(".") and len(sentence) <= 160), (
            sentence
        )
        assert "$" not in sentence and ". " not in sentence, sentence


def test_a_proof_may_name_its_statement(write):
    lemma = ":::{prf:lemma}\n:label: lem-a\n:class: ours\n:::\n"
    named = ":::{prf:proof}\n:class: proof-of-thm-gap\nLater.\n:::\n"
    claims, _ = collect(write(markdown_cell(THEOREM + lemma), markdown_cell(named)))
    assert [(claim.label, claim.proved) for claim in claims] == [("thm-gap", True), ("lem-a", False)]


def test_guards_of_functions_and_modules(write):
    test = (
        "pytestmark = [pytest.mark.guards('m'), pytest.mark.slow]\n"
        "@pytest.mark.parametrize('x', [1])\n@pytest.mark.guards('c', 'd')\ndef test_c(x): pass\n"
        "@pytest.mark.parametrize('x', [1])\ndef test_free(x): pass\n"
    )
    here = "tests/test_a.py"
    assert set(guards(write(test=test))) == {
        ("m", here),
        ("c", f"{here}::test_c"),
        ("d", f"{here}::test_c"),
    }


def test_every_statement_of_ours_names_the_nearest_earlier_result():
    claims, _ = collect(Path(__file__).resolve().parents[2])
    for claim in claims:
        assert claim.origin != "ours" or (claim.prior and claim.new), f"{SENTENCES}: {claim.label}"
    ours = [claim for claim in claims if claim.origin == "ours"]
    lines = written("novelty.md", "chapters/appendix/novelty", claims=ours)
    rows = [line for line in lines if "{prf:ref}" in line]
    assert len(rows) == len(ours) > 40
    assert all(claim.new.replace("|", r"\|") in row for claim, row in zip(ours, rows, strict=True))
