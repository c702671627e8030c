"""The lectures of ``chapters/lectures/*.md`` as decks, with handouts and solutions.

    python -m headsandstates.site.lectures          # writes them again, from the built book
    python -m headsandstates.site.lectures --pdf    # and prints them
    python -m headsandstates.site.lectures --pdf 50 # as they are in 50 minutes; 75, 90, 1of2, 2of2

A lecture is one Markdown file: front matter, then one slide for each heading of the first level. Pictures,
sliders and statements come from the chapters by label; a label that the book lacks fails the build.
CONTRIBUTING describes the form.
"""

import html
import re
import shutil
import sys
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import accumulate, pairwise
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.errors import SphinxError

from headsandstates.site import lists
from headsandstates.site.browser import chromium
from headsandstates.site.built import HTML, TEMPLATES, excerpt, soup
from headsandstates.site.install_cell import repository
from headsandstates.site.page import myst, page_names
from headsandstates.site.root import book_root
from headsandstates.site.site import pages_address
from headsandstates.site.solutions import SOLUTION
from headsandstates.sliders import FRAME_DPI
from ssmbook.display.images import FIGURE_DPI, PIXELS
from ssmbook.display.style import SMALLEST_PT

SOURCES, FOLDER = "chapters/lectures", "slides"
EVERYTHING = 1000
HEADS = "fig-swap-a-head"
LENGTHS = {90: (76, 84), 75: (60, 69), 50: (40, 46)}
"""Minutes of a lecture: the least and the most that its slides take, so that there is time for questions."""
SPOKEN = re.compile(r"^(Say|Draw|Board|They will ask|Answer)(?=:)|(?<=[?.!]) (Answer)(?=:)", re.M)
"""The words in the notes that begin a paragraph."""
REVEAL = ("dist/reveal.js", "dist/reveal.css", "dist/reset.css", "plugin/notes/notes.js")


class LectureError(SphinxError):
    """A lecture that does not fit the book."""

    category = "Lectures"


@dataclass
class Slide:
    title: str  # Markdown
    heading: str = ""  # the same in HTML
    body: str = ""  # HTML
    notes: str = ""  # HTML
    minutes: int = 0
    part: str = ""  # of the lecture, if it begins here
    length: int = 90  # of the shortest lecture that shows it
    second: bool = False  # whether the second half begins here, where a lecture is held in two
    new: list = field(default_factory=list)  # symbols that this slide introduces
    shown: list = field(default_factory=list)  # labels
    text: str = ""  # its source


@dataclass
class Lecture:
    name: str
    title: str
    audience: str
    minutes: int
    slides: list
    order: int = 0
    presupposed: dict = field(default_factory=dict)  # symbol: meaning
    handout: dict = field(default_factory=dict)

    def cut(self, length):
        """The slides of this lecture when it lasts ``length`` minutes."""
        return [slide for slide in self.slides if slide.length <= length]

    @property
    def parts(self):
        """(minute of its beginning, of its end, slides) of each part."""
        starts = [i for i, slide in enumerate(self.slides) if slide.part] + [len(self.slides)]
        clock = [0, *accumulate(slide.minutes for slide in self.slides)]
        return [(clock[start], clock[end], self.slides[start:end]) for start, end in pairwise(starts)]


class Book:
    """The built pages of the folder ``html``, searched by label."""

    def __init__(self, root, html):
        paths = {name: Path(html) / f"{name}.html" for name in page_names(root)}
        self.paths = {name: path for name, path in paths.items() if path.exists()}
        self.texts = {name: path.read_text(encoding="utf-8") for name, path in self.paths.items()}

    def find(self, label):
        """(docname, element) of the box, picture or solution that bears the label."""
        for docname, text in self.texts.items():
            if f'id="{label}"' in text:  # a page is parsed when something on it is shown
                node = soup(self.paths[docname]).select_one(f'article [id="{label}"]')
                if node is not None:  # a solution's anchor is inside its box
                    box = node.parent if node.name == "span" else node
                    return docname, box.find_parent("div", class_="cell") or box
        raise LectureError(f"{SOURCES}: no page has the label {label!r}")

    def title(self, docname):
        if docname not in self.paths:
            raise LectureError(f"{SOURCES}: no page {docname!r}")
        return soup(self.paths[docname]).h1.get_text().strip("# \n")


