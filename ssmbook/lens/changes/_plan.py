"""Which key–value groups of a model keep their whole cache, and what the others keep: ``lens.plan``.

Each group gets a gate g and puts out g · full + (1 - g) · narrow. The loss of narrowing all
groups at once is the integral of its slopes along the path on which all gates close
together, so the damages of the groups add up to it exactly (the path-operator theorem, or
the completeness of integrated gradients): how far they miss the sum says how far to trust
them. The slope at the open end alone fails, since heads back each other up.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook._checks import check_choice, check_finite, check_integer, check_number
from ssmbook._extras import extra
from ssmbook._json import jsonable, read_json, write_json
from ssmbook.lens._states import states as count_states
from ssmbook.lens.changes._features import fit_features, group_errors, states_output
from ssmbook.lens.changes._groups import GroupLayer, Heads, attending, group_layers, install, near
from ssmbook.lens.changes._kept import FORMS, Kept, KeptLayer
from ssmbook.operators.spectra import tail_energies

FORMAT = "ssmbook.lens.plan/1"
# Texts that are in memory together; points of the path, until the sum is right to a tenth.
_TEXTS, _POINTS, _RIGHT = 4, (3, 5, 9), 0.1
# Rows of groups kept at random; steps that fit features; tokens that no two kinds of texts share.
_RANDOM, _STEPS, _SHARED = 5, 70, 32


def late_loss(model: nn.Module, texts: Tensor) -> Tensor:
    """Mean loss on the second half of each text (texts, n), where a cache matters, in nats per token."""
    half, found = texts.shape[1] // 2, []
    for part in texts.split(_TEXTS):
        logits = model(part, use_cache=False).logits[:, half:-1].float()
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), part[:, half + 1 :].flatten(), reduction="none"
        )
        found.append(loss.view(len(part), -1).mean(-1))
    return torch.cat(found)


def copies(texts: Tensor, vocabulary: int, periods: Sequence[int], seed: int) -> Tensor:
    """Random tokens again and again (periods, n), for texts (·, n): only copying predicts the second half.

    They begin as the texts do, where all of these begin alike.
    """
    g, n = torch.Generator().manual_seed(seed), texts.shape[1]
    found = torch.stack(
        [
            torch.randint(vocabulary // 40, vocabulary, (period,), generator=g).repeat(-(-n // period))[:n]
            for period in periods
        ]
    ).to(texts)
    alike = (texts == texts[0]).all(0)
    if len(texts) > 1 and bool(alike[0]):
        found[:, 0] = texts[0, 0]
    return found


def path_damages(model: nn.Module, found: list[GroupLayer], texts: Tensor, window: int, sink: int) -> dict:
    """Damages of narrowing each group on these texts, by the path on which all gates close together.

    Parameters
    ----------
    model : Module
        The language model.
    found : list of GroupLayer
        Its layers.
    texts : Tensor (texts, n)
        Token ids.
    window, sink : int
        What a narrow group keeps.

    Returns
    -------
    dict
        "damage" (groups,); "slope" (groups,), the first-order estimate at the full model; "true", the loss
        that narrowing all groups adds; "miss", how far the sum is from it, relative; "points".
    """
    slopes, losses = {}, {}
    for points in _POINTS:
        for t in torch.linspace(0, 1, points).tolist():
            if t not in slopes:
                slopes[t], losses[t] = _slope(model, found, texts, t, window, sink)
        weights = torch.tensor([1.0, *[4.0, 2.0] * (points // 2 - 1), 4.0, 1.0]) / (3 * (points - 1))
        at = torch.stack([slopes[t] for t in torch.linspace(0, 1, points).tolist()])
        damage, true = -(weights.to(at)[:, None] * at).sum(0), losses[0.0] - losses[1.0]
        gap = abs(float(damage.sum()) - true)
        if gap <= max(_RIGHT * abs(true), 0.005):  # less than 0.005 nats is no damage
            break
    miss = gap / max(abs(true), 1e-9)
    return {"damage": damage, "slope": -slopes[1.0], "true": true, "miss": miss, "points": points}


@torch.enable_grad()
def _slope(model, found, texts, t, window, sink) -> tuple[Tensor, float]:
    """The slope of the mean late loss in each gate where all are t, and that loss."""
    device = next(model.parameters()).device
    gate = torch.full((sum(layer.G for layer in found),), t, device=device, requires_grad=True)
    forms = {}
    for layer, part in zip(found, gate.split([layer.G for layer in found]), strict=True):
        forms[layer.module] = _gated(part.repeat_interleave(layer.share)[:, None], window, sink)
    slope, loss = torch.zeros_like(gate), 0.0
    with attending(model, forms):
        for part in texts.split(_TEXTS):
            each = late_loss(model, part).sum() / len(texts)
            slope += torch.autograd.grad(each, gate)[0]
            loss += float(each.detach())
    return slope.detach(), loss


def _gated(gate: Tensor, window: int, sink: int):
    def form(heads: Heads) -> Tensor:
        low = torch.finfo(heads.mask.dtype).min
        narrow = heads.attend(heads.mask.masked_fill(~near(heads.mask, window, sink), low))
        return narrow + gate.to(narrow) * (heads.attend() - narrow)

    return form


@torch.no_grad()
def record(model: nn.Module, found: list[GroupLayer], texts: Tensor) -> list[dict[str, Tensor]]:
    """What every layer attends with on these texts: scaled "q", "k", "v", "y" (B, H, n, r), and "plain"."""
    kept = [[] for _ in found]

    def recorder(place):
        def form(heads: Heads) -> Tensor:
            y = heads.attend()
            given = heads.q * heads.rest["scaling"], heads.k, heads.v, y.transpose(1, 2)
            kept[place].append([*(part.float() for part in given), heads.plain])
            return y

        return form

    with attending(model, {layer.module: recorder(place) for place, layer in enumerate(found)}):
        for part in texts.split(_TEXTS):
            model(part, use_cache=False)
    return [
        {name: torch.cat(parts) for name, parts in zip("qkvy", columns, strict=False)}
        | {"plain": all(columns[4])}
        for columns in (list(zip(*rows, strict=True)) for rows in kept)
    ]


def state_floor(q: Tensor, k: Tensor, N: int) -> Tensor:
    """The share of each head's squared weights that no recurrence with N states carries, (H,); (B, H, n, r)."""
    n = q.shape[2]
    later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT).masked_fill(later, -torch.inf)
    alpha = scores.softmax(-1).double()
    energy = alpha.square().sum((-2, -1))
    cuts = sorted({round(n * c / 8) for c in range(1, 8)} & set(range(1, n)))
    lost = []
    for t in cuts:
        sigma = torch.linalg.svdvals(alpha[..., t:, :t])
        lost.append(sigma[..., N:].square().sum(-1) / energy)
    return torch.stack(lost).amax(0).mean(0)


