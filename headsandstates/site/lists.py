"""What the generated lists of the book share: tables in MyST, parsed in place of their directive."""

from itertools import groupby
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(header, rows):
    return [row(header), "|" + " --- |" * len(header), *rows]


def by_chapter(entries, header, line):
    """One table for each chapter under the chapter's name, in reading order; ``line(entry)`` is a row."""
    for chapter, members in groupby(entries, key=lambda entry: entry.docname):
        yield from ("", f"**{{doc}}`/{chapter}`**", "", *table(header, map(line, members)))


class Index(SphinxDirective):
    """A directive that lists what the sources hold."""

    @property
    def root(self):
        return Path(self.env.srcdir)

    @property
    def chapters(self):
        """The pages under ``chapters/``, in the order of the book."""
        return [page for page in map(str, self.config.external_site_map) if page.startswith("chapters/")]

    def made_of(self, paths):
        for path in paths:
            self.env.note_dependency(str(path))

    def warn(self, problems, kind):
        for problem in problems:
            logger.warning("%s", problem, location=self.env.docname, type=kind)

    def shown(self, lines, *classes):
        holder = nodes.container(classes=list(classes))
        text = StringList(list(lines), source=self.env.docname)
        self.state.nested_parse(text, self.content_offset, holder)
        return [holder]
