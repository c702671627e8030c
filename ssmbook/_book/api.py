"""Sphinx extension: the directive ``{api-reference} folder``, the public names of one folder of the library.

Sphinx's autosummary and autodoc do the work. This extension gives them the names, and turns the docstrings,
which are plain text, into reST with links to citations, theorems and the page that uses a name first.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

from ssmbook._book.claims import sources
from ssmbook._book.public import kind, public_modules, public_names

# What is left alone: examples, code, roles, citations, and *words* in emphasis.
_EXAMPLE = r"(?m:^ *>>> )(?s:.*?)(?=\n *\n|\Z)"
_KEPT = re.compile(
    rf"({_EXAMPLE}|``[^`]+``|:[a-z:]+:`[^`]+`|`[^`]+`"
    r"|(?<![\w*`])\*[A-Za-z][\w -]*\*(?![\w*`]))"
)
_CITED = re.compile(r"`[a-z]+[0-9]{4}[a-z]+`")
_LABEL = re.compile(r"\b((?:thm|prop|lem|cor|def)-[a-z0-9-]*[a-z0-9])")


def reference(module):
    """The reST of one module: what it is, a sentence for each name, then every docstring in full."""
    names = public_names(module)
    lines = [f".. automodule:: {module.__name__}", "", f".. currentmodule:: {module.__name__}", ""]
    lines += [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    for name in names:
        what = kind(getattr(module, name))
        lines += [f".. auto{what}:: {name}"]
        lines += {"class": ["   :members:"], "data": ["   :no-value:"]}.get(what, []) + [""]
    return lines


class ApiReference(SphinxDirective):
    """One folder of the library, module by module."""

    required_arguments = 1

    def run(self):
        holder = nodes.container(classes=["api-reference"])
        modules = public_modules(self.arguments[0])
        for page, *_ in self.env.app.api_page_codes:
            self.env.note_dependency(f"{page}.ipynb")
        for module in modules:
            lines = reference(module)
            if len(modules) > 1:
                lines = [f".. rubric:: {module.__name__}", "", *lines]
            text = StringList(["````{eval-rst}", *lines, "````"], source=self.env.docname)
            self.state.nested_parse(text, self.content_offset, holder)
        # Each eval-rst numbers its citations from id1; nothing points to them, and an id must be unique.
        for node in holder.findall(nodes.Element):
            node["ids"] = [name for name in node["ids"] if not re.fullmatch(r"id[0-9]+", name)]
        return [holder]


def rest(text):
    """A plain docstring as reST."""
    parts = _KEPT.split(text)
    for index, part in enumerate(parts):
        if index % 2 == 0:
            parts[index] = _LABEL.sub(r":prf:ref:`\1`", re.sub(r"([*|\\])", r"\\\1", part))
        elif _CITED.fullmatch(part):
            parts[index] = f":cite:{part}"
        elif part[0] == "`" and part[1] != "`":
            parts[index] = f"`{part}`"
    return "".join(parts)


def constant_docstring(name, value):
    """The string under an assignment, wherever in its package the value is defined."""
    package, _, attribute = name.rpartition(".")
    for module in [module for key, module in sys.modules.items() if key.startswith(package)]:
        if vars(module).get(attribute) is value:
            found = ModuleAnalyzer.for_module(module.__name__).find_attr_docs().get(("", attribute))
            if found:
                return [line for line in found if line]
    return [f"A ``{type(value).__name__}``."]


def page_codes(root, pages):
    """(page, visible code, all code) of every page with code: numbered chapters first, then the others."""
    folded = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
    for page, cells in sources(root, sorted(pages, key=lambda page: not re.match(r"chapters/[0-9]", page))):
        code = [(text, tags) for kind, text, tags in cells if kind == "code"]
        if code:
            visible = [text for text, tags in code if not folded.intersection(tags)]
            yield page, "\n".join(visible), "\n".join(text for text, _ in code)


def introducing_page(full_name, codes):
    """The first page whose visible code uses a name, else the first whose folded code does, or None."""
    module, _, name = full_name.rpartition(".")
    dotted = rf"\b{module.rpartition('.')[2]}\.{name}\b"
    imported = re.compile(rf"^ *from {module} import [^#\n]*\b{name}\b", re.MULTILINE)
    uses = []
    for page, visible, code in codes:
        use = re.compile(rf"{dotted}|(?<![\w.]){name}\b" if imported.search(code) else dotted)
        if use.search(code):
            uses.append((page, bool(use.search(visible))))
    seen = [page for page, is_visible in uses if is_visible] or [page for page, _ in uses]
    return seen[0] if seen else None


def process_docstring(app, what, name, value, options, lines):
    if what == "data":
        lines[:] = constant_docstring(name, value)
    lines[:] = rest("\n".join(lines)).split("\n")
    page = introducing_page(name, app.api_page_codes) if what in ("class", "function") else None
    if page:
        lines += ["", f"Used in :doc:`{page.rpartition('/')[2]} </{page}>`.", ""]


def read_codes(app, env, docnames):
    pages = [page for page in map(str, app.config.external_site_map) if page.startswith("chapters/")]
    app.api_page_codes = list(page_codes(Path(app.srcdir), pages))


def skip_member(app, what, name, value, skip, options):
    """True for a field of a named tuple: Python gives its number alone, the class's docstring its meaning."""
    return True if (value.__doc__ or "").startswith("Alias for field number") else None


def setup(app):
    app.add_directive("api-reference", ApiReference)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("env-before-read-docs", read_codes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
