"""The whole book on paper: the built pages in one document, printed by Chromium.

    python -m headsandstates.site.paper            # into _build/pdf/heads-and-states.pdf
    python -m headsandstates.site.paper --article  # its paper alone, in two columns, beside it

Numbers and links are those of the pages. Folded code is left out, a slider becomes four of its frames, and
all solutions are at the end. It is printed twice, first to find the page on which each section begins.
"""

import argparse
import html
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

import yaml
from bs4 import BeautifulSoup
from sphinx_external_toc.parsing import parse_toc_yaml

from headsandstates.site.browser import chromium
from headsandstates.site.built import HTML, TEMPLATES, excerpt, soup
from headsandstates.site.install_cell import repository
from headsandstates.site.root import book_root
from headsandstates.site.site import pages_address

# Its HTML is written beside it; the files of the pages are in the folder next to theirs.
TARGET = "_build/pdf/heads-and-states.pdf"
# The page that is a paper of its own, and where it is printed.
ARTICLE, ARTICLE_TARGET = "chapters/appendix/paper", "_build/pdf/how-many-states-make-a-head.pdf"
# Reference and status are for the screen; the list of the solutions gives way to the solutions.
LEFT_OUT = (ARTICLE, "chapters/appendix/api", "chapters/appendix/solutions", "chapters/appendix/status")
FRAMES = 4
MINUTES = 10
ASSETS = "../html/_static"
# The MathML beside each formula would make the tags of the PDF four times as many.
TYPESET = """async () => {
  await MathJax.startup.promise;
  await document.fonts.ready;
  document.querySelectorAll("mjx-assistive-mml").forEach((node) => node.remove());
}"""
WRITE_NUMBERS = """(pages) => document.querySelectorAll("[data-of]").forEach(
  (node) => (node.textContent = pages[node.dataset.of] || "?"))"""


@dataclass
class Paper:
    """The book on its way into one document."""

    root: object
    docnames: list
    site: str  # where the pages that are left out can be read
    contents: list = field(default_factory=list)  # (level, text, anchor)
    solutions: list = field(default_factory=list)


def book_pages(root):
    """The pages that are printed, in the order of the table of contents."""
    return [name for name in map(str, parse_toc_yaml(root / "_toc.yml")) if not name.startswith(LEFT_OUT)]


def assemble(root, docnames):
    """The HTML of the one document that holds these pages of the built book."""
    toc, settings = (
        yaml.safe_load((root / name).read_text(encoding="utf-8")) for name in ("_toc.yml", "_config.yml")
    )
    opens = {part["chapters"][0]["file"]: part["caption"] for part in toc["parts"]}
    paper, articles = Paper(root, docnames, pages_address(repository(root)[0])), []
    for docname in docnames:
        if docname in opens:
            paper.contents.append(("part", opens[docname], anchor(docname)))
        articles.append(str(article(paper, docname)))
    paper.contents.append(("h1", "Solutions", "solutions"))
    return TEMPLATES.get_template("paper.html").render(
        settings, paper=paper, assets=ASSETS, articles=articles
    )


def assemble_article(root):
    """The HTML of the paper alone, with the works that it cites and with numbers of its own."""
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    paper = Paper(root, [ARTICLE], pages_address(repository(root)[0]))
    page = article(paper, ARTICLE)
    for number, figure in enumerate(page.select("figure[id]"), 1):
        figure.select_one(".caption-number").string = f"Fig. {number} "
        for link in page.select(f'a[href="#{figure["id"]}"]'):
            link.string = f"Fig. {number}"
    citing = page.select('a[href*="#cite-"]')
    for link in citing:
        link["href"] = link["href"][link["href"].index("#") :]
    cited = {link["href"][1:] for link in citing}
    bibliography = soup(root / HTML / "chapters/appendix/bibliography.html").select(".citation")
    works = excerpt([work for work in bibliography if work["id"] in cited], ", .citation > .label")
    return TEMPLATES.get_template("article.html").render(
        {**settings, "title": page.h1.extract().get_text().strip()},
        paper=paper, assets=ASSETS, article=str(page), works=str(works),
    )  # fmt: skip


