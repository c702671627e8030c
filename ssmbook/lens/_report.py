"""A model under the lens: every layer measured, as written and with its weights permuted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from html import escape
from importlib import metadata
from json import JSONDecodeError
from pathlib import Path
from statistics import median, median_high
from typing import Any

from torch import nn

from ssmbook._checks import check_choice
from ssmbook._json import read_json, versions, write_json
from ssmbook.display import number, table
from ssmbook.display.tables import Table
from ssmbook.lens._calls import UNFORESEEN, Call, Texts, collect, split_texts
from ssmbook.lens._layers import MixingLayer, not_read, read, select, survey
from ssmbook.lens._measure import EPSILONS, MOST_HEADS, LayerReport, Measures, measure, permute_weights
from ssmbook.lens._reading import check_read
from ssmbook.lens._report_page import TOKENS, document, drawn, page, wide
from ssmbook.lens._states import grown

FORMAT = "ssmbook.lens/1"
_COLUMNS = (
    "Heads that leave at most that share of the operator's energy. “states”: what carries the median head "
    "from past to future without its first key, at the cut that needs most"
)
_TWO = "0.1", "0.01"
_AT_ONE = _TWO[1]


def _versions() -> dict[str, str]:
    found = versions()
    with suppress(metadata.PackageNotFoundError):
        found["transformers"] = metadata.version("transformers")
    return found


@dataclass
class Report:
    """What the lens found in a model.

    Parameters
    ----------
    model : str
        What the model is called.
    settings : dict
        How it was measured.
    layers : list
        A layer has a ``name``, ``kind`` and ``family``, its sizes ``n``, ``p``, ``d`` and ``H``, the
        ``miss`` of its reading, and the numbers ``trained`` and ``permuted`` (with permuted weights, or
        ``None``).
    notes : list of str
        What was not read, and why; what was changed to read.
    versions : dict
        Of Python, torch and others.
    tokens : list of str or None
        The first ones of the first text.

    Examples
    --------
    >>> found = measurement("minilm")
    >>> len(found.layers), found.layers[0].H, found.layers[0].trained.rank[0]
    (6, 12, 12)
    """

    model: str
    settings: dict[str, Any]
    layers: list[LayerReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=_versions)
    tokens: list[str] | None = None

    def table(self) -> Table:
        """Return the counts as a ``display.Table``: trained (permuted), medians over the texts."""
        words = f"{_COLUMNS}; upper medians over the texts"
        beside = "; in brackets the same layer with permuted weights" if self.settings["permuted"] else ""
        return self._table(words + beside, [_beside(layer) for layer in self.layers], self.layers)

    def compare(self, after: Report) -> Table:
        """Return the layers that two reports share, before → after: before and after tuning, say.

        Raises ``ValueError`` when no layer has the same name or the numbers of tokens
        differ.

        >>> found = measurement("minilm")
        >>> "12 → 12" in str(found.compare(found))  # the rank of its first layer, before and after
        True
        """
        if after.settings["tokens"] != self.settings["tokens"]:
            raise ValueError(f"both reports must be on texts of {self.settings['tokens']} tokens")
        later = {layer.name: layer for layer in after.layers}
        shared = [layer for layer in self.layers if layer.name in later]
        if not shared:
            raise ValueError("the two reports must share layers; got none of the same name")
        pairs = [(_values(layer.trained), _values(later[layer.name].trained)) for layer in shared]
        cells = [[f"{was} → {now}" for was, now in zip(*pair, strict=True)] for pair in pairs]
        words = f"{self.model} → {after.model}. {_COLUMNS}"
        return self._table(words, cells, shared)

    def _table(self, caption: str, cells: list[list[str]], layers: list[LayerReport]) -> Table:
        shares = [f"{100 * eps:g}\N{NO-BREAK SPACE}% left" for eps in self.settings["epsilons"]]
        states = [f"{share}, states" for share in shares]
        states += [f"{shares[1]}, states, {m} tokens" for m in grown(self.settings["tokens"])[:-1]]
        states.append(f"{shares[1]}, states with the first key")
        numbers = ["rank k", *shares, *states, "on the first token", "mean distance"]
        rows = [
            [layer.title, layer.family, str(layer.H), *each]
            for layer, each in zip(layers, cells, strict=True)
        ]
        header = ["layer", "family", "heads", *numbers]
        return table(rows, header, align="ll" + "r" * (len(header) - 2), caption=caption)

    def heads(self) -> list[dict[str, Any]]:
        """Return the heads of all causal layers, those first that fewest states carry: the first to change.

        Of layers of up to 64 heads: "layer", "head", "states" (at 1 %, without the first key),
        "half" (the same on half of the text), "with" (with the first key), "first" (weight on the
        first token) and "distance" (mean).

        >>> measurement("minilm").heads()  # reads both ways
        []
        """
        found = []
        for layer in self.layers:
            if layer.needed and layer.H <= MOST_HEADS:
                states, seen = layer.trained.states, layer.trained.heads
                half, whole = states["without"][_AT_ONE][1:]
                columns = whole, half, states["with"][_AT_ONE], seen["first"], seen["distance"]
                names = "states", "half", "with", "first", "distance"
                for h, each in enumerate(zip(*columns, strict=True)):
                    found.append({"layer": layer.title, "head": h, **dict(zip(names, each, strict=True))})
        return sorted(found, key=lambda head: (head["states"], head["half"], head["distance"]))

    def verdict(self) -> list[str]:
        """Return what was found in three sentences: of the heads, of their states, of what to change first.

        Medians are upper medians.

        >>> print(measurement("minilm").verdict()[0].partition("energy ")[2])
        with 6 of its 12 heads and 99 % with 11; with permuted weights these are 10 and 12.
        """

        def half(values: Iterable[list[int]]) -> int:  # at least half of the layers have at most that many
            return median_high(map(median_high, values))

        layers, sizes = self.layers, sorted({layer.H for layer in self.layers})
        kinds = [kind for kind in ("trained", "permuted") if all(getattr(layer, kind) for layer in layers)]
        counts = [half(getattr(layer, k).counts[eps] for layer in layers) for k in kinds for eps in _TWO]
        beside = "; with permuted weights these are {} and {}".format(*counts[2:]) if counts[2:] else ""
        size, texts = " to ".join(map(str, sorted({sizes[0], sizes[-1]}))), self.settings["texts"]
        heads = (
            f"On {_several(texts, 'text')} of {self.settings['tokens']} tokens, the median of "
            f"{_several(len(layers), 'layer')} keeps 90 % of its operator's energy with {counts[0]} "
            f"of its {size} heads and 99 % with {counts[1]}{beside}."
        )
        causal, first = [layer.trained.states for layer in layers if layer.needed], self.heads()[:3]
        if not causal:
            return [heads, "No layer that was read is causal, so no states are counted."]
        short, whole = (half(found["without"][_AT_ONE][at] for found in causal) for at in (0, -1))
        both = half(found["with"][_AT_ONE] for found in causal)
        states = (
            f"In the median of {_several(len(causal), 'causal layer')}, the median head leaves 1 % "
            f"with {_several(whole, 'state')} if its first key does not count, with {short} "
            f"on the first {causal[0]['lengths'][0]} tokens, and with {both} if that key counts."
        )
        names = ", ".join(f"head {head['head']} of {head['layer']} ({head['states']})" for head in first)
        return [heads, states, *[f"The heads to change first, by their states, are {names}."] * bool(first)]

    def summary(self) -> dict[str, Any]:
        """Return what the page says, as numbers to sort by: the verdict, the layers and their heads."""
        names = self.table().header[3:]
        rows = [
            {"layer": layer.title, "family": layer.family, "heads": layer.H}
            | {
                kind: measures and dict(zip(names, _numbers(measures), strict=True))
                for kind, measures in (("trained", layer.trained), ("permuted", layer.permuted))
            }
            for layer in self.layers
        ]
        return {"verdict": self.verdict(), "layers": rows, "heads": self.heads()}

    def to_json(self, path: str | Path) -> None:
        """Write the report as JSON, with its ``summary``."""
        with _whole(path) as part:
            write_json(part, FORMAT, {**asdict(self), "summary": self.summary()})

    @classmethod
    def from_json(cls, path: str | Path) -> Report:
        """Read a report; ``ValueError`` for another file."""
        try:
            given = read_json(path, FORMAT)
            given.pop("summary", None)
            return cls(**{**given, "layers": [LayerReport.from_dict(layer) for layer in given["layers"]]})
        except (KeyError, TypeError, UnicodeDecodeError, JSONDecodeError) as error:
            raise ValueError(
                f"{path} must hold a report of the lens; got {type(error).__name__}: {error}"
            ) from error

    def to_html(self, path: str | Path) -> None:
        """Write one page that needs no other file and no network: verdict, tables, and each head."""
        facts = "; ".join(f"{key}: {value}" for key, value in {**self.settings, **self.versions}.items())
        remarks = [_cite(self.versions.get("ssmbook")), facts, *self.notes]
        text = page(self, self.tokens or (), remarks)
        with _whole(path) as part:
            part.write_text(text, "utf-8")

    def compare_html(self, after: Report, path: str | Path) -> None:
        """Write the table of ``compare`` as a page, with what differs between the two settings."""
        was, now = ({**report.settings, **report.versions} for report in (self, after))
        facts = [f"{key}: {was[key]} → {now.get(key)}" for key in was if was[key] != now.get(key)]
        body = f"{wide(self.compare(after))}\n<p>{escape('; '.join(facts))}</p>\n"
        with _whole(path) as part:
            part.write_text(document(f"{self.model} and {after.model} under the lens", body), "utf-8")


@contextmanager
def _whole(path: str | Path) -> Iterator[Path]:
    """A path to write to, which takes its place once it is written: no file is ever half there."""
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _cite(version: str | None) -> str:
    return (
        "To cite: the authors of Heads and States, “Heads and States: Attention and State Space Models "
        f"through One Operator”, version {version}; A. Ghodsi, “How Many Heads Make an SSM? A Unified "
        "Framework for Attention and State Space Models”, 2025, arXiv:2512.15115."
    )


def _numbers(measures: Measures) -> list[float | None]:
    """The numbers of one layer in a table: rank, head counts, and what its median head does."""
    states = [None] * (len(EPSILONS) + 3)
    if measures.states:
        without, both = measures.states["without"], measures.states["with"]
        states = [*(each[-1] for each in without.values()), *without[_AT_ONE][:-1], both[_AT_ONE]]
    counts = [measures.rank, *measures.counts.values(), *states]
    means = [measures.heads[key] for key in ("first", "distance")]
    return [*(each and median_high(each) for each in counts), *map(median, means)]


def _values(measures: Measures) -> list[str]:
    """The same as text."""
    return [
        str(int(value)) if value is not None and float(value).is_integer() else number(value, 2)
        for value in _numbers(measures)
    ]


def _beside(layer: LayerReport) -> list[str]:
    """The numbers of one layer as trained and, in brackets, with permuted weights."""
    cells = _values(layer.trained)
    if layer.permuted is None:
        return cells
    pairs = zip(cells, _values(layer.permuted), strict=True)
    return [own if own == other == number(None) else f"{own} ({other})" for own, other in pairs]


def report(
    model: nn.Module, inputs: Texts, *, layers: Sequence[str] | None = None, name: str | None = None,
    seed: int = 0, permuted: bool = True, gradient: bool = True,
) -> Report:  # fmt: skip
    """Measure the mixing layers of a model on a batch of texts.

    Only one layer is held in float64 at a time; the model is left as it was.

    Parameters
    ----------
    model : Module
        In evaluation mode.
    inputs : Tensor or mapping
        Token ids (n,) or (texts, n), or hidden states (n, d) or (texts, n, d), n >= 8; of padded texts
        with their mask, ``input_ids`` or ``inputs_embeds`` and ``attention_mask`` (texts, n): each text
        is then read without its padding.
    layers : sequence of str, optional
        The names of some layers; all by default.
    name : str, optional
        What to call the model; its class by default.
    seed : int, default 0
        Of the permuted weights, and of the directions in which gradients are measured.
    permuted : bool, default True
        Whether each layer is also measured with the entries of its weight matrices permuted.
    gradient : bool, default True
        Whether the gradient against distance is measured too, on the first text.

    Returns
    -------
    Report
        The numbers of each layer, and a note on each that cannot be read.

    Raises
    ------
    ValueError, TypeError
        As ``operator``, where no layer can be read.

    Examples
    --------
    >>> from ssmbook.maps import SSD
    >>> found = report(SSD(4, 4, H=2, head_width=3, N=8).eval(), torch.randn(1, 16, 4))
    >>> found.layers[0].trained.rank
    [2]
    """
    found, strange = survey(model, inputs)
    found = select(found, layers)
    result = begin(model, inputs, name, seed=seed, permuted=permuted, gradient=gradient)
    result.notes += not_read(strange)
    result.layers += measure_layers(model, inputs, found, result)
    return result


def begin(model: nn.Module, inputs: Texts, name: str | None, **settings: int | bool | str) -> Report:
    """Return an empty report with its settings."""
    texts = split_texts(model, inputs)
    size = {"texts": len(texts), "tokens": max(map(len, texts)), "epsilons": list(EPSILONS)}
    dtype = {"dtype": str(next(model.parameters()).dtype).removeprefix("torch.")}
    ids = None if texts[0].is_floating_point() else [str(token) for token in texts[0][:TOKENS].tolist()]
    return Report(name or type(model).__name__, {**size, **settings, **dtype}, tokens=ids)


def measure_layers(
    model: nn.Module, inputs: Texts, found: list[MixingLayer], result: Report
) -> Iterator[LayerReport]:
    """Yield the reports of layers one by one; one that cannot be read exactly becomes a note.

    Parameters
    ----------
    model : Module
        In evaluation mode.
    inputs : Tensor
        As for ``report``.
    found : list of MixingLayer
        What to measure.
    result : Report
        Its settings say how, its layers are passed over; it receives the notes.

    Raises
    ------
    ValueError
        If no layer can be read.
    """
    modules = {layer.name: layer.module for layer in found}
    passes = [collect(model, modules, text) for text in split_texts(model, inputs)]
    result.notes += passes[0].notes
    refused, measured, known = [], False, {layer.name for layer in result.layers}
    for layer in found:
        texts = [each.calls.pop(layer.name) for each in passes]
        several = len(texts[0]) > 1
        for place, calls in enumerate(zip(*texts, strict=False)):  # one after the other, as ALBERT's
            each = replace(layer, name=f"{layer.name}, call {place + 1}") if several else layer
            if each.name in known:
                measured = True
                continue
            try:
                found_there = measure_layer(each, [*calls], result.settings)
            except (ValueError, TypeError, *UNFORESEEN) as error:
                refused.append(_refusal(each, error))
            else:
                measured = True
                yield found_there
        failed = [each.failed[layer.name] for each in passes if layer.name in each.failed]
        refused += [_refusal(layer, error) for error in failed[:1]]
    result.notes += refused
    if not measured:
        raise ValueError(refused[0])


def _refusal(layer: MixingLayer, error: Exception) -> str:
    adapter = any("lora_" in name for name, _ in layer.module.named_parameters())
    merge = "; merge the adapter into the weights first (merge_and_unload)" * adapter
    return f"not read: {layer.title} ({layer.kind}): {error}{merge}"


def measure_layer(layer: MixingLayer, calls: list[Call], settings: dict[str, Any]) -> LayerReport:
    """Read and measure one layer, as written and permuted."""
    measures, misses, pictures = [], [], None
    for alter in [None, permute_weights(settings["seed"])] if settings["permuted"] else [None]:
        readings = [read(layer, call, alter) for call in calls]
        misses += [check_read(layer.title, reading.core) for reading in readings]
        measures.append(measure(readings, settings["seed"], settings["gradient"]))
        pictures = pictures or drawn(readings)
    W, miss = readings[0].core.W, float(f"{max(misses):.2g}")
    named = (layer.name, layer.kind, layer.family)
    sizes = W.n, W.p, W.d, readings[0].H
    trained, permuted = [*measures, None][:2]
    return LayerReport(*named, *sizes, miss, trained, permuted, pictures)


def measurement(name: str) -> Report:
    """Return a report that comes with the library: "minilm", a trained MiniLM on four texts of 256 tokens.

    The file records the command, model, versions and text that made it. Raises
    ``ValueError`` for another name.

    >>> [layer.H for layer in measurement("minilm").layers]
    [12, 12, 12, 12, 12, 12]
    """
    known = {path.stem: path for path in (Path(__file__).parent / "measured").glob("*.json")}
    return Report.from_json(known[check_choice("name", name, known)])
