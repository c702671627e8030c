"""Which key–value groups of a model keep their whole cache, and what the others keep: ``lens.plan``."""

from __future__ import annotations

import copy
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from scipy.special import stdtrit
from torch import Tensor, nn

from ssmbook._checks import check_choice, check_finite, check_integer, check_number
from ssmbook._extras import extra
from ssmbook._json import read_json, write_json
from ssmbook.lens.changes._damage import chosen, copies, late_loss, path_damages, record, state_floor, weights
from ssmbook.lens.changes._features import fit_features, head_errors, states_output
from ssmbook.lens.changes._groups import GroupLayer, attending, group_layers, install, near
from ssmbook.lens.changes._kept import Kept, own_window, small_cache

FORMAT = "ssmbook.lens.plan/1"
_log = logging.getLogger(__name__)
# Rows of groups kept at random; tokens in a row that texts to decide on and held-out ones never share.
_RANDOM, _SHARED = 5, 32
Demands = Mapping[str, Tensor]


@dataclass
class Plan:
    """Which form of cache each key–value group of a model keeps; made by ``plan``, read by ``load_plan``.

    Parameters
    ----------
    model : dict
        Its "kind", and "layers": name -> key–value groups, query heads of each, width.
    forms : dict
        Name of a layer -> "full", "window" or "states" for each of its groups.
    sizes : dict
        Tokens that a group of each form keeps; None for "full".
    sink : int
        How many first tokens every group keeps.
    tokens : int
        The length of the texts, for which the cache is counted.
    cache : float
        The share of a full cache that is kept at this length: on longer texts full groups grow and windows
        do not, so the share is smaller.
    scores : dict
        Demand -> "damage" and "slope" of each group, "true", "miss" and "points" of their sum.
    predicted : dict
        Demand -> the sum of the damages of the groups that keep a window or states, in nats.
    measured : dict
        Row -> demand -> the loss of each held-out text. Rows: "as it is", "plan", "plan, windows alone",
        "uniform window", "random 0" and so on.
    floor : dict
        Name of a layer -> head -> the share of its squared weights that no recurrence carries with as many
        states as a window has tokens. Layers that read the whole text by softmax of q · k alone.
    features : dict
        Name of a layer -> "a", "b", "c", "d" of its groups with states.
    notes : list of str
        Which layers were not offered states, and why.
    """

    model: dict
    forms: dict[str, list[str]]
    sizes: dict[str, int | None]
    sink: int
    tokens: int
    cache: float
    scores: dict[str, dict] = field(default_factory=dict, repr=False)
    predicted: dict[str, float] = field(default_factory=dict)
    measured: dict[str, dict] = field(default_factory=dict, repr=False)
    floor: dict[str, list[float]] = field(default_factory=dict, repr=False)
    features: dict[str, dict[str, Tensor]] = field(default_factory=dict, repr=False)
    notes: list[str] = field(default_factory=list)

    def _kept(self, model: nn.Module) -> dict[nn.Module, Kept]:
        found, device = group_layers(model), next(model.parameters()).device
        if _signature(model, found) != self.model:
            raise ValueError(
                f"model must be the one that was planned, {self.model['kind']} with {len(self.forms)} layers "
                f"of attention; got {type(model).__name__} with {len(found)}, of other names or sizes"
            )
        for layer in (layer for layer in found if "states" in self.forms[layer.name]):
            reach = own_window(model, layer.module.layer_idx)
            if reach is not None and reach < self.tokens:
                raise ValueError(
                    f"plan must have no causal states in {layer.name}, whose own window of {reach} tokens is "
                    f"shorter than the texts of {self.tokens}: states cannot forget; plan again"
                )
        return {
            layer.module: Kept(
                self.forms[layer.name], self.sizes, self.sink, self.features.get(layer.name, {})
            ).to(device)
            for layer in found
        }

    @contextmanager
    def apply(self, model: nn.Module) -> Iterator[nn.Module]:
        """Run the model on whole texts as the plan has it, inside a ``with`` block; then it is as it was.

        There is no cache of earlier tokens inside. Raises ``ValueError`` for another model.
        """
        with attending(model, self._kept(model)):
            yield model

    def module(self, model: nn.Module) -> nn.Module:
        """Return a copy of the model that keeps what the plan says, and no more, while it generates.

        It computes what ``apply`` does, also with padding, where an attention mask says
        so. The cache that it returns has ``nbytes``. ``save_pretrained`` of the copy saves the model
        without the plan. Raises ``ValueError`` for another model, and later for a cache that is not
        its own.
        """
        self._kept(model)
        planned = copy.deepcopy(model)
        install(planned, self._kept(planned))
        places = [layer.module.layer_idx for layer in group_layers(planned)]
        planned.register_forward_pre_hook(
            lambda module, args, given: (args, small_cache(module, places, given)), with_kwargs=True
        )
        return planned

    def save(self, folder: str | Path) -> None:
        """Write ``plan.json``, with "groups" for a server, and ``features.safetensors`` into a folder."""
        with extra("lens"):
            from safetensors.torch import save_file
        given = {name: value for name, value in vars(self).items() if name != "features"}
        rules = [
            {"layer": name, "group": g, "form": form, "window": self.sizes[form], "sink": self.sink}
            for name, forms in self.forms.items()
            for g, form in enumerate(forms)
        ]
        write_json(Path(folder) / "plan.json", FORMAT, {**given, "groups": rules})
        named = ((f"{layer}.{name}", part) for layer, p in self.features.items() for name, part in p.items())
        save_file({name: part.contiguous() for name, part in named}, Path(folder) / "features.safetensors")

    def table(self) -> str:
        """Return which groups keep what, and the nats that each row adds on held-out texts.

        ± is half a 95 % interval of the mean over these texts. Layers have the numbers of their names.
        """
        base = self.measured["as it is"]
        rows: dict[str, list] = {
            row: [
                _mean(torch.tensor(losses[name]).double() - torch.tensor(base[name]).double())
                for name in base
            ]
            for row, losses in self.measured.items()
            if row != "as it is"
        }
        rows["predicted, windows alone"] = [f"{self.predicted[name]:.3f}{'':8}" for name in base]
        rows["missed by the sum over all groups"] = [
            f"{self.scores[name]['miss'] * abs(self.scores[name]['true']):.3f}{'':8}" for name in base
        ]
        first = f"nats at {self.cache:.0%} of the cache of {self.tokens} tokens"
        lines = [[first, *(f"{name}{'':8}" for name in base)], *([row, *rows[row]] for row in rows)]
        parts = [f"{first:<42}" + "".join(f"{each:>18}" for each in rest) for first, *rest in lines]
        return "\n".join([*self._who(), *self.notes, *(part.rstrip() for part in parts)])

    def _who(self) -> list[str]:
        """A line for each form: the layers, or groups of layers, that have it."""
        counts = Counter(form for forms in self.forms.values() for form in forms)
        lines = []
        for form, _ in reversed(counts.most_common()):
            whole, parts = [], []
            for name, forms in self.forms.items():
                layer = _number(name)
                groups = [str(g) for g, each in enumerate(forms) if each == form]
                if len(groups) == len(forms):
                    whole.append(layer)
                elif groups:
                    parts.append(f"layer {layer}: group{'s' * (len(groups) > 1)} {', '.join(groups)}")
            said = [f"layer{'s' * (len(whole) > 1)} {', '.join(whole)}"] * bool(whole) + parts
            size = self.sizes[form]
            kept = "whole" if size is None else f"first {self.sink} and last {size - self.sink} tokens"
            others = "all groups" if len(counts) == 1 else "the others"
            last = form == counts.most_common(1)[0][0]
            lines.append(
                f"{kept}{', and states' * (form == 'states')}: {others if last else '; '.join(said)}"
            )
        return lines


