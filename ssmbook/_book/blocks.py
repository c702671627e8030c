"""The built pages as blocks in reading order, found by label: what lectures are made of."""

import copy
import re
from pathlib import Path

from sphinx.errors import SphinxError

from ssmbook._book.built import soup
from ssmbook._book.claims import KINDS as STATEMENTS
from ssmbook._book.plain_markdown import title

SHOWN = ("figure", "slider", "statement", "output")
UNNAMED = re.compile(r"id\d+$|.*-input$|chapters/|checks-.*")  # ids that are no label of a block
UNICODE = {
    r"\rho": "ρ", r"\theta": "θ", r"\alpha": "α", r"\sigma": "σ", r"\tau": "τ", r"\varepsilon": "ε",
    r"\lambda": "λ", r"\Delta": "Δ", r"\varphi": "φ", r"\pi": "π", r"\beta": "β", r"\le": "≤", r"\ge": "≥",
    r"\ne": "≠", r"\to": "→", r"\infty": "∞", r"\times": "×", r"\cdot": "·", r"\otimes": "⊗", r"\log": "log",
    r"\nu": "ν", r"\,": " ",
}  # fmt: skip


class SlidesError(SphinxError):
    """A plan of slides that does not fit the book."""

    category = "Slides"


def kind_of(element):
    """What an element of a page is in a lecture; "" for text, proofs and code without output."""
    classes = element.get("class", [])
    if "cell" in classes:
        if element.select_one("figure.ssm-slider"):
            return "slider"
        if element.select_one("figure figcaption"):
            return "figure"
        return "output" if element.select_one(".cell_output") else ""
    if "proof" in classes:
        return "statement" if set(STATEMENTS) & set(classes) else ""
    if "admonition" in classes:
        if title(element)[0].startswith("Predict"):
            return "question"
        return next((kind for kind in ("takeaway", "exercise") if kind in classes), "")
    return ""


class Book:
    """The pages ``docnames`` of the built book in the folder ``html``."""

    def __init__(self, html, docnames):
        self.blocks = {}  # docname: [(heading of the section or None, element), ...]
        self.places = {}  # id: [(docname, index of its block), ...]
        for docname in docnames:
            article = soup(Path(html) / f"{docname}.html").select_one("article")
            self.blocks[docname] = list(_flat(article))
            for index, (_, element) in enumerate(self.blocks[docname]):
                for node in [element, *element.find_all(id=True)]:
                    if node.get("id"):
                        self.places.setdefault(node["id"], []).append((docname, index))

    def title(self, docname):
        heading = next(element for _, element in self.blocks[docname] if element.name == "h1")
        return heading.get_text().strip("# \n")

    def result(self, docname):
        """What the chapter says first: the one sentence in bold above its first section, as a paragraph.

        A bold label ("In one sentence:") stands for the paragraph that it opens.
        """
        for section, element in self.blocks[docname]:
            bold = element.find("strong") if element.name == "p" and section.name == "h1" else None
            if bold is not None:
                words = copy.copy(element if bold.get_text().endswith(":") else bold)
                words.name, words["class"] = "p", "result"
                if words.strong is not None:
                    words.strong.decompose()
                first = words.find(string=True)
                said = first.lstrip()
                first.replace_with(said[:1].upper() + said[1:])
                return words
        raise SlidesError(f"{docname}: no sentence in bold above the first section says the result")

    def place(self, label):
        """(docname, index) of the one block that bears the label."""
        found = self.places.get(label, [])
        if len(found) != 1:
            wrong = "stands nowhere in the chapters" if not found else f"stands in {len(found)} places"
            raise SlidesError(f"chapters/slides.yml: the label {label!r} {wrong}")
        return found[0]

    def label(self, element):
        """The label of a block: its own id, or the first inside it."""
        ids = [node["id"] for node in [element, *element.find_all(id=True)] if node.get("id")]
        return next((name for name in ids if not UNNAMED.match(name)), "")

    def question(self, label):
        """(docname, index) of the last question to the room before the block that bears the label."""
        docname, end = self.place(label)
        asked = [i for i in range(end) if kind_of(self.blocks[docname][i][1]) == "question"]
        if not asked:
            raise SlidesError(f"chapters/slides.yml: no Predict box stands before {label!r} in {docname}")
        return docname, asked[-1]

    def answer(self, docname, index):
        """Index of the first thing shown after a question and before the next one; None if there is none."""
        for later, (_, element) in enumerate(self.blocks[docname][index + 1 :], index + 1):
            kind = kind_of(element)
            if kind in SHOWN or kind == "question":
                return later if kind in SHOWN else None
        return None

    def paragraph_after(self, docname, index):
        """The paragraph right below a block, if there is one."""
        rest = self.blocks[docname][index + 1 : index + 2]
        return rest[0][1] if rest and rest[0][1].name == "p" else None

    def spoken(self, paragraph):
        """The first two sentences of a paragraph as plain text; those that need TeX drop out."""
        text = " ".join(paragraph.get_text().split())
        text = re.sub(r"\\\((.*?)\\\)", lambda match: _plain(match[1]), text)
        parts = re.split(r"(?<=[.?!:]) (?=[A-Z])", text)[:2]
        whole = [part for part in parts if part.endswith((".", "?", "!", ".)", "?)"))]
        return " ".join(part for part in whole if not re.search(r"[\\{}^_]", part))


def _plain(tex):
    names = sorted(UNICODE, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, names)), lambda match: UNICODE[match[0]], tex)


def _flat(element, heading=None):
    for child in element.find_all(recursive=False):
        if child.name == "section":
            yield from _flat(child, child.find(["h1", "h2", "h3"], recursive=False) or heading)
        else:
            yield heading, child
