"""A deck of slides as one page of HTML: elements of the built pages inside reveal.js."""

import copy
import html
import re
import shutil
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from ssmbook.display.images import FIGURE_DPI, FRAME_DPI, PIXELS
from ssmbook.display.style import SMALLEST_PT

FOLDER = "slides"
SEEN = 45  # words of a caption beside its picture, in whole sentences
REVEAL = ("dist/reveal.js", "dist/reveal.css", "dist/reset.css", "plugin/notes/notes.js")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="../_static/favicon.svg">
<link rel="stylesheet" href="../_static/reveal/reset.css">
<link rel="stylesheet" href="../_static/reveal/reveal.css">
<link rel="stylesheet" href="../_static/pygments.css">
<link rel="stylesheet" href="../_static/slider.css">
<link rel="stylesheet" href="../_static/slides.css">
<script defer src="../_static/mathjax/tex-chtml.js"></script>
<script defer src="../_static/slider.js"></script>
<script defer src="../_static/reveal/reveal.js"></script>
<script defer src="../_static/reveal/notes.js"></script>
<script defer src="../_static/slides.js"></script>
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
</body>
</html>
"""


@dataclass
class Slide:
    """One slide: elements of a built page or a text of its own, and what only the lecturer sees."""

    kind: str
    elements: list = field(default_factory=list)
    docname: str = ""  # the page of the elements
    label: str = ""
    heading: object = ""  # text, or the heading's element
    text: str = ""  # Markdown
    say: str = ""
    board: list = field(default_factory=list)
    minutes: int = 0
    answers: bool = False  # the question on the slide before
    proved: bool = False  # on the board


@dataclass
class Deck:
    name: str
    title: str
    subtitle: str
    slides: list
    pages: list  # (docname, title) of those it was cut from
    result: object = None  # the element that says it

    @property
    def minutes(self):
        return sum(slide.minutes for slide in self.slides)


def copy_reveal(folder):
    """Put what the decks need of reveal.js into the built book; the package brings it along."""
    folder.mkdir(parents=True, exist_ok=True)
    source = files("sphinx_revealjs") / "_static/revealjs"
    for name in REVEAL:
        shutil.copyfile(source / name, folder / Path(name).name)


def render(deck):
    """The whole page."""
    sections, clock = [_opening(deck)], 0
    for slide in deck.slides:
        clock += slide.minutes
        sections.append(_section(slide, clock))
    return PAGE.format(title=html.escape(deck.title), slides="\n".join(sections))


def _opening(deck):
    pages = [f'<a href="../{docname}.html">{html.escape(title)}</a>' for docname, title in deck.pages]
    keys = "Press S for these notes in a window of their own, ? for the keys."
    notes = [f"{deck.minutes} minutes in all. {keys}"]
    result = "" if deck.result is None else str(prepared(deck.result, deck.pages[0][0]))
    return (
        '<section class="opening">\n'
        f"<h1>{html.escape(deck.title)}</h1>\n<p>{html.escape(deck.subtitle)}</p>\n{result}\n"
        f'<p class="sources">In the book: {", ".join(pages)}</p>\n{_notes(notes)}\n</section>'
    )


def _section(slide, clock):
    notes = [f"{slide.minutes} min, until minute {clock}."]
    if slide.say:
        notes.append(f"Say: {slide.say}")
    notes += [f"Board: {line}" for line in slide.board]
    marks = {"Answer": slide.answers, "On the board": slide.proved}
    mark = "".join(f'<span class="mark">{text}</span>' for text, on in marks.items() if on)
    label = f' data-label="{slide.label}"' if slide.label else ""
    return (
        f'<section class="{slide.kind}"{label}>\n{mark}{_heading(slide)}\n'
        f'<div class="body">\n{_body(slide)}\n</div>\n{_notes(notes)}\n</section>'
    )


def _heading(slide):
    if slide.kind in ("figure", "slider"):
        number = slide.elements[0].select_one("figcaption .caption-number").get_text().strip()
        words = f"{number}: {slide.heading}"
    elif isinstance(slide.heading, str):
        words = slide.heading
    else:
        heading = prepared(slide.heading, slide.docname)
        for number in heading.select(".section-number"):
            number.decompose()
        return f"<h2>{_linked(slide, heading.decode_contents().strip())}</h2>"
    words = re.sub(r"_(\w+)", r"<sub>\1</sub>", html.escape(words))
    return f"<h2>{_linked(slide, words)}</h2>"


def _linked(slide, words):
    """The heading leads to where the slide was cut from."""
    if not slide.docname:
        return words
    anchor = f"#{slide.label}" if slide.label else ""
    return f'<a href="../{slide.docname}.html{anchor}">{words}</a>'


def _body(slide):
    if not slide.elements:
        return markdown_html(slide.text)
    first = slide.elements[0]
    if slide.kind == "figure":
        image = prepared(first.select_one("img"), slide.docname)
        # Its smallest text, in pixels of the page.
        image["data-text"] = f"{SMALLEST_PT / 72 * FIGURE_DPI / PIXELS:.2f}"
        return f"{image}\n{_seen(first)}"
    if slide.kind == "slider":
        figure = prepared(first.select_one("figure.ssm-slider"), slide.docname, keep_ids=True)
        for image in figure.select("img"):
            image["data-text"] = f"{SMALLEST_PT / 72 * FRAME_DPI / PIXELS:.2f}"
        return f"{figure}\n{_seen(first)}"
    return "\n".join(str(prepared(element, slide.docname)) for element in slide.elements)


def _seen(element):
    """What a picture's caption says first, where there is room beside the picture or below it."""
    caption = prepared(element.select_one("figcaption"), "")
    caption.select_one(".caption-number").decompose()
    words, kept = 0, []
    for sentence in re.split(r"(?<=[.?!]) (?=[A-Z])", " ".join(caption.get_text().split())):
        words += len(sentence.split())
        if kept and words > SEEN:
            break
        kept.append(sentence)
    return f'<p class="seen">{html.escape(" ".join(kept))}</p>'


def prepared(element, docname, keep_ids=False):
    """A copy of a page's element that stands in a deck: addresses from there, no ids, no signs of links."""
    soup = BeautifulSoup("", "html.parser")
    soup.append(copy.copy(element))
    for node in soup.select("a.headerlink, .ssm-slider-note"):
        node.decompose()
    for node in soup.find_all("section"):
        node.name = "div"  # to reveal.js a section is a slide
    for node in soup.find_all(True):
        if not keep_ids:
            node.attrs.pop("id", None)
        for attribute in ("href", "src"):
            if node.get(attribute) and not urlsplit(node[attribute]).scheme:
                node[attribute] = "../" + urljoin(f"{docname}.html", node[attribute])
    return soup.find(True)


def markdown_html(text):
    """A text of the plan as HTML, its formulas between the marks that MathJax reads."""
    parser = MarkdownIt().enable("table").use(dollarmath_plugin, renderer=_formula)
    return parser.render(text)


def _formula(text, options):
    left, right = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
    return f"{left}{html.escape(text)}{right}"


def _notes(lines):
    paragraphs = "\n".join(f"<p>{html.escape(line)}</p>" for line in lines)
    return f'<aside class="notes">\n{paragraphs}\n</aside>'
