"""Lower floors of the library know nothing of upper ones, nor rooms of one floor of each other."""

import ast
from pathlib import Path

import ssmbook

FLOORS = (
    {"_checks", "_count", "_json", "tour"},
    {"numerics"},
    {"operators", "scans", "display"},
    {"systems"},
    {"maps", "heads", "gradients"},
    {"testing", "exercises", "lens"},
    {"experiments"},
    {"chapters"},
    {"_book"},
)
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def imports(root):
    """(file, its room, the room it imports) for every import of the library from itself, wherever."""
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for name in imported(node, ["ssmbook", *parts[:-1]]):
                library, _, room = name.partition(".")
                if library == "ssmbook" and room.split(".")[0] not in ("", parts[0]):
                    yield "/".join(parts), parts[0], room.split(".")[0]


def imported(node, package):
    """The modules an import names, in full; ``package``: where the file lies."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join([*above, *([node.module] if node.module else [])])
    return [f"ssmbook.{alias.name}" for alias in node.names] if module == "ssmbook" else [module]


def climbs(root):
    """The imports that do not lead down."""
    rooms = [edge for edge in imports(root) if edge[1] != "__init__" and edge[2] != "__version__"]
    return [f"{file} imports {to}" for file, room, to in rooms if HEIGHT[to] >= HEIGHT[room]]


def test_every_room_has_a_floor_and_every_import_leads_down():
    root = Path(ssmbook.__file__).parent
    rooms = {path.stem for path in root.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert rooms - {"__init__"} == HEIGHT.keys()
    assert not climbs(root)
