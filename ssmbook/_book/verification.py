"""Sphinx extension: the directive ``{verification-index}``, and an anchor on every checking cell."""

from collections import Counter
from itertools import groupby
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from ssmbook._book.claims import CHECKS, collect, watched

logger = logging.getLogger(__name__)

HEADER = ("Statement", "Whose, where", "Proof", "Checked by", "Guarded by")


def escape(text):
    """Markdown that stays inside one table cell."""
    return text.replace("|", r"\|").strip() or "—"


def code(text, width=48):
    """One line of code as a literal; never cut inside an escaped bar."""
    text = text if len(text) <= width else text[: width - 1].rstrip() + "…"
    return f"``{escape(text.replace('`', chr(39)))}``"


def row(claim, docname_of_page):
    """The claim's line of the table, in MyST."""
    up = "../" * docname_of_page.count("/")
    statement = f"{{prf:ref}}`{claim.label}`" if claim.label else claim.kind
    statement += f"<br>**{escape(claim.title)}**" if claim.title else ""
    statement += f"<br>{escape(claim.plain)}" if claim.plain else ""
    proof = {True: "yes", False: "—" if claim.kind == "definition" else "no"}[claim.proved]
    checks = [
        f'<a class="reference internal" href="{up}{check.docname}.html#{CHECKS}{claim.label}">'
        f"cell {check.number}</a> {code(check.line)}"
        for check in claim.checks
    ]
    cells = (
        statement,
        f"{claim.origin or '—'}<br>{claim.depth}",
        proof,
        "<br>".join(checks) or "—",
        guarding(claim.guards),
    )
    return "| " + " | ".join(cells) + " |"


def guarding(tests):
    """The files of the guarding tests, each with the number of tests in it."""
    files = Counter(test.partition("::")[0].removeprefix("tests/") for test in tests)
    counts = (f"{count} test" + "s" * (count > 1) for count in files.values())
    return "<br>".join(f"{n} in ``{escape(file)}``" for file, n in zip(files, counts, strict=True)) or "—"


def tables(claims, docname):
    """One table for each chapter under the chapter's name, in reading order."""
    lines = []
    for chapter, members in groupby(claims, key=lambda claim: claim.docname):
        lines += ["", f"**{{doc}}`/{chapter}`**", ""]
        lines += ["| " + " | ".join(HEADER) + " |", "|" + " --- |" * len(HEADER)]
        lines += [row(claim, docname) for claim in members]
    return lines


class VerificationIndex(SphinxDirective):
    """Every statement of the book: where it is proved, which cells check it, which tests guard it."""

    def run(self):
        root = Path(self.env.srcdir)
        pages = [str(page) for page in self.config.external_site_map if str(page).startswith("chapters/")]
        for path in watched(root, pages):
            self.env.note_dependency(str(path))
        claims, problems = collect(root, pages)
        for problem in problems:
            logger.warning("%s", problem, location=self.env.docname, type="verification")
        holder = nodes.container(classes=["verification-index"])
        counted = (
            f"{len(claims)} statements, {sum(bool(c.checks) for c in claims)} of them checked by cells, "
        )
        counted += f"{sum(bool(c.guards) for c in claims)} guarded by unit tests."
        text = [counted, *tables(claims, self.env.docname)]
        self.state.nested_parse(StringList(text, source=self.env.docname), self.content_offset, holder)
        return [holder]


def anchor_checks(app, doctree):
    """Give each checking cell an id for the index to point at; of several cells the first takes it."""
    taken = set()
    for cell in doctree.findall(nodes.container):
        for tag in cell.get("cell_metadata", {}).get("tags", []):
            if tag.startswith(CHECKS) and tag not in taken:
                taken.add(tag)
                cell["ids"].append(tag)


def setup(app):
    app.add_directive("verification-index", VerificationIndex)
    app.connect("doctree-read", anchor_checks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
