"""What each key–value group keeps of a text: as attention on whole texts, and as a smaller cache."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook.lens.changes._features import read_features, states_output, write_features
from ssmbook.lens.changes._groups import Heads, near, past

FORMS = ("full", "window", "states")


class Kept(nn.Module):
    """Attention whose groups keep all tokens ("full"), some ("window"), or fewer and features ("states").

    Parameters
    ----------
    forms : list of str (G,)
        One of ``FORMS`` for each group.
    sizes : dict
        Tokens that a group of each form keeps, the first ``sink`` among them; None for "full".
    sink : int
        How many first tokens every group keeps.
    features : dict
        "a", "b", "c", "d" of the groups with states, in order, as for ``states_output``; or empty.
    """

    def __init__(self, forms: list[str], sizes: dict, sink: int, features: dict[str, Tensor]) -> None:
        super().__init__()
        self.forms, self.sizes, self.sink = forms, sizes, sink
        self.of = {form: [g for g, each in enumerate(forms) if each == form] for form in FORMS}
        for name, value in features.items():
            self.register_buffer(name, value, persistent=False)  # a plan is saved, a model is saved as it was
        self.names = [*features]

    @property
    def features(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).float() for name in self.names}

    def forward(self, heads: Heads) -> Tensor:
        """(B, q, H, r) of whole texts, or of new tokens after those in a ``KeptLayer``."""
        kept = getattr(heads.k, "kept", None)
        if kept is not None and kept.n > 0:
            return kept.extend(self, heads)
        if heads.q.shape[2] != heads.k.shape[2]:
            raise ValueError(
                "a planned model must run without a cache of earlier tokens: "
                "use plan.module, or use_cache=False"
            )
        if kept is not None:
            kept.begin(self, heads)
        return self.whole(heads)

    def whole(self, heads: Heads) -> Tensor:
        share, mask = heads.q.shape[1] // len(self.forms), heads.mask
        low = torch.finfo(mask.dtype).min
        # states cannot forget: what left a window of the layer's own stays in them
        reads = {"window": mask, "states": past(mask) if self.of["states"] else mask}
        masks = {form: near(reads[form], self.sizes[form], self.sink) for form in FORMS[1:] if self.of[form]}
        if not masks:
            return heads.attend()
        if len(self.of["full"]) < len(self.forms):  # a mask says it all, but for states
            every = [mask if form == "full" else mask.masked_fill(~masks[form], low) for form in self.forms]
            mask = torch.cat(every, 1).repeat_interleave(share, 1)
        y = heads.attend(mask)
        if self.of["states"]:
            own = self.heads("states", share)
            q, k, v = (
                heads.q[:, own] * heads.rest["scaling"],
                *(part[:, self.of["states"]] for part in heads[3:5]),
            )
            far = (reads["states"] > low / 2) & ~masks["states"]
            out = states_output(self.features, q.float(), k.float(), v.float(), masks["states"], far)
            y = y.clone()
            y[:, :, own] = out.transpose(1, 2).to(y.dtype)
        return y

    def heads(self, form: str, share: int) -> list[int]:
        """The query heads of the groups with this form."""
        return [g * share + s for g in self.of[form] for s in range(share)]


class KeptLayer:
    """What one layer keeps while it generates: keys and values for each form, and sums of features.

    ``reach``: how far back the layer looks by itself, if it has a window of its own. Padding
    is not kept; each text of a batch keeps its own tokens.
    """

    def __init__(self, reach: int | None = None) -> None:
        self.n, self.reach = 0, reach
        self.parts: dict[str, list[Tensor]] = {}
        # of the tokens in parts, (B, kept), one row while no text has padding; -1 where a text has fewer
        self.places: dict[str, Tensor] = {}
        self.sums: list[Tensor] = []
        self.real = self.start = torch.zeros(0)  # tokens so far without padding; where the first ones end

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        kept = [*self.sums, *(part for parts in self.parts.values() for part in parts)]
        return sum(part.numel() * part.element_size() for part in kept)

    def begin(self, form: Kept, heads: Heads) -> None:
        """Keep what is needed of a first piece of text."""
        B, r = heads.k.shape[0], heads.v.shape[-1]
        self.real = self.start = torch.zeros(1, 1, dtype=torch.long)
        at = self.arrive(form, heads)
        self.n = heads.k.shape[2]
        for name in (name for name in FORMS if form.of[name]):
            k, v = heads.k[:, form.of[name]], heads.v[:, form.of[name]]
            if name == "states":
                kept = (B, len(form.of[name]), form.d.shape[-1])
                self.sums = [
                    v.new_zeros(*kept, r, dtype=torch.float32),
                    v.new_zeros(kept, dtype=torch.float32),
                ]
            self.parts[name], self.places[name] = [k[:, :, :0], v[:, :, :0]], at[:, :0]
            self.add(form, name, k, v, at)

    def arrive(self, form: Kept, heads: Heads) -> Tensor:
        """The places of new tokens (B, new), -1 for padding; notes where the first ones of each text end."""
        seen = heads.mask.diagonal(self.n, -2, -1)[:, 0] > torch.finfo(heads.mask.dtype).min / 2
        seen = seen.cpu()  # a token of the text reads itself
        if bool(seen.all()):
            seen = seen[:1]
        at = torch.arange(self.n, self.n + seen.shape[1]).where(seen, -1)
        rank = self.real + seen.cumsum(-1)
        first = at.where(rank <= form.sink, -1).amax(-1, keepdim=True) + 1
        self.real, self.start = rank[:, -1:], torch.maximum(self.start, first)
        return at

    def add(self, form: Kept, name: str, k: Tensor, v: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add tokens, let go of those that no later token reads; keys, values and places for the last one."""
        rows = max(len(self.start), len(at))
        at = torch.cat([part.expand(rows, -1) for part in (self.places[name], at)], 1)
        k, v = (torch.cat(pair, 2) for pair in zip(self.parts[name], (k, v), strict=True))
        size, stays = form.sizes[name], at >= 0
        if size is not None:
            stays &= (at < self.start) | (at >= self.n - size + form.sink)
        if name == "states":
            gone, *old = pick((at >= 0) & ~stays, at, k, v)
            psi = write_features(form.features, old[0].float()) * (gone >= 0)[:, None, :, None].to(k.device)
            self.sums[0] = self.sums[0] + psi.mT @ old[1].float()
            self.sums[1] = self.sums[1] + psi.sum(2)
        at, k, v = kept = pick(stays, at, k, v)
        if self.reach is not None and name != "states":
            kept = pick((at >= 0) & (at > self.n - self.reach), *kept)
        self.places[name], *self.parts[name] = kept
        return k, v, at

    def extend(self, form: Kept, heads: Heads) -> Tensor:
        """(B, new, H, r) of new tokens, one after the other."""
        at = self.arrive(form, heads)
        return torch.cat([self.step(form, heads, t, at[:, t : t + 1]) for t in range(at.shape[1])], 1)

    def step(self, form: Kept, heads: Heads, t: int, new: Tensor) -> Tensor:
        """One token: (B, 1, H, r)."""
        self.n += 1
        share, y = heads.q.shape[1] // len(form.forms), None
        row, low = heads.mask[:, :, t : t + 1], torch.finfo(heads.mask.dtype).min
        for name in (name for name in FORMS if form.of[name]):
            own = form.heads(name, share)
            pair = (part[:, form.of[name], t : t + 1] for part in (heads.k, heads.v))
            k, v, at = self.add(form, name, *pair, new)
            q, at = heads.q[:, own, t : t + 1], at[:, None, None].to(row.device)
            if name == "states":
                scaled = q.float() * heads.rest["scaling"]
                out = self.read(form, scaled, k.float(), v.float(), at < 0).to(q.dtype)
            else:
                mask = row.take_along_dim(at.clamp(min=0), -1).masked_fill(at < 0, low)
                out = heads.own(heads.module, q, k, v, mask, **heads.rest)[0]
            y = out.new_empty(*out.shape[:2], heads.q.shape[1], out.shape[-1]) if y is None else y
            y[:, :, own] = out
        return y

    def read(self, form: Kept, q: Tensor, k: Tensor, v: Tensor, none: Tensor) -> Tensor:
        """(B, 1, H, r) of groups with states, from what they keep; ``none``: which keys are none."""
        share = q.shape[1] // k.shape[1]
        k, v, S, z = (part.repeat_interleave(share, 1) for part in (k, v, *self.sums))
        scores = (q @ k.mT).masked_fill(none, torch.finfo(q.dtype).min)
        top = scores.amax(-1, keepdim=True)
        close, phi = (scores - top).exp(), read_features(form.features, q, top)
        return ((close @ v + phi @ S) / (close.sum(-1, keepdim=True) + phi @ z[..., None])).transpose(1, 2)

    def choose(self, rows: Tensor) -> None:
        """Keep these texts of the batch, as a search with beams asks for."""
        self.parts = {name: [part[rows] for part in parts] for name, parts in self.parts.items()}
        self.sums = [part[rows] for part in self.sums]
        if len(self.start) > 1:
            rows = rows.cpu()
            self.places = {name: at[rows] for name, at in self.places.items()}
            self.real, self.start = self.real[rows], self.start[rows]


