"""Train the language model of *Swap a head*: 593,920 parameters, small enough to run in the page.

    python -m headsandstates.experiments.page_model TEXTS FOLDER --seed 0 --tokens 32.5e6
    python -m headsandstates.experiments.page_model TEXTS FOLDER --seed 1 --tokens 20e6
    python -m headsandstates.experiments.page_model TEXTS FOLDER --keep "NVIDIA H100"

``TEXTS`` is the folder of the six novels (Jane Austen, in the public domain) as Debian's package
r-cran-janeaustenr 1.0.0 has them: ``dpkg-deb -x r-cran-janeaustenr_1.0.0-1_all.deb TEXTS``. The model,
its optimizer and the log lie in ``FOLDER`` and are written every 100 steps, so that a run that was
stopped goes on where it was. One core trains about 9,000 tokens a second; ``--device cuda`` takes a GPU.

A batch of 16 rows of 128 tokens has three kinds of row. Six rows are text. Four to six are text whose
names are replaced by invented ones, so that a name has to be copied and cannot be known. The rest repeats
a segment of 4 to 55 tokens, which are either random or text: what comes is known from the second time on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import math
import random
import re
import struct
import time
import zlib
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from headsandstates.experiments.results import FOLDER, FORMAT, digest, load_weights, save_weights
from ssmbook import lens
from ssmbook._json import read_json, versions, write_json
from ssmbook.operators import FactorizedOperator

COMMAND = "python -m headsandstates.experiments.page_model TEXTS FOLDER --seed 0 --tokens 32.5e6"
LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, HIDDEN = 4, 8, 128, 128, 512, 256
SCALE = 1.5  # of the scores: queries and keys have length 4, so a score is 24 at most
START = 0  # the token before the first
HELD_OUT = 20_000  # characters at the end of each novel
ROWS, PLAIN = 16, 6  # rows of a batch, and those of them that are plain text
TITLES = {"Mrs", "Miss", "Sir", "Lady", "Lord"}


class PageModel(nn.Module):
    """A transformer whose attention has a learned bias for each layer, head and distance.

    Layer by layer, with h = norm(x) and the norm without a learned gain,

        x <- x + O concat_h( softmax(1.5 norm(Q h) norm(K h)^T + b[distance]) V h ),
        x <- x + down relu(up norm(x))^2,

    and the logits are norm(x) E^T with the embedding E. Because the bias is no part of the scores, the
    content of a head fades out exactly: softmax(c * score + b) with c from 1 to 0 ends as a fixed average.
    """

    def __init__(self, *, generator: torch.Generator | None = None):
        super().__init__()

        def matrices(rows, columns, size=1.0):
            drawn = torch.randn(LAYERS, rows, columns, generator=generator)
            return nn.Parameter(drawn * size / math.sqrt(columns))

        self.E = nn.Parameter(torch.randn(VOCABULARY, WIDTH, generator=generator) * 0.1)
        self.Q, self.K, self.V = (matrices(WIDTH, WIDTH) for _ in range(3))
        self.O = matrices(WIDTH, WIDTH, 0.3)
        self.up, self.down = matrices(HIDDEN, WIDTH), matrices(WIDTH, HIDDEN, 0.3)
        slopes = 2.0 ** -torch.arange(HEADS)  # ALiBi's, and two heads of eight without a slope
        slopes[-2:] = 0
        self.b = nn.Parameter((-slopes[:, None] * torch.arange(CONTEXT)).repeat(LAYERS, 1, 1))
        self.mixers = nn.ModuleList(PageAttention() for _ in range(LAYERS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (batch, n, 512) of tokens (batch, n), n at most 128."""
        x = norm(self.E[tokens])
        for layer, mixer in enumerate(self.mixers):
            x = x + mixer(norm(x), *(M[layer] for M in (self.Q, self.K, self.V, self.O, self.b)))
            x = self.widen(x, layer)
        return norm(x) @ self.E.T

    def widen(self, x: Tensor, layer: int) -> Tensor:
        """Return the tokens after the part of a layer that looks at each token alone."""
        hidden = functional.linear(norm(x), self.up[layer]).relu().square()
        return x + functional.linear(hidden, self.down[layer])


