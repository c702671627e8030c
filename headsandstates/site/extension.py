"""The book's Sphinx extension: its directives, what it changes while pages are written, and what follows."""

from docutils import nodes

from headsandstates.site import (
    api,
    cards,
    fonts,
    formulas,
    icons,
    laboratory,
    lectures,
    light,
    lost,
    mosaics,
    previews,
    site,
    solutions,
    swap,
    theorem_map,
    verification,
)

DIRECTIVES = {
    "api-reference": api.ApiReference,
    "api-overview": api.ApiOverview,
    "lectures-index": lectures.LecturesIndex,
    "novelty-ledger": verification.NoveltyLedger,
    "solutions-index": solutions.SolutionsIndex,
    "theorem-map": theorem_map.TheoremMap,
    "verification-index": verification.VerificationIndex,
}
# Once the pages are written, in this order: what adds to them, what reads them, what makes them light.
FINISHING = (
    site.copy_mathjax,
    site.drop_stale_pages,
    site.open_moved_pages,
    site.finish_pages,
    fonts.cut_fonts,
    mosaics.sign_sidebars,
    cards.write_cards,
    lost.write_lost,
    swap.write_model,
    icons.replace_icons,
    api.link_code,
    previews.write_indices,
    lectures.write_lectures,
    formulas.typeset_pages,
    light.lighten,
)


def finish(app, exception):
    """Go over the pages, if they were built."""
    if exception is None and app.builder.format == "html":
        for step in FINISHING:
            step(app)


def setup(app):
    for name, directive in DIRECTIVES.items():
        app.add_directive(name, directive)
    app.add_node(theorem_map.theorem_map)
    app.add_node(nodes.image, override=True, html=(site.visit_image, lambda self, node: None))
    app.connect("config-inited", site.fill_addresses)
    app.connect("env-before-read-docs", api.read_codes)
    app.connect("autodoc-skip-member", api.skip_member)
    app.connect("autodoc-process-docstring", api.process_docstring)
    app.connect("doctree-read", verification.anchor_checks)
    app.connect("doctree-read", solutions.anchor_solutions)
    app.connect("doctree-resolved", site.put_attributions_beside)
    app.connect("doctree-resolved", theorem_map.draw)
    for change in (site.drop_repeated_ids, site.keep_formulas_whole, site.put_works_beside):
        app.connect("doctree-resolved", change, priority=900)
    for change in (
        site.follow_main_path, site.add_laboratory, mosaics.set_head, laboratory.show_still, swap.add_page,
        previews.load_index,
    ):  # fmt: skip
        app.connect("html-page-context", change)
    for change in (site.drop_thebe, site.open_plain_notebooks, site.ask_for_errors):
        app.connect("html-page-context", change, priority=900)
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
