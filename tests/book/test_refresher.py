"""The refresher says where its facts are used; the chapters of Part III must send the reader there."""

import re
from pathlib import Path

from headsandstates.site.claims import collect
from headsandstates.site.page import read_page

ROOT = Path(__file__).resolve().parents[2]
REFRESHER, PART = "chapters/appendix/linear-algebra", "chapters/3-three-theorems/"
REFERENCE = re.compile(r"\{prf:ref\}`([^`]+)`")


def sections():
    """(anchor, labels, labels of the statements that use them) of every section of the refresher."""
    for section in re.split(r"^## ", read_page(ROOT, REFRESHER).prose, flags=re.M)[1:]:
        anchor = re.sub(r"[^a-z0-9 ]", "", section.splitlines()[0].lower()).replace(" ", "-")
        used = [
            label for line in re.findall(r"\*Used in\*(.*)", section) for label in REFERENCE.findall(line)
        ]
        yield anchor, re.findall(r"^:label: (\S+)", section, re.M), used


def test_every_fact_of_the_refresher_is_linked_from_where_it_is_used():
    page = {claim.label: claim.docname for claim in collect(ROOT)[0]}
    uses = [(anchor, labels, page[use]) for anchor, labels, used in sections() for use in used]
    uses = [use for use in uses if use[2].startswith(PART)]
    assert len(uses) >= 10
    for anchor, labels, docname in uses:
        text = read_page(ROOT, docname).prose
        links = [f"{{prf:ref}}`{label}`" for label in labels] + [f"linear-algebra.ipynb#{anchor})"]
        assert any(link in text for link in links), f"{docname} uses “{anchor}” and does not link to it"
