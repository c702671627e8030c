"""What the generated lists of the book share: a template in MyST, parsed in place of their directive."""

from itertools import groupby
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from headsandstates.site.built import TEMPLATES

logger = logging.getLogger(__name__)


def chapters(entries):
    """[(chapter, its entries)] in reading order."""
    return [(name, list(members)) for name, members in groupby(entries, key=lambda entry: entry.docname)]


def written(template, page, **values):
    """The lines of a list in MyST, for the page on which it stands."""
    return TEMPLATES.get_template(template).render(values, page=page, chapters=chapters).splitlines()


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

    def shown(self, kind, **values):
        """The list that the template of this kind makes of the values."""
        docname, holder = self.env.docname, nodes.container(classes=[f"{kind}-index"])
        text = StringList(written(f"{kind}.md", docname, **values), source=docname)
        self.state.nested_parse(text, self.content_offset, holder)
        return [holder]
