"""Lower floors know nothing of upper ones, nor rooms of one floor of each other."""

import ast
from pathlib import Path

import headsandstates
import ssmbook

FLOORS = (
    ("ssmbook._checks", "ssmbook._extras", "ssmbook._json", "ssmbook.tour"),
    ("ssmbook.numerics",),
    ("ssmbook.operators", "ssmbook.scans"),
    ("ssmbook.systems",),
    ("ssmbook.maps", "ssmbook.heads", "ssmbook.gradients", "ssmbook.display"),
    ("ssmbook.testing", "ssmbook.lens"),
    ("headsandstates.exercises", "headsandstates.lab", "headsandstates.sliders"),
    ("headsandstates.experiments",),
    ("headsandstates.chapters",),
    ("headsandstates.site",),
)
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def room(module):
    """The first two names of a module, such as ``ssmbook.scans``."""
    return ".".join(module.split(".")[:2])


def climbs(root):
    """The imports of a package that do not lead down, wherever they are in a file."""
    for file in sorted(root.rglob("*.py")):
        here = room(".".join(file.relative_to(root.parent).with_suffix("").parts))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for there in map(room, imported(node)):
                if here in HEIGHT and there in HEIGHT.keys() - {here} and HEIGHT[there] >= HEIGHT[here]:
                    yield f"{file} imports {there}"


def imported(node):
    """The modules that a statement imports, in full; ruff bans relative imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def test_every_room_has_a_floor_and_every_import_leads_down():
    roots = [Path(package.__file__).parent for package in (ssmbook, headsandstates)]
    inside = [path for root in roots for path in root.iterdir()]
    rooms = {path for path in inside if path.suffix == ".py" or (path / "__init__.py").is_file()}
    names = {f"{path.parent.name}.{path.stem}" for path in rooms if path.stem != "__init__"}
    assert names == HEIGHT.keys()
    assert not [climb for root in roots for climb in climbs(root)]