class PageAttention(nn.Module):
    """The heads of one layer, given their matrices, so that training has each kind in one tensor."""

    def forward(self, h: Tensor, Q: Tensor, K: Tensor, V: Tensor, W_O: Tensor, b: Tensor) -> Tensor:
        """Return what the heads add to the tokens.

        Parameters
        ----------
        h : Tensor (batch, n, 128)
            The tokens.
        Q, K, V, W_O : Tensor
            The matrices of the layer.
        b : Tensor (H, distances)
            What each head adds to a score at each distance.

        Returns
        -------
        Tensor (batch, n, 128)
            In the dtype of the tokens.
        """
        v = per_head(h, V)
        return functional.linear((self.weights(h, Q, K, b) @ v).transpose(1, 2).flatten(2), W_O)

    @staticmethod
    def weights(
        h: Tensor,
        Q: Tensor,
        K: Tensor,
        b: Tensor,
        content: float | Tensor = 1.0,
        window: int | Tensor = CONTEXT,
    ) -> Tensor:
        """Return the attention weights, of what is left of content and window.

        Parameters
        ----------
        h, Q, K, b : Tensor
            As for the module itself.
        content : float or Tensor (H, 1, 1)
            What the scores are multiplied by.
        window : int or Tensor (H, 1, 1)
            A token sees as many of the last ones, itself among them, and the first.

        Returns
        -------
        Tensor (batch, H, n, n)
            Each row is not negative and sums to one.
        """
        place = torch.arange(h.shape[-2], device=h.device)
        distance = place[:, None] - place
        hidden = (distance < 0) | ((distance >= window) & (place > 0))
        bias = b[:, distance.clamp(min=0)].masked_fill(hidden, -math.inf)
        scores = SCALE * norm(per_head(h, Q)) @ norm(per_head(h, K)).mT
        return (content * scores + bias).softmax(-1)


def per_head(h: Tensor, M: Tensor) -> Tensor:
    """Return M h for each head, (batch, H, n, r)."""
    return functional.linear(h, M).unflatten(-1, (HEADS, -1)).transpose(1, 2)


@lens.register("PageAttention")
def read_heads(mixer: PageAttention, call: lens.Call) -> lens.Reading:
    """Read the heads for the lens."""
    h, Q, K, V, W_O, b = call.args
    W_V, W_O = V.unflatten(0, (HEADS, -1)), W_O.unflatten(1, (HEADS, -1)).transpose(0, 1)
    x, y = call.one(h), call.one(mixer(*call.args))
    W = FactorizedOperator(call.one(mixer.weights(h, Q, K, b)), W_O @ W_V)
    softmax = lens.Softmax(
        W_V, W_O, W_V.new_zeros(W_V.shape[:2]), lambda x: mixer.weights(x[None], Q, K, b)[0]
    )
    return lens.Reading(lens.LayerOperator(W, x, y), softmax)


def norm(x: Tensor) -> Tensor:
    """Divide by the root mean square over the last axis."""
    return functional.rms_norm(x, x.shape[-1:], eps=1e-5)


# ---------------------------------------------------------------------------------------------- texts


def novels(folder: Path) -> list[str]:
    """Return the six novels of the package, cleaned to printable ASCII, a paragraph a line."""
    raw = next(Path(folder).rglob("janeaustenr/data/Rdata.rdb")).read_bytes()
    texts = ["\n".join(_strings(part)) for part in _parts(raw)]
    return [_clean(text) for text in texts if len(text) > 100_000]


def _parts(raw):
    """The compressed parts of R's file: four bytes of length, perhaps a letter, then zlib or xz."""
    while raw:
        if raw[4:5] == b"Z":
            unpacking, raw = lzma.LZMADecompressor(), raw[5:]
        else:
            unpacking, raw = zlib.decompressobj(), raw[4:]
        yield unpacking.decompress(raw)
        raw = unpacking.unused_data


def _strings(part):
    """The lines of a text as R writes them: flags that end in 9, four bytes of length, then the bytes."""
    at = 0
    while found := re.compile(rb"\x00[\x00-\x0f][\x00-\xff]\x09").search(part, at):
        begin = found.end() + 4
        if begin > len(part):
            return
        (size,) = struct.unpack(">i", part[begin - 4 : begin])
        if 0 <= size < 2000 and begin + size <= len(part):
            yield part[begin : begin + size].decode("utf8", "replace")
            at = begin + size
        else:
            at = found.start() + 1 if size != -1 else begin


