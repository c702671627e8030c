"""Causal features for the heads of the page's model: a rule that decides while it reads, as no oracle does.

    python -m headsandstates.experiments.page_features TEXTS FILE

``TEXTS`` as for ``page_model``. Of every head, ``ssmbook.lens`` fits what ``lens.plan`` calls causal states:
the first token and the last eight are read exactly, the others through twelve features, whose running sums
take no more numbers than the keys and values of the seven tokens that a window of 16 has beyond these nine.
They are fitted to the heads' outputs on training text and on random tokens that repeat themselves with other
segments than those that measure, and are kept in 8 bits; what is measured is what was kept.
"""

from __future__ import annotations

import torch

from headsandstates.experiments import page_model
from headsandstates.experiments.page_heads import KEYS, SINK, Measuring, committed_features, parser, windows
from headsandstates.experiments.page_model import CONTEXT, VOCABULARY, quantized, repeated
from headsandstates.experiments.page_plan import SHOWN, WINDOW, _CachedModel, edits
from headsandstates.experiments.results import FOLDER, FORMAT, Results, digest, save_weights
from ssmbook._json import read_json, versions
from ssmbook.lens.changes._groups import group_layers
from ssmbook.lens.changes._plan import fit_states

TEXTS, LONGEST = 48, 56  # windows of text, and as many repeats; the longest segment
COMMAND = "python -m headsandstates.experiments.page_features TEXTS FILE"
FORMS = {"causal": {"causal": True}, "window": {"window": WINDOW - SINK}}


def fit(model: page_model.PageModel, texts: list[str]) -> dict[str, dict]:
    """Fit the features of every head and write them beside the other weights.

    Returns
    -------
    dict
        "errors": what is missed of each head's output energy on two texts that were not fitted to, with
        "causal" features and with the "window", a list of 32 each; "page": the heads, as numbers from 0
        to 31, whose features are "nearer" than the window; "sha256": of the file of weights.
    """
    trained = [text[: -page_model.HELD_OUT] for text in texts]
    g = torch.Generator().manual_seed(5)
    segments = torch.randint(1, VOCABULARY, (TEXTS, CONTEXT), generator=g)
    again, _ = repeated(segments, torch.randint(8, LONGEST + 1, (TEXTS,), generator=g))
    given = {"text": windows(trained, TEXTS // len(texts)), "copy": again}
    given = {name: rows[:, :CONTEXT] for name, rows in given.items()}
    cached = _CachedModel(model)
    found = [*fit_states(cached, group_layers(cached), given, WINDOW, SINK, 0).values()]
    whole = {name: torch.stack([p[name] for p in found]) for name in "abcd"}
    kept = {"read": whole["a"].mT, "write": whole["c"].mT, "b": torch.stack([whole["b"], whole["d"]])}
    path = FOLDER / "page-features.safetensors"
    save_weights(quantized(kept), path, {"command": COMMAND, **versions()})
    committed_features.cache_clear()
    errors = {
        name: torch.cat([p[way] for p in found])
        for name, way in zip(FORMS, ("states", "window"), strict=True)
    }
    nearer = torch.cat([p["better"] for p in found]).nonzero()[:, 0].tolist()
    errors = {name: each.tolist() for name, each in errors.items()}
    return {"sha256": digest(path), "errors": errors, "page": {"features": {"nearer": nearer}}}


def measure(found: Measuring, nearer: list[int]) -> dict[str, list | dict]:
    """Return what causal features and a window of as many numbers cost, in groups of heads and in plans.

    A plan with states is that of ``lens.plan``: features where they are nearer, else the window.
    """
    page = {
        name: read_json(FOLDER / f"page-{name}.json", FORMAT)["results"]["page"] for name in ("heads", "plan")
    }
    copy, order = [KEYS[key] for key in page["heads"]["copy_heads"]], page["plan"]["plan"]["whole"]
    groups = {"copy heads": copy, "other heads": [key for key in KEYS if key not in copy]}
    rows = {
        f"{name}, {form}": found.row(dict.fromkeys(group, edit))
        for name, group in groups.items()
        for form, edit in FORMS.items()
    }
    near = {KEYS[key]: FORMS["causal"] for key in nearer}
    for K in SHOWN:
        narrow = {form: edits(order[:K], edit) for form, edit in FORMS.items()}
        narrow["plan with states"] = {key: near.get(key, edit) for key, edit in narrow["window"].items()}
        for form, those in narrow.items():
            rows[f"{K} heads whole, {form}"] = found.row(those)
            print(K, form, rows[f"{K} heads whole, {form}"], flush=True)
        gain = found.run(narrow["window"])[0] - found.run(narrow["plan with states"])[0]
        rows[f"{K} heads whole, bits that states save"] = [float(gain.mean()), float(gain.std())]
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Fit, measure and write."""
    given = parser(__doc__).parse_args(arguments)
    model, texts = page_model.load_trained().requires_grad_(False), page_model.novels(given.texts)
    results = fit(model, texts)
    results |= measure(Measuring(model, texts), results["page"]["features"]["nearer"])
    settings = {"texts": 60, "window": WINDOW, "features": 12, "near": 9, "fitted to": 2 * TEXTS - 2}
    settings["numbers"] = "mean and standard deviation over texts, as in page-heads; errors: of outputs"
    Results("page-features", "full", settings, COMMAND, results=results).save(given.file)


if __name__ == "__main__":
    main()
