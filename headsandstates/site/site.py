"""A site that fetches nothing from other hosts, and one place for its address."""

import re
import shutil
from html import escape
from importlib.metadata import files
from pathlib import Path
from urllib.parse import quote, urlsplit

from docutils import nodes

from headsandstates.site.built import BREAK, MOVED, rewrite
from headsandstates.sliders import stacked
from ssmbook.display.images import page_size, pixel_size

MATHJAX_PACKAGE = "sphinx-mathjax-offline"
# Of the package's 15 MB: the program, its fonts, what `\cancel` and the like load, and English speech.
MATHJAX_PARTS = (
    "tex-chtml.js",
    "output/chtml/fonts/woff-v2",
    "input/tex/extensions",
    "a11y",
    "sre/mathmaps/base.json",
    "sre/mathmaps/en.json",
)
EDITION_BRANCH = "notebooks"
REPORT = "Report an error on this page"
FIRST_CHAPTER = "chapters/1-one-operator/two-ways-to-mix"
OF_A_CELL = re.compile(r"[0-9a-f]{40,}\.png")  # a cell's picture goes by what is in it
REPEATED_IDS = {"proof-content", "proof", "exercise-content", "solution-content"}
SPHINX_SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js"></script>')
SIDEBAR = 'class="bd-sidebar-primary bd-sidebar'
TOGGLE = '<summary><span class="toctree-toggle"'
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>This page moved</title>
<script>location.replace("{page}" + (location.hash || "#{place}"))</script>
<noscript><meta http-equiv="refresh" content="0; url={page}#{place}"></noscript>
</head><body><p>This page moved <a href="{page}#{place}">here</a>.</p></body></html>
"""
NAME = re.compile(r'(?<=<span class="pre">)[^<]{12,}(?=</span>)')
SYLLABLE = re.compile(r"(?<=[\w)\]])([._/]|\(|=)(?=\w)|(?<=[a-z])(?=[A-Z])")
SENTENCE = re.compile(r"(?<=[^\W\d_]{2})\. ")  # a name may have initials


def mathjax_folder():
    """Where the package has MathJax."""
    (program,) = (entry for entry in files(MATHJAX_PACKAGE) if entry.name == "tex-chtml.js")
    return Path(program.locate()).parent


def copy_mathjax(app):
    source, target = mathjax_folder(), Path(app.outdir) / "_static" / "mathjax"
    for part in MATHJAX_PARTS:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / part, target / part)


def drop_stale_pages(app):
    """A renamed or withdrawn page does not stay behind in the folder that is published."""
    for page in (Path(app.outdir) / "chapters").rglob("*.html"):
        if page.relative_to(app.outdir).with_suffix("").as_posix() not in app.env.found_docs:
            page.unlink()


def open_moved_pages(app):
    """Let the old address of a page that moved open the new one, at the place that it names."""
    for old, new in MOVED.items():
        page, _, place = new.partition("#")
        text = REDIRECT.format(page=app.builder.get_relative_uri(old, page), place=place)
        Path(app.outdir, f"{old}.html").write_text(text, encoding="utf-8")


def visit_image(self, node):
    """Write how large a PNG is, so that the text below it does not jump when it arrives.

    A figure of several panels also gets the form that a phone shows, its panels one below the other.
    """
    path = Path(self.builder.srcdir, node["uri"])
    type(self).visit_image(self, node)
    if path.suffix == ".png" and "width" not in node:
        png, of_a_cell = path.read_bytes(), OF_A_CELL.fullmatch(path.name)
        tag = self.body[-1] = self.body[-1].replace("<img ", f"<img {size(png, of_a_cell)} ", 1)
        narrow = stacked(png) if of_a_cell else None
        if narrow:
            name = path.with_suffix(".narrow.png").name
            folder = Path(self.builder.outdir, self.builder.imagedir)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(narrow)
            address = f"{self.builder.imgpath}/{name}"
            source = f'<source media="(max-width: 540px)" srcset="{address}" {size(narrow, True)}>'
            self.body[-1] = f"<picture>{source}{tag.strip()}</picture>\n"


def size(png, dense):
    """A PNG's width and height on the page, as attributes."""
    width, height = page_size(png).values() if dense else pixel_size(png)
    return f'width="{width}" height="{height}"'


def keep_formulas_whole(app, doctree, docname):
    """Put a formula and the brackets and stops that touch it into one box; browsers would part them."""
    for formula in list(doctree.findall(nodes.math)):
        parent, place = formula.parent, formula.parent.index(formula)
        before, after = ([*parent[:place], ""][place - 1] if place else ""), [*parent[place + 1 :], ""][0]
        opening = re.search(r"[(“]*$", before)[0] if isinstance(before, nodes.Text) else ""
        closing = re.match(r"\S*", after)[0] if isinstance(after, nodes.Text) else ""
        if opening or closing:
            parts = nodes.Text(opening), formula.deepcopy(), nodes.Text(closing)
            parent.replace(formula, nodes.inline("", "", *parts, classes=["unbroken"]))
            if opening:
                parent.replace(before, nodes.Text(before.removesuffix(opening)))
            if closing:
                parent.replace(after, nodes.Text(after.removeprefix(closing)))


