"""What the heads of the page's model are worth: each one faded, carried by states, cut or merged.

    python -m headsandstates.experiments.page_heads TEXTS FILE
    python -m headsandstates.experiments.page_heads TEXTS FILE --runs FOLDER

``TEXTS`` as for ``page_model``; with ``FOLDER``, where ``page_model`` trained them, other seeds are measured
in place of the book's. An edit says what becomes of one head: {"content": 0.3} multiplies its
scores, {"states": 4} carries it by the best four states that know the whole text, {"window": 4} leaves the
last four tokens, its own among them, and the first, {"causal": True} leaves the last eight and the first and
keeps the others in twelve running sums (``page_features``), {"cut": True} leaves nothing, and {"merge": True}
gives its value map to the heads of its layer that stay. The first two combine: {"content": 0, "states": 1}.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from headsandstates.experiments import page_model
from headsandstates.experiments.page_model import CONTEXT, HEADS, LAYERS, PageModel, norm, per_head
from headsandstates.experiments.results import FOLDER, FORMAT, Results, load_weights
from ssmbook import lens
from ssmbook._json import read_json
from ssmbook.lens.changes._features import states_output

RIDGE = 1e-6  # of the trace, in the least squares of a merge
PERIOD, FEW = 24, 4
NEAR, SINK = 8, 1  # tokens that a head with causal features reads exactly: the last ones, and the first
KEYS = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


@cache
def pieces() -> list[str]:
    """Return the vocabulary: 512 pieces of text, the first of them the start."""
    return json.loads((FOLDER / "page-model.json").read_text("utf-8"))["results"]["seed 0"]["pieces"]


def read(text: str) -> Tensor:
    """Return what the model sees of a text, (1, n): the start, then its last 127 tokens at most."""
    return torch.tensor([[page_model.START, *page_model.encode(text, pieces())[-(CONTEXT - 1) :]]])


@cache
def committed_grams() -> Tensor:
    """Return the Gram matrices (4, H, H, H) that merges of the book are fitted with."""
    return torch.tensor(read_json(FOLDER / "page-heads.json", FORMAT)["results"]["page"]["grams"])


@cache
def committed_features() -> list[dict[str, Tensor]]:
    """Return the causal features of each layer that come with the book, as ``states_output`` takes them."""
    kept = load_weights(FOLDER / "page-features.safetensors")
    a, c = (kept[name].mul(kept[f"{name} scale"]).mT for name in ("read", "write"))
    b, d = kept["b"]
    return [{"a": a[at], "b": b[at], "c": c[at], "d": d[at]} for at in range(LAYERS)]


def with_places(q: Tensor, k: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and keys (batch, H, n, 16 + 128) whose products are the scores with the bias in them.

    A query has the biases of its row in as many coordinates as there are places, a key a one at its own.
    """
    place, n = torch.arange(CONTEXT, device=q.device), q.shape[-2]
    rows = b[:, (place[:n, None] - place).clamp(min=0)].expand(len(q), -1, -1, -1)
    own = torch.eye(CONTEXT, dtype=k.dtype, device=k.device)[:n].expand_as(rows)
    return torch.cat([page_model.SCALE * norm(q), rows], -1), torch.cat([norm(k), own], -1)


def nearby(n: int, last: int) -> Tensor:
    """Which keys a query reads, (1, 1, n, n): the first token, and the last ones with its own among them."""
    place = torch.arange(n)
    return ((place[:, None] - place < last) | (place < SINK))[None, None].tril()


def causal_weights(model: PageModel, layer: int, x: Tensor) -> Tensor:
    """Return the attention weights (batch, H, n, n) of the causal features that come with the book."""
    p = {name: part.to(x) for name, part in committed_features()[layer].items()}
    q, k = with_places(per_head(x, model.Q[layer]), per_head(x, model.K[layer]), model.b[layer])
    n = x.shape[-2]
    near = nearby(n, NEAR)
    every = torch.eye(n).to(x).expand(*q.shape[:2], n, n)  # as values, so that the outputs are the weights
    return states_output(p, q, k, every, near, ~near & nearby(n, n))