def load_plan(folder: str | Path) -> Plan:
    """Return the plan that ``Plan.save`` wrote; ``ValueError`` for other files and features not finite."""
    with extra("lens"):
        from safetensors.torch import load_file
    given = read_json(Path(folder) / "plan.json", FORMAT)
    given.pop("groups", None)
    features: dict[str, dict[str, Tensor]] = {}
    for name, part in load_file(Path(folder) / "features.safetensors").items():
        check_finite(f"the features {name}", part)
        layer, _, kind = name.rpartition(".")
        features.setdefault(layer, {})[kind] = part
    return Plan(**given, features=features)


def _number(name: str) -> str:
    """The number in the name of a layer, or the name."""
    return next((part for part in name.split(".") if part.isdecimal()), name)


def _mean(values: Tensor) -> str:
    """The mean, with half a 95 % interval of it by Student's law where there are several values."""
    if (n := len(values)) == 1:
        return f"{float(values.mean()):.3f} {'':<7}"
    return f"{float(values.mean()):.3f} ± {stdtrit(n - 1, 0.975) * float(values.std()) / n**0.5:<5.3f}"


def check_sizes(budget: float, window: int, sink: int, n: int) -> None:
    """Refuse numbers with which no texts of n tokens can be planned."""
    if check_integer("window", window, low=2) >= n:
        raise ValueError(f"texts must be longer than a window of {window} tokens; got {n}")
    check_integer("sink", sink, low=0, high=window - 1)
    if check_number("budget", budget, 0.0, 1.0) < window / n:
        raise ValueError(
            f"budget must be {window / n:.3g} or more, what windows of {window} take of {n} tokens; got "
            f"{budget:g}"
        )


