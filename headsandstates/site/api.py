"""``{api-reference} folder`` for the public names of one folder of the library, with links.

``{api-overview} folder`` has one line for each of them, which leads there, and so do the names in the cells.
Sphinx's autosummary and autodoc do the work. This extension gives them the names, and turns the docstrings,
which are plain text, into reST with links to citations, theorems and the page that uses a name first.
"""

import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import indent

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

from headsandstates.site.page import read_pages
from headsandstates.site.public import everything, kind, public_modules, public_names

# What is left alone: examples, code, roles, citations, and *words* in emphasis.
_EXAMPLE = r"(?m:^ *>>> )(?s:.*?)(?=\n *\n|\Z)"
_KEPT = re.compile(
    rf"({_EXAMPLE}|``[^`]+``|:[a-z:]+:`[^`]+`|`[^`]+`"
    r"|(?<![\w*`])\*[A-Za-z][\w -]*\*(?![\w*`]))"
)
_CITED = re.compile(r"`[a-z]+[0-9]{4}[a-z]+`")
# The sections of a docstring, as NumPy writes them: a title, then entries with an indented description.
ENTRY = re.compile(r"^(?!>>> )(\S.*)\n((?: +\S.*\n+)+)", re.MULTILINE)
SECTION = re.compile(
    rf"^(Parameters|Attributes|Returns|Yields|Raises)\n-{{3,}}\n((?:{ENTRY.pattern})+)", re.MULTILINE
)
_TITLE = re.compile(r"^([A-Z][A-Za-z ]*)\n-{3,}$", re.MULTILINE)
_LABEL = re.compile(r"\b((?:thm|prop|lem|cor|def)-[a-z0-9-]*[a-z0-9])")


def overview(module):
    """The reST of a table with a sentence for each name of one module."""
    lines = [f".. currentmodule:: {module.__name__}", "", ".. autosummary::", "   :nosignatures:", ""]
    return [*lines, *(f"   {name}" for name in public_names(module)), ""]


def reference(module):
    """The reST of one module: what it is, a sentence for each name, then every docstring in full."""
    lines = [f".. automodule:: {module.__name__}", "", *overview(module)]
    for name in public_names(module):
        what = kind(getattr(module, name))
        lines += [f".. auto{what}:: {name}"]
        lines += {"class": ["   :members:"], "data": ["   :no-value:"]}.get(what, []) + [""]
    return lines


class ApiReference(SphinxDirective):
    """One folder of the library, module by module."""

    required_arguments = 1
    written = staticmethod(reference)

    def run(self):
        holder = nodes.container(classes=["api-reference"])
        modules = public_modules(self.arguments[0])
        for page, *_ in self.env.app.api_page_codes:
            self.env.note_dependency(f"{page}.ipynb")
        for module in modules:
            lines = self.written(module)
            if len(modules) > 1:
                lines = [f".. rubric:: {module.__name__}", "", *lines]
            text = StringList(["````{eval-rst}", *lines, "````"], source=self.env.docname)
            self.state.nested_parse(text, self.content_offset, holder)
        # Each eval-rst numbers its citations from id1; nothing points to them, and an id must be unique.
        for node in holder.findall(nodes.Element):
            node["ids"] = [name for name in node["ids"] if not re.fullmatch(r"id[0-9]+", name)]
        return [holder]


class ApiOverview(ApiReference):
    """A line for each name of one folder."""

    written = staticmethod(overview)


def rest(text):
    """A plain docstring as reST."""
    parts = _KEPT.split(text)
    for index, part in enumerate(parts):
        if index % 2 == 0:
            parts[index] = _LABEL.sub(r":prf:ref:`\1`", re.sub(r"([*|\\]|_(?!\w))", r"\\\1", part))
        elif _CITED.fullmatch(part):
            parts[index] = f":cite:{part}"
        elif part[0] == "`" and part[1] != "`":
            parts[index] = f"`{part}`"
    return "".join(parts)


def typeset(text):
    """Sections as fields of reST, each a list of definitions with names in bold; other titles as rubrics."""

    def field(section):
        named = re.sub(r"^(\S.*?) : ", r"**\1** : ", section[2], flags=re.MULTILINE)
        return f":{section[1]}:\n\n{indent(named, '    ')}\n"

    return _TITLE.sub(r".. rubric:: \1\n", SECTION.sub(field, text))


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
    for page in read_pages(root, sorted(pages, key=lambda name: not re.match(r"chapters/[0-9]", name))):
        if page.code:
            visible = [cell.text for cell in page.code if not folded.intersection(cell.tags)]
            yield page.docname, "\n".join(visible), "\n".join(cell.text for cell in page.code)


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
    lines[:] = typeset(rest("\n".join(lines)) + "\n").split("\n")
    page = introducing_page(name, app.api_page_codes) if what in ("class", "function") else None
    if page:
        lines += ["", f"Used in :doc:`{page.rpartition('/')[2]} </{page}>`.", ""]


def read_codes(app, env, docnames):
    pages = [page for page in map(str, app.config.external_site_map) if page.startswith("chapters/")]
    app.api_page_codes = list(page_codes(Path(app.srcdir), pages))


def skip_member(app, what, name, value, skip, options):
    """True for a field of a named tuple: Python gives its number alone, the class's docstring its meaning."""
    return True if (value.__doc__ or "").startswith("Alias for field number") else None


# A name, and the name after its dot, as Pygments writes them.
_WRITTEN = re.compile(
    r'(?<!\.</span>)<span class="n">(\w+)</span>(?:<span class="o">\.</span><span class="n">(\w+)</span>)?'
)
_CODE = re.compile(r'(?<=<div class="highlight-ipython3 notranslate">).*?(?=</pre>)', re.DOTALL)
_IMPORT = re.compile(r"(?m)^ *from (ssmbook[\w.]*|headsandstates\.(?:lab|sliders)) import ([^#\n]*)")


def imported_names(code, entries):
    """{name: full name} of what the code of a page imports from the library."""
    public, names = {id(value): full for full, value in everything().items()}, {}
    for module, found in _IMPORT.findall(code):
        for name in re.findall(r"\w+", found):
            full = f"{module}.{name}"
            names[name] = (
                full if full in entries else public.get(id(getattr(import_module(module), name, None)), full)
            )
    return names


def link_code(app):
    """Where a cell first uses a name of the library, link it to its entry."""
    entries = app.env.domains["py"].objects

    def link(use, docname, names, seen):
        name, attribute = use.groups()
        full = names.get(name, "")
        whole = f"{full}.{attribute}" in entries
        entry = entries.get(f"{full}.{attribute}" if whole else full)
        if entry is None or entry.objtype == "module" or use[0] in seen:
            return use[0]
        seen.add(use[0])
        part = use[0] if whole else f'<span class="n">{name}</span>'
        address = app.builder.get_relative_uri(docname, entry.docname) + f"#{entry.node_id}"
        return f'<a class="code-link" href="{address}">{part}</a>{use[0].removeprefix(part)}'

    def link_cell(cell, **page):
        return _WRITTEN.sub(partial(link, **page, seen=set()), cell[0])

    for docname, _, code in app.api_page_codes:
        page = Path(app.builder.get_outfilename(docname))
        text = page.read_text(encoding="utf-8")
        names = imported_names(code, entries)
        if 'class="code-link"' not in text:  # from an earlier build
            linked = _CODE.sub(partial(link_cell, docname=docname, names=names), text)
            page.write_text(linked, encoding="utf-8")
