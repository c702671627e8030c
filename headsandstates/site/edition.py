"""The notebook edition: the built book as plain notebooks, which read well where MyST is not known.

    python -m headsandstates.site.edition                    # of the built book, into _build/edition
    python -m headsandstates.site.edition --solutions run    # into _build/edition-that-solves

``course`` makes two more kinds: without solutions, and masters for ``otter assign``, in which each exercise
is a question and its stars are the points; those without a grader are for somebody to read.

A reader's notebook holds the solutions as folded text: whoever runs all of it sees only own answers graded.

Text comes from the built page, so numbers, references and citations are those of the book; code and outputs
come from the committed notebook. The pages' download buttons then hand out the plain notebooks too.
"""

import argparse
import ast
import shutil
from base64 import b64decode
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import urlsplit

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell
from sphinx_external_toc.parsing import parse_toc_yaml

from headsandstates.site.built import HTML, TEMPLATES, soup
from headsandstates.site.install_cell import TAG, install_source, repository
from headsandstates.site.notebooks import read
from headsandstates.site.page import page_file
from headsandstates.site.plain_markdown import markdown, title
from headsandstates.site.release import tag
from headsandstates.site.root import book_root
from headsandstates.site.site import EDITION_BRANCH, pages_address
from headsandstates.site.stable_form import KERNEL, LANGUAGE
from ssmbook.display.images import page_size

TARGET, GRADED = "_build/edition", "check("
RUBRIC = (
    "One star: half a point for the right result, half for a reason. Three stars: a point for a claim that "
    "could fail, one for its proof or measurement, one for where it stops being true."
)
TARGETS = {"text": TARGET, "run": "_build/edition-that-solves"}
"""Where the notebooks go whose solutions are text, or cells that run (to test them)."""
# What a tag of the book means to a viewer or a test; the others are for the book's build alone.
KEPT_TAGS = ("raises-exception", "nbval-ignore-output", "nbval-skip")
INSTALL_TITLE = "#@title Install the book's library (once)\n"
FOLDED = {"cellView": "form", "jupyter": {"source_hidden": True}}
FOLDED_TAGS = {"hide-input", "hide-cell", "remove-input"}
FOLDED_WHOLE = {"cellView": "form", "jupyter": {"source_hidden": True, "outputs_hidden": True}}


@dataclass
class Chapter:
    """One chapter on its way from page and notebook to a plain notebook."""

    docname: str
    address: str  # of the published page
    install: str  # source of the install cell
    code: list  # the notebook's code cells that are still to come
    solutions: str = "text"  # folded text; "run", cells; "no", left out; "graded", for Otter
    cells: list = field(default_factory=list)
    waiting: list = field(default_factory=list)  # elements that will make the next Markdown cell

    def flush(self):
        if self.waiting:
            self.cells.append(new_markdown_cell(markdown(self.waiting, self.address)))
            self.waiting = []

    def say(self, text):
        self.flush()
        self.cells.append(new_markdown_cell(text))


def notebook(root, docname, solutions="text"):
    """The plain notebook of one page of the book at ``root``, with its solutions as ``Chapter`` has it.

    Raises ValueError where page and notebook do not belong together: the book must be built anew then.
    """
    address = f"{pages_address(repository(root)[0])}{docname}.html"
    source = read(page_file(root, docname))
    code = [c for c in source.cells if c.cell_type == "code" and TAG not in c.metadata.get("tags", [])]
    chapter = Chapter(docname, address, INSTALL_TITLE + install_source(root, source), code, solutions)
    article = soup(root / HTML / f"{docname}.html").select_one("article")
    write(chapter, article)
    chapter.flush()
    if solutions == "graded":
        chapter.cells.insert(0, new_raw_cell(assignment(root, docname)))
    if chapter.code:
        raise ValueError(f"{docname}: the page lacks a cell of the notebook: {chapter.code[0].source[:80]!r}")
    for number, cell in enumerate(chapter.cells):
        cell.id = f"cell-{number}"
    metadata = {"kernelspec": KERNEL, "language_info": LANGUAGE, "colab": {"toc_visible": True}}
    plain = nbformat.v4.new_notebook(cells=chapter.cells, metadata=metadata)
    nbformat.validate(plain)
    return plain


def assignment(root, docname):
    """What ``otter assign`` is told about a notebook: what its grading installs, and nothing else unusual."""
    config = {
        "name": docname.rpartition("/")[2],
        "init_cell": True,
        "export_cell": False,
        "tests": {"ok_format": False},
        "requirements": [f"ssmbook[book] @ git+{repository(root)[0]}@{tag()}"],
    }
    return "# ASSIGNMENT CONFIG\n" + yaml.safe_dump(config, sort_keys=False)


