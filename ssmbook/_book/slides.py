"""Sphinx extension: decks of slides cut from the built pages, one for each chapter and ready lectures.

    python -m ssmbook._book.slides    # writes them again, from the built book

What a lecture shows stands in ``chapters/slides.yml``, by label; a label that the book lacks fails the build.
A chapter's deck shows its statements, figures, sliders, questions, takeaways and exercises in their order.
"""

import shutil
from pathlib import Path

import yaml

from ssmbook._book import lists
from ssmbook._book.blocks import Book, SlidesError, kind_of
from ssmbook._book.built import HTML
from ssmbook._book.claims import sentences
from ssmbook._book.deck import FOLDER, Deck, Slide, copy_reveal, render
from ssmbook._book.plain_markdown import title as box_title
from ssmbook._book.root import book_root

PLAN = "chapters/slides.yml"
# Minutes of an item in a chapter's deck, where the plan does not say others.
MINUTES = {"statement": 4, "figure": 3, "slider": 4, "takeaway": 1, "exercise": 4}
OTHERWISE = 2
SHORT = 45  # words below an answer; a longer paragraph is spoken
GOALS, SUMMARY, LIMITS = "By the end you can", "In five lines", "What this chapter does not say"


def read_plan(root):
    """The plan, and under ``plain`` what each statement says in one sentence: the heading of its slide."""
    return {**yaml.safe_load((root / PLAN).read_text(encoding="utf-8")), "plain": sentences(root)}


def chapters_of(root):
    """The pages that get a deck: the chapters of the numbered parts, without what stands under them."""
    return [name for name, companions in _parts(root)]


def pages_of(root):
    """The pages of which a lecture may show something: the chapters and what stands under them."""
    return [page for name, companions in _parts(root) for page in (name, *companions)]


def _parts(root):
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    for part in toc["parts"]:
        for chapter in part["chapters"] if part.get("numbered") else ():
            yield chapter["file"], [section["file"] for section in chapter.get("sections", [])]


def block_slide(book, docname, index, plan, **said):
    """The slide of one block; ``said`` (minutes, say, board) wins over the plan's notes on its label."""
    section, element = book.blocks[docname][index]
    kind, label = kind_of(element), book.label(element)
    said = plan["notes"].get(label, {}) | said
    if kind in ("figure", "slider") and not said.get("heading"):
        raise SlidesError(f"{PLAN}: the notes of {label} need a heading that says what the {kind} shows")
    elements = [element]
    after = book.paragraph_after(docname, index)
    if kind == "output":
        elements = element.select(".cell_output")
        if after is not None and _short(after.get_text()):
            elements, after = [*elements, after], None
    if kind == "takeaway":
        section = book.title(docname)
    return Slide(
        kind,
        elements,
        docname,
        label,
        heading=said.get("heading") or plan["plain"].get(label, "").removesuffix(".") or section,
        say=said.get("say") or (book.spoken(after) if after and kind != "question" else ""),
        board=said.get("board", []),
        minutes=said.get("minutes", MINUTES.get(kind, OTHERWISE)),
    )


def _short(text):
    """Whether a paragraph below an answer may stand on its slide: whole sentences, and few."""
    return len(text.split()) <= SHORT and text.rstrip().endswith((".", "?", "!"))


