"""One home for each notion: explained there and set in italics once; elsewhere its first use links to it."""

import json
import re
from pathlib import Path

import pytest

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
HOME = {  # page: the notions that are introduced there
    "primer": "hybrid",
    "two-ways-to-mix": "state, head, coefficient, value map, lag, lag operator, attention matrix, "
    "interaction matrix, energy, logit",
    "interaction-operator": "block, interaction rank, frozen coefficients, white",
    "zoo": "channel, core, selective, key side, value side, ruler",
    "structured-dynamics": "pole, skip, cut rank, kernel",
    "head-count": "floor, mode, residue",
    "interaction-rank-gap": "lonely token",
    "how-many-heads-really": "sink, plateau",
    "positions": "bag",
    "gates-and-depth": "gate",
    "gradient-highway": "margin, lane, spectral radius",
    "trade-off": "reach, span",
    "how-many-states": "nat",
}
STAND_ALONE = {"linear-algebra", "confusion-log"}  # read by themselves, as deeper pages are


def prose(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


PAGES = {
    path.stem: prose(path)
    for path in sorted(CHAPTERS.rglob("*.ipynb"))
    if not path.stem.endswith("-deeper") and path.stem not in STAND_ALONE
}


@pytest.mark.parametrize(("home", "term"), [(home, t) for home in HOME for t in HOME[home].split(", ")])
def test_a_notion_has_one_home(home, term):
    in_italics = re.compile(rf"(?<!\*)\*{term}s?\*(?!\*)")
    introduced = [page for page, text in PAGES.items() for _ in in_italics.findall(text)]
    assert introduced == [home], f"{term} is set in italics as new in {introduced}; elsewhere link to {home}"