class Reader:
    """Markdown with the directives of a lecture, as HTML; ``book=None`` reads without showing anything."""

    def __init__(self, book=None):
        self.book = book
        self.parser = myst(_formula)
        self.parser.add_render_rule(
            "colon_fence", lambda _, tokens, i, options, env: self.directive(tokens[i], env)
        )
        self.parser.add_render_rule("fence", lambda _, tokens, i, options, env: _code(tokens[i].content))
        self.parser.add_render_rule("myst_line_comment", lambda *_: "")

    def lecture(self, path):
        """The lecture in the file ``path``."""
        text = path.read_text(encoding="utf-8")
        tokens, lines = self.parser.parse(text), text.splitlines()
        said = yaml.safe_load(tokens[0].content)
        starts = [i for i, token in enumerate(tokens) if token.type == "heading_open" and token.tag == "h1"]
        ends = [*starts[1:], len(tokens)]
        slides = [self.slide(tokens[start:end]) for start, end in zip(starts, ends, strict=True)]
        rows = [tokens[start].map[0] for start in starts] + [len(lines)]
        for slide, begin, end in zip(slides, rows[:-1], rows[1:], strict=True):
            slide.text = "\n".join(lines[begin:end])
        return Lecture(path.stem, slides=slides, **said)

    def slide(self, tokens):
        slide = Slide(tokens[1].content, self.parser.renderInline(tokens[1].content))
        comments = "\n".join(token.content for token in tokens if token.type == "myst_line_comment")
        for name, rest in re.findall(r"^\s*(part|new|in|second half|optional)\b:?(.*)$", comments, re.M):
            if name == "part":
                slide.part = rest.strip()
            elif name == "new":
                slide.new += [symbol.strip() for symbol in rest.split(",")]
            elif name == "second half":
                slide.second = True
            else:
                slide.length = int(rest) if name == "in" else EVERYTHING
        slide.body = self.parser.renderer.render(tokens[3:], self.parser.options, {"slide": slide})
        return slide

    def directive(self, token, env):
        match = re.fullmatch(r"\{(\w+)\}\s*(.*)", token.info.strip())
        name, argument = match.groups() if match else ("", "")
        slide = env["slide"]
        if name == "show":
            how, _, places = argument.partition(" at ")
            label, _, later = how.partition(" ")
            slide.shown.append(label)
            return shown(self.book, label, later, places.split()) if self.book else ""
        if name == "swap":  # a picture of the page's model, in whose place its heads live; on paper it stays
            slide.shown.append(HEADS)
            picture = shown(self.book, HEADS) if self.book else ""
            return picture.replace("<div ", f'<div data-heads="{argument}" ', 1)
        words = SPOKEN.sub(r"\n\n**\1\2**", token.content) if name == "notes" else token.content
        inside = self.parser.render(words, env)
        if name == "notes":
            slide.minutes, slide.notes = int(argument), inside
            return ""
        if name in ("step", "answer"):
            return f'<div class="fragment {name}">\n{inside}</div>\n'
        if name == "run":
            return f'<div class="run" data-run="{argument}">\n{inside}</div>\n'
        if name in ("ask", "source", "statement"):
            return f'<div class="{name}">\n{inside}</div>\n'
        raise LectureError(
            f"{SOURCES}: the slide {slide.title!r} has a directive {token.info!r} of no known kind"
        )


def _formula(text, options):
    left, right = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
    return f"{left}{html.escape(text)}{right}"


def _code(text):
    return highlight(text, PythonLexer(), HtmlFormatter(cssclass="highlight"))