def question_and_answer(book, docname, index, plan, minutes=None, **said):
    """Two slides: the question to the room, and on the next step what the page shows next.

    Above an answer that is printed the question stays.
    """
    before = {} if minutes is None else {"minutes": minutes // 2}
    after = {} if minutes is None else {"minutes": minutes - minutes // 2}
    answer = book.answer(docname, index)
    slides = [block_slide(book, docname, index, plan, **before)]
    if answer is not None:
        slides.append(block_slide(book, docname, answer, plan, **after, **said))
        slides[-1].answers = True
        if slides[-1].kind == "output":
            slides[-1].elements[:0] = slides[0].elements
    return slides, answer


def chapter_deck(book, docname, plan):
    """Everything on a chapter's page that is worth a slide, in order."""
    slides, done, at_home = [], set(), []
    for index, (section, element) in enumerate(book.blocks[docname]):
        kind, heading = kind_of(element), "" if section is None else section.get_text().strip("# \n")
        if index in done:
            continue
        if kind == "question":
            pair, answer = question_and_answer(book, docname, index, plan)
            slides += pair
            done.add(answer)
        elif kind == "exercise" and not box_title(element)[1].startswith("★ "):
            at_home.append(" ".join(box_title(element)))
        elif kind in ("figure", "slider", "statement", "takeaway", "exercise"):
            slides.append(block_slide(book, docname, index, plan))
        elif element.name in ("ul", "ol") and heading.endswith((SUMMARY, LIMITS)):
            slides.append(Slide("list", [element], docname, heading=section, minutes=OTHERWISE))
        elif element.name == "ul" and GOALS in book.blocks[docname][index - 1][1].get_text():
            slides.append(Slide("list", [element], docname, heading=GOALS, minutes=OTHERWISE))
    if at_home:
        text = "\n".join(f"- {name}" for name in at_home)
        slides.append(Slide("point", text=text, heading="To take home", minutes=OTHERWISE))
    title, kind = book.title(docname), "One chapter of Heads and States"
    return Deck(name_of(docname), title, kind, slides, [(docname, title)], book.result(docname))


def lecture_deck(book, lecture, plan):
    """The deck of one lecture of the plan.

    Raises SlidesError for a label that the book lacks, an item of no kind, and minutes that do not add up.
    """
    name, slides = lecture["name"], []
    for item in lecture["slides"]:
        said = {key: item[key] for key in ("minutes", "say", "board") if key in item}
        if "point" in item:
            slides.append(Slide("point", text=item["text"], heading=item["point"], **said))
        elif "ask" in item:
            slides += question_and_answer(book, *book.question(item["ask"]), plan, **said)[0]
        elif "show" in item or "prove" in item:
            docname, index = book.place(item.get("show") or item["prove"])
            slides.append(block_slide(book, docname, index, plan, **said))
            slides[-1].proved = "prove" in item
        else:
            raise SlidesError(f"{PLAN}: {name} has a slide with none of point, ask, show, prove: {item}")
    shown = list(dict.fromkeys(slide.docname for slide in slides if slide.docname))
    pages = [(docname, book.title(docname)) for docname in shown]
    deck = Deck(name, lecture["title"], lecture["for"], slides, pages)
    if (wanted := lecture["minutes"]) != deck.minutes:
        raise SlidesError(f"{PLAN}: the slides of {name} take {deck.minutes} minutes, not {wanted}")
    return deck


def decks(root, html):
    """Every deck of the book: the lectures of the plan, then the chapters."""
    plan, book = read_plan(root), Book(html, pages_of(root))
    for label in plan["notes"]:
        docname, index = book.place(label)
        if (slide := book.label(book.blocks[docname][index][1])) != label:
            raise SlidesError(f"{PLAN}: the slide of {label} bears the label {slide}: notes go there")
    lectures = [lecture_deck(book, lecture, plan) for lecture in plan["lectures"]]
    return lectures + [chapter_deck(book, docname, plan) for docname in chapters_of(root)]


def write(root, html):
    """Write every deck into the folder of the built book."""
    folder = Path(html) / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy_reveal(Path(html) / "_static/reveal")
    for deck in decks(root, html):
        (folder / f"{deck.name}.html").write_text(render(deck), encoding="utf-8")


def name_of(docname):
    return docname.rpartition("/")[2]


def build_finished(app, exception):
    if exception is None and app.builder.name == "html":
        write(Path(app.srcdir), Path(app.outdir))


def add_button(app, pagename, templatename, context, doctree):
    """A link to the chapter's slides, where its other forms are offered."""
    if pagename in chapters_of(Path(app.srcdir)):
        button = {
            "type": "link",
            "text": "Slides",
            "tooltip": "Slides of this chapter",
            "icon": "fas fa-chalkboard",
            "url": context["pathto"](f"{FOLDER}/{name_of(pagename)}.html", 1),
            "label": "slides-button",
        }
        for group in context.get("header_buttons", []):
            if group.get("label") == "launch-buttons":
                group["buttons"].append(button)


class SlidesIndex(lists.Index):
    """A list of the decks, each with a link to it."""

    def run(self):
        self.made_of([self.root / PLAN])
        up = "../" * self.env.docname.count("/") + FOLDER
        link = f'<a class="reference internal" href="{up}/{{}}.html">{{}}</a>'
        lectures = [
            lists.row((link.format(lecture["name"], lecture["title"]), lecture["for"]))
            for lecture in read_plan(self.root)["lectures"]
        ]
        chapters = [
            lists.row((f"{{doc}}`/{page}`", link.format(name_of(page), "slides")))
            for page in chapters_of(self.root)
        ]
        tables = lists.table(("Lecture", "For whom"), lectures), lists.table(("Chapter", "Slides"), chapters)
        return self.shown([*tables[0], "", *tables[1]], "slides-index")


def setup(app):
    app.add_directive("slides-index", SlidesIndex)
    app.connect("html-page-context", add_button, priority=900)
    app.connect("build-finished", build_finished, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    write(book_root(), book_root() / HTML)
