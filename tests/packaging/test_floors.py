"""Lower floors of the library know nothing of upper ones, nor rooms of one floor of each other."""

import ast
from pathlib import Path

import ssmbook

FLOORS = (
    {"_checks", "_count", "_json", "tour"},
    {"numerics"},
    {"operators", "scans"},
    {"systems"},
    {"maps", "heads", "gradients", "display"},
    {"testing", "exercises", "lens"},
    {"experiments"},
    {"chapters"},
    {"_book"},
)
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def climbs(root):
    """The imports of the library from itself that do not lead down, wherever they are in a file."""
    for file in sorted(root.rglob("*.py")):
        room = file.relative_to(root).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for name in imported(node):
                library, _, path = name.partition(".")
                to = path.split(".")[0]
                if library == "ssmbook" and to in HEIGHT.keys() - {room} and room != "__init__":
                    if HEIGHT[to] >= HEIGHT[room]:
                        yield f"{file} imports {name}"


def imported(node):
    """The modules that a statement imports, in full; ruff bans relative imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def test_every_room_has_a_floor_and_every_import_leads_down():
    root = Path(ssmbook.__file__).parent
    rooms = {path.stem for path in root.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert rooms - {"__init__"} == HEIGHT.keys()
    assert not list(climbs(root))
