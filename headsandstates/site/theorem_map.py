"""The directive ``{theorem-map}``, statements as boxes and what their proofs use as arrows.

Arrows and boxes are found in the pages and place themselves. The directive's options name what no reference
shows: ``cites``, arrows without one, and ``recalls``, references that are no more than a comparison.
"""

import re

import yaml
from docutils import nodes
from docutils.parsers.rst.directives import unchanged_required

from headsandstates.chapters.theorem_map.drawing import layout, svg
from headsandstates.site import lists
from headsandstates.site.claims import arrows, collect, files_read

ALT = "{} statements. {} arrows lead from a statement to one whose proof uses it, {} dotted ones recall it."


class theorem_map(nodes.General, nodes.Element):
    """The map, until the numbers of the statements are known."""


def pairs(text):
    """{(source, target)} of lines ``target: source source`` in YAML."""
    found = yaml.safe_load(text or "") or {}
    return {(source, target) for target, sources in found.items() for source in sources.split()}


def used(claims, cites, recalls):
    """({(source, target): "uses" or "recalls"}, problems): a sentence for each option that is out of date."""
    found, problems = arrows(claims), []
    for source, target in sorted(cites & found):
        problems.append(f"the proof of {target} names {source} now: take the pair out of the option cites.")
    for source, target in sorted(recalls - found):
        problems.append(f"no proof of {target} names {source}: take the pair out of the option recalls.")
    return {pair: "recalls" if pair in recalls else "uses" for pair in found | cites}, problems


class TheoremMap(lists.Index):
    """The map as a figure, its caption the content, and its arrows once more in words."""

    has_content = True
    option_spec = {"name": unchanged_required, "cites": unchanged_required, "recalls": unchanged_required}

    def run(self):
        self.made_of(files_read(self.root, self.chapters))
        claims, _ = collect(self.root, self.chapters)
        options = (pairs(self.options.get(name)) for name in ("cites", "recalls"))
        looks, problems = used(claims, *options)
        self.warn(problems, "theorem-map")
        panels = layout(set(looks))
        found = {claim.label: claim for claim in claims if any(claim.label in at for at in panels)}
        map_of = theorem_map(panels=panels, claims=found, looks=looks)
        caption = nodes.caption("", "", *self.parse_inline(" ".join(self.content))[0])
        figure = nodes.figure("", map_of, caption, classes=["theorem-map"])
        self.add_name(figure)
        return [figure, *self.shown("theorem_map", claims=found, looks=looks)]


def draw(app, doctree, docname):
    """Write the maps of a page, now that every statement has its number."""
    for node in list(doctree.findall(theorem_map)):
        boxes = {}
        for label, claim in node["claims"].items():
            number = app.env.toc_fignumbers[claim.docname][claim.kind][label]
            address = app.builder.get_relative_uri(docname, claim.docname) + f"#{label}"
            name = f"{claim.kind.capitalize()} {'.'.join(map(str, number))}"
            boxes[label] = (re.sub(r"[$\\]", "", claim.title), name, address, claim.origin)
        kinds = list(node["looks"].values())
        words = ALT.format(len(boxes), kinds.count("uses"), kinds.count("recalls"))
        drawn = "\n".join(svg(at, boxes, node["looks"], words) for at in node["panels"])
        node.replace_self(nodes.raw("", f'<div class="panels">{drawn}</div>', format="html"))