def write(chapter, element):
    """Add what ``element`` holds to the chapter, from top to bottom."""
    for child in element.find_all(recursive=False):
        classes = child.get("class", [])
        if child.name == "h1" or "chapter-head" in classes:
            opening(chapter, child if child.name == "h1" else child.find("h1"))
        elif "cell" in classes:
            code_cell(chapter, child)
        elif "solution" in classes:
            solution(chapter, child)
        elif "exercise" in classes:
            if chapter.solutions == "graded":
                begin_question(chapter, child)
            chapter.waiting.append(child)
            answer_cell(chapter, child)
        elif child.name == "section" or child.select("div.cell, div.exercise"):
            write(chapter, child)
        else:
            if child.name in ("h2", "h3"):
                chapter.flush()
            chapter.waiting.append(child)


def opening(chapter, heading):
    site = chapter.address.removesuffix(f"{chapter.docname}.html")
    back = f"*A notebook of [Heads and States]({site}). [Read this chapter on its page]({chapter.address}).*"
    chapter.say(f"{markdown([heading], chapter.address)}\n\n{back}")
    chapter.cells.append(new_code_cell(chapter.install, metadata=FOLDED, execution_count=None))


def code_cell(chapter, element, fold=None, heading=None):
    """Add the next code cell, which is the one that ``element`` of the page shows, and its caption."""
    chapter.flush()
    cell = next_code(chapter, element)
    for output in cell.outputs:
        if "image/png" in output.get("data", {}):
            output.metadata["image/png"] = page_size(b64decode(output.data["image/png"]))
    caption = element.select_one("figcaption")
    folded = fold or (FOLDED if FOLDED_TAGS & set(cell.metadata.get("tags", [])) else {})
    if folded:
        cell.source = f"#@title {heading or folded_title(element)}\n{cell.source}"
    tags = [tag for tag in cell.metadata.get("tags", []) if tag in KEPT_TAGS]
    cell.metadata = nbformat.from_dict({**folded, **({"tags": tags} if tags else {})})
    chapter.cells.append(cell)
    if caption is not None:
        number = caption.find(class_="caption-number").get_text().strip()
        words = markdown([caption.find(class_="caption-text")], chapter.address)
        chapter.say(f"**{number}.** {words}")


def next_code(chapter, element):
    shown = element.select_one("div.cell_input pre")
    if not chapter.code or (shown and shown.get_text().strip() != chapter.code[0].source.strip()):
        raise ValueError(f"{chapter.docname}: page and notebook differ at the cell {str(shown)[:200]!r}")
    return chapter.code.pop(0)


def folded_title(element):
    number = element.select_one("figcaption .caption-number")
    prompt = element.select_one("details.hide > summary > .collapsed")
    if prompt is not None and prompt.get_text().strip() != "Code":
        return prompt.get_text().strip()
    return f"Code of {number.get_text().strip()}" if number else "Code that prepares what follows"


def answer_cell(chapter, exercise):
    """An empty cell below the exercise: text for what is solved by hand (one star), code for the others."""
    name, words = title(exercise)
    chapter.flush()
    if chapter.solutions == "graded":
        return  # comes with the solution
    if words.startswith("★ "):
        chapter.say(f"*Your answer to {name}:*")
    else:
        chapter.cells.append(new_code_cell(f"# Your answer to {name}\n", execution_count=None))


def solution(chapter, element):
    """The solution's texts and cells, all folded."""
    chapter.flush()
    name = " ".join(element.find("p", class_="admonition-title").get_text().split()).partition(" (")[0]
    parts = element.find("section", recursive=False).find_all(recursive=False)
    words, taken = [], []
    if chapter.solutions == "graded":
        taken = [next_code(chapter, part) for part in parts if "cell" in part.get("class", [])]
        code = "\n\n".join(cell.source for cell in taken)
        if GRADED in code:
            return end_question(chapter, code)
    for is_code, members in groupby(parts, key=lambda part: "cell" in part.get("class", [])):
        if not is_code:
            words.append(markdown(members, chapter.address))
        for part in members if is_code else ():
            if chapter.solutions == "run":
                tell(chapter, name, words)
                words = []
                code_cell(chapter, part, FOLDED_WHOLE, name)
            else:
                words.append(quoted(taken.pop(0) if taken else next_code(chapter, part)))
    if chapter.solutions == "graded":
        return end_written(chapter, words)
    if chapter.solutions != "no":
        tell(chapter, name, words)


