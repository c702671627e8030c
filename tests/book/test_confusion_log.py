"""The page of questions: each has an answer, an experiment that can fail, and a way to the proof."""

import re
from pathlib import Path

import pytest

from headsandstates.site.page import read_page

PAGE = read_page(Path(__file__).resolve().parents[2], "chapters/appendix/confusion-log")
LINK = re.compile(r"\]\(\.\./[^)]+\.ipynb#[^)]+\)|\{doc\}`|\{prf:ref\}`")


def entries():
    """[question, prose, code cells] of every third-level heading."""
    found, current = [], None
    for cell in PAGE.cells:
        if cell.kind == "code" and current:
            current[2].append(cell.text)
        for line in cell.text.splitlines() if cell.kind == "markdown" else ():
            if line.startswith("### "):
                current = [line[4:], "", []]
                found.append(current)
            elif line.startswith("## "):
                current = None  # a group of questions
            elif current:
                current[1] += line + "\n"
    return found


ENTRIES = entries()


@pytest.mark.parametrize(("question", "prose", "code"), ENTRIES, ids=[entry[0][:40] for entry in ENTRIES])
def test_a_question_has_an_answer_an_experiment_and_a_link(question, prose, code):
    answer, experiment, _ = prose.partition("*Experiment.*")
    assert answer.strip() and experiment and LINK.search(prose), question
    assert any(re.search(r"\bassert\b|\bclose\(|assert_close", cell) for cell in code), question