def pick(chosen: Tensor, at: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
    """The chosen tokens of each text, in order: places (B or 1, m), and parts (B, G, m, r).

    m is the most of any text. Texts with fewer get others in their place, at -1.
    """
    if bool(chosen.all()):
        return at, *parts
    if len(chosen) == 1:
        return at[:, chosen[0]], *(part[:, :, chosen[0]] for part in parts)
    order = (~chosen).to(torch.int8).argsort(dim=-1, stable=True)[:, : int(chosen.sum(-1).max())]
    places = at.where(chosen, -1).gather(1, order)
    order = order[:, None, :, None].to(parts[0].device)
    return places, *(part.take_along_dim(order, 2) for part in parts)


@cache
def _cache_kinds() -> tuple[type, type]:
    """`KeptLayer` as a layer of a cache of transformers, and the cache."""
    from transformers.cache_utils import CacheLayerMixin, DynamicCache

    class Layer(KeptLayer, CacheLayerMixin):
        def __init__(self, reach):
            CacheLayerMixin.__init__(self)
            KeptLayer.__init__(self, reach)

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

        get_max_cache_shape = get_max_length  # its name before transformers 5.20

        def reorder_cache(self, beam_idx):
            self.choose(beam_idx)

        def reset(self):
            KeptLayer.__init__(self, self.reach)

        def crop(self, *_):
            raise ValueError(
                "a smaller cache must go forward: what it let go of cannot come back (assisted decoding)"
            )

    class Small(DynamicCache):
        @property
        def nbytes(self) -> int:
            """Bytes that the layers keep."""
            return sum(layer.nbytes for layer in self.layers if isinstance(layer, KeptLayer))

    return Layer, Small


def own_window(model: nn.Module, place: int) -> int | None:
    """How far back a layer of a model of transformers looks by itself; None: as far as the text goes."""
    from transformers.cache_utils import DynamicCache

    if not hasattr(model.config.get_text_config(), "num_hidden_layers"):
        return None  # a model of one's own, whose layers transformers does not know
    return getattr(DynamicCache(config=model.config).layers[place], "sliding_window", None)


def small_cache(model: nn.Module, places: list[int], given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a forward pass with a cache of `KeptLayer` in the place of an empty one."""
    from transformers.cache_utils import DynamicCache

    Layer, Small = _cache_kinds()
    # "past_key_values" is "cache" from transformers 5.24 on, which takes both
    names = ("cache", "past_key_values")
    before = next((given[name] for name in names if given.get(name) is not None), None)
    if given.get("use_cache") is False or isinstance(before, Small):
        return given
    if not isinstance(before, DynamicCache | None) or (before is not None and before.get_seq_length() > 0):
        raise ValueError(
            "a planned model must begin with an empty DynamicCache, or none; got a "
            f"{type(before).__name__} with {before.get_seq_length()} tokens"
        )
    made = Small(config=model.config)
    for place in places:
        made.layers[place] = Layer(getattr(made.layers[place], "sliding_window", None))
    if before is not None:  # the caller's own is filled, as the model itself would
        before.__class__, before.layers = Small, made.layers
        made = before
    name = names["cache" not in inspect.signature(model.forward).parameters]
    return {**{each: value for each, value in given.items() if each not in names}, name: made}
