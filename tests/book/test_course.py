"""The course: students get the book without what gives solutions away, and exercises with a grade."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import nbformat
import pytest

from headsandstates.site.built import pages, soup
from headsandstates.site.course import LECTURES, decks, for_students
from headsandstates.site.edition import notebook
from headsandstates.site.exams import exam, numbers
from headsandstates.site.lectures import Lecture, LectureError, Slide, lectures
from headsandstates.site.questions import gift, questions, text2qti, write

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "chapters/1-one-operator/two-ways-to-mix"
QTI = "{http://www.imsglobal.org/xsd/ims_qtiasiv1p2}"


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
    index, folded = "chapters/appendix/solutions.html", "solution is folded"
    told = [folded in (site / index).read_text(encoding="utf-8") for site in (built, students)]
    assert told == [True, False]
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
    count = {what: raw.count(f"# BEGIN {what}") for what in ("QUESTION", "SOLUTION", "TESTS")}
    assert raw[0] == "# ASSIGNMENT CONFIG" and raw.count("# END QUESTION") == count["QUESTION"]
    assert count["SOLUTION"] == count["QUESTION"] == len(soup(built / f"{CHAPTER}.html").select(".exercise"))
    assert (
        count["TESTS"] == 3 and sum("**Points.**" in cell.source for cell in cells) == count["QUESTION"] - 3
    )
    space = {}
    for cell in cells:
        imports = re.search(r"^(import|from) ", cell.source, re.M) and "!pip" not in cell.source
        if cell.cell_type == "code" and (imports or "BEGIN SOLUTION" in cell.source):
            exec(cell.source, space)
        elif cell.source.startswith("def test_answer"):
            exec(cell.source, space)  # ends with a call on the right answer
            with pytest.raises(AssertionError):
                space["test_answer"](lambda *given: 0)


def test_otter_grades_a_right_a_wrong_and_an_empty_submission(built, tmp_path):
    pytest.importorskip("otter")
    name = "two-ways-to-mix.ipynb"
    master = notebook(ROOT, CHAPTER, "graded")
    nbformat.write(master, tmp_path / name)
    command = [sys.executable, "-m", "otter", "assign", name, "dist", "--no-run-tests"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    given = (tmp_path / "dist/student" / name).read_text(encoding="utf-8")
    assert "answer_two_ways_to_mix" in given and "SOLUTION" not in given
    (grader,) = tmp_path.glob("dist/autograder/*.zip")
    right = [
        re.sub(r"# (BEGIN|END) SOLUTION.*|  # SOLUTION", "", cell.source)
        for cell in master.cells
        if cell.cell_type == "code" and "# BEGIN SOLUTION" in cell.source
    ]
    for answers, score in ((right, 6), (["{} = lambda *given: 0"] * 3, 0), (["{} = ..."] * 3, 0)):
        submission, left = nbformat.read(tmp_path / "dist/student" / name, 4), iter(answers)
        for cell in submission.cells:
            if asked := re.search(r"^(answer_\w+) = \.\.\.", cell.source, re.M):
                cell.source = next(left).replace("{} =", f"{asked[1]} =")
        nbformat.write(submission, tmp_path / name)
        command = [sys.executable, "-m", "otter", "run", "-a", grader, name]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        tests = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["tests"]
        assert sum(float(test.get("score", 0)) for test in tests) == score


def test_a_quiz_has_every_question_with_choices_and_one_right_answer():
    for lecture in lectures(ROOT):
        asked = [
            slide.text for slide in lecture.slides if re.search(r" · .*\n:::\n\n:::\{answer\}", slide.text)
        ]
        found = questions(lecture)
        assert len(found) == len(asked) >= 5
        text = text2qti(lecture)
        assert re.findall(r"^(\d+)\. ", text, re.M) == [str(i + 1) for i in range(len(found))]
        for question, block in zip(found, re.split(r"^\d+\.", text, flags=re.M)[1:], strict=True):
            right = re.findall(r"^\*[a-h]\) (.*)$", block, re.M)
            assert right == [question.choices[question.right]] and block.count("\n... ") == 1
            assert len(re.findall(r"^\*?[a-h]\) ", block, re.M)) == len(question.choices)
            assert ":::" not in block and "$$" not in block and question.text.endswith("?")


def test_moodle_reads_back_what_was_asked():
    """An escaped sign is text to its reader; the others make one question with one right answer."""
    for lecture in lectures(ROOT):
        blocks = gift(lecture).split("\n\n")[1:]
        for question, block in zip(questions(lecture), blocks, strict=True):
            bare = re.sub(r"\\\\|\\[~=#{}:]", "", block)
            assert (bare.count("{"), bare.count("}"), bare.count("="), bare.count("####")) == (1, 1, 1, 1)
            assert bare.count("~") == len(question.choices) - 1 and bare.count("::") == 2


def test_an_answer_that_is_no_choice_fails():
    slide = Slide("T", text="# T\n\n:::{ask}\nHow many?\n\n1 · 2\n:::\n\n:::{answer}\n**3**.\n:::\n")
    with pytest.raises(LectureError, match="none of its choices"):
        questions(Lecture("one", "One", "All.", 1, [slide]))


def test_text2qti_makes_a_package_of_every_quiz(tmp_path):
    pytest.importorskip("text2qti")
    if not shutil.which("text2qti"):
        pytest.skip("its command is not on the path")
    write(ROOT, tmp_path)
    for lecture in lectures(ROOT):
        package = zipfile.ZipFile(tmp_path / f"{lecture.name}.zip")
        (name,) = (
            name for name in package.namelist() if "assessment" in name and "meta" not in name and "." in name
        )
        items = list(ElementTree.fromstring(package.read(name)).iter(f"{QTI}item"))
        assert len(items) == len(questions(lecture))
        for item, question in zip(items, questions(lecture), strict=True):
            choices = [choice.get("ident") for choice in item.iter(f"{QTI}response_label")]
            (right,) = item.iter(f"{QTI}varequal")
            assert len(choices) == len(question.choices) and choices.index(right.text) == question.right
            fields = [entry.text for entry in item.iter(f"{QTI}fieldentry")]
            assert fields[:2] == ["multiple_choice_question", "1"]  # and its points


def test_a_deck_as_one_file_fetches_nothing(built, tmp_path):
    decks(ROOT, built, tmp_path / "decks")
    for lecture in lectures(ROOT):
        page = soup(tmp_path / f"decks/{lecture.name}.html")
        assert page.select_one("script") and not page.select("script[src], link[rel=stylesheet]")
        assert all(image["src"].startswith("data:") for image in page.select("img"))
        assert all(re.match("#|https:", link["href"]) for link in page.select("a[href]"))
        assert not re.search(
            r"url\([^d#\"]|url\(\"[^d#]", "".join(style.string for style in page.select("style"))
        )
        assert "%%URL%%/MathJax" not in "".join(script.string for script in page.select("script"))


@pytest.mark.parametrize("seed", range(6))
def test_the_key_of_an_exam_is_what_a_pen_finds(seed):
    given, (asked, key) = numbers(seed), exam(seed)
    assert (given["states"], given["heads"], given["single_states"], given["single_heads"]) == (3, 2, 2, 1)
    assert given["softmax"] == (2 if max(given["twice"], given["once"]) > 0 else 3) and given["turned"] == 2
    squares = [int(value) ** 2 for value in given["values"].split(", ")]
    assert given["energy"] == sum(squares)
    assert (given["one_of"], given["two_of"]) == (sum(squares[1:]), sum(squares[2:]))
    left = eval(given["left"].replace(r"\cdot10^", "*10**").translate({ord("{"): "(", ord("}"): ")"}))
    assert abs(left / (given["percent"] / 100) ** given["steps"] - 1) < 0.06
    assert exam(seed) == [asked, key] != exam(seed + 1) and "@" not in asked + key
