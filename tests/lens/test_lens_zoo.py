"""Models of transformers at tiny size: each mixing layer is read exactly or listed, with a reason.

A few of them by default; all with LENS_FAMILIES=all (make test-lens). What a version of transformers does not
have is skipped.
"""

import json
import os
import warnings
from pathlib import Path

import pytest
import torch

from ssmbook import lens

ZOO = json.loads(Path(__file__).with_name("families.json").read_text("utf-8"))
CHOSEN = [
    name
    for name, each in ZOO["families"].items()
    if each.get("quick") or os.environ.get("LENS_FAMILIES") == "all"
]


def tiny(transformers, name, given):
    if name not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {name}")
    kept = {key: value for key, value in ZOO["every"].items() if key not in given.get("without", ())}
    config = transformers.AutoConfig.for_model(name, **{**kept, **given["config"]})
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        made = getattr(transformers, given.get("class", "AutoModel"))
        model = made(config) if "class" in given else made.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # weights that differ from token to token
            if parameter.ndim >= 2:
                parameter.mul_(2.5)
    return model.eval()


@pytest.mark.parametrize("name", CHOSEN)
def test_each_mixing_layer_is_read_or_listed(name):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    given = ZOO["families"][name]
    model = tiny(transformers, name, given)
    ids = torch.randint(3, 99, (19,), generator=torch.Generator().manual_seed(1))
    if not given["read"]:
        with pytest.raises(ValueError, match=given["listed"][0]):
            lens.report(model, ids, permuted=False)
        return
    found = lens.report(model, ids, permuted=False)
    assert [layer.family for layer in found.layers] == given["read"]
    assert all(layer.miss < 1e-5 for layer in found.layers)
    notes = [note for note in found.notes if note.startswith("not read")]
    assert len(notes) == len(given.get("listed", ()))
    for note, kind in zip(notes, given.get("listed", ()), strict=True):
        assert kind in note and "register one" in note