def _signature(model: nn.Module, found: list[GroupLayer]) -> dict[str, Any]:
    layers = {layer.name: [layer.G, layer.share, layer.width] for layer in found}
    return {"kind": type(model).__name__, "layers": layers}


@torch.no_grad()
def plan(
    model: nn.Module, texts: Tensor | Demands, budget: float, *, held_out: Tensor | Demands | None = None,
    window: int = 32, sink: int = 4, states: bool = False, by: str = "copy", seed: int = 0,
    folder: str | Path | None = None,
) -> Plan:  # fmt: skip
    """Return which key–value groups keep their whole cache within a budget, and what the others keep.

    Each group's damage on each demand comes from three to nine forward and backward passes;
    the groups that copying needs most keep all. The others keep a window. With ``states``
    they keep fewer tokens and causal states in as many numbers where these are nearer to
    the layer's own outputs on texts that they were not fitted to: on SmolLM2 that cost
    less on text and more on copying at 1,024 and 2,048 tokens. States cannot forget, so a
    layer with a window of its own that is shorter than the texts gets none, and past such
    a window they go on reading what the layer itself lets go.

    Parameters
    ----------
    model : Module
        A causal language model of transformers, with its output head.
    texts : Tensor (texts, n) or mapping
        Token ids to decide on; or demand -> ids. Without a demand "copy", random tokens that repeat
        themselves are added.
    budget : float
        The share of the cache that may stay at the length n of the texts; on longer ones less stays.
    held_out : Tensor, mapping or None
        Other texts, to measure on; by default every other one of ``texts``.
    window, sink : int
        Tokens that a narrow group keeps, the first ``sink`` among them.
    states : bool, default False
        Whether to fit causal states.
    by : str, default "copy"
        The demand that decides; others decide between groups that it does not need.
    seed : int
        Of random tokens, random rows and features.
    folder : path or None
        Where finished steps are kept: the same call goes on after an interruption, and another budget
        takes them over.

    Returns
    -------
    Plan
        With its losses on held-out texts, beside a uniform window's and those of groups kept at random.

    Raises
    ------
    ValueError
        If the budget is less than windows alone take; if texts are not longer than a window or share 32
        tokens with those held out; for a model without a cache of keys and values, or one whose
        attention does not take a mask; if the folder holds the steps of other texts.
    TypeError
        For texts that are no token ids.
    """
    found = group_layers(model)
    fit, test = _demands(model, texts, held_out, (budget, window, sink), seed)
    check_choice("by", by, fit)
    n, B = next(iter(fit.values())).shape[1], sum(layer.G for layer in found)
    small = window / n
    K = int((budget - small) / (1 - small) * B + 1e-9)
    same = [_signature(model, found), window, sink, seed, {name: each.tolist() for name, each in fit.items()}]
    once, scores = _Steps(folder, json.dumps(same)), {}
    for name, each in fit.items():
        _log.info("damages on %s, %d texts to decide on", name, len(each))
        scores[name] = once(f"path-{name}", lambda each=each: path_damages(model, found, each, window, sink))
    full = chosen({name: each["damage"] for name, each in scores.items()}, by, K)
    alone = compose(model, found, full, window, sink, n)
    fitted = fit_states(model, found, fit, window, sink, seed, once) if states else None
    made = compose(model, found, full, window, sink, n, fitted)
    made.scores = scores
    made.predicted = {name: float(each["damage"][~full].sum()) for name, each in scores.items()}
    first = record(model, found, next(iter(fit.values()))[:1])
    for layer, each in zip(found, first, strict=True):
        if not _reason(each):
            made.floor[layer.name] = state_floor(weights(each["q"], each["k"])[0], window).tolist()
    made.notes = _without_states(found, first) if states else []
    nothing = torch.zeros_like(full)
    rows = {"as it is": None, "plan": made, **({"plan, windows alone": alone} if states else {})}
    rows["uniform window"] = compose(model, found, nothing, round(made.cache * n), sink, n)
    for draw in range(_RANDOM):
        kept = torch.randperm(B, generator=torch.Generator().manual_seed(seed + draw)) < K
        rows[f"random {draw}"] = compose(model, found, kept, window, sink, n)
    for row, each in rows.items():
        _log.info("losses on held-out texts, row %d of %d: %s", len(made.measured) + 1, len(rows), row)
        made.measured[row] = measure(model, test, each)
    return made