def anchor(docname, fragment=""):
    """The id, in the one document, of a page or of a place on it."""
    return docname.rpartition("/")[2] + (f"--{fragment}" if fragment else "")


def article(paper, docname):
    """One page as a part of the document: its links lead inside, its solutions go to the end."""
    source = soup(paper.root / HTML / f"{docname}.html").select_one("article")
    page = excerpt([source], ", details.hide, style, picture > source, .toctree-wrapper").article
    for figure in page.select("figure.ssm-slider"):
        small_multiples(figure)
    for node in page.find_all(True):
        if node.get("id"):
            node["id"] = anchor(docname, node["id"])
        if node.get("href"):
            node["href"] = inside(paper, docname, node["href"])
        if node.get("src") and not urlsplit(node["src"]).scheme:
            node["src"] = f"../html/{urljoin(docname, node['src'])}"
    page["id"] = anchor(docname)
    for heading in page.select("h1, h2"):
        place = page["id"] if heading.name == "h1" else heading.parent["id"]
        paper.contents.append((heading.name, heading.get_text().strip(), place))
    solved = page.select("div.solution")
    if solved:
        paper.solutions.append(f"<h2>{page.h1.decode_contents()}</h2>")
        paper.solutions += [str(solution.extract()) for solution in solved]
    return page


def inside(paper, docname, href):
    """Where a link of a page leads in the document; to the published book, if its page is left out."""
    if urlsplit(href).scheme:
        return href
    address = urljoin(f"{docname}.html", href)
    path, _, fragment = address.partition("#")
    target = path.removesuffix(".html")
    return f"#{anchor(target, fragment)}" if target in paper.docnames else f"{paper.site}{address}"


def small_multiples(figure):
    """In place of a slider a few of its frames, from the first value to the last, each with its value."""
    rows, label = figure.select("[data-value]"), figure.find("label").get_text()
    count, caption = min(FRAMES, len(rows)), figure.find("figcaption")
    chosen = [rows[round(i * (len(rows) - 1) / (count - 1))].extract() for i in range(count)]
    figure.clear()
    figure["class"] = ["frames"]
    for row in chosen:
        words = html.escape(f"{label} = {row['data-value']}")
        panels = f'<div class="panels">{row.decode_contents()}</div>'
        figure.append(BeautifulSoup(f"<div>{panels}<p>{words}</p></div>", "html.parser"))
    if caption is not None:
        figure.append(caption)


def print_book(root, target, docnames, browser):
    """Write these pages of the built book as one PDF; ``target`` lies in a folder of ``_build``."""
    print_document(assemble(root, docnames), target, browser)


def print_document(text, target, browser):
    """Write one document as a PDF, and its HTML beside it."""
    source = target.with_suffix(".html")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text, encoding="utf-8")
    paper = {"path": target, "prefer_css_page_size": True, "print_background": True}
    page = browser.new_page()
    page.set_default_timeout(MINUTES * 60_000)
    page.goto(source.as_uri())
    page.evaluate(TYPESET)
    page.pdf(**paper)
    page.evaluate(WRITE_NUMBERS, first_pages(target))
    page.pdf(**paper, outline=True, tagged=True)
    page.close()


def first_pages(target):
    """{anchor: number of its page} of every place in the PDF to which a link leads."""
    from pypdf import PdfReader

    reader = PdfReader(target)
    places = reader.named_destinations.items()
    return {name.lstrip("/"): reader.get_destination_page_number(place) + 1 for name, place in places}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m headsandstates.site.paper")
    parser.add_argument("--article", action="store_true", help="print the paper alone")
    alone, root = parser.parse_args(arguments).article, book_root()
    target = root / (ARTICLE_TARGET if alone else TARGET)
    with chromium() as browser:
        if alone:
            print_document(assemble_article(root), target, browser)
        else:
            print_book(root, target, book_pages(root), browser)
    print(f"The {'paper' if alone else 'book'} is printed: {target}")


if __name__ == "__main__":
    main()
