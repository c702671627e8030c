"""What each key–value group keeps of a text: as attention on whole texts, and as a smaller cache."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from ssmbook.lens.changes._features import read_features, states_output, write_features
from ssmbook.lens.changes._groups import Heads, near

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
            self.register_buffer(name, value)
        self.names = [*features]

    @property
    def features(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.names}

    def forward(self, heads: Heads) -> Tensor:
        """(B, q, H, r) of whole texts, or of new tokens after those in a ``KeptLayer``."""
        kept = getattr(heads.k, "kept", None)
        if kept is not None and kept.n > 0:
            new = [kept.step(self, heads, t) for t in range(heads.q.shape[2])]
            return torch.cat(new, 1)
        if heads.q.shape[2] != heads.k.shape[2]:
            raise ValueError("a planned model must run without a cache of earlier tokens: use plan.module")
        if kept is not None:
            kept.begin(self, heads)
        return self.whole(heads)

    def whole(self, heads: Heads) -> Tensor:
        share, mask = heads.q.shape[1] // len(self.forms), heads.mask
        low = torch.finfo(mask.dtype).min
        masks = {form: near(mask, self.sizes[form], self.sink) for form in FORMS[1:] if self.of[form]}
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
            far = (heads.mask > low / 2) & ~masks["states"]
            out = states_output(self.features, q.float(), k.float(), v.float(), masks["states"], far)
            y = y.clone()
            y[:, :, own] = out.transpose(1, 2).to(y.dtype)
        return y

    def heads(self, form: str, share: int) -> list[int]:
        """The query heads of the groups with this form."""
        return [g * share + s for g in self.of[form] for s in range(share)]


class KeptLayer:
    """What one layer keeps while it generates: keys and values for each form, and sums of features.

    ``reach``: how far back the layer looks by itself, if it has a window of its own.
    """

    def __init__(self, reach: int | None = None) -> None:
        self.n, self.reach = 0, reach
        self.parts: dict[str, list[Tensor]] = {}
        self.places: dict[str, Tensor] = {}  # of the tokens in parts
        self.sums: list[Tensor] = []

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        kept = [*self.sums, *(part for parts in self.parts.values() for part in parts)]
        return sum(part.numel() * part.element_size() for part in kept)

    def begin(self, form: Kept, heads: Heads) -> None:
        """Keep what is needed of a first piece of text."""
        if bool((heads.mask.diagonal(dim1=-2, dim2=-1) < 0).any()):
            raise ValueError(
                "texts must have no padding for a smaller cache; got an attention mask with zeros"
            )
        self.n = heads.k.shape[2]
        for name in FORMS:
            if form.of[name]:
                k, v = heads.k[:, form.of[name]], heads.v[:, form.of[name]]
                if name == "states":
                    B, G, _, r = v.shape
                    N = form.d.shape[-1]
                    self.sums = [
                        v.new_zeros(B, G, N, r, dtype=torch.float32),
                        v.new_zeros(B, G, N, dtype=torch.float32),
                    ]
                self.parts[name], self.places[name] = [k[:, :, :0], v[:, :, :0]], torch.arange(0)
                self.add(form, name, k, v)

    def add(self, form: Kept, name: str, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add tokens, let go of those that no later token reads; keys, values and places for the last one."""
        at = torch.cat([self.places[name], torch.arange(self.n - k.shape[2], self.n)])
        k, v = (torch.cat(pair, 2) for pair in zip(self.parts[name], (k, v), strict=True))
        size = form.sizes[name]
        if size is not None and self.n > size:
            stays = (at < form.sink) | (at >= self.n - size + form.sink)
            if name == "states":
                psi = write_features(form.features, k[:, :, ~stays].float())
                self.sums[0] = self.sums[0] + psi.mT @ v[:, :, ~stays].float()
                self.sums[1] = self.sums[1] + psi.sum(2)
            k, v, at = k[:, :, stays], v[:, :, stays], at[stays]
        # in order, so that what leaves the layer's own window comes first
        gone = 0 if self.reach is None else int((at <= self.n - self.reach).sum())
        self.parts[name], self.places[name] = [k[:, :, gone:], v[:, :, gone:]], at[gone:]
        return k, v, at

    def step(self, form: Kept, heads: Heads, t: int) -> Tensor:
        """One token: (B, 1, H, r)."""
        self.n += 1
        share, y = heads.q.shape[1] // len(form.forms), None
        for name in (name for name in FORMS if form.of[name]):
            own = form.heads(name, share)
            new = (part[:, form.of[name], t : t + 1] for part in (heads.k, heads.v))
            k, v, at = self.add(form, name, *new)
            q = heads.q[:, own, t : t + 1]
            if name == "states":
                out = self.read(form, q.float() * heads.rest["scaling"], k.float(), v.float()).to(q.dtype)
            else:
                mask = heads.mask[:, :, t : t + 1, at]
                out = heads.own(heads.module, q, k, v, mask, **heads.rest)[0]
            y = out.new_empty(*out.shape[:2], heads.q.shape[1], out.shape[-1]) if y is None else y
            y[:, :, own] = out
        return y

    def read(self, form: Kept, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, 1, H, r) of groups with states, from what they keep."""
        share = q.shape[1] // k.shape[1]
        k, v, S, z = (part.repeat_interleave(share, 1) for part in (k, v, *self.sums))
        scores = q @ k.mT
        top = scores.amax(-1, keepdim=True)
        close, phi = (scores - top).exp(), read_features(form.features, q, top)
        return ((close @ v + phi @ S) / (close.sum(-1, keepdim=True) + phi @ z[..., None])).transpose(1, 2)


def small_cache(model: nn.Module, places: list[int], given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a forward pass with a cache of `KeptLayer` in the place of an empty one."""
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

    class Small(DynamicCache):
        @property
        def nbytes(self) -> int:
            """Bytes that the layers keep."""
            return sum(layer.nbytes for layer in self.layers if isinstance(layer, KeptLayer))

    # "past_key_values" is "cache" from transformers 5.24 on, which takes both
    before = given.get("cache") or given.get("past_key_values")
    if given.get("use_cache") is False or (before is not None and before.get_seq_length() > 0):
        return given
    cache = Small(config=model.config)
    for place in places:
        cache.layers[place] = Layer(getattr(cache.layers[place], "sliding_window", None))
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    rest = {each: value for each, value in given.items() if each not in ("cache", "past_key_values")}
    return {**rest, name: cache}
