"""Code on stage: what a deck computes in the page is what its lines return in Python."""

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headsandstates.site.lectures import SOURCES, lectures

ROOT = Path(__file__).resolve().parents[2]
FILES = [str(ROOT / "headsandstates/lab/lab.js"), str(ROOT / "chapters/assets/stage.js")]
SCRIPT = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
for (const file of given.files) require(file);
console.log(JSON.stringify(given.cases.map(([name, numbers]) => {
  const found = Stage.PROGRAMS[name].run(...numbers);
  return { ...found, bet: Stage.PROGRAMS[name].bet(found) };
})));
"""
NUMBERS = re.compile(r"^([A-Za-z]\w*(?:, [A-Za-z]\w*)*) = ([\d., -]+)$", re.M)
OTHERS = {
    "train": [(2.1, 2), (0.3, 4), (3.0, 1)],
    "channels": [(5, 4), (3, 2)],
    "fade": [(0.5, 20), (-0.7, 30)],
    "draw": [(20, 3, 2), (5, 2, 3)],
    "turn": [(5, 12), (11, 9), (12, 9), (2, 4)],
    "margin": [(9.5, 4096), (0.0, 64)],
    "bag": [(0.1, 20), (3.14, 7), (0.0, 1)],
    "sink": [(0.5, 9), (0.0, 4), (1.0, 3)],
}


def programs():
    """(name of the program, its Python) of every deck."""
    for path in sorted((ROOT / SOURCES).glob("*.md")):
        text = path.read_text(encoding="utf-8")
        yield from re.findall(r"^:::\{run\} (\w+)\n```python\n(.*?)```", text, re.S | re.M)


def returned(code, numbers):
    """(values, line) of the program with other numbers in its first line of numbers."""
    names, _ = NUMBERS.search(code).groups()
    tree, space = ast.parse(NUMBERS.sub(f"{names} = {', '.join(map(repr, numbers))}", code, count=1)), {}
    last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "deck", "exec"), space)
    found = eval(compile(last, "deck", "eval"), space)
    values, line = found if isinstance(found, tuple) else (found, None)
    return list(values), None if line is None else float(line)


def test_every_deck_has_code_of_four_to_ten_lines():
    for lecture in lectures(ROOT):
        assert "{run}" in "".join(slide.text for slide in lecture.slides), lecture.name
    for name, code in programs():
        lines = [line for line in code.splitlines() if line and not re.match(r"import |from ", line)]
        assert 4 <= len(lines) <= 10 and max(map(len, lines)) <= 80, name


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node")
def test_the_page_returns_what_the_lines_return():
    cases = []
    for name, code in programs():
        own = ast.literal_eval(f"({NUMBERS.search(code)[2]})")
        cases += [(name, code, numbers) for numbers in [own, *OTHERS[name]]]
    given = {"files": FILES, "cases": [(name, numbers) for name, _, numbers in cases]}
    ran = subprocess.run(
        ["node", "-e", SCRIPT], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    said = {}
    for (name, code, numbers), found in zip(cases, json.loads(ran.stdout), strict=True):
        values, line = returned(code, numbers)
        assert found["values"] == pytest.approx(values, abs=2e-6), (name, numbers)
        assert found["line"] == (None if line is None else pytest.approx(line, abs=2e-6)), (name, numbers)
        said.setdefault(name, []).append(found.get("bet"))
    assert {name: bets[0] for name, bets in said.items()} == {
        "train": pytest.approx(46.1, abs=0.1),
        "channels": 9,
        "fade": 44,
        "draw": 6,
        "turn": 6,
        "margin": pytest.approx(5.07, abs=0.005),
        "bag": pytest.approx(75.5, abs=0.05),
        "sink": pytest.approx(5.23, abs=0.005),
    }
    assert said["turn"][2] == 7
    assert said["bag"][1] == pytest.approx(12.9, abs=0.05)
