"""The course as two folders, made of the built book: one to give to students, one that instructors keep.

    python -m headsandstates.site.course      # into _build/course

``students`` has the site and its notebooks without solutions, and decks without answers and notes.
``instructors`` has the site, the notebooks with folded solutions, for each chapter with exercises a master
notebook (``otter assign`` makes a student's notebook and an autograder; exercises without a grader come with
the book's solution and what their points are for), the decks' questions with choices as quizzes, and three
variants of the exam with their keys. In both, ``decks`` has each deck as one file that opens alone.
"""

import shutil
from pathlib import Path
from secrets import randbelow
from urllib.parse import urlsplit

from bs4 import BeautifulSoup

from headsandstates.site.built import HTML, pages
from headsandstates.site.edition import with_notebook, write_all
from headsandstates.site.exams import write as write_exams
from headsandstates.site.install_cell import repository
from headsandstates.site.lectures import FOLDER, SOURCES
from headsandstates.site.portable import portable
from headsandstates.site.questions import write as write_quizzes
from headsandstates.site.root import book_root
from headsandstates.site.site import pages_address
from headsandstates.site.solutions import collect

TARGET = Path("_build/course")
LECTURES = "chapters/appendix/lectures"
"""The page for those who teach: it has an exam with its rubric."""
KEPT_BACK = ".solution, .of-solutions, section .answer, aside.notes, .length"


def for_students(html, target):
    """Copy the site ``html`` to ``target`` without what gives solutions away, and without links to it."""
    shutil.copytree(html, target)
    gone = [*target.glob("slides/*-solutions.html"), target / f"{LECTURES}.html"]
    for path in [*gone, *target.glob(f"_sources/{LECTURES}.*")]:
        path.unlink()
    for path in pages(target):
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for node in page.select(KEPT_BACK):
            node.decompose()
        for link in page.select("a[href]"):
            address = urlsplit(link["href"])
            leads = (path.parent / address.path).resolve() if address.path and not address.scheme else None
            if leads in gone or address.fragment.startswith("solution-"):
                (link.find_parent("li", class_="toctree-l1") or link).decompose()
        path.write_text(str(page), encoding="utf-8")


def decks(root, site, target):
    """Write each deck of the folder ``site`` as one file."""
    target.mkdir(parents=True)
    address = f"{pages_address(repository(root)[0])}{FOLDER}/"
    for source in (root / SOURCES).glob("*.md"):
        name = f"{source.stem}.html"
        (target / name).write_text(portable(site / FOLDER / name, address + name), encoding="utf-8")


def main():
    root = book_root()
    target = root / TARGET
    shutil.rmtree(target, ignore_errors=True)
    students, instructors = target / "students", target / "instructors"
    for_students(root / HTML, students / "site")
    shutil.copytree(root / HTML, instructors / "site")
    names = with_notebook(root)
    write_all(root, students / "notebooks", names, "no")
    for name in names:
        shutil.copyfile(students / f"notebooks/{name}.ipynb", students / f"site/_sources/{name}.ipynb")
    write_all(root, instructors / "notebooks", names, "text")
    asking = {exercise.docname for exercise in collect(root)[0]}
    write_all(root, instructors / "masters", [name for name in names if name in asking], "graded")
    for whose in (students, instructors):
        decks(root, whose / "site", whose / "decks")
    write_quizzes(root, instructors / "quizzes")
    write_exams((randbelow(10**6) for _ in range(3)), instructors / "exams")
    print(f"The course is in {target}: students, instructors")


if __name__ == "__main__":
    main()
