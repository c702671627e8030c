"""The arrows of the theorem map are the references in the proofs."""

import re
from pathlib import Path

from headsandstates.chapters.theorem_map.figures import GROUPS, RECALLS, USES
from headsandstates.site import claims

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = re.compile(r"\{(prf:ref|eq)\}`(?:[^<`]*<)?([^`>]+)>?`")
EQUATION = re.compile(r"\$\$ \((eq-[a-z0-9-]+)\)")
# Arrows that no reference in the proof shows: a citation, and references in the box.
ELSEWHERE = {
    ("thm-eckart-young", "thm-kronecker"),
    ("thm-kronecker", "prop-lag-optimum"),
    ("prop-relative-sink", "prop-three-schemes"),
}


def arrows_of_the_proofs():
    """(source, target) for each statement that a proof names, by its label or by one of its equations."""
    boxes, proofs, current = {}, {}, None
    for _, cells in claims.sources(ROOT, claims.page_names(ROOT)):
        for kind, text, _ in cells:
            for name, _, options, inside in claims.directives(text) if kind == "markdown" else ():
                if name.removeprefix("prf:") in claims.KINDS:
                    current = options["label"]
                    boxes[current] = name, inside
                elif name == "prf:proof":
                    proofs[current] = inside
    by_equation = {label: owner for owner, (_, text) in boxes.items() for label in EQUATION.findall(text)}
    named = set()
    for target, text in proofs.items():
        for kind, label in REFERENCE.findall(text):
            source = by_equation.get(label) if kind == "eq" else label
            if source in boxes and boxes[source][0] != "prf:definition" and source != target:
                named.add((source, target))
    assert len(proofs) > 60
    return named


def test_every_arrow_is_a_reference_and_every_reference_an_arrow():
    drawn = {(source, target) for arrows in (USES, RECALLS) for target in arrows for source in arrows[target]}
    named = arrows_of_the_proofs()
    assert drawn - named == ELSEWHERE and named - drawn == set()


def test_every_arrow_has_its_two_boxes_in_one_group_and_every_box_an_arrow():
    groups = [set(group) for panel in GROUPS for group in panel.values()]
    ends = set()
    for arrows in (USES, RECALLS):
        for target, found in arrows.items():
            for source in found:
                assert any({source, target} <= group for group in groups), (source, target)
                ends |= {source, target}
    assert set().union(*groups) == ends


def test_the_page_lists_every_box():
    page = (ROOT / "chapters/appendix/theorem-map.ipynb").read_text(encoding="utf-8")
    boxes = {label for panel in GROUPS for group in panel.values() for label in group}
    assert {label for label in boxes if f"`{label}`" not in page} == set()
