"""Sphinx extension: the lectures of ``chapters/lectures/*.md`` as decks, with handouts and solutions.

    python -m headsandstates.site.lectures          # writes them again, from the built book
    python -m headsandstates.site.lectures --pdf    # and prints them

A lecture is one Markdown file: front matter, then one slide for each heading of the first level. Pictures,
sliders and statements come from the chapters by label; a label that the book lacks fails the build.
CONTRIBUTING describes the form.
"""

import copy
import html
import re
import shutil
import sys
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import yaml
from bs4 import BeautifulSoup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.errors import SphinxError

from headsandstates.site import lists
from headsandstates.site.built import HTML, soup
from headsandstates.site.page import myst, page_names
from headsandstates.site.root import book_root
from headsandstates.site.solutions import SOLUTION
from ssmbook.display.images import FIGURE_DPI, FRAME_DPI, PIXELS
from ssmbook.display.style import SMALLEST_PT

SOURCES, FOLDER = "chapters/lectures", "slides"
REVEAL = ("dist/reveal.js", "dist/reveal.css", "dist/reset.css", "plugin/notes/notes.js")
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="../_static/favicon.svg">
<link rel="stylesheet" href="../_static/pygments.css">
<link rel="stylesheet" href="../_static/slider.css">
<script defer src="../_static/mathjax/tex-chtml.js"></script>
"""
DECK = """<link rel="stylesheet" href="../_static/reveal/reset.css">
<link rel="stylesheet" href="../_static/reveal/reveal.css">
<link rel="stylesheet" href="../_static/lectures.css">
<script defer src="../_static/slider.js"></script>
<script defer src="../_static/reveal/reveal.js"></script>
<script defer src="../_static/reveal/notes.js"></script>
<script defer src="../_static/lectures.js"></script>
{more}</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
</body>
</html>
"""
PAPER = """<link rel="stylesheet" href="../_static/handout.css">
</head>
<body>
{body}
</body>
</html>
"""
# What the live views need, where a slide shows one.
LIVE = '<link rel="stylesheet" href="../_static/lab.css">\n<script defer src="../_static/lab.js"></script>\n'


class LectureError(SphinxError):
    """A lecture that does not fit the book."""

    category = "Lectures"


@dataclass
class Slide:
    title: str  # Markdown
    body: str = ""  # HTML
    notes: str = ""  # HTML
    minutes: int = 0
    part: str = ""  # of the lecture, if it begins here
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
        slide = Slide(tokens[1].content)
        comments = "\n".join(token.content for token in tokens if token.type == "myst_line_comment")
        for name, rest in re.findall(r"^\s*(part|new):(.*)$", comments, re.M):
            if name == "part":
                slide.part = rest.strip()
            else:
                slide.new += [symbol.strip() for symbol in rest.split(",")]
        slide.body = self.parser.renderer.render(tokens[3:], self.parser.options, {"slide": slide})
        return slide

    def directive(self, token, env):
        match = re.fullmatch(r"\{(\w+)\}\s*(.*)", token.info.strip())
        name, argument = match.groups() if match else ("", "")
        slide = env["slide"]
        if name == "show":
            slide.shown.append(argument)
            return shown(self.book, argument) if self.book else ""
        inside = self.parser.render(token.content, env)
        if name == "notes":
            slide.minutes, slide.notes = int(argument), inside
            return ""
        if name in ("step", "answer"):
            return f'<div class="fragment {name}">\n{inside}</div>\n'
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


def shown(book, label):
    """The picture, slider or statement with this label, as a slide shows it."""
    docname, element = book.find(label)
    slider, image = element.select_one("figure.ssm-slider"), element.select_one("figure img")
    if slider is not None:
        figure, dpi = prepared(slider, docname, keep_ids=True), FRAME_DPI
        for caption in figure.select("figcaption, .ssm-slider-note"):
            caption.decompose()
    elif image is not None:
        figure, dpi = prepared(image, docname), FIGURE_DPI
    else:
        return str(prepared(element, docname))
    for each in [figure, *figure.find_all("img")]:
        if each.name == "img":  # its smallest text, in pixels of the page
            each["data-text"] = f"{SMALLEST_PT / 72 * dpi / PIXELS:.2f}"
    return f'<div class="shown" data-label="{label}">{figure}</div>\n'


def prepared(element, docname, keep_ids=False):
    """A copy of a page's element that stands in a deck: addresses from there, no ids, no signs of links."""
    page = BeautifulSoup("", "html.parser")
    page.append(copy.copy(element))
    for node in page.select("a.headerlink, script"):
        node.decompose()
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
    return found


