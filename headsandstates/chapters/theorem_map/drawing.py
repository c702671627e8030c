"""The map of the theorems, laid out by itself: which proof uses which statement, as an SVG."""

import random
from html import escape
from textwrap import wrap

import numpy as np

COLUMNS = 5
ACROSS, DOWN = 134, 106  # from box to box, in pixels of the page
WIDE, HIGH, EDGE, HEAD = 122, 76, 4, 8
LETTERS, LINE, BASE = 18, 14, 4  # of a title: letters in a line, from line to line, below the middle of one
STEPS, HOT = 3000, 20.0  # of the search for places, for each box


def families(arrows):
    """The statements that arrows connect, as sets: the largest first, else in the order of their labels."""
    found = []
    for ends in sorted(arrows):
        joined = [family for family in found if family & set(ends)]
        found = [family for family in found if family not in joined] + [set(ends).union(*joined)]
    return sorted(found, key=lambda family: (-len(family), min(family)))


def first_rows(family, arrows):
    """{statement: (column, row)}: each below all that its proof uses, in the first row that has a place."""
    placed, waiting = {}, sorted(family)
    while waiting:
        ready = [one for one in waiting if all(s in placed for s, t in arrows if t == one)]
        if not ready:
            raise ValueError(f"the proofs of {waiting} name each other in a circle")
        label = ready[0]
        row = 1 + max((placed[s][1] for s, t in arrows if t == label), default=-1)
        while sum(there[1] == row for there in placed.values()) == COLUMNS:
            row += 1
        placed[label] = sum(there[1] == row for there in placed.values()), row
        waiting.remove(label)
    return placed


def cost(places, ends):
    """How hard the arrows are to follow between boxes at ``places``, columns and rows (boxes, 2).

    An arrow is a straight line. It leads down, passes behind no box, crosses few others, and is short.
    ``ends`` (arrows, 2) numbers the boxes that it connects.
    """
    columns, rows = places.T
    (x, end), (y, bottom) = columns[ends].T, rows[ends].T
    if (bottom <= y).any():
        return np.inf
    # Where an arrow is in the row of a box between its ends: too near, and it passes behind the box.
    slope = (end - x) / (bottom - y)
    over = x[:, None] + slope[:, None] * (rows - y[:, None]) - columns
    behind = (y[:, None] < rows) & (rows < bottom[:, None]) & (abs(over) < 0.7)
    # Two arrows that share some rows: how far apart they are in the first and in the last of these.
    top, low = np.maximum(y[:, None], y), np.minimum(bottom[:, None], bottom)
    gap, apart = x[:, None] - x, slope[:, None] * (top - y[:, None]) - slope * (top - y)
    above, below = gap + apart, gap + apart + (slope[:, None] - slope) * (low - top)
    crossed, shared = above * below < -1e-9, (abs(above) + abs(below) < 1e-9) & ~np.eye(len(ends), dtype=bool)
    length = abs(end - x) + 2 * (bottom - y)
    return length.sum() + 30 * behind.sum() + ((3 * crossed + 10 * shared) * (top < low)).sum()


def eased(placed, arrows):
    """The same boxes where their arrows are easiest to follow, found by simulated annealing.

    A box moves to a random place, or changes places with the box there. A worse map is kept the more
    rarely, the later it comes.
    """
    labels = sorted(placed)
    places = np.array([placed[label] for label in labels])
    ends = np.array([[labels.index(one) for one in pair] for pair in arrows])
    draw, now, deep = random.Random(0), cost(places, ends), places[:, 1].max() + 2
    best = now, places
    steps = STEPS * len(labels)
    for step in range(steps):
        moved, one = places.copy(), draw.randrange(len(labels))
        moved[one] = draw.randrange(COLUMNS), draw.randrange(deep)
        moved[(places == moved[one]).all(1)] = places[one]
        then, heat = cost(moved, ends), HOT * (1 - step / steps)
        if then <= now or (then < np.inf and draw.random() < np.exp((now - then) / heat)):
            places, now = moved, then
            best = min(best, (now, places), key=lambda found: found[0])
    corner = best[1].min(0)
    return {label: tuple(map(int, place - corner)) for label, place in zip(labels, best[1], strict=True)}


def layout(arrows):
    """The panels of the map, each {statement: (column, row)}; families that fit side by side share one."""
    panels, across = [], COLUMNS
    for family in families(arrows):
        inside = [pair for pair in sorted(arrows) if family.issuperset(pair)]
        placed = eased(first_rows(family, inside), inside)
        width = 1 + max(column for column, _ in placed.values())
        if across + width > COLUMNS:
            panels, across = [*panels, {}], 0
        panels[-1] |= {label: (across + column, row) for label, (column, row) in placed.items()}
        across += width
    return panels


def svg(at, boxes, arrows, name):
    """A panel as SVG; ``boxes[label]`` has title, number, address and class, ``arrows`` is {pair: class}."""
    size = [step * (1 + max(place[i] for place in at.values())) for i, step in ((0, ACROSS), (1, DOWN))]
    middle = {label: (ACROSS * (c + 0.5), DOWN * (r + 0.5)) for label, (c, r) in at.items()}
    lines = [
        f'<svg viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}" '
        f'role="group" aria-label="{escape(name)}">',
    ]
    for (source, target), look in sorted(arrows.items()):
        if source not in at:
            continue
        (x, y), (end, bottom) = middle[source], middle[target]
        lean = max(-WIDE / 3, min(WIDE / 3, (end - x) / 6))  # arrows of one box begin and end apart
        start, tip = np.array([x + lean, y + HIGH / 2]), np.array([end - lean, bottom - HIGH / 2])
        along = HEAD * (tip - start) / np.linalg.norm(tip - start)
        wing = along[::-1] * (0.4, -0.4)
        line, head = (start, tip - along), (tip, tip - along + wing, tip - along - wing)
        paths = ["M" + " ".join(f"{v:.1f}" for point in path for v in point) for path in (line, head)]
        lines.append(f'<path class="{look}" d="{paths[0]}"/><path class="head" d="{paths[1]}z"/>')
    for label, (x, y) in sorted(middle.items(), key=lambda item: item[1][::-1]):
        title, number, address, look = boxes[label]
        text = [*wrap(title, LETTERS, break_on_hyphens=False), number]
        first = y + BASE - LINE * (len(text) - 1) / 2
        spans = "".join(
            f'<tspan x="{x:.0f}" y="{first + LINE * i:.1f}"{" class=number" * (i == len(text) - 1)}>'
            f"{escape(words)}</tspan>"
            for i, words in enumerate(text)
        )
        lines.append(
            f'<a class="{look}" href="{address}"><rect x="{x - WIDE / 2:.0f}" y="{y - HIGH / 2:.0f}" '
            f'width="{WIDE}" height="{HIGH}" rx="{EDGE}"/><text>{spans}</text></a>'
        )
    return "\n".join([*lines, "</svg>"])
