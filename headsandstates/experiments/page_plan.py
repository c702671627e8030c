"""Which heads of the page's model keep their whole cache, at every budget: ``ssmbook.lens.plan`` on it.

    python -m headsandstates.experiments.page_plan TEXTS FILE

``TEXTS`` as for ``page_model``. Half of 60 held-out windows and random tokens that repeat themselves decide,
the others measure. A head that does not keep all keeps a window of 16 tokens, the first among them.
"""

from __future__ import annotations

import tempfile
from statistics import mean
from types import SimpleNamespace

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headsandstates.experiments import page_model
from headsandstates.experiments.page_heads import KEYS, Measuring, parser, with_places
from headsandstates.experiments.page_model import CONTEXT, HEADS, LAYERS, PageModel, norm, per_head
from headsandstates.experiments.results import Results
from ssmbook import lens

WINDOW, SINK = 16, 1
EDITS = {
    "window": {"window": WINDOW - SINK},
    "states": {"states": WINDOW},
}  # here: beside the first
ALONE = (22, 24)  # last tokens, beside the first, of one window for all heads
SHOWN = (0, 1, 2, 3, 5, 8, 16)  # heads that keep all, in the rows on text and copying


class CachedAttention(nn.Module):
    """One layer's heads with a cache of keys and values, attending by the function that transformers names.

    The bias by distance is a part of q · k.
    """

    head_dim, is_causal = page_model.WIDTH // HEADS, True

    def __init__(self, model: PageModel, layer: int, config: PretrainedConfig):
        super().__init__()
        self.config, self.layer_idx, self.b = config, layer, model.b[layer]
        for name in "qkvo":
            setattr(self, f"{name}_proj", nn.Linear(page_model.WIDTH, page_model.WIDTH, bias=False))
            getattr(self, f"{name}_proj").weight = nn.Parameter(getattr(model, name.upper())[layer])

    def forward(self, h: Tensor) -> Tensor:
        """Return what the heads add to the tokens, (batch, n, 128)."""
        q, k, v = (per_head(h, getattr(self, f"{name}_proj").weight) for name in "qkv")
        q, k = with_places(q, k, self.b)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, None)
        return self.o_proj(attend(self, q, k, v, None, scaling=1.0)[0].flatten(2))


class _CachedModel(PreTrainedModel):
    """The page's model as a language model of transformers; only so has it a cache that a plan can narrow."""

    config_class, _supports_sdpa = PretrainedConfig, True

    def __init__(self, model: PageModel):
        super().__init__(PretrainedConfig(vocab_size=page_model.VOCABULARY, attn_implementation="sdpa"))
        self.model = model
        self.mixers = nn.ModuleList(CachedAttention(model, layer, self.config) for layer in range(LAYERS))
        self.eval()

    def forward(self, tokens: Tensor, use_cache: bool = False) -> SimpleNamespace:
        """Return the logits of tokens (batch, n), under their name."""
        x = norm(self.model.E[tokens])
        for layer, mixer in enumerate(self.mixers):
            x = self.model.widen(x + mixer(norm(x)), layer)
        return SimpleNamespace(logits=norm(x) @ self.model.E.T)


def budget(K: int) -> float:
    """The share of the cache of 128 tokens that is kept if K heads keep all."""
    return (K + (len(KEYS) - K) * WINDOW / CONTEXT) / len(KEYS)


def edits(whole: list[int], edit: dict) -> dict[tuple[int, int], dict]:
    """The edits that leave these heads as they are and give every other head this one."""
    return {key: edit for number, key in enumerate(KEYS) if number not in whole}


def windows(found: Measuring) -> dict[str, dict]:
    """What one window for all heads costs, with a cache about as large as that of two whole heads."""
    return {f"first + last {last}": found.row(edits([], {"window": last})) for last in ALONE}


def measure(found: Measuring) -> dict[str, dict]:
    """Return the order in which plans of growing budgets leave heads whole, and what budgets cost."""
    model, texts, results = _CachedModel(found.model), found.plain[:, :CONTEXT], {}
    order, last = [], set()
    with tempfile.TemporaryDirectory() as steps:
        for K in range(len(KEYS)):  # the whole cache is no budget
            made = lens.plan(model, texts, budget(K), window=WINDOW, sink=SINK, folder=steps)
            forms = [form for layer in made.forms.values() for form in layer]
            whole = {number for number, form in enumerate(forms) if form == "full"}
            assert len(whole) == K and last < whole or not K  # a head that was left whole stays so
            order, last = order + sorted(whole - last), whole
            results[f"plan, {K} heads"] = {
                row: {demand: mean(each) for demand, each in losses.items()}
                for row, losses in made.measured.items()
            }
            print(K, order, results[f"plan, {K} heads"], flush=True)
    order += sorted({*range(len(KEYS))} - last)
    for K in SHOWN:
        for name, edit in EDITS.items():
            results[f"{K} heads whole, {name}"] = row = found.row(edits(order[:K], edit))
            print(K, name, row, flush=True)
    results |= windows(found)
    damages = {demand: each["damage"].tolist() for demand, each in made.scores.items()}
    page = {"whole": order, "window": WINDOW - SINK, "share": WINDOW / CONTEXT}
    return results | {"damages": damages, "page": {"plan": page}}


def main(arguments: list[str] | None = None) -> None:
    """Plan, measure and write."""
    given = parser(__doc__).parse_args(arguments)
    model = page_model.load_trained().requires_grad_(False)
    results = measure(Measuring(model, page_model.novels(given.texts)))
    numbers = "plan: mean loss in nats; whole: mean and standard deviation over texts, as in page-heads"
    settings = {"texts": 60, "window": WINDOW, "sink": SINK, "tokens": CONTEXT, "numbers": numbers}
    command = "python -m headsandstates.experiments.page_plan TEXTS FILE"
    Results("page-plan", "full", settings, command, results=results).save(given.file)


if __name__ == "__main__":
    main()
