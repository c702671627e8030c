"""The heads of the page's model: the lens reads them, edits do what they say, the page computes the same."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from helpers import cut

from headsandstates.experiments import page_heads, page_model
from headsandstates.experiments.page_heads import KEYS, edit_heads
from headsandstates.experiments.results import FOLDER
from headsandstates.site import swap
from ssmbook import lens

ASSETS = Path(__file__).resolve().parents[2] / "chapters/assets"
SCRIPT = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
for (const file of given.files) require(file);
const model = Heads.load(PageModel);
console.log(JSON.stringify(given.cases.map(({ tokens, edits }) => {
  const { logits, patterns } = Heads.finish(Heads.forward(model, tokens, edits));
  return { logits: [...logits], patterns: patterns.flat().map((alpha) => [...alpha]) };
})));
"""


@pytest.fixture(scope="module")
def model():
    return page_model.load_trained().double().requires_grad_(False)


@pytest.fixture(scope="module")
def measured():
    return json.loads((FOLDER / "page-heads.json").read_text("utf-8"))["results"]


def changed(model, tokens, edits):
    """Logits and coefficients (4, H, n, n) under edits, (layer, head) -> edit."""
    of_layer = {at: {head: edit for (its, head), edit in edits.items() if its == at} for at, _ in KEYS}
    changes, seen = {at: edit_heads(model, at, some) for at, some in of_layer.items()}, []

    def watched(change):
        def coefficients(x):
            seen.append(change.coefficients(x))
            return seen[-1]

        return lens.Change("watched", coefficients, of_tokens=True)

    with lens.replace(model, {at: watched(change) for at, change in changes.items()}):
        logits = model(tokens)
    return logits[0], torch.cat(seen)


def test_the_lens_reads_every_layer_exactly(model):
    tokens = page_heads.read("It was known, and it was known again.")
    for layer in lens.layers(model):
        assert lens.operator(layer, tokens).miss() < 1e-12
    n = tokens.shape[1]
    with lens.replace(model, dict.fromkeys(range(4), lens.truncate(n - 1))):
        torch.testing.assert_close(model(tokens), model(tokens))


def test_each_edit_by_another_route(model):
    tokens, other = page_heads.read("Emma knew it. Emma knew"), page_heads.read("Nobody here is at")
    n = min(tokens.shape[1], other.shape[1])
    tokens, other, every = tokens[:, :n], other[:, :n], range(8)

    def outcome(edits):
        return changed(model, tokens, {(1, head): edit for head, edit in edits.items()})

    def library(change):
        with lens.replace(model, {1: change}):
            return model(tokens)[0]

    plain = outcome({})[1][1]
    for edit, change in (
        ({"cut": True}, lens.Change("cut", torch.zeros_like)),
        ({"states": 2}, lens.truncate(2)),
    ):
        torch.testing.assert_close(outcome(dict.fromkeys(every, edit))[0], library(change))
    # without content every text has the same weights; some of the content is between
    fixed = {(1, 4): {"content": 0}}
    weights = [changed(model, text, fixed)[1][1, 4] for text in (tokens, other)]
    torch.testing.assert_close(*weights)
    torch.testing.assert_close(weights[0][-1], model.b[1, 4, :n].flip(0).softmax(-1))
    # a window is what was there, summing to one again: the first token, two before, itself
    place = torch.arange(n)
    kept = plain[3] * ((place[:, None] - place < 3) | (place == 0))
    kept = kept / kept.sum(-1, keepdim=True)
    torch.testing.assert_close(outcome({3: {"window": 3}})[1][1, 3], kept)
    # a merged head's value map is added to those of the others
    share = page_heads.shares(page_heads.committed_grams()[1, 0].double(), 0, [*range(1, 8)])
    W_V, W_O = model.V[1].unflatten(0, (8, -1)), model.O[1].unflatten(1, (8, -1)).transpose(0, 1)
    maps = W_O @ W_V
    maps[1:] += share[:, None, None] * maps[0]
    eye = torch.eye(128, dtype=maps.dtype).expand(8, -1, -1)
    by_hand = lens.Change("by hand", cut([0]).coefficients, eye, W_V=maps)
    torch.testing.assert_close(outcome({0: {"merge": True}})[0], library(by_hand))


def random_edit(draw):
    edits = [{"cut": True}, {"merge": True}, {"window": draw.randint(1, 9)}, {"content": draw.random()}]
    edits += [
        {"causal": True},
        {"states": draw.randint(1, 12)},
        {"content": draw.choice([0, 0.5]), "states": draw.randint(1, 4)},
    ]
    return draw.choice(edits)


def cases(measured):
    """Texts and edits: those of the page's steps, and fresh random ones."""
    page, draw = measured["page"], random.Random(5)
    words = page_heads.read("Emma never Fanny without friend should Harriet little " * 3)[0].tolist()
    few = {key: {"states": 7 if key in page["copy_heads"] else page["few"]} for key in range(32)}
    causal = dict.fromkeys(range(32), {"causal": True})
    found = [(words, {}), (words, few), (words, {page["remove"]: {"merge": True}}), (words, causal)]
    for n in (1, 2, 33, 128):
        keys = draw.sample(range(32), draw.randint(1, 32))
        tokens = [0, *(draw.randrange(1, 512) for _ in range(n - 1))]
        found.append((tokens, {key: random_edit(draw) for key in keys}))
    found += [(found[-1][0], dict.fromkeys(range(32), {"states": N})) for N in (8, 32)]
    return [{"tokens": tokens, "edits": edits} for tokens, edits in found]


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node")
def test_the_script_of_the_page_computes_what_the_library_does(model, measured, tmp_path):
    (tmp_path / "page-model.js").write_text(swap.model_script())
    files = [str(ASSETS / "eigen.js"), str(ASSETS / "heads.js"), str(tmp_path / "page-model.js")]
    given = {"files": files, "cases": cases(measured)}
    ran = subprocess.run(
        ["node", "-e", SCRIPT], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    for case, found in zip(given["cases"], json.loads(ran.stdout), strict=True):
        edits = {KEYS[key]: edit for key, edit in case["edits"].items()}
        logits, alpha = changed(model, torch.tensor([case["tokens"]]), edits)
        for name, wanted, allowed in (("logits", logits, 1e-4), ("patterns", alpha, 1e-3)):
            got = torch.tensor(found[name], dtype=torch.float64).view_as(wanted)
            assert float((got - wanted).abs().max()) < allowed, (name, case["edits"])


def test_the_headline_figures_on_random_repeats(measured):
    """No texts are needed for these: 30 segments of 24 random tokens, over and over."""
    model, groups = page_model.load_trained().requires_grad_(False), measured["groups"]
    segments = torch.randint(1, 512, (30, 128), generator=torch.Generator().manual_seed(3))
    again, known = page_model.repeated(segments, torch.full((30,), 24))
    copy = [KEYS[key] for key in measured["page"]["copy_heads"]]
    rest = [key for key in KEYS if key not in copy]
    for name, heads, edit in (
        ("copy heads, states 8", copy, {"states": 8}),
        ("other heads, states 4", rest, {"states": 4}),
        ("other heads, faded", rest, {"content": 0}),
        ("copy heads, window 24", copy, {"window": 24}),
    ):
        changes = {at: edit_heads(model, at, {h: edit for a, h in heads if a == at}) for at, _ in heads}
        with lens.replace(model, changes):
            right = (model(again[:, :-1]).argmax(-1) == again[:, 1:])[known].double().mean()
        assert float(right) == pytest.approx(groups[name]["copying"][0], abs=0.005), name
