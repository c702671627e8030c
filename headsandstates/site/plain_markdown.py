"""From the built HTML of a page to Markdown that every notebook viewer shows.

The built page knows every number and every link, so nothing is left to resolve: boxes become quotes with a
bold title, formulas TeX between dollars, links addresses of the published page.
"""

import re
from urllib.parse import urljoin

from markdownify import ATX, MarkdownConverter

from headsandstates.site.built import excerpt
from headsandstates.site.claims import ORIGINS

KNOWN = set(
    "a blockquote br code details div em figure h1 h2 h3 h4 h5 hr i img li ol p pre s section span strong "
    "sub summary sup table tbody td th thead tr ul".split()
)
END_OF_PROOF = " ∎"


def markdown(elements, address):
    """The Markdown of neighboring elements of the page at ``address``; the elements stay as they are.

    Raises ValueError for an element that is not known here: it would lose its meaning unseen.
    """
    soup = excerpt(elements)
    for link in soup.find_all("a", href=True):
        link["href"] = urljoin(address, link["href"])
        link.attrs.pop("title", None)
    for box in soup.select("div.admonition"):
        _quote(soup, box)
    for tag in soup.find_all(True):
        if tag.name not in KNOWN:
            raise ValueError(f"{address}: no Markdown for the element <{tag.name}>: {str(tag)[:200]}")
    return re.sub(r"\n{3,}", "\n\n", _Writer().convert_soup(soup)).strip()


def title(box):
    """(name, title) of a box: ("Theorem 8.1", "Head Count"), ("Predict", ""), ("Proof", "")."""
    heading = box.find("p", class_="admonition-title", recursive=False)
    if heading is None:
        return "Proof", ""
    number = heading.find(class_="caption-number")
    if number is None:
        return heading.get_text().strip(), ""
    rest = heading.get_text().replace(number.get_text(), "", 1).strip()
    return number.get_text().strip(), rest.removeprefix("(").removesuffix(")")


def _quote(soup, box):
    """Turn a box into a quote with a bold title; a proof into text with a sign at its end."""
    name, words = title(box)
    heading = box.find("p", class_="admonition-title", recursive=False)
    if heading is None:
        _mark_proof(soup, box)
        return
    heading.clear()
    heading.append(soup.new_tag("strong", string=name if words or box.get("id") else f"{name}."))
    if words:
        heading.append(f" ({words})")
    for origin in ORIGINS:
        if origin in box["class"]:
            heading.extend([" ", soup.new_tag("em", string=f"[{origin}]")])
    box.name = "details" if "dropdown" in box["class"] else "blockquote"
    if box.name == "details":
        heading.name = "summary"


def _mark_proof(soup, box):
    first = box.find(string=re.compile(r"^\s*Proof\."))
    first.replace_with(first.removeprefix("Proof."))
    box.find("p").insert(0, soup.new_tag("em", string="Proof."))
    last = box.find_all(recursive=False)[-1]
    ends_in_text = last.name == "p" and not last.select("div")
    (last if ends_in_text else box).append(END_OF_PROOF)


class _Writer(MarkdownConverter):
    class Options:
        heading_style = ATX
        bullets = "-"
        autolinks = False
        wrap, wrap_width = True, None  # one line a paragraph
        escape_asterisks = False
        escape_underscores = False

    def escape(self, text, parent_tags):
        text = re.sub(r"([\\`*\[\]$<|])", r"\\\1", text)
        text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
        return text if "_inline" in parent_tags else re.sub(r"^(\s*\d+)([.)]\s)", r"\1\\\2", text)

    def convert_span(self, el, text, parent_tags):
        if "math" not in el.get("class", []):
            return text
        return f"${_tex(el, parent_tags)}$"

    def convert_div(self, el, text, parent_tags):
        if "math" not in el.get("class", []):
            return super().convert_div(el, text, parent_tags)
        number = el.find(class_="eqno")
        if number is not None:
            number = number.extract().get_text().strip().strip("()")
        tex = _tex(el, parent_tags) + (rf" \tag{{{number}}}" if number else "")
        # On one line in quotes and lists: viewers cut formulas out before they see the mark of a quote.
        nested = {"blockquote", "li"} & parent_tags
        return f"\n\n$${tex}$$\n\n" if nested else f"\n\n$$\n{tex}\n$$\n\n"

    def convert_details(self, el, text, parent_tags):
        return f"\n\n<details>\n{text.strip()}\n\n</details>\n\n"

    def convert_summary(self, el, text, parent_tags):
        # A summary is HTML: its formulas go between dollars, as notebooks expect, and a title's own
        # full stop takes the place of the box's.
        words = re.sub(r"\\\((.*?)\\\)", r"$\1$", el.decode_contents().strip())
        return f"<summary>{words.replace('..</strong>', '.</strong>')}</summary>\n\n"


def _tex(element, parent_tags):
    r"""The text between ``\(`` and ``\)`` or ``\[`` and ``\]``, on one line."""
    text = " ".join(element.get_text().split())
    text = re.sub(r"^\\[(\[]|\\[)\]]$", "", text).strip()
    # Sphinx puts a split around every formula of several lines; around an aligned one it has no effect.
    inner = re.fullmatch(r"\\begin\{split\} ?(\\begin\{(\w+)\}.*\\end\{\2\}) ?\\end\{split\}", text)
    if inner and inner[1].count(rf"\begin{{{inner[2]}}}") == 1:
        text = inner[1]
    if {"td", "th"} & parent_tags:  # a bar would end the cell
        text = text.replace(r"\|", r"\Vert ").replace("|", r"\vert ")
    return text.strip()