def put_attributions_beside(app, doctree, docname):
    """A paragraph that says whose result it is may stand in the margin, if there is one (book.css)."""
    for paragraph in doctree.findall(nodes.paragraph):
        first = paragraph.children[0] if paragraph.children else None
        if isinstance(first, nodes.emphasis) and first.astext() == "Attribution.":
            paragraph["classes"] += ["attribution", "margin"]  # the theme hides its contents beside a margin


def put_works_beside(app, doctree, docname):
    """Name a work in the margin, beside the paragraph that cites it first on its page."""
    seen = set()
    for paragraph in list(doctree.findall(nodes.paragraph)):
        if not isinstance(paragraph.parent, nodes.section):
            continue
        notes = ""
        for link in paragraph.findall(nodes.reference):
            key = link.get("refuri", link.get("refid", "")).partition("cite-")[2]
            parts = SENTENCE.split(link.get("reftitle", ""))
            if key and key not in seen and len(parts) > 1:
                seen.add(key)
                notes += f"<span><b>{escape(link.astext())}</b> <i>{escape(parts[1].rstrip('.'))}.</i></span>"
        if notes:
            note = nodes.raw("", f'<aside class="margin-note">{notes}</aside>', format="html")
            paragraph.parent.insert(paragraph.parent.index(paragraph), note)


def finish_pages(app):
    """Let long names in code break between their words, and give what unfolds companion pages a name.

    A page is light until a script says otherwise ("auto" means neither), and the book has its own search.
    """

    def finished(text):
        text = NAME.sub(lambda name: SYLLABLE.sub(rf"\1{BREAK}", name[0]), text)
        if 'class="lab-place' in text:  # the board takes the window
            text = re.sub(rf"{SIDEBAR}(?! pst)", f"{SIDEBAR} pst-sidebar-hidden", text)
        text = text.replace(TOGGLE, TOGGLE.replace(">", ' aria-label="Companion pages">', 1))
        return SPHINX_SEARCH.sub("", text.replace(' data-theme="auto"', ' data-theme="light"', 1))

    rewrite(Path(app.outdir).rglob("*.html"), finished)


def pages_address(repository_url):
    """Where GitHub Pages serves a repository: https://<owner>.github.io/<name>/."""
    owner, name = urlsplit(repository_url).path.strip("/").split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def fill_addresses(app, config):
    site = pages_address(config.html_theme_options["repository_url"])
    config.ogp_site_url = site
    config.ogp_image = site + "_static/card.png"
    owner_and_name = urlsplit(config.html_theme_options["repository_url"]).path.strip("/")
    first = f"github/{owner_and_name}/blob/{EDITION_BRANCH}/{FIRST_CHAPTER}.ipynb"
    config.myst_substitutions["colab"] = f"[Colab](https://colab.research.google.com/{first})"


def drop_thebe(app, pagename, templatename, context, doctree):
    """Thebe is off, yet it leaves scripts on every page, one of them pointing to another host."""
    scripts = context.get("script_files", [])
    context["script_files"] = [each for each in scripts if "thebe" not in str(each).lower()]


def add_laboratory(app, pagename, templatename, context, doctree):
    """Load the laboratory where a page has something that it makes alive."""
    if "data-lab=" in context.get("body", ""):
        app.add_css_file("lab.css")
        if 'data-lab="laboratory"' in context["body"]:
            app.add_js_file("film.js")
        app.add_js_file("lab.js")


def header_buttons(context):
    return [button for group in context.get("header_buttons", []) for button in group.get("buttons", [])]


def open_plain_notebooks(app, pagename, templatename, context, doctree):
    """Colab knows no MyST: its button opens the notebook edition, which has a branch of its own."""
    branch = app.config.html_theme_options["repository_branch"]
    for button in header_buttons(context):
        if button.get("text") == "Colab":
            button["url"] = button["url"].replace(f"/blob/{branch}/", f"/blob/{EDITION_BRANCH}/")


def follow_main_path(app, pagename, templatename, context, doctree):
    """Let "previous" and "next" pass over companion pages; these lead to their chapter and the next one."""
    relations, outside = app.builder.relations, {app.config.root_doc, None}
    for name, step in (("prev", 1), ("next", 2)) if pagename in relations else ():
        page = relations[pagename][step]
        while page and relations[page][0] not in outside:
            page = relations[page][step]
        title = page and app.builder.render_partial(app.env.titles[page])["title"]
        link = page and app.builder.get_relative_uri(pagename, page)
        context[name] = {"link": link, "title": title} if page else None


def ask_for_errors(app, pagename, templatename, context, doctree):
    """Link the end of each page, and its GitHub menu, to the form for errors, with the page filled in."""
    repository = app.config.html_theme_options["repository_url"]
    form = f"{repository}/issues/new?template=error.yml&page={quote(pagename)}"
    for button in header_buttons(context):
        if button.get("label") == "source-issues-button":
            button |= {"url": form, "text": REPORT, "tooltip": REPORT}
    link = f'<p><a href="{escape(form)}">{REPORT}</a></p>\n'
    context["theme_extra_footer"] = link + (context.get("theme_extra_footer") or "")


def drop_repeated_ids(app, doctree, docname):
    """Boxes of theorems, proofs, exercises and solutions all have the same ids; an id must be unique."""
    for node in doctree.findall(nodes.Element):
        if node.get("ids") and REPEATED_IDS.issuperset(node["ids"]):
            node["ids"] = []
