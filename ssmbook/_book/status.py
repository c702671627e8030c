"""The status of every chapter: what it holds, and, on the published site, when it was last run and how.

The directive ``{chapter-status}`` lists the chapters. The publishing workflow alone knows of a run; it says

    python -m ssmbook._book.status _build/notebooks.xml    # the report of `make test`

which writes day, PyTorch and seconds into the built pages: into each footer and into the list.
"""

import sys
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

from ssmbook._book import lists
from ssmbook._book.built import HTML
from ssmbook._book.edition import with_notebook
from ssmbook._book.notebooks import read
from ssmbook._book.root import book_root

MARK = "<!-- freshness -->"  # stands in the footer of every page (_config.yml: extra_footer)
PAGE = "chapters/appendix/status"
HEADER = ("Chapter", "Code cells", "Figures", "Sliders", "Exercises", "Last run")
PLACE = '<span data-run="{}">with the tests</span>'


def contents(path):
    """(code cells, figures, sliders, exercises) of a notebook."""
    cells = read(path).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    plain = [str(o.get("data", {}).get("text/plain", "")) for cell in code for o in cell.outputs]
    sliders = sum(text.startswith("Slider ") for text in plain)
    figures = sum("figure" in cell.metadata.get("mystnb", {}) for cell in code) - sliders
    exercises = sum(cell.source.count("{exercise}") for cell in cells if cell.cell_type == "markdown")
    return len(code), figures, sliders, exercises


class ChapterStatus(lists.Index):
    """Every notebook of the book in a table, in the book's order."""

    def run(self):
        found = {page: self.root / f"{page}.ipynb" for page in with_notebook(self.root)}
        self.made_of(found.values())
        lines = [lists.row(HEADER), "| --- |" + " ---: |" * (len(HEADER) - 2) + " --- |"]
        for page, path in found.items():
            lines.append(lists.row((f"{{doc}}`/{page}`", *map(str, contents(path)), PLACE.format(page))))
        return self.shown(lines, "chapter-status")


def runs(report):
    """{docname: seconds} of every notebook that ran without a failure, and the day of the run.

    ``report`` is the XML that pytest writes in JUnit's form.
    """
    suite = ElementTree.parse(report).getroot().find("testsuite")
    seconds, failed = {}, set()
    for case in suite.iter("testcase"):
        name = case.get("classname").removesuffix(".ipynb").replace(".", "/")
        seconds[name] = seconds.get(name, 0.0) + float(case.get("time"))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
    day = datetime.fromisoformat(suite.get("timestamp")).date()
    return {name: spent for name, spent in seconds.items() if name not in failed}, day


def write(html, report, torch):
    """Write into the built pages which of them the report says ran, when, with what, and how long."""
    ran, day = runs(report)
    when = f"{day.day} {day:%B %Y} with PyTorch {torch}"
    listing = Path(html) / f"{PAGE}.html"
    status = listing.read_text(encoding="utf-8")
    for docname, seconds in ran.items():
        page = Path(html) / f"{docname}.html"
        if not page.is_file():
            continue
        words = f"run on {when} in {max(1, round(seconds))} s, every output as printed"
        text = page.read_text(encoding="utf-8")
        if MARK not in text:
            raise ValueError(f"{page} has no {MARK} in its footer, or was marked before: build the book anew")
        page.write_text(text.replace(MARK, f"<p>This page was {words}.</p>"), encoding="utf-8")
        status = status.replace(PLACE.format(docname), words)
    listing.write_text(status, encoding="utf-8")
    return len(ran)


def setup(app):
    app.add_directive("chapter-status", ChapterStatus)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    from importlib.metadata import version

    print(f"{write(book_root() / HTML, sys.argv[1], version('torch'))} pages say when they were run.")
