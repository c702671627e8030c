"""Sphinx extension: the directive ``{verification-index}``, and an anchor on every checking cell."""

from collections import Counter
from functools import partial

from docutils import nodes

from headsandstates.site import lists
from headsandstates.site.claims import CHECKS, collect, files_read

HEADER = ("Statement", "Whose, where", "Proof", "Checked by", "Guarded by")
WIDTH = 48  # of a line of code in the table


def escape(text):
    """Markdown that stays inside one table cell."""
    return text.replace("|", r"\|").strip() or "—"


def code(text):
    """One line of code as a literal; never cut inside an escaped bar."""
    text = text if len(text) <= WIDTH else text[: WIDTH - 1].rstrip() + "…"
    return f"``{escape(text.replace('`', chr(39)))}``"


def row(claim, docname_of_page):
    """The claim's line of the table, in MyST."""
    up = "../" * docname_of_page.count("/")
    statement = f"{{prf:ref}}`{claim.label}`" if claim.label else claim.kind
    statement += f"<br>**{escape(claim.title)}**" if claim.title else ""
    statement += f"<br>{escape(claim.plain)}" if claim.plain else ""
    proof = "yes" if claim.proved else "—" if claim.kind == "definition" else "no"
    checks = [
        f'<a class="reference internal" href="{up}{check.docname}.html#{CHECKS}{claim.label}">'
        f"cell {check.number}</a> {code(check.line)}"
        for check in claim.checks
    ]
    whose = f"{claim.origin or '—'}<br>{claim.depth}"
    return lists.row((statement, whose, proof, "<br>".join(checks) or "—", guarding(claim.guards)))


def guarding(tests):
    """The files of the guarding tests, each with the number of tests in it."""
    files = Counter(test.partition("::")[0].removeprefix("tests/") for test in tests)
    lines = (f"{count} test{'s' * (count > 1)} in ``{escape(file)}``" for file, count in files.items())
    return "<br>".join(lines) or "—"


class VerificationIndex(lists.Index):
    """Every statement of the book: where it is proved, which cells check it, which tests guard it."""

    def run(self):
        self.made_of(files_read(self.root, self.chapters))
        claims, problems = collect(self.root, self.chapters)
        self.warn(problems, "verification")
        counts = len(claims), sum(bool(c.checks) for c in claims), sum(bool(c.guards) for c in claims)
        text = "{} statements, {} of them checked by cells, {} guarded by unit tests.".format(*counts)
        line = partial(row, docname_of_page=self.env.docname)
        return self.shown([text, *lists.by_chapter(claims, HEADER, line)], "verification-index")


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
