"""What the diagonal scan should reach, row by row, read off the measured times."""

from __future__ import annotations

from benchmarks.diagonal import BACKWARD_FLOOR, SHAPES
from benchmarks.timing import table

SMALLEST, LARGEST = (
    min(SHAPES, key=lambda s: s[0] * s[1] * s[2]),
    max(SHAPES, key=lambda s: s[0] * s[1] * s[2]),
)
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
        label, fresh = "x".join(map(str, shape)), shape == LARGEST
        for decay in ("uniform", "near one"):
            for backward in (False, True):
                part = f"{decay}, {'forward+backward' if backward else 'forward'}"
                single, double = (
                    results["diagonal"][f"{label}, {part}"],
                    results["variants"][f"{label}, {part}"],
                )
                peers = [single[name] for name in MAMBAPY if name in single]
                for dtype, ours in (("float32", single["ours"]), ("float64", double["float64"])):
                    floor = single["floor"] if dtype == "float32" else double["floor, float64"]
                    if fresh:
                        floor = (
                            single["floor, fresh output"] if dtype == "float32" else double["fresh, float64"]
                        )
                    floors = ours / floor / (BACKWARD_FLOOR if backward else 1)
                    lead = min(peers) / ours if peers and dtype == "float32" else None
                    most, least = floors_wanted(shape, backward), lead_wanted(shape, backward)
                    met = floors <= most and (lead is None or lead >= least)
                    row = [f"{label}, {part}, {dtype}", floors, f"≤ {most}", lead, f"≥ {least}"]
                    rows.append([*row, "yes" if met else "no"])
    header = ["shape, decay, pass, dtype", "floors", "wanted", "mambapy / ours", "wanted", "met"]
    return [table("Goals of the diagonal scan", header, rows)]
