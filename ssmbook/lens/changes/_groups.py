"""The key–value groups of a causal language model of transformers, and other attention in their place.

A model of transformers calls its attention by name, so one function of our own, registered
under another name, stands in all layers at once. It calls the model's own attention with
another mask: what that does beside softmax (softcaps, sinks) stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ssmbook._extras import extra
from ssmbook.lens._attention import _inside, projections_of
from ssmbook.lens._layers import layers

NAME = "ssmbook_groups"


class GroupLayer(NamedTuple):
    """One layer of attention: its name, what attends, its groups, the query heads of each and their width."""

    name: str
    module: nn.Module
    G: int
    share: int
    width: int


class Heads(NamedTuple):
    """What attention is called with: queries (B, H, q, r), keys and values (B, G, n, r), the mask, the rest.

    Parameters
    ----------
    own : callable
        The model's own attention; (B, q, H, r) from this module, q, k, v, a mask and the rest.
    module : Module
        The layer.
    q, k, v : Tensor
        Queries, keys and values, with positions in them.
    mask : Tensor (B, 1, q, n)
        0 where a query may read a key, a large negative number elsewhere.
    rest : dict
        Other keyword arguments, with "scaling" of the scores.
    """

    own: Callable
    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor
    rest: dict

    def attend(self, mask: Tensor | None = None) -> Tensor:
        """The model's own attention under another mask (B, 1 or H, q, n); (B, q, H, r)."""
        mask = self.mask if mask is None else mask
        return self.own(self.module, self.q, self.k, self.v, mask, **self.rest)[0]

    @property
    def plain(self) -> bool:
        """Whether the weights are softmax of q · k alone."""
        return all(self.rest.get(name) is None for name in ("softcap", "s_aux", "position_bias"))

    @property
    def forgets(self) -> bool:
        """Whether a window of the layer's own hides some of the text."""
        low = torch.finfo(self.mask.dtype).min / 2
        return not torch.equal(self.mask > low, past(self.mask) > low)


def group_layers(model: nn.Module) -> list[GroupLayer]:
    """Return the layers of attention with their key–value groups; ``ValueError`` for a model without."""
    found = []
    for layer in layers(model, unknown="skip") if hasattr(model, "set_attn_implementation") else ():
        inner = _inside(layer.module)[0]
        if layer.family == "attention" and getattr(inner, "is_causal", True) and hasattr(inner, "layer_idx"):
            H, _, r = projections_of(layer.module).W_O.shape
            share = getattr(inner, "num_key_value_groups", 1)
            found.append(GroupLayer(layer.name, inner, H // share, share, r))
    if not found:
        raise ValueError(
            "model must be a causal language model of transformers, with keys and values in a cache; got "
            f"{type(model).__name__}"
        )
    return found


def near(mask: Tensor, window: int, sink: int) -> Tensor:
    """Which keys a query keeps, (B, 1, n, n): the first ``sink`` of its text, and the last ``window - sink``.

    ``mask``: as in `Heads`; padding on either side is no part of the text.
    """
    n = mask.shape[-1]
    seen = mask > torch.finfo(mask.dtype).min / 2
    real = seen.diagonal(dim1=-2, dim2=-1)  # a token of the text reads itself, (B, 1, n)
    place = real.cumsum(-1)
    i = torch.arange(n, device=mask.device)
    return seen & ((i[:, None] - i < window - sink) | (place <= sink)[..., None, :])


def past(mask: Tensor) -> Tensor:
    """The mask without a window of the layer's own: each token of a text reads all that are not later."""
    low = torch.finfo(mask.dtype).min
    real = mask.diagonal(dim1=-2, dim2=-1) > low / 2
    return torch.zeros_like(mask).masked_fill(~(real[..., :, None] & real[..., None, :]).tril(), low)


def _attention(module, query, key, value, attention_mask=None, **rest):
    """What transformers calls in every layer."""
    form, own = getattr(module, "lens_form", None), _own(module)
    if form is None:
        return own(module, query, key, value, attention_mask, **rest)
    if attention_mask is None:  # all keys that are not later
        q, n = query.shape[2], key.shape[2]
        later = torch.ones(q, n, dtype=torch.bool, device=key.device).triu(n - q + 1)
        attention_mask = query.new_zeros(1, 1, q, n).masked_fill(later, torch.finfo(query.dtype).min)
    rest.setdefault("scaling", query.shape[-1] ** -0.5)
    return form(Heads(own, module, query, key, value, attention_mask, rest)), None


def _own(module: nn.Module) -> Callable:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = getattr(module, "lens_before", "sdpa")
    if before == "eager":
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[before]


@contextmanager
def attending(model: nn.Module, forms: Mapping[nn.Module, Callable[[Heads], Tensor]]) -> Iterator[nn.Module]:
    """Run the model with other attention in some modules of ``group_layers``, inside a ``with`` block.

    ``forms``: module -> what makes (B, q, H, r) of its `Heads`. Afterwards the model is as it was.
    """
    undo = install(model, forms)
    try:
        yield model
    finally:
        undo()


def install(model: nn.Module, forms: Mapping[nn.Module, Callable[[Heads], Tensor]]) -> Callable[[], None]:
    """Put these forms in, and return what takes them out again."""
    with extra("lens"):
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if model.training:
        raise ValueError("model must be in evaluation mode; got training mode, with dropout (model.eval())")
    before = model.config._attn_implementation
    if before == NAME:
        raise ValueError(
            "model must have its own attention; got one that a plan or lens.plan changed already"
        )
    if before not in ("eager", "sdpa"):
        raise ValueError(f'model must attend as "eager" or "sdpa", which take any mask; got "{before}"')
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise ValueError(f"model must take other attention; {type(model).__name__} stays at {before}")
    for module, form in forms.items():
        module.lens_form, module.lens_before = form, before

    def undo() -> None:
        for module in forms:
            del module.lens_form, module.lens_before
        model.set_attn_implementation(before)

    return undo