def measure(model: nn.Module, demands: Demands, made: Plan | None) -> dict[str, list[float]]:
    """The late loss of each text under a plan, or as the model is."""
    if made is None:
        return {name: late_loss(model, texts).tolist() for name, texts in demands.items()}
    with made.apply(model):
        return measure(model, demands, None)


def compose(
    model: nn.Module, found: list[GroupLayer], full: Tensor, window: int, sink: int, n: int,
    fitted: Mapping[str, dict[str, Tensor]] | None = None,
) -> Plan:  # fmt: skip
    """Put a plan together from its parts.

    Parameters
    ----------
    model : Module
        The language model.
    found : list of GroupLayer
        Its layers.
    full : Tensor (groups,)
        Which groups keep all.
    window, sink : int
        What the others keep.
    n : int
        The length of texts.
    fitted : mapping or None
        What ``fit_states`` returned: groups take states where these are "better".

    Returns
    -------
    Plan
        Without scores and losses.
    """
    forms, features = {}, {}
    for layer, part in zip(found, full.split([layer.G for layer in found]), strict=True):
        p = (fitted or {}).get(layer.name)
        take = torch.zeros_like(part) if p is None else p["better"].bool().cpu() & ~part
        forms[layer.name] = [
            "full" if keeps else "states" if takes else "window"
            for keeps, takes in zip(part, take, strict=True)
        ]
        if bool(take.any()):
            own = take.repeat_interleave(layer.share)
            features[layer.name] = {name: p[name][own if name in "ab" else take] for name in "abcd"}
    cache = float((full + (~full) * min(1.0, window / n)).mean())
    sizes = {"full": None, "window": window, "states": _split(window, found[0].width)[1]}
    return Plan(_signature(model, found), forms, sizes, sink, n, cache, features=features)


