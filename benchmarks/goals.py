"""What the diagonal scan should reach, row by row, read off the measured times."""

from __future__ import annotations

import math

from benchmarks.diagonal import DECAYS, FLOORS, SHAPES, label
from benchmarks.timing import table

SMALLEST, LARGEST = min(SHAPES, key=math.prod), max(SHAPES, key=math.prod)
MAMBAPY = "mambapy (B,T,D,1)", "mambapy (B,T,1,D)"


def floors_wanted(shape, backward: bool) -> float:
    """At most so many floors: calls cost at the smallest shape."""
    return (6 if backward else 4) if shape == SMALLEST else (4 if backward else 2)


def lead_wanted(shape, backward: bool) -> float:
    """At least so many times as fast as mambapy in its better layout; pages decide at the largest shape."""
    if backward:
        return 1.7 if shape == LARGEST else 2
    return 2.5 if shape == SMALLEST else 4


def goals(results: dict) -> list[str]:
    """A table of every shape, decay, pass and dtype: floors, and times of mambapy over ours, with what was
    wanted. At the largest shape the floor is the product that allocates its result.
    """
    rows = []
    for shape in SHAPES:
        for decay in DECAYS:
            for part in FLOORS:
                name, backward = label(shape, decay, part), part != "forward"
                single, double = results["diagonal"][name], results["variants"][name]
                peers = [single[peer] for peer in MAMBAPY if peer in single]
                floors = {
                    "float32": single["floor, fresh output" if shape == LARGEST else "floor"],
                    "float64": double["fresh, float64" if shape == LARGEST else "floor, float64"],
                }
                for dtype, ours in (("float32", single["ours"]), ("float64", double["float64"])):
                    over = ours / floors[dtype] / FLOORS[part]
                    lead = min(peers) / ours if peers and dtype == "float32" else None
                    most, least = floors_wanted(shape, backward), lead_wanted(shape, backward)
                    met = over <= most and (lead is None or lead >= least)
                    row = [f"{name}, {dtype}", over, f"≤ {most}", lead, f"≥ {least}"]
                    rows.append([*row, "yes" if met else "no"])
    header = ["shape, decay, pass, dtype", "floors", "wanted", "mambapy / ours", "wanted", "met"]
    return [table("Goals of the diagonal scan", header, rows)]
