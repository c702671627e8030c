"""The theorem map: its arrows are the references in the proofs, and it lays itself out."""

import re
from itertools import product
from pathlib import Path
from urllib.parse import urljoin

import pytest

from headsandstates.chapters.theorem_map.drawing import COLUMNS, layout
from headsandstates.site.built import soup
from headsandstates.site.claims import Claim, arrows, collect
from headsandstates.site.page import read_page
from headsandstates.site.theorem_map import pairs, used

ROOT = Path(__file__).resolve().parents[2]
PAGE = "chapters/appendix/theorem-map"
FIX = f"{PAGE}.md, directive theorem-map: "


@pytest.fixture(scope="module")
def looks():
    claims, _ = collect(ROOT)
    (directive,) = (one for one in read_page(ROOT, PAGE).directives if one.name == "theorem-map")
    options = (pairs(directive.options[name]) for name in ("cites", "recalls"))
    looks, problems = used(claims, *options)
    assert not problems, FIX + " ".join(problems)
    proved = {claim.label for claim in claims if claim.proved}
    for source, target in looks:
        assert target in proved, f"{FIX}{target}, which cites {source}, has no proof: mend the option cites."
    return looks


def test_every_statement_with_an_arrow_has_a_place_below_what_its_proof_uses(looks):
    for at in layout(set(looks)):
        assert len(set(at.values())) == len(at) and max(column for column, _ in at.values()) < COLUMNS
        inside = [(source, target) for source, target in looks if source in at]
        assert {label for pair in inside for label in pair} == set(at)
        for source, target in inside:
            (x, y), (end, bottom) = at[source], at[target]
            assert y < bottom, f"{source} stands below {target}, whose proof uses it"
            for column, row in product(range(COLUMNS), range(y + 1, bottom)):  # passes behind no box
                near = abs(x + (end - x) * (row - y) / (bottom - y) - column) < 0.4
                assert not near or (column, row) not in at.values(), (source, target)


def test_a_reference_in_a_proof_is_an_arrow_and_an_equation_leads_to_its_statement():
    box = Claim("theorem", "", "thm-a", [], "a", equations=["eq-a"])
    word = Claim("definition", "", "def-c", [], "a", equations=["eq-c"])
    named = Claim("lemma", "", "lem-b", [], "a", named={"eq-a", "eq-c", "def-c", "lem-b", "fig-x"})
    assert arrows([box, word, named]) == {("thm-a", "lem-b")}
    looks, problems = used([box, named], pairs("lem-b: thm-a"), pairs("thm-a: lem-b"))
    assert looks == {("thm-a", "lem-b"): "uses"} and len(problems) == 2
    with pytest.raises(ValueError, match="name each other"):
        layout({("a", "b"), ("b", "a")})


def test_the_page_draws_every_arrow_and_each_box_leads_to_its_statement(built, looks):
    figure = soup(built / f"{PAGE}.html").select_one("#fig-theorem-map")
    claims = {claim.label: claim for claim in collect(ROOT)[0]}
    boxes = {link["href"].partition("#")[2]: link for link in figure.select("svg a")}
    assert set(boxes) == {label for pair in looks for label in pair}
    for label, box in boxes.items():
        assert urljoin(f"{PAGE}.html", box["href"]) == f"{claims[label].docname}.html#{label}"
        words = "".join(box.stripped_strings).replace(" ", "")
        assert words.startswith(re.sub(r"[$\\ ]", "", claims[label].title)), label
    drawn = [len(figure.select(f"svg path.{look}")) for look in ("uses", "recalls")]
    assert drawn == [list(looks.values()).count(look) for look in ("uses", "recalls")]
    said = figure.find_next(class_="theorem_map-index").get_text()
    assert said.count("The proof of") == len({target for _, target in looks})