def _split(window: int, r: int) -> tuple[int, int]:
    """How many features, and tokens beside them, are no more numbers than the keys and values of a window."""
    N = 3 * window // 4
    return N, window - -(-N * (r + 1) // (2 * r))


def _without_states(found: list[GroupLayer], seen: list[dict[str, Tensor]]) -> list[str]:
    """A line for each reason why some layers were not offered states."""
    reasons: dict[str, list[str]] = {}
    for layer, each in zip(found, seen, strict=True):
        if why := _reason(each):
            reasons.setdefault(why, []).append(_number(layer.name))
    return [
        f"no states in layer{'s' * (len(names) > 1)} {', '.join(names)}: {why}"
        for why, names in reasons.items()
    ]


def _reason(seen: dict[str, Tensor]) -> str:
    """Why a layer gets no states, or nothing."""
    if not bool(seen["plain"].all()):
        return "their weights are not softmax of q · k alone"
    return "their own window is shorter than the texts, and states cannot forget" * bool(
        seen["forgets"].any()
    )


@torch.no_grad()
def fit_states(
    model: nn.Module, found: list[GroupLayer], fit: Demands, window: int, sink: int, seed: int,
    once: Callable = lambda name, step: step(),
) -> dict[str, dict[str, Tensor]]:  # fmt: skip
    """Fit causal states for every group, on all texts but the last of each demand, which judges them.

    Parameters
    ----------
    model : Module
        The language model.
    found : list of GroupLayer
        Its layers.
    fit : mapping
        Demand -> texts (texts, n).
    window, sink : int
        What a group with a window keeps; states take no more numbers.
    seed : int
        Of the features.
    once : callable
        name, step -> what the step makes, or has made before.

    Returns
    -------
    dict
        Name of a layer -> "a", "b", "c", "d"; "states" and "window" (H,), the errors of its heads on the
        texts that judge; "better" (G,), whether states are nearer. Layers that are not softmax of q · k
        alone, or have a window of their own shorter than n, are left out.
    """
    train = torch.cat([each[: max(1, len(each) - 1)] for each in fit.values()])
    seen, n = record(model, found, train), train.shape[1]
    last = record(model, found, torch.cat([each[-1:] for each in fit.values()]))
    N, small = _split(window, found[0].width)
    if small <= sink:
        raise ValueError(
            f"window must leave tokens beside {N} features and {sink} first tokens; got {window}"
        )
    mask = torch.full((1, 1, n, n), torch.finfo(torch.float32).min, device=train.device).triu(1)
    close, wide = near(mask, small, sink), near(mask, window, sink)
    far, none, results = (mask == 0) & ~close, torch.zeros_like(close), {}

    def step(place: int) -> dict[str, Tensor]:
        p = fit_features(seen[place], close, far, N, seed)
        q, k, v, y = (last[place][name] for name in "qkvy")
        ways = {"states": (close, far), "window": (wide, none)}
        for way, masks in ways.items():
            out = states_output(p, q, k, v, *masks)
            p[way] = torch.stack([head_errors(out[i : i + 1], y[i : i + 1]) for i in range(len(y))]).mean(0)
        gain = (p["window"] - p["states"]).unflatten(0, (found[place].G, -1)).mean(-1)
        return {**p, "better": gain > 0}  # a fit that diverged is not

    for place, layer in enumerate(found):
        if not _reason(seen[place]):
            results[layer.name] = once(f"states-{place}", partial(step, place))
    return results


class _Steps:
    """Steps that are kept in a folder, so that each is done once: name, step -> its tensors and numbers."""

    def __init__(self, folder: str | Path | None, key: str) -> None:
        self.folder, self.key = None if folder is None else Path(folder), key

    def __call__(self, name: str, step: Callable[[], dict]) -> dict:
        if self.folder is None:
            return step()
        with extra("lens"):
            from safetensors import safe_open
            from safetensors.torch import save_file
        path, part = (self.folder / f"{name}{end}" for end in (".safetensors", ".part"))
        if not path.exists():
            made = {each: torch.as_tensor(value).contiguous() for each, value in step().items()}
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(made, part, {"plan": self.key})
            part.rename(path)
        with safe_open(path, "pt") as kept:
            if kept.metadata()["plan"] != self.key:
                raise ValueError(f"folder must hold the steps of these texts and no others; got {path}")
            found = {each: kept.get_tensor(each) for each in kept.keys()}  # noqa: SIM118
        return {each: value if value.ndim else value.item() for each, value in found.items()}


def _ids(name: str, given: Tensor | Demands) -> dict[str, Tensor]:
    """Texts by demand, which must be token ids."""
    found = dict(given) if isinstance(given, Mapping) else {"text": given}
    if "input_ids" in found:
        raise ValueError(
            f"{name} must be token ids by demand; got what a tokenizer returns: pass its input_ids"
        )
    for each in found.values():
        if not isinstance(each, Tensor) or each.is_floating_point():
            what = str(each.dtype) if isinstance(each, Tensor) else type(each).__name__
            raise TypeError(f"{name} must be a tensor of token ids, or demand -> tensor; got {what}")
    return {demand: each.long() for demand, each in found.items()}


def _demands(model, texts, held_out, sizes, seed) -> tuple[dict, dict]:
    """Texts to decide on and to measure on by demand, checked."""
    fit = _ids("texts", texts)
    if held_out is None:
        fit, test = ({name: each[start::2] for name, each in fit.items()} for start in (0, 1))
    else:
        test = _ids("held_out", held_out)
    if fit.keys() != test.keys():
        raise ValueError(f"held_out must have the demands of texts, {[*fit]}; got {[*test]}")
    given = [*fit.values(), *test.values()]
    shapes = [tuple(each.shape) for each in given]
    if len({shape[1:] for shape in shapes}) > 1 or any(len(shape) != 2 or not shape[0] for shape in shapes):
        raise ValueError(
            f"texts must be token ids (texts, n) of one length, to decide and to measure; got {shapes}"
        )
    n = shapes[0][1]
    check_sizes(*sizes, n)
    if "copy" not in fit:
        words, like = model.config.get_text_config().vocab_size, given[0]
        fit["copy"] = copies(like, words, [n // 2, 3 * n // 8, n // 2], seed)
        test["copy"] = copies(like, words, [7 * n // 16, 5 * n // 16], seed + 1)
    runs = [
        {
            tuple(part)
            for each in side.values()
            for part in each.unfold(1, min(_SHARED, n), 1).flatten(0, 1).tolist()
        }
        for side in (fit, test)
    ]
    if runs[0] & runs[1]:
        raise ValueError(f"held_out must share no {_SHARED} tokens in a row with texts; got texts that do")
    return fit, test