def _clean(text):
    for old, new in (("_", ""), ("--", " - "), ("’", "'"), ("“", '"'), ("”", '"')):
        text = text.replace(old, new)
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    kept = [part for part in paragraphs if len(part) > 40 and not part.isupper()]
    kept = [part for part in kept if not part.startswith("CHAPTER")]
    return "".join(letter for letter in "\n".join(kept) if letter == "\n" or " " <= letter <= "~")


def vocabulary(text: str, size: int = VOCABULARY) -> list[str]:
    """Return printable ASCII and the most frequent pairs of pieces (byte-pair merges) up to ``size``."""
    words = Counter(re.findall(r" ?[A-Za-z]+| ?[^A-Za-z\s]+|\s", text))
    pieces = {word: list(word) for word in words}
    found = ["\x00", "\n", *map(chr, range(32, 127))]
    while len(found) < size:
        pairs = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(pieces[word]):
                pairs[pair] += count
        (first, second), _ = pairs.most_common(1)[0]
        if first + second not in found:
            found.append(first + second)
        for word, parts in pieces.items():
            pieces[word] = _joined(parts, first, second)
    return found


def _joined(parts, first, second):
    """A list of pieces in which every ``first`` followed by ``second`` is one piece."""
    whole = []
    for part in parts:
        if whole and whole[-1] == first and part == second:
            whole[-1] = first + second
        else:
            whole.append(part)
    return whole


def encode(text: str, pieces: list[str]) -> list[int]:
    """Return the tokens of a text: at each place the longest piece that fits; what is none is left out."""
    numbers = {piece: number for number, piece in enumerate(pieces)}
    longest, codes, at = max(map(len, pieces)), [], 0
    while at < len(text):
        sizes = (size for size in range(longest, 0, -1) if text[at : at + size] in numbers)
        size = next(sizes, 0)
        if size:
            codes.append(numbers[text[at : at + size]])
        at += size or 1
    return codes


ONSETS = "b c d f g h j k l m n p r s t v w z br cr dr fl gr pl qu sh st th tr".split()
VOWELS, CODAS = "a e i o u ai ee oo".split(), " b ck d l m n r rn sk x ble zz".split(" ")


def renamed(text: str, draw: random.Random) -> str:
    """Return a text in which, every 700 characters anew, each frequent name is an invented one."""
    names = Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{2,}", text))
    frequent = {name for name, count in names.items() if count > 3} - TITLES

    def invented():
        syllables = range(draw.choice([1, 2, 2, 3]))
        return "".join(draw.choice(part) for _ in syllables for part in (ONSETS, VOWELS, CODAS)).capitalize()

    parts = []
    for part in re.findall(r".{1,700}(?:\s|$)", text, re.DOTALL):
        new = {name: invented() for name in sorted(frequent) if name in part}
        parts.append(re.sub(r"\b[A-Z][a-z]{2,}\b", lambda found, new=new: new.get(found[0], found[0]), part))
    return "".join(parts)


# ------------------------------------------------------------------------------------------- training


