"""Variants of the short exam of the page *Lectures*: numbers from a seed, the key computed by the library.

    python -m headsandstates.site.exams 1 2 3 --out exams      # exam-1.md, key-1.md, ...

The book's site shows one exam with its key. These are for a room: their keys stand on no page.
"""

import argparse
import re
from math import log
from pathlib import Path
from random import Random

import torch

from ssmbook import heads
from ssmbook.operators import LagOperator
from ssmbook.systems import System

TEMPLATE = Path(__file__).with_name("templates") / "exam.md"
LONG = 1000  # tokens: a count for long sequences


def diagonal(poles, single=False):
    """The system with these poles; each mode has its own input and output, or all have one (``single``)."""
    A = torch.diag(torch.tensor(poles, dtype=torch.float64))
    B = torch.ones(len(poles), 1, dtype=A.dtype) if single else torch.eye(len(poles), dtype=A.dtype)
    return System(A, B=B, C=B.mT.contiguous())


def count(system, coefficients="fixed"):
    return heads.head_count(system, n=LONG, coefficients=coefficients).value


def floors(values):
    """The least shares of the energy that 1, 2 and 4 heads miss, for four orthogonal lag operators."""
    M = torch.diag_embed(torch.diag(torch.tensor(values, dtype=torch.float64)))
    M = M / torch.arange(len(values), 0, -1).double().sqrt()[:, None, None]  # n - tau blocks have the lag tau
    return [float(LagOperator(M).floor(H)) for H in (1, 2, 4)]


def _power(x):
    """A number from 0 to 1 with two digits, in TeX; small ones with a power of ten."""
    digits, exponent = f"{x:.1e}".split("e")
    return f"{x:.2f}" if x > 0.1 else rf"{digits}\cdot10^{{{int(exponent)}}}"


def numbers(seed):
    """What the template asks for, by name."""
    draw = Random(seed)
    twice, once = (size * draw.choice([1, -1]) for size in draw.sample([0.5, 0.6, 0.7, 0.8, 0.9], 2))
    many, single = (diagonal([twice, twice, once], one) for one in (False, True))
    angle, one = draw.choice([0.3, 0.5, 1.0]), torch.eye(2, dtype=torch.float64)
    turn = torch.tensor([[0, -angle], [angle, 0]], dtype=torch.float64).matrix_exp()
    values = sorted(draw.sample(range(1, 7), 4), reverse=True)
    energy, missed = sum(value**2 for value in values), floors(values)
    kept, steps = draw.choice([0.9, 0.95, 0.98, 0.99]), draw.choice([40, 60, 80, 120])
    return {
        "seed": seed, "twice": twice, "once": once, "states": many.minimal().N, "heads": count(many),
        "single_states": single.minimal().N, "single_heads": count(single), "softmax": count(many, "softmax"),
        "positive": "a" if max(twice, once) > 0 else "no",
        "width": draw.choice([16, 32, 64]), "keys": draw.choice([64, 128, 256]),
        "angle": angle, "turned": count(System(0.9 * turn, B=one, C=one)),
        "values": ", ".join(map(str, values)), "energy": energy,
        "one_of": round(missed[0] * energy), "one": f"{missed[0]:.3f}",
        "two_of": round(missed[1] * energy), "two": f"{missed[1]:.3f}",
        "percent": round(100 * kept), "steps": steps,
        "left": _power(kept**steps), "exponent": f"{-steps * log(kept):.1f}", "margin": f"{log(steps):.1f}",
    }  # fmt: skip


def exam(seed):
    """The exam and its key, two texts in Markdown."""
    given = numbers(seed)
    text = re.sub(r"@(\w+)@", lambda name: str(given[name[1]]), TEMPLATE.read_text(encoding="utf-8"))
    return [part.strip() + "\n" for part in text.split("<!-- key -->")]


def write(seeds, target):
    """Write exam-SEED.md and key-SEED.md into the folder ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for kind, text in zip(("exam", "key"), exam(seed), strict=True):
            (target / f"{kind}-{seed}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m headsandstates.site.exams")
    parser.add_argument("seeds", type=int, nargs="+", metavar="SEED")
    parser.add_argument("--out", type=Path, default=Path("exams"))
    given = parser.parse_args()
    write(given.seeds, given.out)
