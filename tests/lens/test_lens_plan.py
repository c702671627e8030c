"""Plans: which groups keep their cache, by another route; states as a recurrence; a cache that is smaller."""

import json

import pytest
import torch
from helpers import F64, randn
from scipy.stats import t as student

from ssmbook import lens
from ssmbook.lens.__main__ import main as run_lens
from ssmbook.lens.changes import _damage, _features, _groups, _plan
from ssmbook.lens.changes._kept import Kept

WORDS, N = 40, 48
NARROW = "first 4 and last 12 tokens"


@pytest.fixture(scope="module")
def language():
    """language(family): a causal model of three layers or so, with random weights that matter."""
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 3, "vocab_size": WORDS}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    configs = {
        "llama": lambda: transformers.LlamaConfig(**small),
        "gpt2": lambda: transformers.GPT2Config(n_embd=24, n_head=4, n_layer=2, vocab_size=WORDS),
        "mistral": lambda: transformers.MistralConfig(**small, sliding_window=20),
        "gemma2": lambda: transformers.Gemma2Config(**small, head_dim=6, sliding_window=20),
        "gemma3": lambda: transformers.Gemma3TextConfig(
            **small,
            head_dim=6,
            sliding_window=20,
            pad_token_id=0,
            eos_token_id=1,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        ),
        "gpt_oss": lambda: transformers.GptOssConfig(
            **small, head_dim=6, sliding_window=20, num_local_experts=2, num_experts_per_tok=1
        ),
    }

    def make(family="llama", seed=0):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(configs[family]()).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(0.35 * torch.randn(parameter.shape, generator=generator))
        return model

    return make


def ids(*shape, seed=0):
    return torch.randint(WORDS, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def logits(model, texts, **given):
    return model(texts, use_cache=False, **given).logits


@torch.no_grad()
def in_pieces(planned, texts, pieces, mask=None, cache=None):
    """Logits of a text that comes in pieces, and the cache at its end."""
    got, start = [], 0 if cache is None else cache.get_seq_length()
    for piece in texts.split(pieces, 1):
        given, start = {}, start + piece.shape[1]
        if mask is not None:
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, start - piece.shape[1] : start]
            given = {"attention_mask": mask[:, :start], "position_ids": places}
        out = planned(piece, past_key_values=cache, **given)
        cache = out.past_key_values
        got.append(out.logits)
    return torch.cat(got, 1), cache


def of_forms(model, full, window=16, fitted=None):
    found = _groups.group_layers(model)
    return _plan.compose(model, found, torch.tensor(full), window, 4, N, fitted)


@pytest.mark.parametrize("padding", [0, 3, -3])
def test_near_keys_are_those_of_the_text(padding):
    """The first two keys of the text and the last three, key by key; padding before or behind is none."""
    n, window, sink = 12, 5, 2
    real = range(max(padding, 0), n + min(padding, 0))
    mask = torch.full((1, 1, n, n), torch.finfo(torch.float32).min)
    for i in real:
        mask[..., i, real.start : i + 1] = 0
    got = _groups.near(mask, window, sink)[0, 0]
    for i in range(n):
        for j in range(n):
            wanted = i in real and j in real and j <= i and (j - real.start < sink or i - j < window - sink)
            assert bool(got[i, j]) == wanted, (i, j)


