"""The notebook edition: the book's text, numbers, code and outputs; nothing that a plain viewer shows raw.

Two of its notebooks are run by `make test`, all of them by the weekly workflow as Colab would, once more with
the solutions as cells.
"""

import copy
import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from nbclient import NotebookClient

from headsandstates.site.built import HTML, soup
from headsandstates.site.claims import KINDS as STATEMENTS
from headsandstates.site.edition import FOLDED, FOLDED_WHOLE, notebook, with_notebook
from headsandstates.site.install_cell import TAG, install_source, repository
from headsandstates.site.notebooks import all_notebooks, read
from headsandstates.site.page import page_file
from headsandstates.site.plain_markdown import title
from headsandstates.site.site import pages_address

ROOT = Path(__file__).resolve().parents[2]
PAGES = with_notebook(ROOT)
SITE = pages_address(repository(ROOT)[0])
# Of MyST: fences, options, roles, labels of equations and places; of Sphinx: delimiters of formulas.
STRAY = re.compile(
    r"^[ >]*(:{3}|~{3}|`{3}\{)|^[ >]*:[a-z-]+:|\{[a-z:]+\}`|\$\$ *\([\w-]+\)|^\([\w-]+\)=|\\\(|\\\)|\{#", re.M
)
FORMULA = re.compile(r"\$\$.*?\$\$|(?<!\\)\$.*?(?<!\\)\$", re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def edition(docname, solutions="text"):
    return notebook(ROOT, docname, solutions)


@pytest.fixture(params=PAGES)
def page(request, built):
    return request.param


def article(docname):
    return soup(ROOT / HTML / f"{docname}.html").select_one("article")


def texts(docname):
    return [cell.source for cell in edition(docname).cells if cell.cell_type == "markdown"]


def code(docname, solutions="text"):
    return [cell for cell in edition(docname, solutions).cells if cell.cell_type == "code"]


def book_code(docname):
    cells = [cell for cell in read(page_file(ROOT, docname)).cells if cell.cell_type == "code"]
    return [cell for cell in cells if TAG not in cell.metadata.get("tags", [])]


def plain(source):
    return re.sub(r"^#@title .*\n", "", source)


def answer(cell):
    return cell.source.startswith("# Your answer to ")


def test_every_notebook_is_in_it():
    assert sorted(PAGES) == sorted(
        path.relative_to(ROOT).with_suffix("").as_posix() for path in all_notebooks(ROOT)
    )


def test_nothing_stands_raw(page):
    for text in texts(page):
        assert not STRAY.search(FORMULA.sub("", text)), text
        quoted = [line for line in text.splitlines() if line.startswith(">")]
        assert not any(line.count("$$") % 2 for line in quoted), "a formula in a quote needs one line"
        assert FORMULA.sub("", text).count("$") == FORMULA.sub("", text).count(r"\$"), "a lone dollar"


def test_boxes_have_their_kind_number_title_and_origin(page):
    written = "\n".join(texts(page))
    for box in article(page).select("div.proof[id], div.exercise"):
        name, words = title(box)
        assert re.fullmatch(r"[A-Z][a-z]+ [\d.]+", name), box["id"]
        start = f"> **{name}** ("
        assert written.count(start) == 1, name
        line = written.partition(start)[2].partition("\n")[0]
        if not re.search(r"[\\*$]", line):
            assert line.startswith(f"{words})"), name
        for origin in {"paper", "ours", "known"} & set(box["class"]):
            assert line.endswith(rf"*\[{origin}\]*"), name
    proofs = article(page).select("div.proof:not(" + ", ".join(f".{kind}" for kind in STATEMENTS) + ")")
    assert written.count("∎") == written.count("*Proof.*") == len(proofs)


def test_equations_and_figures_have_their_numbers(page):
    written = "\n".join(texts(page))
    for number in article(page).select(".eqno"):
        assert written.count(rf"\tag{{{number.get_text().strip('()#')}}}") == 1
    for caption in article(page).select("figcaption .caption-number"):
        assert written.count(f"**{caption.get_text().strip()}.** ") == 1


def test_links_lead_to_the_published_pages(page):
    for address in LINK.findall("\n".join(texts(page))):
        assert address.startswith("https://"), address
        if address.startswith(SITE):
            parts = urlsplit(address.removeprefix(SITE))
            target = soup(ROOT / HTML / (parts.path or "index.html"))
            assert not parts.fragment or target.find(id=parts.fragment), address
            assert not re.fullmatch(r"id\d+", parts.fragment), "an anchor that another build may move"


def test_code_and_outputs_are_the_books(page):
    cells = code(page, "run")
    install = install_source(ROOT, read(page_file(ROOT, page)))
    assert plain(cells[0].source) == install != cells[0].source
    assert cells[0].metadata == FOLDED
    ours = [(plain(cell.source), bare(cell.outputs)) for cell in cells[1:] if not answer(cell)]
    assert ours == [(cell.source, cell.outputs) for cell in book_code(page)]


def bare(outputs):
    """Without the sizes, which the edition alone notes."""
    outputs = copy.deepcopy(outputs)
    for output in outputs:
        output.get("metadata", {}).pop("image/png", None)
    return outputs


def test_every_exercise_has_a_place_for_the_answer_and_its_solution_is_folded(page):
    written, sources = "\n".join(texts(page)), [cell.source for cell in code(page)]
    for box in article(page).select("div.exercise"):
        name, words = title(box)
        by_hand = words.startswith("★ ")
        assert written.count(f"*Your answer to {name}:*") == by_hand
        assert sources.count(f"# Your answer to {name}\n") == 1 - by_hand
    for box in article(page).select("div.solution"):
        name = re.search(r"Solution to\s+Exercise [\d.]+", box.get_text())[0]
        (inside,) = re.findall(rf"<details>\n<summary>{name}</summary>.*?</details>", written, re.S)
        assert inside.count("```python\n") == len(box.select("div.cell"))
        run = [cell for cell in code(page, "run") if cell.source.startswith(f"#@title {name}\n")]
        assert all(cell.metadata.items() >= FOLDED_WHOLE.items() for cell in run)
        assert all(f"```python\n{plain(cell.source)}\n```" in inside for cell in run)
        assert len(run) == len(box.select("div.cell")) and "✓" not in inside


def test_the_editions_differ_in_their_solutions_alone(page):
    def kept(solutions):
        cells = [cell.source for cell in edition(page, solutions).cells]
        return [text for text in cells if not re.match(r"(<details>\n<summary>|#@title )Solution", text)]

    assert kept("text") == kept("run") == kept("no") == [cell.source for cell in edition(page, "no").cells]
    assert not any("Solution to Exercise" in text for text in kept("no"))
    assert not any("check(" in cell.source for cell in code(page, "no") + code(page))


@pytest.mark.parametrize("answered", [False, True])
def test_running_all_praises_no_answer_that_nobody_gave(built, answered):
    """Untouched, and with a wrong answer in each place; the grader then gives its hints."""
    wrong = copy.deepcopy(edition("chapters/3-three-theorems/head-count"))
    names, verdicts = [], []
    for cell in wrong.cells:
        names += re.findall(r'check\("([^"]+)"', cell.source) if "> **Exercise" in cell.source else []
        if answered and answer(cell) and names:
            cell.source += (
                f'from headsandstates.exercises import check\ncheck("{names[-1]}", lambda *given: 0)'
            )
    NotebookClient(wrong, timeout=600).execute()
    for cell in wrong.cells:
        for output in cell.get("outputs", []):
            text = "".join(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
            assert "✓" not in text
            verdicts += re.findall(r"^✗ ([\w/-]+)", text, re.M)
    assert verdicts == (names if answered else []) and len(names) == 3
