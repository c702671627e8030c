"""A page as its author wrote it: its cells, and the directives in their text, read by one parser of MyST."""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property

import yaml
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from mdit_py_plugins.myst_role import myst_role_plugin

_DIRECTIVE = re.compile(r"\{(?P<name>[a-z:-]+)\}\s*(?P<title>.*)")
_WRITTEN = {"text": "{}", "text_special": "{}", "math_inline": "${}$", "softbreak": " "}
_WRITTEN |= {f"{mark}_{end}": "" for mark in ("link", "em", "strong") for end in ("open", "close")}
_OPTION = re.compile(r":(?P<key>[a-z]+):[ \t]*(?P<value>.*)")


def myst(formula=None):
    """A parser of MyST; ``formula(text, options)`` is how it writes a formula in HTML."""
    parser = MarkdownIt("commonmark").enable("table")
    for plugin in (front_matter_plugin, colon_fence_plugin, myst_block_plugin, myst_role_plugin):
        parser.use(plugin)
    return parser.use(dollarmath_plugin, renderer=formula)


PARSER = myst()


@dataclass
class Directive:
    name: str
    title: str
    options: dict
    text: str  # without its options

    @cached_property
    def inside(self):
        """The directives in its text, and in theirs, in order."""
        return directives(self.text)


def directives(text):
    """Every directive of a MyST text, in order; one in another comes after it."""
    found = []
    for token in PARSER.parse(text):
        match = _DIRECTIVE.fullmatch(token.info.strip()) if token.type in ("fence", "colon_fence") else None
        if match:
            options, inside = _options(token.content.splitlines())
            one = Directive(match["name"], match["title"], options, "\n".join(inside))
            found += [one, *one.inside]
    return found


def said(text):
    """The running text of a MyST text, piece by piece: formulas between dollars, code and roles left out."""
    for token in PARSER.parse(text):
        if token.type == "inline":
            yield "".join(_WRITTEN.get(part.type, " … ").format(part.content) for part in token.children)
        elif token.type.startswith("math_block"):
            yield f"${token.content}$"
        elif token.type in ("fence", "colon_fence") and _DIRECTIVE.fullmatch(token.info.strip()):
            yield _DIRECTIVE.fullmatch(token.info.strip())["title"]
            yield from said("\n".join(_options(token.content.splitlines())[1]))


def _options(lines):
    """(options, the lines after them): in a block between two lines ``---``, or each as ``:key: value``."""
    if lines and lines[0].strip() == "---":
        end = lines.index("---", 1)
        return yaml.safe_load("\n".join(lines[1:end])) or {}, lines[end + 1 :]
    options = {}
    for number, line in enumerate(lines):
        match = _OPTION.fullmatch(line.strip())
        if not match:
            return options, lines[number:]
        options[match["key"]] = match["value"]
    return options, []


@dataclass
class Cell:
    kind: str  # "markdown" or "code"
    text: str
    tags: list = field(default_factory=list)
    metadata: dict = field(default_factory=dict)
    outputs: list = field(default_factory=list)

    @property
    def figure(self):
        """Name and caption of the figure that the cell draws."""
        return self.metadata.get("mystnb", {}).get("figure", {})

    @cached_property
    def directives(self):
        return directives(self.text) if self.kind == "markdown" else []


@dataclass
class Page:
    docname: str
    cells: list

    @property
    def code(self):
        return [cell for cell in self.cells if cell.kind == "code"]

    @property
    def prose(self):
        return "\n\n".join(cell.text for cell in self.cells if cell.kind == "markdown")

    @property
    def directives(self):
        return [directive for cell in self.cells for directive in cell.directives]

    @property
    def said(self):
        """The running text of the page, captions included, piece by piece."""
        captions = (cell.figure.get("caption", "") for cell in self.code)
        texts = [*(cell.text for cell in self.cells if cell.kind == "markdown"), *captions]
        return [piece for text in texts for piece in said(text)]

    @property
    def printed(self):
        """What the cells print, and the alternative texts of what they draw."""
        texts = [cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "") for cell in self.code]
        for output in (output for cell in self.code for output in cell.outputs):
            data = output.get("data", {})
            texts += ["".join(output.get("text", "")), output.get("metadata", {}).get("alt", "")]
            texts += ["".join(data.get(kind, "")) for kind in ("text/plain", "text/html")]
        return re.sub(r'(?<=src=")data:[^"]*', "", "\n".join(texts))


def page_names(root):
    """Every page under ``chapters/`` but lectures, by the name Sphinx gives it, in order of their paths."""
    files = [
        path.relative_to(root) for path in (root / "chapters").rglob("*") if path.parent.name != "lectures"
    ]
    pages = [path for path in files if path.suffix in (".md", ".ipynb") and path.parent.name[0] != "."]
    return sorted(page.with_suffix("").as_posix() for page in pages)


def page_file(root, docname):
    notebook = root / f"{docname}.ipynb"
    return notebook if notebook.is_file() else root / f"{docname}.md"


def read_page(root, docname):
    path = page_file(root, docname)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return Page(docname, [Cell("markdown", text)])
    cells = [
        Cell(
            cell["cell_type"],
            "".join(cell["source"]),
            cell["metadata"].get("tags", []),
            cell["metadata"],
            cell.get("outputs", []),
        )
        for cell in json.loads(text)["cells"]
    ]
    return Page(docname, cells)


def read_pages(root, docnames=None):
    """The pages in the order of their names; None means all under ``chapters/``."""
    return [read_page(root, docname) for docname in (page_names(root) if docnames is None else docnames)]
