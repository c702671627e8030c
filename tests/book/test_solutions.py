"""The index of exercises and solutions: what it reads, what it refuses, and what stands in the built page."""

import json
from collections import Counter
from pathlib import Path

import pytest

from headsandstates.site.built import HTML, soup
from headsandstates.site.lists import written
from headsandstates.site.solutions import SOLUTION, collect, graders

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / HTML / "chapters/appendix/solutions.html"
EXERCISE = '```{exercise} ★★ Sum | it\n:label: ex-sum\n\nTest it with `check("a/sum", total)`.\n```\n'
START = "```{solution-start} ex-sum\n:class: dropdown\n```\n"
END = "```{solution-end}\n```\n"
GRADER = '@grader("a/sum")\ndef grade_sum(answer):\n    pass\n'


def cell(kind, source):
    return {"cell_type": kind, "source": source, "metadata": {}}


def notebook(exercise=EXERCISE, start=START, code='check("a/sum", total)', end=END):
    return [cell("markdown", exercise + start), cell("code", code), cell("markdown", end)]


@pytest.fixture
def write(tmp_path):
    (tmp_path / "chapters").mkdir()
    (tmp_path / "headsandstates/chapters/a").mkdir(parents=True)

    def write(cells, grader=GRADER):
        (tmp_path / "chapters/a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
        (tmp_path / "headsandstates/chapters/a/graders.py").write_text(grader, encoding="utf-8")
        return tmp_path

    return write


def test_an_exercise_with_its_solution_and_grader(write):
    root = write(notebook())
    [exercise], problems = collect(root)
    assert not problems and graders(root) == {"a/sum"}
    assert (exercise.stars, exercise.title, exercise.label) == (2, "Sum | it", "ex-sum")
    assert (exercise.solutions, exercise.grader, exercise.graded) == (1, "a/sum", "a/sum")
    line = written("solutions.md", "chapters/appendix/solutions", exercises=[exercise])[-1]
    assert line.startswith("| ★★ | {numref}`ex-sum` Sum \\| it<br>``a/sum`` | ")
    assert f'href="../../chapters/a.html#{SOLUTION}ex-sum"' in line


@pytest.mark.parametrize(
    ("cells", "grader", "problem"),
    [
        (notebook(EXERCISE.replace("★★ ", "")), GRADER, "needs one to three stars"),
        (notebook(EXERCISE.replace(":label: ex-sum\n", "")), GRADER, "needs a :label: of its own"),
        (notebook() + [cell("markdown", START + END)], GRADER, "has 2 solutions, not one"),
        (notebook(start=START.replace("ex-sum", "ex-none")), GRADER, "'ex-none', which is no exercise"),
        (notebook(EXERCISE.replace("check", "ask"), code="1"), GRADER, "has two stars and names no grader"),
        (notebook(code="total(3)"), GRADER, "its solution runs ''"),
        (notebook(), "", "names 'a/sum', which is no grader"),
        (notebook(), GRADER + GRADER.replace("/sum", "/mean"), "'a/mean' belongs to no exercise"),
    ],
)
def test_what_is_wrong_is_said(write, cells, grader, problem):
    _, problems = collect(write(cells, grader))
    assert any(problem in sentence for sentence in problems), problems


def test_every_exercise_of_the_book_is_in_order():
    exercises, problems = collect(ROOT)
    assert not problems
    assert exercises and {exercise.stars for exercise in exercises} == {1, 2, 3}


def address(link):
    """Where a link of the page leads, from the root of the book."""
    path, _, anchor = link.partition("#")
    return f"{(PAGE.parent / path).resolve().relative_to((ROOT / HTML).resolve()).as_posix()}#{anchor}"


def test_the_page_lists_every_exercise_once_and_its_links_lead_to_it():
    if not PAGE.is_file():
        pytest.skip("The book is not built: run `make book` first.")
    found = Counter(address(link["href"]) for link in soup(PAGE).select(".solutions-index td a"))
    exercises, _ = collect(ROOT)
    wanted = {f"{e.docname}.html#{prefix}{e.label}" for e in exercises for prefix in ("", SOLUTION)}
    assert found == dict.fromkeys(wanted, 1)