def test_changes_of_coefficients_are_softmax_of_other_scores():
    scores, later = randn(3, 9, 9) * 3, torch.ones(9, 9, dtype=torch.bool).triu(1)
    alpha = scores.masked_fill(later, -torch.inf).softmax(-1)
    lag = torch.arange(9)[:, None] - torch.arange(9)
    gone = later | ((lag >= 3) & (torch.arange(9) >= 2))
    wanted = scores.masked_fill(gone, -torch.inf).softmax(-1)
    window, half = lens.window(5, sink=2), lens.fade(0.5)
    assert torch.allclose(window.coefficients(alpha), wanted)
    assert torch.allclose(half.coefficients(alpha), (scores / 2).masked_fill(later, -torch.inf).softmax(-1))
    assert torch.allclose(lens.fade(1.0).coefficients(alpha), alpha)
    both = (window & half).coefficients(alpha)
    assert torch.allclose(both, (scores / 2).masked_fill(gone, -torch.inf).softmax(-1))
    some = lens.only(window, [2, 0]).coefficients(alpha)
    assert torch.equal(some[1], alpha[1]) and torch.allclose(some[[0, 2]], wanted[[0, 2]])
    # a sink that is no key takes part: one more column, whose weight is not shown
    more = torch.cat([scores.masked_fill(later, -torch.inf), torch.ones(3, 9, 1, dtype=F64)], -1)
    shown = lens.fade(2.0).coefficients(more.softmax(-1)[..., :-1])
    assert torch.allclose(shown, (2 * more).softmax(-1)[..., :-1])
    assert torch.allclose(window.coefficients(0.5 * alpha), 0.5 * wanted)
    with pytest.raises(ValueError, match="negative"):
        half.coefficients(-alpha)
    with pytest.raises(ValueError, match="heads must be"):
        lens.only(window, [3]).coefficients(alpha)
    with pytest.raises(ValueError, match="coefficients alone"):
        lens.only(lens.Change("other", lambda a: a, W_O=alpha), [0])


def test_remixed_value_maps_are_least_squares(language):
    model = language().double()
    layer, texts = lens.layers(model)[1], ids(2, N)
    seen = lens.observe(model, texts)[layer.name]
    outputs = []
    for text in texts:
        read = lens.operator(layer, text)
        V = read.W.V  # (H, p, d)
        outputs.append(torch.einsum("hij,gpd,jd->ghip", read.W.alpha, V, read.x).flatten(2))
    outputs = torch.cat(outputs, -1)  # (g, h, numbers): what value map g makes of attention h
    wanted, kept = torch.einsum("gga->a", outputs), [3, 1]
    columns = outputs[:, kept].flatten(0, 1).mT
    solution = torch.linalg.lstsq(columns, wanted[:, None]).solution
    least = (columns @ solution - wanted[:, None]).square().sum() / wanted.square().sum()
    change = seen.remix(kept).change
    assert change.lost.output == pytest.approx(float(least), rel=1e-5)
    assert change.cost == {"score matrices": 2, "value maps": 2}
    assert seen.remix(range(4)).lost.output < 1e-10
    with lens.replace(model, {layer: seen.remix(range(4))}):
        assert torch.allclose(logits(model, texts), logits(language().double(), texts), atol=1e-6)