def edit_heads(
    model: PageModel, layer: int, edits: dict[int, dict], grams: Tensor | None = None
) -> lens.Change:
    """Return the change of a layer for ``lens.replace``.

    Parameters
    ----------
    model : PageModel
        The model whose heads are edited.
    layer : int
        From 0.
    edits : dict of int to dict
        Head, from 0, to its edit, as the module has them.
    grams : Tensor (4, H, H, H), optional
        For merges: at [layer, h, a, b] how alike the outputs are that the value map of head h makes with the
        attention of a and of b; ``None``: those that come with the book.

    Returns
    -------
    lens.Change
        For this layer of this model.
    """
    mixer = model.mixers[layer]
    gone = [h for h, edit in edits.items() if edit.keys() & {"cut", "merge"}]
    stay = [h for h in range(HEADS) if h not in gone]

    def coefficients(x: Tensor) -> Tensor:
        Q, K, b = (M[layer].to(x) for M in (model.Q, model.K, model.b))
        content, window = (
            torch.tensor([edits.get(h, {}).get(name, default) for h in range(HEADS)]).view(HEADS, 1, 1)
            for name, default in (("content", 1.0), ("window", CONTEXT))
        )
        alpha = mixer.weights(x, Q, K, b, content.to(x), window.to(x.device))
        if those := [h for h, edit in edits.items() if "causal" in edit]:
            alpha[..., those, :, :] = causal_weights(model, layer, x)[..., those, :, :]
        for N in {edit["states"] for edit in edits.values() if edit.get("states", CONTEXT) < x.shape[-2]}:
            those = [h for h, edit in edits.items() if edit.get("states") == N]
            alpha[..., those, :, :] = lens.truncate(N).coefficients(alpha[..., those, :, :])
        for h in gone:
            alpha[..., h, :, :] = 0
            if "merge" in edits[h] and stay:
                gram = (committed_grams() if grams is None else grams)[layer, h].double()
                share = shares(gram, h, stay).to(x)
                alpha[..., h, :, :] = torch.einsum("g,...gij->...ij", share, alpha[..., stay, :, :])
        return alpha

    return lens.Change(f"heads {sorted(edits)} edited", coefficients, of_tokens=True)


def shares(gram: Tensor, h: int, stay: list[int]) -> Tensor:
    """Return how much of head h's value map each head that stays receives: least squares, (len(stay),)."""
    normal = gram[stay][:, stay]
    return torch.linalg.solve(
        normal + RIDGE * normal.trace() * torch.eye(len(stay)).to(normal), gram[stay, h]
    )


def windows(texts: list[str], count: int) -> Tensor:
    """Return ``count`` windows of each text, evenly spread, as the model sees them, (texts * count, 129)."""
    rows = []
    for text in texts:
        codes = torch.tensor(page_model.encode(text, pieces())).unfold(0, CONTEXT, CONTEXT)
        rows.append(codes[torch.linspace(0, len(codes) - 1, count).long()])
    return functional.pad(torch.cat(rows), (1, 0), value=page_model.START)


class Measuring:
    """The texts, and what the model makes of them: 60 held-out windows, 30 random repeats, 30 of text."""

    def __init__(self, model: PageModel, texts: list[str]):
        self.model, held_out = model, [text[-page_model.HELD_OUT :] for text in texts]
        self.plain = windows(held_out, 10)
        segments = torch.randint(
            1, page_model.VOCABULARY, (30, CONTEXT), generator=torch.Generator().manual_seed(3)
        )
        periods = torch.full((60,), PERIOD)
        self.again, _ = page_model.repeated(torch.cat([segments, self.plain[::2, 1:]]), periods)
        seen = lens.observe(model, windows([text[: -page_model.HELD_OUT] for text in texts], 4)[:, :-1])
        layers = (seen[f"mixers.{layer}"].outputs for layer in range(LAYERS))
        self.grams = torch.stack([torch.stack([o[h, :, h] for h in range(HEADS)]) for o in layers])
        self.grams = self.grams / self.grams.amax((-2, -1), keepdim=True)
        self.sentence = held_out[5][held_out[5].index(". ") + 1 :][:240]
        self.rows = torch.cat([self.plain, self.again])
        self.inputs = [norm(model.E[self.rows[:, :-1]])]  # of each layer, as trained
        self.bits = self.run({})[0]  # of each text, as trained

    @torch.no_grad()
    def run(self, edits: dict[tuple[int, int], dict]) -> tuple[Tensor, Tensor]:
        """Bits a token of each held-out text, and the share of right guesses in each repeat, (60,) both.

        What ``lens.replace`` computes, but only from the first layer that is changed.
        """
        model, known = self.model, len(self.inputs)
        first = min([layer for layer, _ in edits], default=0)
        x = self.inputs[first]
        for layer in range(first, LAYERS):
            h, (Q, K, V, W_O, b) = norm(x), (M[layer] for M in (model.Q, model.K, model.V, model.O, model.b))
            own = {head: edit for (at, head), edit in edits.items() if at == layer}
            change = edit_heads(model, layer, own, self.grams)
            alpha = change.coefficients(h) if own else model.mixers[layer].weights(h, Q, K, b)
            x = x + functional.linear((alpha @ per_head(h, V)).transpose(1, 2).flatten(2), W_O)
            x = model.widen(x, layer)
            if known == 1 and layer + 1 < LAYERS:
                self.inputs.append(x)
        logits = norm(x) @ model.E.T
        missed = functional.cross_entropy(logits[:60].mT, self.plain[:, 1:], reduction="none").mean(-1)
        right = (logits[60:].argmax(-1) == self.again[:, 1:])[:, PERIOD:].double().mean(-1)
        return missed / math.log(2), right

    def row(self, edits: dict[tuple[int, int], dict]) -> dict[str, list[float]]:
        """Mean and standard deviation over texts: bits more than as trained, and copying of both kinds."""
        bits, right = self.run(edits)
        found = {"bits": bits - self.bits, "copying": right[:30], "copying text": right[30:]}
        return {name: [float(part.mean()), float(part.std())] for name, part in found.items()}

    def copies(self) -> Tensor:
        """How much weight each head puts on what followed its token earlier, in random repeats, (4, H)."""
        tokens, found = self.again[:30, :-1], []
        same = tokens[:, :, None] == tokens[:, None]
        follows = functional.pad(same, (1, 0))[..., :CONTEXT].tril().unsqueeze(1)
        for layer in lens.layers(self.model):
            alpha = lens.operator(layer, tokens).W.alpha
            found.append((alpha * follows).sum(-1)[..., PERIOD + 1 :].mean((0, 2)))
        return torch.stack(found)