def deck(lecture):
    """The whole page of a deck."""
    inline, clock = Reader().parser.renderInline, 0
    opening = f"<h1>{html.escape(lecture.title)}</h1>\n<p>{html.escape(lecture.audience)}</p>"
    keys = f"{lecture.minutes} minutes. Press S for these notes in a window of their own, ? for the keys."
    sections = [f'<section class="opening">\n{opening}\n{_notes(keys)}\n</section>']
    for slide in lecture.slides:
        clock += slide.minutes
        notes = f"<p>{slide.minutes} min, until minute {clock}.</p>\n{slide.notes}"
        title = f"<h2>{inline(slide.title)}</h2>"
        sections.append(
            f'<section>\n{title}\n<div class="body">\n{slide.body}</div>\n{_notes(notes)}\n</section>'
        )
    slides = "\n".join(sections)
    more = LIVE if "data-lab=" in slides else ""
    return HEAD.format(title=html.escape(lecture.title)) + DECK.format(slides=slides, more=more)


def _notes(text):
    return f'<aside class="notes">\n{text}\n</aside>'


def handout(book, lecture):
    """Two pages to print: the statements in full, a picture, what to read, the problems."""
    said = lecture.handout
    boxes, problems = (
        "\n".join(str(prepared(*reversed(book.find(label)))) for label in said[kind])
        for kind in ("statements", "problems")
    )
    read = ", ".join(f'<a href="../{name}.html">{html.escape(book.title(name))}</a>' for name in said["read"])
    body = (
        f"<header><h1>{html.escape(lecture.title)}</h1><p>{html.escape(lecture.audience)}</p></header>\n"
        f"<p>{Reader().parser.renderInline(said['summary'])}</p>\n{shown(book, said['picture'])}\n"
        f"<h2>Statements</h2>\n{boxes}\n<h2>To read</h2>\n<p>{read}.</p>\n<h2>Problems</h2>\n"
        f'<div class="columns">\n{problems}\n</div>'
    )
    return HEAD.format(title=f"Handout: {html.escape(lecture.title)}") + PAPER.format(body=body)


def solutions(book, lecture):
    """The solutions of the handout's problems, on a page of their own."""
    found = [book.find(SOLUTION + label) for label in lecture.handout["problems"]]
    body = "\n".join(str(prepared(element, docname)) for docname, element in found)
    title = f"Solutions: {html.escape(lecture.title)}"
    return HEAD.format(title=title) + PAPER.format(body=f"<header><h1>{title}</h1></header>\n{body}")


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
        (folder / f"{lecture.name}-handout.html").write_text(handout(book, lecture), encoding="utf-8")
        (folder / f"{lecture.name}-solutions.html").write_text(solutions(book, lecture), encoding="utf-8")


def build_finished(app, exception):
    if exception is None and app.builder.name == "html":
        write(Path(app.srcdir), Path(app.outdir))


class LecturesIndex(lists.Index):
    """The plan of every lecture: its deck, handout and solutions, and what is shown from which minute on."""

    def run(self):
        self.made_of((self.root / SOURCES).glob("*.md"))
        up, lines = "../" * self.env.docname.count("/") + FOLDER, []
        for lecture in lectures(self.root):
            links = " · ".join(
                f'<a class="reference internal" href="{up}/{lecture.name}{end}.html">{words}</a>'
                for end, words in (("", "slides"), ("-handout", "handout"), ("-solutions", "solutions"))
            )
            lines += [
                "",
                f"**{lecture.title}** · {links}",
                "",
                f"{lecture.audience} {lecture.minutes} minutes.",
            ]
            lines += ["", *lists.table(("minutes", "part", "slides"), list(self.parts(lecture)))]
        return self.shown(lines, "lectures-index")

    def parts(self, lecture):
        starts = [i for i, slide in enumerate(lecture.slides) if slide.part] + [len(lecture.slides)]
        clock = 0
        for start, end in zip(starts, starts[1:], strict=False):
            slides = lecture.slides[start:end]
            until = clock + sum(slide.minutes for slide in slides)
            titles = " · ".join(slide.title.replace("|", r"\|") for slide in slides)
            yield lists.row((f"{clock}–{until}", slides[0].part, titles))
            clock = until


def print_all(root):
    """Print each deck and handout as a PDF beside it."""
    from playwright.sync_api import sync_playwright

    from headsandstates.site.browser import QUIET, install

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=install(), args=list(QUIET))
        for path in sorted((root / HTML / FOLDER).glob("*.html")):
            paper = path.stem.endswith(("-handout", "-solutions"))
            page = chromium.new_page(viewport={"width": 1280, "height": 720})
            page.goto(path.resolve().as_uri() + ("" if paper else "?print-pdf"))
            page.wait_for_selector("mjx-container, html[data-ready=true]", state="attached")
            page.evaluate("async () => { await MathJax.startup.promise; await document.fonts.ready; }")
            if not paper:
                page.wait_for_selector("html[data-ready=true]", state="attached")
            page.pdf(path=path.with_suffix(".pdf"), prefer_css_page_size=True, print_background=True)
            page.close()
        chromium.close()


def setup(app):
    app.add_directive("lectures-index", LecturesIndex)
    app.connect("build-finished", build_finished, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    write(book_root(), book_root() / HTML)
    if "--pdf" in sys.argv[1:]:
        print_all(book_root())