@dataclass
class Plan:
    """Which form of cache each key–value group of a model keeps; made by ``plan``, read by ``load_plan``.

    Parameters
    ----------
    model : dict
        The layers of the model that it is for: "kind", and "groups" and "share" by name.
    forms : dict
        Name of a layer -> "full", "window" or "states" for each of its groups.
    sizes : dict
        Tokens that a group of each form keeps; None for "full".
    sink : int
        How many first tokens every group keeps.
    N : int
        Features of a group with states.
    tokens : int
        The length of the texts, for which the cache is counted.
    cache : float
        The share of a full cache that is kept at this length.
    scores : dict
        Demand -> "damage", "slope", "true", "miss", "points", as the path has them.
    predicted : dict
        Demand -> the sum of the damages of the groups that are narrowed, in nats.
    measured : dict
        Row -> demand -> the loss of each held-out text: "as it is", "plan", "plan, windows alone",
        "uniform window", "random 0" and so on.
    floor : dict
        Name of a layer -> for each head the share of its squared weights that no recurrence of as many
        states as a narrow group has numbers for carries.
    features : dict
        Name of a layer -> "a", "b", "c", "d" of its groups with states.
    """

    model: dict
    forms: dict[str, list[str]]
    sizes: dict[str, int | None]
    sink: int
    N: int
    tokens: int
    cache: float
    scores: dict[str, dict] = field(default_factory=dict, repr=False)
    predicted: dict[str, float] = field(default_factory=dict)
    measured: dict[str, dict] = field(default_factory=dict, repr=False)
    floor: dict[str, list[float]] = field(default_factory=dict, repr=False)
    features: dict[str, dict[str, Tensor]] = field(default_factory=dict, repr=False)

    def _kept(self, model: nn.Module) -> dict[nn.Module, Kept]:
        found = group_layers(model)
        if _signature(model, found) != self.model:
            raise ValueError(
                f"model must be the one that was planned, {self.model['kind']} with {len(self.forms)} layers of "
                f"attention; got {type(model).__name__} with {len(found)}, of other names or groups"
            )
        like = next(model.parameters())
        return {
            layer.module: Kept(
                self.forms[layer.name], self.sizes, self.sink, self.features.get(layer.name, {})
            ).to(like.device)
            for layer in found
        }

    @contextmanager
    def apply(self, model: nn.Module) -> Iterator[nn.Module]:
        """Run the model on whole texts as the plan has it, inside a ``with`` block; then it is as it was.

        There is no cache inside, as under ``replace``; masks with padding are kept. Raises
        ``ValueError`` for another model.
        """
        with attending(model, self._kept(model)):
            yield model

    def module(self, model: nn.Module) -> nn.Module:
        """Return a copy of the model that keeps what the plan says, and no more, while it generates.

        Its cache has ``nbytes``. Raises ``ValueError`` for another model.
        """
        self._kept(model)
        planned = copy.deepcopy(model)
        install(planned, self._kept(planned))
        places = [layer.module.layer_idx for layer in group_layers(planned)]
        planned.register_forward_pre_hook(
            lambda _, args, given: (args, _smaller(planned, places, given)), with_kwargs=True
        )
        return planned

    def save(self, folder: str | Path) -> None:
        """Write ``plan.json`` with the form of every group, and ``features.safetensors``, into a folder."""
        with extra("lens"):
            from safetensors.torch import save_file
        given = {name: value for name, value in vars(self).items() if name != "features"}
        rules = [
            {"layer": name, "group": g, "form": form, "window": self.sizes[form], "sink": self.sink}
            for name, forms in self.forms.items()
            for g, form in enumerate(forms)
        ]
        write_json(Path(folder) / "plan.json", FORMAT, {**given, "groups": rules})
        flat = {
            f"{layer}.{name}": part.contiguous()
            for layer, p in self.features.items()
            for name, part in p.items()
        }
        save_file(flat, Path(folder) / "features.safetensors")

    def table(self) -> str:
        """Return the losses that each row adds on held-out texts, demand by demand, beside the predicted ones."""
        names = [*self.measured["as it is"]]
        base = {name: torch.tensor(self.measured["as it is"][name]) for name in names}
        lines = [
            f"{'nats added at ' + format(self.cache, '.0%') + ' of the cache':<36}"
            + "".join(f"{n:>12}" for n in names)
        ]
        for row, losses in self.measured.items():
            cells = [float((torch.tensor(losses[name]) - base[name]).mean()) for name in names]
            if row != "as it is":
                lines.append(f"{row:<36}" + "".join(f"{cell:>12.3f}" for cell in cells))
        lines.append(
            f"{'predicted, windows alone':<36}" + "".join(f"{self.predicted[name]:>12.3f}" for name in names)
        )
        lines.append(
            f"{'miss of the sum of all damages':<36}"
            + "".join(f"{self.scores[name]['miss']:>12.0%}" for name in names)
        )
        return "\n".join(lines)