def measure(found: Measuring) -> dict[str, dict]:
    """Return all that is measured: each head, groups of heads, and what the page needs."""
    copies = found.copies()
    copy = [key for key in KEYS if copies[key] > 0.5]
    rest, single = [key for key in KEYS if key not in copy], {}
    changes = {"faded": {"content": 0}, f"{FEW} states": {"states": FEW}, "cut": {"cut": True}}
    changes["merged"] = {"merge": True}
    for key in KEYS:
        single[key] = {name: found.row({key: change}) for name, change in changes.items()}
        print(key, float(copies[key]), single[key], flush=True)
    groups = {"copy heads": copy, "other heads": rest, "all heads": KEYS}
    rows = {
        f"{name}, faded": found.row(dict.fromkeys(group, {"content": 0})) for name, group in groups.items()
    }
    sizes = {"copy heads": (1, 4, 8, 16, 24), "other heads": (1, 2, 4), "all heads": (8,)}
    for name, group in groups.items():
        for N in sizes[name]:
            for kind in ("states", "window"):
                rows[f"{name}, {kind} {N}"] = found.row(dict.fromkeys(group, {kind: N}))
                print(name, kind, N, rows[f"{name}, {kind} {N}"], flush=True)
    for name, edit in (("faded", {"content": 0}), ("cut", {"cut": True}), ("merged", {"merge": True})):
        order = sorted(rest, key=lambda key: single[key]["merged" if name == "cut" else name]["bits"][0])
        for many in (4, 8, 16):
            rows[f"{many} most harmless heads, {name}"] = found.row(dict.fromkeys(order[:many], edit))
    # the head that is worth most to merge: of those that cost a bit, what is left of the cost is least
    dear = [key for key in KEYS if single[key]["cut"]["bits"][0] > 1]
    remove = min(dear, key=lambda key: single[key]["merged"]["bits"][0] / single[key]["cut"]["bits"][0])
    heads = {f"{at}.{h}": {"copies": float(copies[at, h]), **single[at, h]} for at, h in KEYS}
    page = {"grams": found.grams.tolist(), "random": found.again[0, 1 : PERIOD + 1].tolist(), "few": FEW}
    page |= {"sentence": found.sentence, "remove": KEYS.index(remove), "copy_heads": [*map(KEYS.index, copy)]}
    trained = found.row({}) | {"bits": [float(found.bits.mean()), float(found.bits.std())]}
    return {"as trained": trained, "heads": heads, "groups": rows, "page": page}


def measure_seed(path: Path, texts: list[str]) -> dict[str, dict]:
    """Return what is measured of the model of another run, its weights in 8 bits as the book's are."""
    kept = page_model.quantized(torch.load(path, map_location="cpu")["model"])
    found = measure(Measuring(page_model.with_weights(kept).requires_grad_(False), texts))
    del found["page"]["grams"], found["page"]["random"], found["page"]["sentence"]
    return found


def parser(description: str) -> argparse.ArgumentParser:
    """The arguments of what reads the novels and writes results."""
    wanted = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    wanted.add_argument("texts", type=Path)
    wanted.add_argument("file", type=Path)
    return wanted


def main(arguments: list[str] | None = None) -> None:
    """Measure and write."""
    wanted = parser(__doc__)
    wanted.add_argument("--runs", metavar="FOLDER", type=Path, help="where other seeds were trained")
    given = wanted.parse_args(arguments)
    texts = page_model.novels(given.texts)
    if given.runs:
        runs = sorted(given.runs.glob("seed-*.pt"))
        results = {path.stem.replace("-", " "): measure_seed(path, texts) for path in runs}
    else:
        results = measure(Measuring(page_model.load_trained().requires_grad_(False), texts))
    settings = {
        "texts": 60,
        "repeats": 60,
        "period": PERIOD,
        "numbers": "mean and standard deviation over texts",
    }
    command = "python -m headsandstates.experiments.page_heads TEXTS FILE"
    command += " --runs FOLDER" if given.runs else ""
    Results(given.file.stem, "full", settings, command, results=results).save(given.file)


if __name__ == "__main__":
    main()
