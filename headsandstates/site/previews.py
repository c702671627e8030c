"""What a reference shows and what the search finds, read from the built pages.

``previews-index.js`` has what is shown of each place to which a link leads, and ``search-index.js`` has the
words of every place. Both are scripts, because a page opened from the disk can load nothing else.
"""

import json
import re
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import yaml
from bs4 import BeautifulSoup

from headsandstates.site.built import BREAK, chapters, source
from headsandstates.site.claims import sentences

SYNONYMS = "chapters/synonyms.yml"
PLACES = ":is(section, .proof, .exercise, figure, div.math, .citation, dt.sig)[id]"
SKIPPED = (
    "a.headerlink, details.hide, script, style, source, .toctree-wrapper, .ssm-slider, .cell_input, .output,"
    ".solution, .verification-index, .novelty-index, .solutions-index, table.autosummary"
)
HEAVY = re.compile(rf'<pre>.*?</pre>|(?<=src=")data:[^"]*|{BREAK}', re.DOTALL)
LINK = re.compile(r'<a class="reference internal" href="([^"]+)"')
KEPT = {"data-src", "width", "height", "start"}
BEGINNING = 250  # letters of a section that are shown, and then the rest of the paragraph


@dataclass
class Place:
    """Something to which a link can lead."""

    address: str  # from the folder of the site
    kind: str
    name: str
    words: str  # its text, with formulas in TeX
    shown: str = ""  # HTML


def places(article, docname, linked):
    """The places of a page, the last first; each is taken out, so that none has the words of another."""
    for node in article.select(SKIPPED):
        node.decompose()
    for row in article.select("#notation tr:has(td)"):
        symbol, *meaning = (plain(cell) for cell in row.find_all("td"))
        address = f"{docname}.html#{row.find_parent('section')['id']}"
        yield Place(address, "Symbol", symbol, " · ".join(filter(None, meaning)))
    for node in reversed(article.select(PLACES)):
        kind, name, parts = read(node)
        parts = list(filter(None, parts))
        labels = [node, *node.find_all("span", id=True, recursive=False)]
        addresses = [f"{docname}.html#{label['id']}" for label in labels]
        if kind == "Page":
            addresses.insert(0, f"{docname}.html")
        words = " ".join(map(plain, parts))
        first = begin(parts) if kind in ("Page", "Section") else parts
        html = "".join(shown(part, docname) for part in first) if linked.intersection(addresses) else ""
        for address in addresses:
            yield Place(address, kind, name, words if address == addresses[0] else "", html)
        if kind not in ("Equation", "Page"):  # an equation remains in its statement
            (node.parent if kind == "Python" else node).extract()


def read(node):
    """(kind, name, elements) of what stands at a place."""
    if node.name == "section":
        title, *parts = [part for part in node.find_all(True, recursive=False) if part.name != "span"]
        title = title.h1 or title  # a chapter's title stands beside its mosaic
        return "Page" if title.name == "h1" else "Section", plain(title), parts
    if node.name == "dt":
        signature = BeautifulSoup(f"<p><code>{plain(node)}</code></p>", "html.parser").p
        return "Python", node["id"].partition(".")[2], [signature, node.find_next_sibling("dd").p]
    if "math" in node["class"]:
        return "Equation", f"Equation {plain(node.select_one('.eqno'))}", [node]
    if "citation" in node["class"]:
        return "Source", "", [node.p]
    caption = node.select_one(".caption-number")
    if node.name == "figure":
        return "Figure", plain(caption) if caption else "", [node.img, node.select_one(".caption-text")]
    name = plain(node.select_one(".admonition-title"))
    return name.split()[0], name, node.find_all("section", recursive=False)


def plain(node):
    return re.sub(r"\s+", " ", node.get_text()).strip()


def begin(parts):
    """The paragraphs and lists at the beginning of a section."""
    letters = 0
    for part in parts:
        if part.name in ("p", "ul", "ol") and letters < BEGINNING:
            letters += len(part.get_text())
            yield part


def shown(part, docname):
    """An element as HTML without links, ids and styles; the page completes the address of its picture."""
    part = copy(part)
    for node in part.select(".eqno"):
        node.decompose()
    for node in [part, *part.find_all(True)]:
        if node.name == "img":
            node["data-src"] = urljoin(docname, node["src"])
        formula = "math" in node.get("class", [])
        node.attrs = {"class": "math"} if formula else {k: v for k, v in node.attrs.items() if k in KEPT}
        if node is not part and (node.name in ("a", "section") or (node.name == "span" and not formula)):
            node.unwrap()
    return str(part).strip()


def load_index(app, pagename, templatename, context, doctree):
    if pagename == "search":
        app.add_js_file("search-index.js")


def write_indices(app):
    html, root = Path(app.outdir), Path(app.srcdir)
    articles, linked, found = {}, set(), []
    for path in chapters(html):
        docname, text = path.relative_to(html).with_suffix("").as_posix(), source(path)
        article = HEAVY.sub("", text[text.index("<article") : text.index("</article>")])
        articles[docname] = article
        linked |= {urljoin(f"{docname}.html", href) for href in ("", *LINK.findall(article))}
    for docname, article in articles.items():
        found += places(BeautifulSoup(article, "html.parser"), docname, linked)
    plainly = sentences(root)
    for place in found:
        place.words = f"{plainly.get(place.address.partition('#')[2], '')} {place.words}".strip()
    rows = [[place.kind, place.name, place.address, place.words] for place in found if place.words]
    synonyms = yaml.safe_load((root / SYNONYMS).read_text(encoding="utf-8"))
    previews = {place.address: [place.name, place.shown] for place in found if place.address in linked}
    write(html / "_static/previews-index.js", "bookPreviews", previews)
    write(html / "_static/search-index.js", "bookSearch", {"rows": rows, "synonyms": synonyms})


def write(path, variable, value):
    """A script that sets a global variable."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(f"window.{variable} = {text};\n", encoding="utf-8")