def test_the_late_loss_is_that_of_the_second_half(language):
    model, texts = language(), ids(3, N)
    log = logits(model, texts).log_softmax(-1)
    wanted = [-sum(log[b, i, texts[b, i + 1]] for i in range(N // 2, N - 1)) / (N // 2 - 1) for b in range(3)]
    with torch.no_grad():
        for late in (_damage.late_loss(model, texts), lens.loss(model, texts, N // 2 + 1)):
            assert torch.allclose(late, torch.stack(wanted), atol=1e-5)


def test_copies_come_again_after_their_period():
    texts = ids(3, N)
    texts[:, 0] = 7  # as all of these texts begin
    for text, period in zip(_damage.copies(texts, WORDS, [24, 18], 5), (24, 18), strict=True):
        assert torch.equal(text[period + 1 :], text[1:-period]) and int(text[0]) == 7
        assert len(text.unique()) > period // 2


def test_damages_add_up_to_the_loss_of_narrowing_all(language):
    """Simpson's sum is the loss; each damage is the integral of slopes taken by differences of the loss."""
    model, texts = language().double(), ids(2, N)
    found = _groups.group_layers(model)
    got = _damage.path_damages(model, found, texts, 12, 4)
    with of_forms(model, [False] * 6, 12).apply(model), torch.no_grad():
        narrow = _damage.late_loss(model, texts).mean()
    with torch.no_grad():
        full = _damage.late_loss(model, texts).mean()
    assert got["true"] == pytest.approx(float(narrow - full), abs=1e-9)
    assert float(got["damage"].sum()) == pytest.approx(got["true"], rel=0.1)

    @torch.no_grad()
    def loss(gates):
        parts = torch.tensor(gates, dtype=F64).split([2, 2, 2])
        forms = {
            layer.module: _damage.gated(part.repeat_interleave(layer.share)[:, None], 12, 4)
            for layer, part in zip(found, parts, strict=True)
        }
        with _groups.attending(model, forms):
            return float(_damage.late_loss(model, texts).mean())

    points = got["points"]
    for b in (0, 5):
        total = 0.0
        for place in range(points):
            t, weight = place / (points - 1), (1 if place in (0, points - 1) else 4 if place % 2 else 2)
            up, down = ([t] * 6 for _ in range(2))
            up[b], down[b] = t + 5e-3, t - 5e-3
            total -= weight * (loss(up) - loss(down)) / 1e-2 / (3 * (points - 1))
        assert float(got["damage"][b]) == pytest.approx(total, rel=1e-3, abs=1e-5)  # norms are in float32


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma2", "gpt_oss"])
def test_windows_are_those_of_replaced_coefficients(language, family):
    """A mask inside the model's own attention, and weights of the layers as they are read, divided anew."""
    if family == "gpt2":
        model, full = language(family), [True, False, False, True, False, True, True, False]
    else:
        model, full = language(family), [True, False, False, False, True, True]
    texts, found = ids(2, N), _groups.group_layers(model)
    before = logits(model, texts)
    with of_forms(model, full).apply(model):
        got = logits(model, texts)
    changes = {}
    for layer, part in zip(found, torch.tensor(full).split([layer.G for layer in found]), strict=True):
        narrow = [h for h in range(layer.G * layer.share) if not part[h // layer.share]]
        changes[layer.name] = lens.only(lens.window(16), narrow)
    if family != "gpt_oss":  # its sink takes what leaves the window
        with lens.replace(model, changes):
            assert torch.allclose(got, logits(model, texts), atol=2e-4)
    assert not torch.allclose(got, before, atol=1e-2)
    assert torch.equal(logits(model, texts), before)
    with of_forms(model, [True] * len(full)).apply(model):
        assert torch.allclose(logits(model, texts), before, atol=1e-5)


def test_padding_on_either_side_changes_nothing(language):
    model, text = language(), ids(1, N)
    planned = of_forms(model, [True, False, False, False, True, False])
    with planned.apply(model):
        wanted = logits(model, text)
        for left, right in ((5, 0), (0, 5)):
            padded = torch.cat([ids(1, left), text, ids(1, right)], 1)
            mask = torch.cat([torch.zeros(1, left), torch.ones(1, N), torch.zeros(1, right)], 1).long()
            places = (mask.cumsum(-1) - 1).clamp(min=0)
            got = logits(model, padded, attention_mask=mask, position_ids=places)[:, left : left + N]
            assert torch.allclose(got, wanted, atol=1e-4)


@pytest.fixture(scope="module")
def fitted(language):
    """A model and causal states of all its groups, taken whether they are better or not."""
    model = language()
    fit = {"text": ids(3, N), "copy": ids(2, N // 2).repeat(1, 2)}
    states = _plan.fit_states(model, _groups.group_layers(model), fit, 16, 4, seed=0)
    for each in states.values():
        each["better"] = torch.ones(2, dtype=torch.bool)
    return model, states


def test_states_are_softmax_with_far_keys_in_features(fitted):
    """Row by row: exp of near scores, products of features for far ones, divided by their sum."""
    model, states = fitted
    made = of_forms(model, [False] * 6, fitted=states)
    assert made.sizes["states"] == 16 - -(-12 * 7 // 12) and all(
        f == ["states"] * 2 for f in made.forms.values()
    )
    layer, text = _groups.group_layers(model)[0], ids(1, N, seed=5)
    seen, p = _damage.record(model, [layer], text)[0], states[layer.name]
    q, k, v = (seen[name][0] for name in "qkv")
    with made.apply(model):
        got = _damage_outputs(model, layer, text)
    near = made.sizes["states"] - 4
    for h in range(4):
        for i in (3, 20, N - 1):
            row = torch.zeros(N)
            for j in range(i + 1):
                if j < 4 or i - j < near:
                    row[j] = (q[h, i] @ k[h // 2, j]).exp()
                else:
                    phi = (q[h, i] @ p["a"][h] + p["b"][h]).exp()
                    row[j] = phi @ (k[h // 2, j] @ p["c"][h // 2] + p["d"][h // 2]).exp()
            assert torch.allclose(got[i, h], row / row.sum() @ v[h // 2], rtol=1e-3, atol=1e-4)


def _damage_outputs(model, layer, text):
    """What one planned layer puts out, (n, H, r)."""
    kept, form = [], layer.module.lens_form

    def watched(heads):
        kept.append(form(heads))
        return kept[-1]

    del layer.module.lens_form
    layer.module.lens_form = watched
    logits(model, text)
    layer.module.lens_form = form
    return kept[0][0]


@pytest.mark.parametrize("pieces", [(20, *[1] * 28), (30, 18), (7, 1, 40)])
def test_a_smaller_cache_gives_what_the_whole_text_gives(fitted, pieces):
    model, states = fitted
    made = of_forms(model, [True, False, False, True, False, False], fitted=states)
    made.forms["model.layers.2.self_attn"] = ["window", "states"]
    made.features["model.layers.2.self_attn"] = {
        name: part[[1] if name in "cd" else [2, 3]]
        for name, part in made.features["model.layers.2.self_attn"].items()
    }
    texts = ids(2, N, seed=9)
    with made.apply(model):
        wanted = logits(model, texts)
    planned = made.module(model)
    got, cache = in_pieces(planned, texts, pieces)
    assert torch.allclose(got, wanted, atol=1e-3)
    r, features = 6, 12 * 7
    numbers = 2 * 2 * r * N + 16 * 2 * r + 3 * (made.sizes["states"] * 2 * r + features)
    assert cache.nbytes == 4 * 2 * numbers  # float32, two texts
    new = planned.generate(texts[:1, :20], max_new_tokens=6, do_sample=False)
    with made.apply(model):
        for place in range(20, 26):
            assert int(logits(model, new[:, :place])[0, -1].argmax()) == int(new[0, place])
    assert torch.equal(logits(model, texts), logits(fitted[0], texts))


@pytest.fixture(scope="module")
def every_form(language):
    """A model with windows of 20 tokens of its own in two layers of three, and groups of every form."""
    model = language("gemma3")
    found, window = _groups.group_layers(model), 10
    fit = {"text": ids(3, 18), "copy": ids(2, 9).repeat(1, 2)}
    fitted = _plan.fit_states(model, found, fit, window, 4, seed=0)
    assert len(fitted) == 3  # texts of 18 tokens lie within all windows
    for each, better in zip(fitted.values(), ([0, 1], [1, 0], [1, 0]), strict=True):
        each["better"] = torch.tensor(better, dtype=torch.bool)
    full = torch.tensor([True, False, False, False, False, True])
    made = _plan.compose(model, found, full, window, 4, 18, fitted)
    assert [*made.forms.values()] == [["full", "states"], ["states", "window"], ["states", "full"]]
    return model, made


@pytest.mark.parametrize("pieces", [(1,) * N, (30, *[1] * 18)])
def test_past_a_window_of_the_layers_own_both_ways_are_the_same(every_form, pieces):
    """What left the layer's own window stays in states, on a whole text as in a cache."""
    model, made = every_form
    texts = ids(2, N, seed=9)
    with made.apply(model):
        wanted = logits(model, texts)
    assert torch.allclose(in_pieces(made.module(model), texts, pieces)[0], wanted, atol=1e-4)


def test_states_are_not_offered_where_a_window_is_shorter_than_the_texts(language, tmp_path):
    model = language("gemma3")
    made = lens.plan(model, ids(6, N), 0.5, window=16, states=True)
    sliding = [form for forms in [*made.forms.values()][:2] for form in forms]
    assert "states" not in sliding and len(sliding) == 4
    (note,) = made.notes
    assert note.startswith("no states in layers 0, 1: their own window is shorter than the texts")
    assert note in made.table().splitlines()
    made.save(tmp_path)
    again = lens.load_plan(tmp_path)
    assert again.notes == made.notes
    assert again.module(model).state_dict().keys() == model.state_dict().keys()
    again.forms["model.layers.0.self_attn"] = ["states", "window"]
    for use in (again.module, lambda model: again.apply(model).__enter__()):
        with pytest.raises(ValueError, match="no causal states in .*layers.0.* own window of 20 tokens"):
            use(model)
    made = lens.plan(language("gemma2"), ids(6, N), 0.5, window=16, states=True)
    assert made.notes == ["no states in layers 0, 1, 2: their weights are not softmax of q · k alone"]
    assert [*again.floor] == ["model.layers.2.self_attn"] and not made.floor


def test_each_text_of_a_batch_keeps_its_own_tokens(every_form):
    """Padding on the left, more of it than a window in one text, inside and behind: as on whole texts."""
    model, made = every_form
    texts, mask = ids(4, N, seed=3), torch.ones(4, N, dtype=torch.long)
    mask[0, :7] = mask[1, :29] = mask[2, [2, 21, 30]] = mask[3, -6:] = 0
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with made.apply(model):
        wanted = logits(model, texts, attention_mask=mask, position_ids=places)
    planned = made.module(model)
    for pieces in ((31, *[1] * 17), (1,) * N, (40, 8)):
        got, cache = in_pieces(planned, texts, pieces, mask)
        assert torch.allclose(got[mask == 1], wanted[mask == 1], atol=1e-4)
    alone = [in_pieces(planned, texts[row : row + 1], (N,), mask[row : row + 1])[1] for row in range(4)]
    for place, layer in enumerate(cache.layers):  # as much as the text that keeps most
        assert layer.nbytes == 4 * max(each.layers[place].nbytes for each in alone)
    # the texts of a cache are chosen anew, as beams ask for
    got, cache = in_pieces(planned, texts[:, :31], (31,), mask)
    rows = torch.tensor([3, 1, 1, 0])
    cache.reorder_cache(rows)
    got, _ = in_pieces(planned, texts[rows, 31:], (1,) * 17, mask[rows], cache)
    real = mask[rows, 31:] == 1
    assert torch.allclose(got[real], wanted[rows, 31:][real], atol=1e-4)


@pytest.mark.parametrize("given", [{}, {"num_beams": 2}])
def test_padding_tokens_inside_a_text_are_what_they_are_to_the_model(fitted, given):
    """Without a mask ``generate`` takes them for padding; where all groups keep all it writes the same."""
    model, states = fitted
    texts = ids(2, 30, seed=4).clamp(min=2)
    texts[0, :5] = texts[0, 11] = texts[1, 27] = 0
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": 39, **given}
    wanted = model.generate(texts, **options)
    assert torch.equal(of_forms(model, [True] * 6).module(model).generate(texts, **options), wanted)
    assert not torch.equal(model.generate(texts, attention_mask=torch.ones_like(texts), **options), wanted)
    made = of_forms(model, [True, False, False, False, True, False], fitted=states)
    if not given:
        new = made.module(model).generate(texts, **options)
        mask = torch.cat([texts != 0, torch.ones(2, new.shape[1] - 30)], 1).long()
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        with made.apply(model):
            best = logits(model, new, attention_mask=mask, position_ids=places)[:, 29:-1].argmax(-1)
        assert torch.equal(best, new[:, 30:])


def test_a_planned_model_keeps_its_own_cache_or_says_so(every_form):
    transformers = pytest.importorskip("transformers")
    model, made = every_form
    texts, planned = ids(1, N, seed=6).clamp(min=2), made.module(model)
    with made.apply(model):
        wanted = logits(model, texts)
    for mine in (transformers.DynamicCache(), transformers.DynamicCache(config=model.config)):
        with torch.no_grad():  # an empty cache of the caller is filled
            planned(texts[:, :40], past_key_values=mine)
            got = planned(texts[:, 40:], past_key_values=mine).logits
        assert torch.allclose(got, wanted[:, 40:], atol=1e-4) and mine.nbytes > 0
    mine.reset()
    assert mine.get_seq_length() == 0 and torch.allclose(
        in_pieces(planned, texts, (9, 39), cache=mine)[0], wanted, atol=1e-4
    )
    theirs = model(texts, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="an empty DynamicCache, or none; got a DynamicCache with 48 tokens"):
        planned(texts[:, :1], past_key_values=theirs)
    with pytest.raises(ValueError, match="got a StaticCache with 0 tokens"):
        planned.generate(texts, max_new_tokens=3, cache_implementation="static")
    with pytest.raises(
        ValueError, match="must go forward|can be cropped"
    ):  # later versions say it themselves
        planned.generate(texts, max_new_tokens=3, prompt_lookup_num_tokens=2)
    half = made.module(model).to(torch.bfloat16)
    got = in_pieces(half, texts, (40, *[1] * 8))[0].float()
    assert torch.allclose(got, wanted, atol=0.05 * float(wanted.abs().max()))


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
@pytest.mark.parametrize("window", [16, 22])
def test_a_layer_with_a_window_of_its_own_keeps_no_more_than_that(language, family, window):
    """Its cache is the layer's own where it keeps all, and outputs are those of the whole text."""
    model, texts = language(family), ids(2, N, seed=9)
    for full in ([True] * 6, [True, False, False, False, True, False]):
        made = of_forms(model, full, window)
        with made.apply(model):
            wanted = logits(model, texts)
        got, cache = in_pieces(made.module(model), texts, (7, 30, *[1] * 11))
        with torch.no_grad():
            own = model(texts, use_cache=True).past_key_values
        assert torch.allclose(got, wanted, atol=1e-3)
        whole = sum(layer.keys.nbytes + layer.values.nbytes for layer in own.layers)
        assert cache.nbytes == whole if all(full) else cache.nbytes < whole


def test_a_plan_measures_what_it_says_and_comes_back(language, tmp_path):
    model, texts = language(), ids(6, N)
    before = logits(model, texts)
    made = lens.plan(model, texts, 0.6, window=16, states=True)
    assert made.cache <= 0.6 < made.cache + (1 - 16 / N) / 6
    assert torch.equal(logits(model, texts), before) and model.config._attn_implementation == "sdpa"
    with made.apply(model):
        assert torch.allclose(
            torch.tensor(made.measured["plan"]["text"]), _damage.late_loss(model, texts[1::2])
        )
    full = [form == "full" for forms in made.forms.values() for form in forms]
    for name in ("text", "copy"):
        lost = [float(d) for d, keeps in zip(made.scores[name]["damage"], full, strict=True) if not keeps]
        assert made.predicted[name] == pytest.approx(sum(lost), abs=1e-5)
        said = made.scores[name]
        gap = abs(float(said["damage"].sum()) - said["true"])
        assert said["miss"] == pytest.approx(gap / abs(said["true"]), rel=1e-4)
    drawn = (torch.randperm(6, generator=torch.Generator().manual_seed(0)) < sum(full)).tolist()
    rivals = {
        "uniform window": of_forms(model, [False] * 6, round(made.cache * N)),
        "random 0": of_forms(model, drawn),
    }
    for row, other in rivals.items():
        with other.apply(model):
            again = _damage.late_loss(model, texts[1::2])
        assert torch.allclose(torch.tensor(made.measured[row]["text"]), again)
    first = made.scores["copy"]["damage"]
    assert int(first.argmax()) in [b for b, keeps in enumerate(full) if keeps]
    rows = made.table().splitlines()
    assert "uniform window" in made.table() and "predicted" in made.table()
    added = torch.tensor(made.measured["plan"]["copy"]) - torch.tensor(made.measured["as it is"]["copy"])
    spread = student.ppf(0.975, len(added) - 1) * float(added.std()) / len(added) ** 0.5
    said = next(row for row in rows if row.startswith("plan ")).split()
    assert said[-3:] == [f"{float(added.mean()):.3f}", "±", f"{spread:.3f}"]
    made.save(tmp_path)
    again = lens.load_plan(tmp_path)
    with made.apply(model):
        wanted = logits(model, texts)
    with again.apply(model):
        assert torch.equal(logits(model, texts), wanted)
    rules = json.loads((tmp_path / "plan.json").read_text())["groups"]
    assert [rule["form"] == "full" for rule in rules] == full and rules[0]["sink"] == 4
    with pytest.raises(ValueError, match="must be the one that was planned"):
        again.module(language("mistral"))


@pytest.mark.parametrize(
    ("full", "lines"),
    [
        ([0, 0, 0, 1, 0, 1], ["whole: layer 1: group 1; layer 2: group 1", f"{NARROW}: the others"]),
        ([1, 1, 1, 1, 0, 1], [f"{NARROW}: layer 2: group 0", "whole: the others"]),
        ([1, 1, 0, 0, 0, 0], ["whole: layer 0", f"{NARROW}: the others"]),
        ([0, 0, 0, 0, 0, 0], [f"{NARROW}: all groups"]),
    ],
)  # fmt: skip
def test_a_table_names_the_layers_of_each_form(language, full, lines):
    made = of_forms(language(), [bool(each) for each in full])
    made.measured = {"as it is": {"text": [1.0]}, "plan": {"text": [1.5]}}
    made.predicted, made.scores = {"text": 0.25}, {"text": {"miss": 0.1, "true": -2.0}}
    table = made.table().splitlines()
    assert table[: len(lines)] == lines
    assert [line.split() for line in table[len(lines) + 1 :]] == [
        ["plan", "0.500"],
        ["predicted,", "windows", "alone", "0.250"],
        ["missed", "by", "the", "sum", "over", "all", "groups", "0.200"],
    ]
    assert f"{made.cache:.0%} of the cache of {N} tokens" in table[len(lines)]


def test_a_floor_is_below_every_form(language):
    """No recurrence of N states has a smaller error: the truncation of the library does not."""
    alpha = randn(3, 20, 20).exp().tril()
    alpha /= alpha.sum(-1, keepdim=True)
    for states in (1, 3):
        left = []  # at the worst cut, of the squares of its block, by eigenvalues
        for t in {round(20 * c / 8) for c in range(1, 8)}:
            block = alpha[:, t:, :t]
            left.append(torch.linalg.eigvalsh(block @ block.mT)[:, : max(0, 20 - t - states)].sum(-1))
        worst = torch.stack(left).amax(0) / alpha.square().sum((-2, -1))
        assert torch.allclose(_damage.state_floor(alpha, states), worst, atol=1e-12)
        floor, other = _damage.state_floor(alpha, states), lens.truncate(states).coefficients(alpha)
        error = (alpha - other).square().sum((-2, -1)) / alpha.square().sum((-2, -1))
        assert bool((floor <= error + 1e-12).all()) and float(floor.min()) > 0
    assert float(_damage.state_floor(alpha, 10).max()) < 1e-12


def test_steps_are_done_once(language, tmp_path, monkeypatch):
    model, texts = language(), ids(4, N)
    stop = {"after": 2}
    fit = _features.fit_features

    def interrupted(*given):
        stop["after"] -= 1
        if stop["after"] < 0:
            raise KeyboardInterrupt
        return fit(*given)

    monkeypatch.setattr(_plan, "fit_features", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lens.plan(model, texts, 0.6, window=16, states=True, folder=tmp_path)
    assert model.config._attn_implementation == "sdpa"
    stop["after"] = 1  # one layer is left
    made = lens.plan(model, texts, 0.6, window=16, states=True, folder=tmp_path)
    monkeypatch.setattr(_plan, "path_damages", None)
    other = lens.plan(model, texts, 0.5, window=16, states=True, folder=tmp_path)
    assert stop["after"] == 0 and other.cache < made.cache
    monkeypatch.undo()
    assert lens.plan(model, texts, 0.6, window=16, states=True).forms == made.forms
    with pytest.raises(ValueError, match="steps of these texts"):
        lens.plan(model, ids(4, N, seed=1), 0.6, window=16, states=True, folder=tmp_path)


def test_the_command_plans_and_goes_on(language, tmp_path, capsys, caplog, monkeypatch):
    transformers = pytest.importorskip("transformers")
    language().save_pretrained(tmp_path / "model")
    letters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,("]
    (tmp_path / "vocab.txt").write_text("\n".join(letters), "utf-8")
    tokenizer = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "text").write_text(" ".join(letters[5 + int(each)] for each in ids(400) % 26), "utf-8")
    monkeypatch.chdir(tmp_path)
    command = "plan model --budget 0.6 --text text --tokens 48 --texts 4 --window 16 --out out".split()
    assert run_lens(command) == 0
    said, steps = capsys.readouterr().out, caplog.messages
    assert "uniform window" in said and lens.load_plan(tmp_path / "out").cache <= 0.6
    assert steps[0].startswith("loaded LlamaForCausalLM: ") and "step 3 of 3 of the path" in steps
    names = {"lens": lens, "model": lens.load(tmp_path / "model")[0]}
    exec("\n".join(said.splitlines()[-2:]), names)  # the two lines that go on
    assert names["smaller"].generate(ids(1, 9), max_new_tokens=3, do_sample=False).shape == (1, 12)
    monkeypatch.setattr(_plan, "path_damages", None)  # both paths are kept
    assert run_lens(command) == 0 and capsys.readouterr().out == said
    monkeypatch.setattr("ssmbook.lens.__main__.load_model", None)  # what is wrong is said before
    (tmp_path / "short").write_text("a few words", "utf-8")
    for given, message in (
        (["--tokens", "4000"], "--text must fill 4000 tokens"),
        (["--tokens", "300"], "--text must fill 2 windows of 300 tokens"),
        (["--text", str(tmp_path / "short")], "short has 11 bytes"),
        (["--text", str(tmp_path / "none")], "none"),
        (["--texts", "1"], "--texts must be"),
        (["--budget", "0.1"], "budget must be 0.333 or more"),
        (["--budget", "37"], "budget must lie"),
        (["--out", str(tmp_path / "short")], "--out must be a folder"),
        (["--out", str(tmp_path / "short/below")], "--out must be a folder"),
    ):
        assert run_lens([*command, *given]) == 2
        error = capsys.readouterr().err
        assert message in error and len(error.splitlines()) == 1


def test_bad_input_is_one_sentence_and_changes_nothing(language, build, tmp_path):
    model, texts = language(), ids(4, N)
    before = logits(model, texts)
    for given, message in (
        ({"budget": 0.3}, "budget must be 0.333 or more"),
        ({"budget": 1.2}, "budget must lie"),
        ({"window": N}, "longer than a window"),
        ({"sink": 16}, "sink must be"),
        ({"window": 8}, "window must leave tokens"),
        ({"by": "needles"}, "by must be"),
        ({"held_out": texts[1:]}, "must share no 32 tokens"),
        ({"held_out": {"other": texts}}, "demands of texts"),
        ({"held_out": ids(2, N + 1)}, "one length"),
        ({"texts": ids(1, N)}, "one length"),
        ({"texts": {"input_ids": texts, "attention_mask": texts}}, "a tokenizer returns: pass its input_ids"),
        ({"model": model.model}, "its output head; got LlamaModel"),
    ):
        with pytest.raises(ValueError, match=message):
            lens.plan(
                **{"model": model, "texts": texts, "budget": 0.6, "window": 16, "states": True, **given}
            )
    for given, said in ((["a text"], "list"), (texts.tolist(), "list"), (texts / 1, "torch.float32")):
        with pytest.raises(TypeError, match=f"texts must be a tensor of token ids, .* got {said}"):
            lens.plan(model, given, 0.6)
    lens.plan(model, texts.int(), 0.6, window=16)
    for other in (build("bert"), build("mamba")):
        with pytest.raises(ValueError, match="with keys and values in a cache"):
            lens.plan(other, texts, 0.6)
    with of_forms(model, [False] * 6).apply(model), pytest.raises(ValueError, match="changed already"):
        of_forms(model, [False] * 6).apply(model).__enter__()
    made = of_forms(model, [False] * 6)
    made.features = {"model.layers.0.self_attn": {"a": torch.full((1,), torch.nan)}}
    made.save(tmp_path)
    with pytest.raises(ValueError, match="features model.layers.0.self_attn.a must be finite"):
        lens.load_plan(tmp_path)
    with pytest.raises(ValueError, match="evaluation mode"):
        of_forms(model, [False] * 6).apply(model.train()).__enter__()
    model.eval()
    with (
        of_forms(model, [False] * 6).apply(model),
        pytest.raises(ValueError, match="without a cache of earlier tokens"),
    ):
        kept = model(texts[:, :20], use_cache=True).past_key_values
        model(texts[:, 20:21], past_key_values=kept)
    assert torch.equal(logits(model, texts), before)
    assert Kept(["full"], {}, 4, {}).features == {}