def shown(book, label, later="", places=()):
    """The picture, slider or statement with this label, as a slide shows it; ``later`` with the answer.

    ``places`` are in percent of the width: what lies to the right of each is covered until the next key.
    """
    docname, element = book.find(label)
    slider, image = element.select_one("figure.ssm-slider"), element.select_one("figure img")
    if slider is not None:
        figure, dpi = prepared(docname, slider, keep_ids=True), FRAME_DPI
        for caption in figure.select("figcaption, .ssm-slider-note"):
            caption.decompose()
    elif image is not None:
        figure, dpi = prepared(docname, image), FIGURE_DPI
    else:
        return str(prepared(docname, element))
    for each in [figure, *figure.find_all("img")]:
        if each.name == "img":  # its smallest text, in pixels of the page
            each["data-text"] = f"{SMALLEST_PT / 72 * dpi / PIXELS:.2f}"
    classes = "shown fragment" if later else "shown"
    covers = "".join(
        f'<div class="cover fragment fade-out" style="left: {left}%; right: {100 - int(right)}%"></div>'
        for left, right in pairwise([*places, 100] if places else ())
    )
    return f'<div class="{classes}" data-label="{label}">{figure}{covers}</div>\n'


def prepared(docname, element, keep_ids=False):
    """A copy of a page's element that stands in a deck: addresses from there, no ids, no signs of links."""
    page = excerpt([element])
    for node in page.find_all("section"):
        node.name = "div"  # to reveal.js a section is a slide
    for node in page.find_all(True):
        if not keep_ids:
            node.attrs.pop("id", None)
        for attribute in ("href", "src"):
            if node.get(attribute) and not urlsplit(node[attribute]).scheme:
                node[attribute] = "../" + urljoin(f"{docname}.html", node[attribute])
    return page.find(True)


def lectures(root, book=None):
    """Every lecture, in the order that the files give.

    Raises LectureError for a label that the book lacks, a slide without notes, minutes that do not add up.
    """
    reader = Reader(book)
    found = sorted(
        (reader.lecture(path) for path in (root / SOURCES).glob("*.md")), key=lambda one: one.order
    )
    for lecture in found:
        if silent := [slide.title for slide in lecture.slides if not slide.notes]:
            raise LectureError(f"{SOURCES}/{lecture.name}.md: no notes on {silent[0]!r}")
        if (total := sum(slide.minutes for slide in lecture.slides)) != lecture.minutes:
            raise LectureError(
                f"{SOURCES}/{lecture.name}.md: the slides take {total} minutes, not {lecture.minutes}"
            )
        for length, (least, most) in LENGTHS.items():
            taken = sum(slide.minutes for slide in lecture.cut(length))
            if not least <= taken <= most:
                raise LectureError(
                    f"{SOURCES}/{lecture.name}.md: in {length} minutes there is time for slides of {least} "
                    f"to {most}, and these take {taken}"
                )
    return found


def rendered(lecture, title, **values):
    return TEMPLATES.get_template("lecture.html").render(lecture=lecture, title=title, **values)


def deck(lecture):
    """The whole page of a deck."""
    return rendered(lecture, lecture.title, slides=lecture.slides, lengths=LENGTHS)


def handout(root, book, lecture):
    """Two pages to print: the statements in full, a picture, what to read, problems and their notebooks."""
    from segno import make  # only a build draws codes

    said = lecture.handout
    sheet = Sheet(book, [*said["statements"], *said["problems"]], said.get("instead", {}))
    address = f"{pages_address(repository(root)[0])}{FOLDER}/{lecture.name}-handout.html"
    statements = [sheet.element(label) for label in said["statements"]]
    problems = [sheet.element(label, notebook=True) for label in said["problems"]]
    if sheet.unused:
        raise LectureError(f"{SOURCES}: the handout of {lecture.name} does not have {sorted(sheet.unused)}")
    return rendered(
        lecture,
        f"Handout: {lecture.title}",
        summary=Reader().parser.renderInline(said["summary"]),
        picture=shown(book, said["picture"]),
        statements=statements,
        read=[(name, book.title(name)) for name in said["read"]],
        problems=problems,
        address=address,
        code=make(address, error="m").svg_inline(border=0, omitsize=True),
    )