def text_rows(codes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` windows of a text (count, 129), each after the start token."""
    begin = torch.randint(len(codes) - CONTEXT, (count, 1), generator=generator, device=codes.device)
    rows = codes[begin + torch.arange(CONTEXT, device=codes.device)]
    return functional.pad(rows, (1, 0), value=START)


def repeated(segments: Tensor, periods: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's first ``period`` tokens over and over, and where they are known."""
    place = torch.arange(CONTEXT, device=segments.device)
    rows = segments.gather(1, place % periods[:, None])
    return functional.pad(rows, (1, 0), value=START), place >= periods[:, None]


def batch(plain: Tensor, named: Tensor, done: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw the rows of one step.

    Parameters
    ----------
    plain, named : Tensor (m,)
        The tokens of the text, and of the text with invented names.
    done : float
        The share of the training that is over: at first segments are short and many.
    generator : torch.Generator
        On the device of the tokens.

    Returns
    -------
    tuple of Tensor
        The rows (16, 129), and which of their predictions count (16, 128).
    """
    repeats = 6 if done < 0.5 else 4
    longest = 16 if done < 0.1 else 56
    new = {"generator": generator, "device": plain.device}
    segments = torch.randint(1, VOCABULARY, (repeats, CONTEXT), **new)
    segments[::2] = text_rows(plain, (repeats + 1) // 2, generator)[:, 1:]
    periods = torch.randint(4, longest, (repeats,), **new)
    again, known = repeated(segments, periods)
    rows = [text_rows(plain, PLAIN, generator), text_rows(named, ROWS - PLAIN - repeats, generator), again]
    return torch.cat(rows), torch.cat([torch.ones_like(known[:1]).expand(ROWS - repeats, -1), known])


def orthogonal(G: Tensor) -> Tensor:
    """Return about the nearest orthogonal matrix, by five steps of a Newton-Schulz iteration (Muon)."""
    tall = G.shape[-2] > G.shape[-1]
    X = G / (G.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    X = X.mT if tall else X
    for _ in range(5):
        A = X @ X.mT
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X.mT if tall else X


class Training:
    """A run that can be stopped: the model, momenta, Adam's state, the generator and the log."""

    def __init__(self, seed: int, device: str = "cpu"):
        self.model = PageModel(generator=torch.Generator().manual_seed(seed)).to(device)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.matrices = [getattr(self.model, name) for name in ("Q", "K", "V", "O", "up", "down")]
        self.momenta = [torch.zeros_like(M) for M in self.matrices]
        groups = [{"params": [self.model.E], "lr": 0.008}, {"params": [self.model.b], "lr": 0.03}]
        self.adam = torch.optim.Adam(groups, betas=(0.9, 0.95))
        self.rates = [group["lr"] for group in self.adam.param_groups]
        self.step, self.log = 0, []

    def save(self, path: Path) -> None:
        """Write all of the run, first beside the old file, so that a stop never leaves half of one."""
        state = {"model": self.model.state_dict(), "adam": self.adam.state_dict(), "momenta": self.momenta}
        state |= {"generator": self.generator.get_state(), "step": self.step, "log": self.log}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        """Go on from a file of ``save``."""
        state = torch.load(path, map_location=self.model.E.device)
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        for mine, saved in zip(self.momenta, state["momenta"], strict=True):
            mine.copy_(saved)
        self.generator.set_state(state["generator"].cpu())
        self.step, self.log = state["step"], state["log"]

    def advance(self, plain: Tensor, named: Tensor, steps: int) -> None:
        """One step: Muon for the matrices, Adam for embedding and bias.

        The rate rises for 100 steps, stays, and falls to zero over the last two fifths of ``steps``.
        """
        done = self.step / steps
        rate = min(1, (self.step + 1) / 100, (1 - done) / 0.4)
        rows, counted = batch(plain, named, done, self.generator)
        missed = functional.cross_entropy(
            self.model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten(), reduction="none"
        )
        loss = (missed.view_as(counted) * counted).sum() / counted.sum()
        self.model.zero_grad()
        loss.backward()
        for group, lr in zip(self.adam.param_groups, self.rates, strict=True):
            group["lr"] = lr * rate
        self.adam.step()
        with torch.no_grad():
            for M, momentum in zip(self.matrices, self.momenta, strict=True):
                momentum.mul_(0.95).add_(M.grad)
                stretch = math.sqrt(max(1, M.shape[-2] / M.shape[-1]))
                M.add_(orthogonal(M.grad + 0.95 * momentum), alpha=-0.02 * rate * stretch)
        self.step += 1


@torch.no_grad()
def measure(model: PageModel, held_out: Tensor, letters: float) -> dict[str, float]:
    """Bits a character on the held-out text, and the share of repeated tokens that are guessed.

    ``letters``: characters per token. The text is read in windows of 128 tokens, each from a
    start token. What is repeated has 24 tokens: random ones, or the beginnings of windows.
    """
    whole = held_out[: len(held_out) // CONTEXT * CONTEXT].view(-1, CONTEXT)
    rows = functional.pad(whole, (1, 0), value=START)
    missed = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    found = {"bits": float(missed) / math.log(2) / letters, "copying": copying(model)}
    return found | {"copying text": copying(model, whole[:: len(whole) // 32][:32])}


@torch.no_grad()
def copying(model: PageModel, segments: Tensor | None = None, period: int = 24) -> float:
    """Return the share of right first guesses from the second time on; 32 random segments by default."""
    if segments is None:
        generator = torch.Generator().manual_seed(1)
        segments = torch.randint(1, VOCABULARY, (32, CONTEXT), generator=generator).to(model.E.device)
    again, known = repeated(segments, torch.full((len(segments),), period, device=segments.device))
    return float((model(again[:, :-1]).argmax(-1) == again[:, 1:])[known].float().mean())


# ------------------------------------------------------------------------------------ what is kept


def quantized(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return each matrix as int8 with a scale for each row: entry = scale * integer, at most 127.

    The bias stays in float16: it is small, and its rounding would cost most.
    """
    kept = {"b": weights["b"].detach().cpu().half()}
    for name, tensor in weights.items():
        if name == "b":
            continue
        scale = tensor.detach().cpu().abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        kept[name] = (tensor.detach().cpu() / scale).round().to(torch.int8)
        kept[f"{name} scale"] = scale
    return kept


def load_trained() -> PageModel:
    """Return the model of the book: seed 0, 32.5 million tokens, weights in 8 bits."""
    return with_weights(load_weights(FOLDER / "page-model.safetensors"))


def with_weights(kept: dict[str, Tensor]) -> PageModel:
    """Return the model of weights that ``quantized`` made."""
    model = PageModel()
    model.load_state_dict({name: kept[name] * kept.get(f"{name} scale", 1) for name in model.state_dict()})
    return model.eval()


def keep(folder: Path, trained_on: str) -> None:
    """Write the weights of seed 0, and the log of every seed in ``folder``, beside the other results.

    Seeds that ``folder`` does not have stay as they were kept before.
    """
    prepared, kept = torch.load(folder / "tokens.pt"), FOLDER / "page-model.json"
    held_out, results = prepared["sets"][2].long(), read_json(kept, FORMAT)["results"]
    for path in sorted(folder.glob("seed-*.pt")):
        state, model = torch.load(path, map_location="cpu"), PageModel()
        model.load_state_dict(state["model"])
        found = {
            "tokens": state["step"] * ROWS * CONTEXT,
            "end": measure(model, held_out, prepared["letters"]),
            "machine": trained_on,
        }
        if path.stem == "seed-0":
            notes = {"job": "seed 0", "command": COMMAND, **versions()}
            save_weights(quantized(state["model"]), FOLDER / "page-model.safetensors", notes)
            found["end in 8 bits"] = measure(load_trained(), held_out, prepared["letters"])
            found["sha256"] = digest(FOLDER / "page-model.safetensors")
            found["pieces"] = prepared["pieces"]
        results[path.stem.replace("-", " ")] = found | {"log": state["log"]}
    settings = {"log": "bits of the log are those of 64 windows, of the end those of the whole text"}
    given = {"experiment": "page-model", "size": "full", "settings": settings, "command": COMMAND}
    given |= {"versions": versions(), "machine": "as each seed says", "results": results}
    write_json(kept, FORMAT, given)


def main(arguments: list[str] | None = None) -> None:
    """Train one seed, or write what was trained beside the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=float, default=32.5e6)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", metavar="MACHINE", help="write what was trained beside the results")
    given = parser.parse_args(arguments)
    if given.keep:
        return keep(given.folder, given.keep)
    given.folder.mkdir(parents=True, exist_ok=True)
    prepared = given.folder / "tokens.pt"
    if not prepared.exists():
        texts = novels(given.texts)
        trained, held_out = [text[:-HELD_OUT] for text in texts], [text[-HELD_OUT:] for text in texts]
        pieces = vocabulary("".join(trained))
        draw = random.Random(0)
        named = [renamed(text, draw) for text in trained]
        sets = [torch.tensor(encode("\n".join(part), pieces)) for part in (trained, named, held_out)]
        letters = sum(map(len, held_out)) / len(sets[2])
        torch.save({"pieces": pieces, "sets": sets, "letters": letters}, prepared)
    found = torch.load(prepared)
    plain, named, held_out = (part.to(given.device) for part in found["sets"])
    run, path = Training(given.seed, given.device), given.folder / f"seed-{given.seed}.pt"
    if path.exists():
        run.load(path)
    steps, begin = int(given.tokens / (ROWS * CONTEXT)), time.monotonic()
    while run.step < steps:
        run.advance(plain, named, steps)
        if run.step % 250 == 0 or run.step == steps:
            numbers = measure(run.model, held_out, found["letters"])
            run.log.append({"tokens": run.step * ROWS * CONTEXT, **numbers})
            print(json.dumps(run.log[-1]), round(time.monotonic() - begin), flush=True)
        if run.step % 100 == 0 or run.step == steps:
            run.save(path)


if __name__ == "__main__":
    main()
