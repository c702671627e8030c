"""The language model of the page: what its weights do, and that a stopped training goes on."""

import json
import random

import pytest
import torch

from headsandstates.experiments import page_model
from headsandstates.experiments.results import FOLDER, digest


@pytest.fixture(scope="module")
def measured():
    return json.loads((FOLDER / "page-model.json").read_text("utf-8"))["results"]


def test_the_committed_model_copies_what_is_repeated(measured):
    model, end = page_model.load_trained(), measured["seed 0"]["end in 8 bits"]
    assert sum(part.numel() for part in model.parameters()) == 593_920
    assert page_model.copying(model) == pytest.approx(end["copying"], abs=0.002)
    assert page_model.copying(page_model.PageModel(generator=torch.Generator().manual_seed(0))) < 0.02
    sentence = " Elizabeth walked to Meryton with her sisters."
    words = torch.tensor([page_model.encode(sentence, measured["seed 0"]["pieces"])])
    assert page_model.copying(model, words.repeat(1, 9)[:, :128], words.shape[1]) > 0.9


def test_weights_are_those_that_were_measured(measured):
    features = json.loads((FOLDER / "page-features.json").read_text("utf-8"))["results"]
    for name, found in (("page-model", measured["seed 0"]), ("page-features", features)):
        assert digest(FOLDER / f"{name}.safetensors") == found["sha256"], name
    assert sum((FOLDER / f"page-{name}.safetensors").stat().st_size for name in ("model", "features")) < 1e6


def test_eight_bits_cost_less_than_a_thousandth_of_a_bit(measured):
    end, rounded = measured["seed 0"]["end"], measured["seed 0"]["end in 8 bits"]
    assert abs(rounded["bits"] - end["bits"]) < 1e-3 and len(measured) == 3


def test_a_piece_is_the_longest_that_fits_and_a_name_is_invented_once():
    pieces = page_model.vocabulary("the cat the hat " * 50, size=105)
    codes = page_model.encode("the cat", pieces)
    assert "".join(pieces[code] for code in codes) == "the cat" and len(codes) < 7
    text = "they said Emma saw him, and so Emma went, for Emma knew, as Emma did. "
    new = page_model.renamed(text, random.Random(0))
    assert "Emma" not in new and len({word for word in new.split() if word.istitle()}) == 1


def test_a_run_that_was_stopped_goes_on_as_if_it_was_not(tmp_path):
    plain, named = torch.randint(1, 512, (2, 400), generator=torch.Generator().manual_seed(0))
    whole, first, second = (page_model.Training(0) for _ in range(3))
    for run, steps in ((whole, 2), (first, 1)):
        for _ in range(steps):
            run.advance(plain, named, 10)
    first.save(tmp_path / "run.pt")
    second.load(tmp_path / "run.pt")
    second.advance(plain, named, 10)
    for one, other in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)