class Sheet:
    """The boxes on one handout, in which every reference to something else is put into words.

    ``instead`` has the words for a figure, by its label, and for phrases of the chapter; ``unused``
    are those that no box has. Raises LectureError for a figure without words.
    """

    def __init__(self, book, labels, instead):
        self.book, self.labels = book, labels
        self.instead = {key: Reader().parser.renderInline(words) for key, words in instead.items()}
        self.unused = set(instead)

    def element(self, label, notebook=False):
        docname, element = self.book.find(label)
        page = prepared(docname, element)
        for link in page.select("a[href*='#']"):
            address, _, target = link["href"].rpartition("#")
            name = address.removeprefix("../").removesuffix(".html")
            if target not in self.labels and not target.startswith("cite-"):
                link.replace_with(BeautifulSoup(self.words(name, target, link), "html.parser"))
        if notebook:
            where = Tag(name="span", attrs={"class": "notebook"})
            where.string = docname.rpartition("/")[2] + ".ipynb"
            page.select_one(".admonition-title").append(where)
        text = str(page)
        for phrase, words in self.instead.items():
            if phrase in text:
                self.unused.discard(phrase)
                text = text.replace(phrase, words)
        return text

    def words(self, name, target, link):
        """What replaces a reference: given words, the formula itself, or a statement and its page."""
        if target in self.instead:
            self.unused.discard(target)
            return self.instead[target]
        if target.startswith("equation-"):
            return _in_line(self.book.find(target)[1].get_text())
        if target.startswith("fig-"):
            raise LectureError(f"{SOURCES}: a handout refers to {target!r}, which it does not show")
        return f"{link.get_text()} of <em>{self.book.title(name)}</em>"


def _in_line(text):
    """The formula that stands alone in a page, as one in a line."""
    formula = re.sub(r"\\(begin|end)\{split\}", "", re.search(r"\\\[(.*?)\\\]", text, re.S)[1])
    return rf"\({html.escape(formula.strip().rstrip(' .,;'))}\)"


def solutions(book, lecture):
    """The solutions of the handout's problems, on a page of their own."""
    found = [prepared(*book.find(SOLUTION + label)) for label in lecture.handout["problems"]]
    return rendered(lecture, f"Solutions: {lecture.title}", solutions=found)


def write(root, html):
    """Write every deck, handout and page of solutions into the folder of the built book."""
    folder, reveal = Path(html) / FOLDER, Path(html) / "_static/reveal"
    shutil.rmtree(folder, ignore_errors=True)
    for each in (folder, reveal):
        each.mkdir(parents=True, exist_ok=True)
    source = files("sphinx_revealjs") / "_static/revealjs"
    for name in REVEAL:
        shutil.copyfile(source / name, reveal / Path(name).name)
    book = Book(root, html)
    for lecture in lectures(root, book):
        (folder / f"{lecture.name}.html").write_text(deck(lecture), encoding="utf-8")
        (folder / f"{lecture.name}-handout.html").write_text(handout(root, book, lecture), encoding="utf-8")
        (folder / f"{lecture.name}-solutions.html").write_text(solutions(book, lecture), encoding="utf-8")


def write_lectures(app):
    write(Path(app.srcdir), Path(app.outdir))


class LecturesIndex(lists.Index):
    """The plan of every lecture: its deck, handout and solutions, and what is shown from which minute on."""

    def run(self):
        self.made_of((self.root / SOURCES).glob("*.md"))
        return self.shown("lectures", lectures=lectures(self.root))


def print_all(root, length=""):
    """Print each deck and handout as a PDF beside it; decks of another length are called after it."""
    with chromium() as browser:
        for path in sorted((root / HTML / FOLDER).glob("*.html")):
            paper = path.stem.endswith(("-handout", "-solutions"))
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            page.goto(path.resolve().as_uri() + ("" if paper else f"?print-pdf&length={length}"))
            page.wait_for_selector("mjx-container, html[data-ready=true]", state="attached")
            page.evaluate("async () => { await MathJax.startup.promise; await document.fonts.ready; }")
            if not paper:
                page.wait_for_selector("html[data-ready=true]", state="attached")
            name = f"{path.stem}-{length}.pdf" if length and not paper else f"{path.stem}.pdf"
            page.pdf(path=path.with_name(name), prefer_css_page_size=True, print_background=True)
            page.close()


if __name__ == "__main__":
    write(book_root(), book_root() / HTML)
    if "--pdf" in sys.argv[1:]:
        print_all(book_root(), *sys.argv[2:])
