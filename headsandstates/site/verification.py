"""``{verification-index}``, ``{novelty-ledger}``, and an anchor on every checking cell."""

from docutils import nodes

from headsandstates.site import lists
from headsandstates.site.claims import CHECKS, collect, files_read


class VerificationIndex(lists.Index):
    """Every statement of the book: where it is proved, which cells check it, which tests guard it."""

    def run(self):
        self.made_of(files_read(self.root, self.chapters))
        claims, problems = collect(self.root, self.chapters)
        self.warn(problems, "verification")
        return self.shown("verification", claims=claims)


class NoveltyLedger(lists.Index):
    """Every statement of the book's own, beside the nearest earlier result."""

    def run(self):
        self.made_of(files_read(self.root, self.chapters))
        claims, _ = collect(self.root, self.chapters)
        return self.shown("novelty", claims=[claim for claim in claims if claim.origin == "ours"])


def anchor_checks(app, doctree):
    """Give each checking cell an id for the index to point at; of several cells the first takes it."""
    taken = set()
    for cell in doctree.findall(nodes.container):
        for tag in cell.get("cell_metadata", {}).get("tags", []):
            if tag.startswith(CHECKS) and tag not in taken:
                taken.add(tag)
                cell["ids"].append(tag)
