"""Every figure of every chapter holds what it held: labels, limits, texts, colors, summaries of curves.

``figures.txt`` beside a chapter's ``figures.py`` has calls after ``>>>``, and below each what it draws. A new
figure needs its call there. What is drawn is written, and then read in the diff, with

    WRITE_FIGURES=1 python -m pytest tests/chapters/test_figure_contents.py
"""

import ast
import difflib
import inspect
import os
import re
from doctest import DocTestParser
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from figure_words import describe
from helpers import EYE, F64, clock, randn, rotation
from matplotlib import rc_context

from headsandstates.experiments.results import measurement
from ssmbook import lens
from ssmbook.display import block_heatmap, figure, span_spectrum, use_style
from ssmbook.operators import DenseOperator

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "headsandstates/chapters").glob("*/figures.py"))
LIBRARY = Path(__file__).parent / "library_figures.txt"
FILES = [*(path.with_suffix(".txt") for path in CHAPTERS), LIBRARY]
TAU = torch.arange(6, dtype=F64)
FADE, SLOW = 0.5**TAU, 0.9**TAU
LAG = (TAU[:, None] - TAU).int()


def toeplitz(lags):
    """The causal table (6, 6) of six numbers."""
    return lags[LAG.clamp(min=0)].tril()


def causal(*shape, seed=0):
    """A causal operator (5, 5, *shape), one random block for each pair of times."""
    return randn(5, 5, *shape, seed=seed) * torch.ones(5, 5, dtype=F64).tril()[..., None, None]


SAMPLES = {
    **{"np": np, "torch": torch, "SimpleNamespace": SimpleNamespace, "DenseOperator": DenseOperator},
    **{"EYE": EYE, "F64": F64, "TAU": TAU, "FADE": FADE, "SLOW": SLOW, "LAG": LAG, "toeplitz": toeplitz},
    **{"causal": causal, "clock": clock, "randn": randn, "rotation": rotation},
    **{"measurement": measurement, "lens": lens},
}


def on_axes(draw):
    """A function of the library that draws into given axes, as one that returns a figure."""

    def drawn(W):
        fig, ax = figure(size="panel")
        draw(W, ax)
        return fig

    return drawn


def names_in(path):
    """What stands in the chapter's ``figures.py``; for the library its own figures."""
    if path == LIBRARY:
        return {each.__name__: on_axes(each) for each in (block_heatmap, span_spectrum)}
    return vars(import_module(f"headsandstates.chapters.{path.parent.name}.figures"))


def figures_of(path):
    """{name: function} of a chapter's public functions that return a figure."""
    if path == LIBRARY:
        return names_in(path)
    functions = {name: each for name, each in names_in(path).items() if inspect.isfunction(each)}
    home, returns = f"{path.parent.name}.figures", re.compile(r"return \(?\s*fig\b")
    return {
        name: each
        for name, each in functions.items()
        if each.__module__.endswith(home) and name[0] != "_" and returns.search(inspect.getsource(each))
    }


def examples(path):
    """The source of every statement after ``>>>``."""
    parts = DocTestParser().get_examples(path.read_text(encoding="utf-8") if path.exists() else "")
    return [example.source for example in parts]


def prompt(source):
    return "".join(f"{'...' if i else '>>>'} {line}" for i, line in enumerate(source.splitlines(True)))


@pytest.fixture
def one_sign(monkeypatch):
    """Singular vectors come with either sign: here the largest entry of a right one is positive."""
    plain = torch.linalg.svd

    def signed(matrix, full_matrices=True):
        U, S, Vh = plain(matrix, full_matrices=full_matrices)
        k = S.shape[-1]
        sign = Vh[..., :k, :].gather(-1, Vh[..., :k, :].abs().argmax(-1, keepdim=True)).sign()
        Vh[..., :k, :] *= sign
        U[..., :k] *= sign.mT
        return torch.return_types.linalg_svd((U, S, Vh))

    monkeypatch.setattr(torch.linalg, "svd", signed)


each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)


@each_file
def test_every_figure_has_an_example(path):
    called = {
        node.func.id
        for source in examples(path)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    missing = sorted(set(figures_of(path)) - called)
    assert not missing, f"call {missing} after >>> in {path.relative_to(ROOT)}: {__doc__}"


@each_file
@pytest.mark.usefixtures("one_sign")
@pytest.mark.filterwarnings("error:__array")  # a tensor where Matplotlib with NumPy 2 wants an array
@pytest.mark.filterwarnings("error:Casting complex values")  # half of each number would not be drawn
def test_figures_hold_what_they_held(path):
    known, text = names_in(path) | SAMPLES | figures_of(path), ""
    with rc_context():
        use_style()  # as in a notebook
        for source in examples(path):
            try:
                call = compile(source, str(path), "eval")
            except SyntaxError:  # a statement that prepares the calls below it
                exec(source, known)
                text += prompt(source)
                continue
            drawn = eval(call, known)
            fig, *said = drawn if isinstance(drawn, tuple) else [drawn]
            lines = [*describe(fig), *(f"  alt {words}" for words in said)]
            blank = "\n" if text and not text.endswith("\n\n") else ""
            text += blank + prompt(source) + "\n".join(lines) + "\n\n"
    text = text.rstrip("\n") + "\n"
    if os.environ.get("WRITE_FIGURES"):
        path.write_text(text, encoding="utf-8")
    agreed = path.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(agreed, text.splitlines(), "agreed", "drawn", "", "", 30, ""))
    assert not changes, "\n".join([f"The figures of {path.parent.name} changed.", __doc__, *changes])
