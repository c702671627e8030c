"""Models of transformers at tiny size: each mixing layer is read exactly or listed, with a reason.

A few of them by default; all with LENS_FAMILIES=all (make test-lens). What a version of transformers does not
have is skipped.
"""

import os

import pytest

from headsandstates.experiments.model_families import ZOO, tiny, tokens
from ssmbook import lens

CHOSEN = [
    name
    for name, each in ZOO["families"].items()
    if each.get("quick") or os.environ.get("LENS_FAMILIES") == "all"
]


@pytest.mark.parametrize("name", CHOSEN)
def test_each_mixing_layer_is_read_or_listed(name):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    given = ZOO["families"][name]
    if name not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {name}")
    model, ids = tiny(name), tokens()
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