def load_plan(folder: str | Path) -> Plan:
    """Return the plan that ``Plan.save`` wrote; ``ValueError`` for another file and for features not finite."""
    with extra("lens"):
        from safetensors.torch import load_file
    given = read_json(Path(folder) / "plan.json", FORMAT)
    given.pop("groups")
    features: dict[str, dict[str, Tensor]] = {}
    for name, part in load_file(Path(folder) / "features.safetensors").items():
        check_finite(f"the features {name}", part)
        layer, _, kind = name.rpartition(".")
        features.setdefault(layer, {})[kind] = part
    return Plan(**given, features=features)


def _signature(model: nn.Module, found: list[GroupLayer]) -> dict:
    groups, share = ({layer.name: layer[i] for layer in found} for i in (2, 3))
    return {"kind": type(model).__name__, "groups": groups, "share": share}


def _smaller(model: nn.Module, places: list[int], given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a forward pass with a cache of this plan in the place of an empty one."""
    from transformers.cache_utils import CacheLayerMixin, DynamicCache

    class Layer(KeptLayer, CacheLayerMixin):
        def __init__(self):
            CacheLayerMixin.__init__(self)
            KeptLayer.__init__(self)

        def lazy_initialization(self, key_states, value_states): ...

        def update(self, key_states, value_states, *args, **kwargs):
            key_states.kept = self
            return key_states, value_states

        def get_mask_sizes(self, query_length):
            return self.n + query_length, 0

        def get_seq_length(self):
            return self.n

        def get_max_length(self):
            return -1

    class Small(DynamicCache):
        @property
        def nbytes(self) -> int:
            return sum(layer.nbytes for layer in self.layers if isinstance(layer, Layer))

    before = given.get("past_key_values")
    if given.get("use_cache") is False or isinstance(before, DynamicCache) and before.get_seq_length() > 0:
        return given
    cache = Small(config=model.config)
    for place in places:
        cache.layers[place] = Layer()
    return {**given, "past_key_values": cache, "use_cache": True}


@torch.no_grad()
def plan(
    model: nn.Module, texts: Tensor | Mapping[str, Tensor], budget: float, *,
    held_out: Tensor | Mapping[str, Tensor] | None = None, window: int = 32, sink: int = 4, states: bool = True,
    by: str = "copy", seed: int = 0, folder: str | Path | None = None,
) -> Plan:  # fmt: skip
    """Return which key–value groups keep their whole cache within a budget, and what the others keep.

    Each group's damage on each demand comes from three to nine forward and backward passes;
    the groups that copying needs most keep all. The others keep a window, or fewer tokens
    and causal states in as many numbers, whichever is nearer to the layer's own outputs on
    texts that the states were not fitted to.

    Parameters
    ----------
    model : Module
        A causal language model of transformers, with its output head.
    texts : Tensor (texts, n) or mapping
        Token ids to decide on; or demand -> ids. Without a demand "copy" random tokens that repeat
        themselves are added.
    budget : float
        The share of the cache of n tokens that may stay.
    held_out : Tensor, mapping or None
        Other texts, to measure on; by default every other one of ``texts``.
    window, sink : int
        Tokens that a narrow group keeps, the first ``sink`` among them.
    states : bool, default True
        Whether to fit causal states; without, every narrow group keeps a window.
    by : str, default "copy"
        The demand that decides; others decide between groups that it does not need.
    seed : int
        Of random tokens, random rows and features.
    folder : path or None
        Where finished steps are kept, so that the same call goes on after an interruption.

    Returns
    -------
    Plan
        With its losses on held-out texts, beside a uniform window's and those of groups kept at random.

    Raises
    ------
    ValueError
        If the budget is less than windows alone take; if texts are shorter than a window or share 32
        tokens with those held out; for a model without a cache of keys and values, or one whose
        attention does not take a mask; if the folder holds the steps of another plan.
    """
    found = group_layers(model)
    fit, test = _demands(model, texts, held_out, window, seed)
    check_choice("by", by, fit)
    n, B = next(iter(fit.values())).shape[1], sum(layer.G for layer in found)
    sink = check_integer("sink", sink, low=0, high=window - 1)
    small = window / n
    budget = check_number("budget", budget, 0.0, 1.0)
    K = int((budget - small) / (1 - small) * B + 1e-9) if budget >= small else -1
    if K < 0:
        raise ValueError(
            f"budget must be {small:.3g} or more, which windows of {window} in texts of {n} tokens take; got {budget:g}"
        )
    key = json.dumps(
        [
            _signature(model, found),
            budget,
            window,
            sink,
            states,
            by,
            seed,
            {k: v.tolist() for k, v in fit.items()},
        ]
    )
    once = _Steps(folder, key)
    scores = {
        name: once(f"path-{name}", lambda each=each: path_damages(model, found, each, window, sink))
        for name, each in fit.items()
    }
    full = chosen({name: each["damage"] for name, each in scores.items()}, by, K)
    made = compose(model, found, full, window, sink, n)
    made.scores = scores
    made.predicted = {name: float(each["damage"][~full].sum()) for name, each in scores.items()}
    rows = {"as it is": None, "plan, windows alone": copy.copy(made)}
    add_states(model, found, made, fit, seed, once, learn=states)
    if states:
        rows["plan"] = made
    else:
        rows = {"as it is": None, "plan": made}
    rows["uniform window"] = compose(
        model, found, torch.zeros(B, dtype=torch.bool), round(made.cache * n), sink, n
    )
    for draw in range(_RANDOM):
        kept = torch.randperm(B, generator=torch.Generator().manual_seed(seed + draw)) < K
        rows[f"random {draw}"] = compose(model, found, kept, window, sink, n)
    for row, each in rows.items():
        made.measured[row] = measure(model, test, each)
    return made


def chosen(damages: Mapping[str, Tensor], by: str, K: int) -> Tensor:
    """The K groups, (groups,) of bool, that ``by`` needs most, and then those that the others need most."""
    first = damages[by].clamp(min=0).tolist()
    rest = sum((each for name, each in damages.items() if name != by), torch.zeros_like(damages[by])).tolist()
    order = sorted(range(len(first)), key=lambda b: (-first[b], -rest[b]))
    full = torch.zeros(len(first), dtype=torch.bool)
    full[order[:K]] = True
    return full


def compose(model: nn.Module, found: list[GroupLayer], full: Tensor, window: int, sink: int, n: int) -> Plan:
    """The plan whose groups keep all where ``full`` says so, and a window elsewhere."""
    parts = full.split([layer.G for layer in found])
    forms = {
        layer.name: ["full" if each else "window" for each in part.tolist()]
        for layer, part in zip(found, parts, strict=True)
    }
    cache = float((full + (~full) * min(1, window / n)).mean())
    sizes = {"full": None, "window": window, "states": window}
    return Plan(_signature(model, found), forms, sizes, sink, 0, n, cache)


def measure(model: nn.Module, demands: Mapping[str, Tensor], made: Plan | None) -> dict[str, list[float]]:
    """The late loss of each text under a plan, or as the model is."""
    if made is None:
        return {name: late_loss(model, texts).tolist() for name, texts in demands.items()}
    with made.apply(model):
        return measure(model, demands, None)


def add_states(
    model: nn.Module, found: list[GroupLayer], made: Plan, fit: Mapping[str, Tensor], seed: int, once,
    learn: bool = True, choose: bool = True,
) -> dict[str, dict[str, Tensor]]:  # fmt: skip
    """Fit causal states for the narrow groups of a plan, put them in where they are nearer; and its floor.

    Parameters
    ----------
    model : Module
        The language model.
    found : list of GroupLayer
        Its layers.
    made : Plan
        With windows, changed in place.
    fit : mapping
        Demand -> texts; the last of each demand chooses.
    seed : int
        Of the features.
    once : callable
        name, step -> what the step makes, or has made before.
    learn, choose : bool
        Whether to fit at all, and to choose; without, all narrow groups take states.

    Returns
    -------
    dict
        Layer -> "window" and "states": the errors of its narrow heads (H,) on the texts that choose.
    """
    window, n = made.sizes["window"], made.tokens
    train = torch.cat([each[: max(1, len(each) - 1)] for each in fit.values()])
    last = torch.cat([each[-1:] for each in fit.values()])
    seen, tested = record(model, found, train), record(model, found, last)
    r = seen[0]["v"].shape[-1]
    N = 3 * window // 4
    small = window - -(-N * (r + 1) // (2 * r))  # features and tokens are as many numbers as the window
    if small <= made.sink:
        raise ValueError(f"window must leave tokens beside features and {made.sink} sinks; got {window}")
    made.N, made.sizes = N, {**made.sizes, "states": small}
    later = torch.zeros(1, 1, n, n, device=train.device).masked_fill(
        torch.ones(n, n, dtype=torch.bool, device=train.device).triu(1), torch.finfo(torch.float32).min
    )
    close = {form: near(later, made.sizes[form], made.sink) for form in FORMS[1:]}
    far, late, errors = (later == 0) & ~close["states"], slice(n // 4, None), {}
    for place, layer in enumerate(found):
        forms = made.forms[layer.name]
        narrow = [g for g, form in enumerate(forms) if form != "full"]
        heads = [g * layer.share + s for g in narrow for s in range(layer.share)]
        made.floor[layer.name] = state_floor(tested[place]["q"][:1], tested[place]["k"][:1], window).tolist()
        if not learn or not narrow or not seen[place].pop("plain"):
            continue
        q, k, v, y = _part(seen[place], heads, narrow)
        p = once(f"states-{place}", lambda: fit_features(q, k, v, y, close["states"], far, N, _STEPS, seed))
        q, k, v, y = _part(tested[place], heads, narrow)
        outs = (
            states_output(p, q, k, v, close["states"], far),
            states_output(p, q, k, v, close["window"], far & False),
        )
        states_, window_ = (
            [group_errors(out[i : i + 1, :, late], y[i : i + 1, :, late], len(heads)) for i in range(len(y))]
            for out in outs
        )
        errors[layer.name] = {"states": torch.stack(states_), "window": torch.stack(window_)}
        states_, window_ = (
            part.mean(0).unflatten(0, (len(narrow), -1)).mean(-1) for part in errors[layer.name].values()
        )
        better = (states_ < window_) | (not choose)  # a fit that diverged is not smaller
        taken = [i for i in range(len(narrow)) if better[i]]
        made.forms[layer.name] = [
            "states" if g in narrow and narrow.index(g) in taken else form for g, form in enumerate(forms)
        ]
        if taken:
            own = [i * layer.share + s for i in taken for s in range(layer.share)]
            made.features[layer.name] = {
                name: part[own if name in "ab" else taken] for name, part in p.items()
            }
    return errors


def _part(given: dict[str, Tensor], heads: list[int], groups: list[int]) -> list[Tensor]:
    return [given[name][:, heads if name in "qy" else groups] for name in "qkvy"]


class _Steps:
    """Steps that are kept in a folder, so that each is done once: name, step -> its tensors and numbers."""

    def __init__(self, folder: str | Path | None, key: str) -> None:
        self.folder, self.key = folder and Path(folder), key

    def __call__(self, name: str, step):
        if self.folder is None:
            return step()
        with extra("lens"):
            from safetensors import safe_open
            from safetensors.torch import save_file
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            made = {part: torch.as_tensor(value).contiguous() for part, value in step().items()}
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(made, path.with_suffix(".part"), {"plan": self.key})
            path.with_suffix(".part").rename(path)
        with safe_open(path, "pt") as kept:
            if kept.metadata()["plan"] != self.key:
                raise ValueError(f"folder must hold steps of this plan alone; {path} is one of another")
            found = {part: kept.get_tensor(part) for part in kept.keys()}  # noqa: SIM118
        return {part: value if value.ndim else value.item() for part, value in found.items()}


def _demands(model, texts, held_out, window, seed) -> tuple[dict, dict]:
    """Texts to decide on and to measure on by demand, checked."""
    fit = dict(texts) if isinstance(texts, Mapping) else {"text": texts}
    if held_out is None:
        if any(len(each) < 2 for each in fit.values()):
            raise ValueError("texts must be two or more, to decide on and to measure on, or give held_out")
        test = {name: each[1::2] for name, each in fit.items()}
        fit = {name: each[::2] for name, each in fit.items()}
    else:
        test = dict(held_out) if isinstance(held_out, Mapping) else {"text": held_out}
    if fit.keys() != test.keys():
        raise ValueError(f"held_out must have the demands of texts, {[*fit]}; got {[*test]}")
    lengths = {each.shape[-1] for each in (*fit.values(), *test.values())}
    n = min(lengths)
    if len(lengths) > 1 or any(
        each.ndim != 2 or each.is_floating_point() for each in (*fit.values(), *test.values())
    ):
        raise ValueError(f"texts must be token ids (texts, n) of one length n; got lengths {sorted(lengths)}")
    check_integer("window", window, low=2)
    if window >= n:
        raise ValueError(f"texts must be longer than a window of {window} tokens; got {n}")
    if "copy" not in fit:
        words, like = model.config.get_text_config().vocab_size, next(iter(fit.values()))
        fit["copy"] = copies(like, words, [n // 2, 3 * n // 8, n // 2], seed)
        test["copy"] = copies(like, words, [7 * n // 16, 5 * n // 16], seed + 1)
    run = min(_SHARED, n)
    known = {
        tuple(part) for each in fit.values() for text in each for part in text.unfold(0, run, 1).tolist()
    }
    if any(
        tuple(part) in known
        for each in test.values()
        for text in each
        for part in text.unfold(0, run, 1).tolist()
    ):
        raise ValueError(f"held_out must share no {run} tokens in a row with texts; got texts that do")
    return fit, test