def begin_question(chapter, exercise):
    """What Otter wants in front of a question: its name in letters and digits, its points, and who grades."""
    chapter.flush()
    stars = title(exercise)[1].count("★")
    name = exercise["id"].removeprefix("ex-").replace("-", "_")
    read = "" if GRADED in exercise.get_text() else "\nmanual: true"
    chapter.cells.append(new_raw_cell(f"# BEGIN QUESTION\nname: {name}\npoints: {stars}{read}"))


def end_question(chapter, code):
    """The solution, of which students see ``answer_… = ...``, and the book's grader as its test."""
    tree = ast.parse(code)
    for node in tree.body:
        call = getattr(node, "value", None)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "check":
            grader, value = call.args[0].value, ast.unparse(call.args[1])
    lines = [
        line
        for node in tree.body
        if "check(" not in ast.unparse(node)
        for line in [ast.get_source_segment(code, node), ""]
    ]
    answer = "answer_" + grader.replace("/", "_").replace("-", "_")
    hidden = ["# BEGIN SOLUTION NO PROMPT", *lines, "# END SOLUTION"]
    told = f"# {answer} is what you would give to check({grader!r}, …)."
    test = [
        f"def test_answer({answer}):",
        "    from headsandstates.exercises import check",
        "",
        f"    verdict = check({grader!r}, {answer})",
        "    assert verdict, repr(verdict)",
        "",
        "",
        f"test_answer({answer})  # IGNORE",
    ]
    for cell in (
        new_raw_cell("# BEGIN SOLUTION"),
        new_code_cell("\n".join([*hidden, told, f"{answer} = {value}  # SOLUTION"])),
        new_raw_cell("# END SOLUTION"),
        new_raw_cell("# BEGIN TESTS"),
        new_code_cell("\n".join(test)),
        new_raw_cell("# END TESTS"),
        new_raw_cell("# END QUESTION"),
    ):
        chapter.cells.append(cell)


def end_written(chapter, words):
    """The book's solution of a question that somebody reads, and what its points are for."""
    raw = [new_raw_cell(f"# {mark}") for mark in ("BEGIN SOLUTION", "END SOLUTION", "END QUESTION")]
    said = "\n\n".join([*words, f"**Points.** {RUBRIC}"])
    chapter.cells += [raw[0], new_markdown_cell(said), *raw[1:]]


def tell(chapter, name, words):
    if words:
        inside = "\n\n".join(words)
        chapter.say(f"<details>\n<summary>{name}</summary>\n\n{inside}\n\n</details>")


def quoted(cell):
    """The code and what it prints, as text; the grader's verdict is left to the reader's own answer."""
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    return f"```python\n{cell.source}\n```" + (f"\n\n```text\n{printed.rstrip()}\n```" if printed else "")


def overview(root, docnames):
    """The README of the branch that holds the edition: every chapter with its page and its Colab button."""
    url, _ = repository(root)
    site, path = pages_address(url), urlsplit(url).path
    colab = f"https://colab.research.google.com/github{path}/blob/{EDITION_BRANCH}/"
    titles = {name: soup(root / HTML / f"{name}.html").select_one("article h1") for name in docnames}
    chapters = [
        (name, markdown([title], site).lstrip("# "), f"{colab}{name}.ipynb") for name, title in titles.items()
    ]
    return TEMPLATES.get_template("edition.md").render(site=site, url=url, chapters=chapters)


def with_notebook(root):
    """The pages of the book that are notebooks, in the book's order."""
    pages = map(str, parse_toc_yaml(root / "_toc.yml"))
    return [page for page in pages if (root / f"{page}.ipynb").is_file()]


def write_all(root, target, docnames, solutions):
    """Write the plain notebooks of these pages into the folder ``target``."""
    for docname in docnames:
        path = target / f"{docname}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(notebook(root, docname, solutions)) + "\n", encoding="utf-8")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m headsandstates.site.edition", description=__doc__)
    parser.add_argument("--solutions", choices=TARGETS, default="text", help="text or run")
    options = parser.parse_args(arguments)
    root = book_root()
    target = root / TARGETS[options.solutions]
    shutil.rmtree(target, ignore_errors=True)
    docnames = with_notebook(root)
    write_all(root, target, docnames, options.solutions)
    if options.solutions == "text":
        for docname in docnames:
            shutil.copyfile(target / f"{docname}.ipynb", root / HTML / "_sources" / f"{docname}.ipynb")
    (target / "README.md").write_text(overview(root, docnames), encoding="utf-8")
    print(f"{len(docnames)} plain notebooks in {target.relative_to(root)}")


if __name__ == "__main__":
    main()
