"""The course: students get the book without what gives solutions away, and exercises with a grade."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from headsandstates.site.built import pages, soup
from headsandstates.site.course import LECTURES, for_students
from headsandstates.site.edition import notebook

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "chapters/1-one-operator/two-ways-to-mix"


@pytest.fixture(scope="module")
def students(built, tmp_path_factory):
    target = tmp_path_factory.mktemp("course") / "site"
    for_students(built, target)
    return target


def test_students_get_no_solution_no_answer_and_no_note(built, students):
    given_away = ".solution, section .answer, aside.notes"
    assert sum(len(soup(path).select(given_away)) for path in pages(built)) > 300
    for path in pages(students):
        assert not soup(path).select(given_away), path.name
    assert not [*students.glob("slides/*-solutions.html"), *students.glob(f"{LECTURES}.html")]
    assert not any("Rubric" in path.read_text(encoding="utf-8") for path in pages(students))


def test_no_link_of_the_students_leads_to_what_is_gone(students):
    for path in pages(students):
        for link in soup(path).select("a[href]"):
            address = urlsplit(link["href"])
            assert not address.fragment.startswith("solution-"), path.name
            if address.path and not address.scheme and not address.netloc:
                assert (path.parent / unquote(address.path)).exists(), f"{path.name}: {link['href']}"


def test_a_master_has_each_grader_as_a_test_that_tells_right_from_wrong(built):
    cells = notebook(ROOT, CHAPTER, "graded").cells
    raw = [cell.source.partition("\n")[0] for cell in cells if cell.cell_type == "raw"]
    count = raw.count("# BEGIN QUESTION")
    assert raw[0] == "# ASSIGNMENT CONFIG" and count == 3
    for begin in ("QUESTION", "SOLUTION", "TESTS"):
        assert raw.count(f"# BEGIN {begin}") == raw.count(f"# END {begin}") == count
    space = {}
    for cell in cells:
        imports = re.search(r"^(import|from) ", cell.source, re.M) and "!pip" not in cell.source
        if cell.cell_type == "code" and (imports or "BEGIN SOLUTION" in cell.source):
            exec(cell.source, space)
        elif cell.source.startswith("def test_answer"):
            exec(cell.source, space)  # ends with a call on the right answer
            with pytest.raises(AssertionError):
                space["test_answer"](lambda *given: 0)
