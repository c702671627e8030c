"""A model under the lens: every layer measured, as written and with its weights permuted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ssmbook._checks import check_choice, check_flags, check_integer
from ssmbook._commands import read_json, versions, write_json
from ssmbook.lens._capture import Call, capture, check_inputs
from ssmbook.lens._frozen import check_frozen
from ssmbook.lens._layers import MixingLayer, read
from ssmbook.lens._layers import layers as find_layers
from ssmbook.lens._measure import EPSILONS, LayerReport, measure, permute_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ssmbook.display import Table

FORMAT = "ssmbook.lens/1"


def _versions() -> dict[str, str]:
    """The versions that made the numbers, transformers' among them where it is installed."""
    found = versions()
    with suppress(metadata.PackageNotFoundError):
        found["transformers"] = metadata.version("transformers")
    return found


@dataclass
class Report:
    """What the lens found: ``layers``, with the ``model``, ``settings``, ``versions`` and ``notes``.

    Its forms: ``table()``, ``figure(layer)``, ``to_json(path)`` and ``from_json(path)``, ``to_html(path)``.
    Introduced in *trained-layers*.

    >>> found = measurement("minilm")
    >>> len(found.layers), found.layers[0].H, found.layers[0].trained.rank[0]
    (6, 12, 12)
    """

    model: str
    settings: dict
    layers: list[LayerReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=_versions)

    def table(self) -> Table:
        """Return the counts as a ``display.Table``: trained (permuted), medians over the texts."""
        from ssmbook.lens._table import counts_table

        return counts_table(self)

    def figure(self, layer: int | str) -> tuple[Figure, str]:
        """Return ``fig, alt`` of one layer, by its place or its name (``ValueError`` if there is none)."""
        from ssmbook.lens._figure import layer_figure

        return layer_figure(self[layer])

    def __getitem__(self, layer: int | str) -> LayerReport:
        names = [each.name for each in self.layers]
        if isinstance(layer, str) and layer in names:
            return self.layers[names.index(layer)]
        if isinstance(layer, int) and not isinstance(layer, bool) and -len(names) <= layer < len(names):
            return self.layers[layer]
        raise ValueError(f"layer must be a name or a place among {len(names)} layers; got {layer!r}")

    def to_json(self, path: str | Path) -> None:
        """Write the report as JSON, in one step: a file that was there stays whole until it is replaced."""
        write_json(Path(path), {"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, path: str | Path) -> Report:
        """Read a report; ``ValueError`` for a file that is none or of another format."""
        given = read_json(Path(path), FORMAT, "a report of the lens")
        return cls(**{**given, "layers": [LayerReport.from_dict(layer) for layer in given["layers"]]})

    def to_html(self, path: str | Path) -> None:
        """Write the report as one page that needs no other file and asks no other host."""
        from ssmbook.lens._html import page

        Path(path).write_text(page(self), "utf-8")


def report(
    model: nn.Module,
    inputs: Any,
    *,
    layers: Sequence[str] | None = None,
    name: str | None = None,
    seed: int = 0,
    permuted: bool = True,
    gradient: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
) -> Report:
    """Measure the mixing layers of a model on a batch of texts.

    ``inputs``: token ids (n,) or (texts, n), hidden states (n, d) or (texts, n, d); ``layers``: names of
    some of them (all); ``name``: what to call the model; ``permuted``: measure each layer also with the
    entries of its weight matrices permuted, drawn from ``seed``; ``gradient``: also on the first text the
    gradient against distance; ``progress(done, total, name)`` is called before each layer and at the end.
    Only one layer is held in float64 at a time. Raises ``TypeError``/``ValueError`` as ``operator``.
    Introduced in *trained-layers*.

    >>> from ssmbook.maps import SSD
    >>> found = report(SSD(4, 4, H=2, head_width=3, N=8).eval(), torch.randn(1, 16, 4))
    >>> found.layers[0].trained.rank
    [2]
    """
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"name must be a word or None; got {type(name).__name__}")
    if not (progress is None or callable(progress)):
        raise TypeError(f"progress must be a function or None; got {type(progress).__name__}")
    texts = split_texts(model, inputs)
    found = chosen(find_layers(model), layers)
    result = begin(model, texts, name, seed=seed, permuted=permuted, gradient=gradient)
    for layer in measured(model, texts, found, result, progress):
        result.layers.append(layer)
    return result


def begin(model: nn.Module, texts: list[Tensor], name: str | None, **settings) -> Report:
    """An empty report with its settings."""
    settings["seed"] = check_integer("seed", settings["seed"], low=0)
    check_flags(permuted=settings["permuted"], gradient=settings["gradient"])
    size = {"texts": len(texts), "tokens": int(texts[0].shape[0]), "epsilons": list(EPSILONS)}
    dtype = {"dtype": str(next(model.parameters()).dtype).removeprefix("torch.")}
    return Report(name or type(model).__name__, {**size, **settings, **dtype})


def compare(before: Report, after: Report) -> Table:
    """Return the layers that two reports share, before → after: two checkpoints, before and after tuning.

    A ``display.Table``. Raises ``TypeError`` for anything but reports, ``ValueError`` when no layer has the
    same name or the numbers of tokens differ. Introduced in *trained-layers*.

    >>> found = measurement("minilm")
    >>> "12 → 12" in str(compare(found, found))  # the rank of its first layer, before and after
    True
    """
    from ssmbook.lens._table import comparison

    for name, given in (("before", before), ("after", after)):
        if not isinstance(given, Report):
            raise TypeError(f"{name} must be a Report; got {type(given).__name__}")
    return comparison(before, after)


def measured(
    model, texts: list[Tensor], found: list[MixingLayer], result: Report, progress=None
) -> Iterator[LayerReport]:
    """Yield the reports of ``found`` one by one, in the settings of ``result``; notes go to the result."""
    modules = {layer.name: layer.module for layer in found}
    passes = [capture(model, modules, text) for text in texts]
    result.notes += [note for note in passes[0][1] if note not in result.notes]
    for done, layer in enumerate(found):
        if progress is not None:
            progress(done, len(found), layer.name)
        yield layer_report(layer, [calls.pop(layer.name) for calls, _ in passes], result.settings)
    if progress is not None:
        progress(len(found), len(found), "")


def layer_report(layer: MixingLayer, calls: list[Call], settings: dict) -> LayerReport:
    """Read and measure one layer, as written and permuted."""
    measures, misses, readings = [], [], []
    changes = [None, permute_weights(settings["seed"])] if settings["permuted"] else [None]
    for change in changes:
        readings = [read(layer, call, change) for call in calls]
        words = f"{layer.name or layer.kind}{' (permuted)' if change else ''}"
        misses += [check_frozen(words, reading.core) for reading in readings]
        measures.append(measure(readings, settings["seed"], settings["gradient"]))
    W, miss = readings[0].core.W, float(f"{max(misses):.2g}")
    named = (layer.name, layer.kind, layer.family)
    return LayerReport(*named, W.n, W.p, W.d, readings[0].heads, miss, *measures)


def split_texts(model: nn.Module, inputs) -> list[Tensor]:
    """The texts of a batch one by one, checked against the model."""
    if not isinstance(inputs, Tensor):
        raise TypeError(f"inputs must be a tensor of token ids or hidden states; got {type(inputs).__name__}")
    _, single = check_inputs(model, inputs)
    texts = [inputs] if single else list(inputs)
    if len(texts[0]) < 8:
        raise ValueError(f"inputs must have at least 8 tokens to be measured; got {len(texts[0])}")
    return texts


def chosen(found: list[MixingLayer], names: Sequence[str] | None) -> list[MixingLayer]:
    """The layers of these names, each of which must exist."""
    if names is None:
        return found
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise TypeError(f"layers must be names of layers in a list, or None; got {names!r}")
    known = {layer.name: layer for layer in found}
    for name in names:
        if name not in known:
            raise ValueError(f"layers must name some of {', '.join(known)}; got {name!r}")
    return [known[name] for name in known if name in set(names)]


def measurement(name: str) -> Report:
    """Return a report that comes with the library: "minilm", a trained MiniLM on four texts of 256 tokens.

    The file says by which command, model, versions and text it was made. Raises ``ValueError`` for another
    name. Introduced in *trained-layers*.

    >>> [layer.H for layer in measurement("minilm").layers]
    [12, 12, 12, 12, 12, 12]
    """
    known = {path.stem: path for path in sorted((Path(__file__).parent / "measured").glob("*.json"))}
    return Report.from_json(known[check_choice("name", name, known)])
