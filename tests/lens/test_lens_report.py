"""A report in all its forms, and two beside each other."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup

from ssmbook import lens
from ssmbook.display import COLORS, number
from ssmbook.lens import _html, _report, _table
from ssmbook.maps import SSD


@pytest.fixture(scope="module")
def hybrid(build):
    return build("jamba", 1)


@pytest.fixture(scope="module")
def found(hybrid, ids):
    return lens.report(hybrid, ids(2, 24), name="a <hybrid>")


def test_every_layer_is_measured_in_order_trained_and_permuted(found, hybrid, ids):
    assert [layer.name for layer in found.layers] == [layer.name for layer in lens.layers(hybrid)]
    assert [layer.H for layer in found.layers] == [80, 4]
    for layer in found.layers:
        assert layer.n == 24 and layer.miss < 1e-5
        for measures in (layer.trained, layer.permuted):
            assert len(measures.rank) == 2 and max(measures.rank) <= layer.H
            counts = [max(measures.counts[eps]) for eps in ("0.1", "0.01", "0.001")]
            assert counts == sorted(counts) and 1 <= counts[0] and counts[-1] <= layer.H
        assert layer.trained != layer.permuted
    first, second = (layer.trained.gradient for layer in found.layers)
    assert first["floor"] is None and not first["exact"] and len(first["norm"]) == 1
    assert second["ratio"] >= 1 and second["exact"] and len(second["norm"]) == len(second["floor"]) == 4
    assert found.settings["texts"] == 2 and found.settings["tokens"] == 24
    assert found.notes == ["attention ran as eager instead of sdpa, which returns no weights"]


def test_a_second_report_is_the_same_and_another_seed_permutes_otherwise(found, hybrid, ids):
    again = lens.report(hybrid, ids(2, 24), name="a <hybrid>")
    assert again == found and found.settings["seed"] == 0
    other = lens.report(hybrid, ids(2, 24), seed=1)
    for layer, moved in zip(found.layers, other.layers, strict=True):
        assert layer.trained.counts == moved.trained.counts
        assert layer.permuted.spectrum != moved.permuted.spectrum


def test_the_miss_of_a_layer_is_the_largest_of_all_its_readings(monkeypatch):
    """Two texts, each read as trained and with permuted weights."""
    misses = iter([1e-11, 4e-11, 2e-11, 3e-11])
    monkeypatch.setattr(_report, "check_frozen", lambda words, frozen: next(misses))
    x = torch.randn(2, 8, 3, generator=torch.Generator().manual_seed(0))
    found = lens.report(SSD(3, 3, H=1, head_width=2, N=2).eval(), x, gradient=False)
    assert found.layers[0].miss == 4e-11 and next(misses, None) is None


def test_some_layers_and_progress(hybrid, ids):
    said = []
    only = lens.report(
        hybrid, ids(16), layers=["layers.1.self_attn"], permuted=False, gradient=False,
        progress=lambda *now: said.append(now),
    )  # fmt: skip
    assert [layer.name for layer in only.layers] == ["layers.1.self_attn"]
    assert only.layers[0].permuted is None and only.layers[0].trained.gradient is None
    assert said == [(0, 1, "layers.1.self_attn"), (1, 1, "")]
    assert "(" not in repr(only.table()).splitlines()[-1] and "permuted" not in only.table().caption


def test_json_there_and_back(found, tmp_path):
    path = tmp_path / "report.json"
    found.to_json(path)
    text = path.read_text("utf-8")
    assert "NaN" not in text and json.loads(text)["format"] == "ssmbook.lens/1"
    back = lens.Report.from_json(path)
    back.to_json(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text("utf-8") == text
    assert repr(back.table()) == repr(found.table())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.json", "report.json"]


def test_files_that_are_no_report(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("{", "utf-8")
    with pytest.raises(ValueError, match="hold a report of the lens; got .*report.json, which is no JSON"):
        lens.Report.from_json(path)
    path.write_text('{"format": "ssmbook.lens/0"}', "utf-8")
    with pytest.raises(ValueError, match="report of the lens of format ssmbook.lens/1; got ssmbook.lens/0"):
        lens.Report.from_json(path)
    path.write_text("[3]", "utf-8")
    with pytest.raises(ValueError, match="report of the lens of format ssmbook.lens/1; got None"):
        lens.Report.from_json(path)


def test_the_table_shows_the_counts(found):
    table = found.table()
    assert table.caption.endswith("; in brackets the same layer with permuted weights")
    for cells, layer in zip(table.cells, found.layers, strict=True):
        row = dict(zip(table.header, cells, strict=True))
        assert row["layer"] == layer.name and row["heads"] == str(layer.H)
        trained, permuted = (max(m.counts["0.01"]) for m in (layer.trained, layer.permuted))
        assert row["1\N{NO-BREAK SPACE}% left"] == f"{trained} ({permuted})"


def test_what_is_counted_text_by_text_and_from_above_says_so(found):
    """A wide layer has no value maps common to the texts, and counts that are certified from above only."""
    layer = found.layers[0]
    assert "With value maps common to the texts" in _html._sentence(layer)
    assert not _table.values(layer.trained)[0].startswith("≤")
    trained = dataclasses.replace(layer.trained, common={}, at_most=True)
    assert "With value maps of its own for each text" in _html._sentence(
        dataclasses.replace(layer, trained=trained)
    )
    assert [cell[:2] for cell in _table.values(trained)[:4]] == ["≤ "] * 4
    assert layer.trained.shared() == layer.trained.common
    assert trained.shared() == {eps: max(counts) for eps, counts in layer.trained.counts.items()}


def test_one_figure_a_layer_with_its_numbers_in_words(found):
    for place, layer in enumerate(found.layers):
        fig, alt = found.figure(place)
        assert len(fig.axes) == 3 and found.figure(layer.name)[1] == alt
        assert fig.get_suptitle() == f"{layer.name}: {layer.family}, {layer.H} heads"
        assert f"{layer.trained.common['0.1']} for 10 %" in alt and alt.startswith(layer.name)
        solid = fig.axes[0].get_lines()[0].get_ydata()
        energy = torch.tensor(layer.trained.spectrum).square()
        assert math.isclose(solid[1], float(1 - energy[0] / energy.sum()), rel_tol=1e-4)
        left = layer.trained.common["0.1"]
        assert solid[left] <= 0.1 < solid[left - 1]
    for wrong in ("layers.9", 2, True, 1.0):
        with pytest.raises(ValueError, match="layer must be a name or a place among 2 layers"):
            found.figure(wrong)


def test_trained_is_solid_and_filled_and_drawn_over_what_is_permuted(found):
    for place, layer in enumerate(found.layers):
        energy, heads, gradient = found.figure(place)[0].axes
        trained, permuted = energy.get_lines()[:2]
        assert trained.get_linestyle() == "-" and permuted.get_linestyle() not in ("-", "None")
        for line, measures in ((trained, layer.trained), (permuted, layer.permuted)):
            squares = np.array(measures.spectrum) ** 2
            left = np.append(1, 1 - squares.cumsum() / squares.sum())  # all that a panel down to 5e-4 shows
            assert line.get_ydata().tolist() == pytest.approx(left[left > 1e-6].tolist(), rel=1e-3)
        dotted = [line.get_ydata()[0] for line in energy.get_lines()[2:]]
        assert dotted == [0.1, 0.01, 0.001] and energy.get_ylim()[0] < 0.001 < 1 < energy.get_ylim()[1]
        assert all(float(tick).is_integer() for tick in energy.get_xticks())
        below, above = heads.get_lines()
        for points, measures in ((below, layer.permuted), (above, layer.trained)):
            assert points.get_xydata().T.tolist() == [measures.heads["distance"], measures.heads["first"]]
        assert below.get_markerfacecolor() == "white" != above.get_markerfacecolor()
        assert heads.get_ylim()[0] < 0 < 1 < heads.get_ylim()[1]
        distance, first = (
            number(float(np.median(layer.trained.heads[key]))) for key in ("distance", "first")
        )
        said = f"median head: mean distance {distance}, {first} of its weight on the first token"
        assert said in found.figure(place)[1]
        bottom, curves = gradient.get_ylim()[0], [line.get_ydata() for line in gradient.get_lines()]
        assert bottom >= 1e-6 * max(np.nanmax(curve) for curve in curves)
    titles = [[ax.get_title() for ax in found.figure(place)[0].axes[1:]] for place in (0, 1)]
    assert titles[0] == ["quantiles of the heads", "gradient (at least)"]
    assert titles[1] == ["one point a head", "gradient and its floor"]
    curves = [found.figure(place)[0].axes[2].get_lines() for place in (0, 1)]
    assert [len(lines) for lines in curves] == [2, 4 + 2 + 1]  # four heads and their floor
    assert curves[1][-1].get_color() == COLORS["orange"]  # the floor
    norms = torch.tensor(found.layers[1].trained.gradient["norm"])
    for line, wanted in zip(curves[1], [*norms, norms.quantile(0.5, dim=0)], strict=False):
        assert line.get_ydata().tolist() == pytest.approx(wanted.tolist())
    near, far = (number(float(norm)) for norm in norms.quantile(0.5, dim=0)[[0, -1]])
    ratio = number(found.layers[1].trained.gradient["ratio"])
    words = f"gradient norm {near} at distance 1 and {far} from 16 on, never below {ratio} times its floor"
    assert found.figure(1)[1].endswith(words) and "floor" not in found.figure(0)[1]


def test_a_layer_alone_and_without_a_name_is_called_by_its_kind(hybrid, ids):
    mixer = lens.layers(hybrid)[0].module
    x = torch.randn(8, 40, generator=torch.Generator().manual_seed(0))  # the fewest that are measured
    found = lens.report(mixer, x, permuted=False, gradient=False)
    assert (found.model, found.layers[0].name) == (mixer.__class__.__name__, "")
    kind = found.layers[0].kind
    assert found.table().cells[0][0] == kind and lens.compare(found, found).cells[0][0] == kind
    fig, alt = found.figure(0)
    assert fig.get_suptitle().startswith(f"{kind}: ") and alt.startswith(f"{kind}: ")
    assert [len(ax.get_lines()) for ax in fig.axes] == [1 + 3, 1, 0] and not fig.axes[2].axison
    assert alt.endswith("no gradient taken")
    page = BeautifulSoup(_html.page(found), "html.parser")
    facts = {term.text: term.find_next("dd").text for term in page.find_all("dt")}
    assert facts["tokens"] == str(found.settings["tokens"]) and found.versions.items() <= facts.items()
    assert page.h2.find_next("h2").get_text() == kind and not page.find_all("small")


def test_an_inch_of_a_picture_is_96_pixels_of_the_page(found):
    picture = BeautifulSoup(_html._layer(found.layers[1], 0), "html.parser").img
    assert (int(picture["width"]), int(picture["height"])) == (round(3.5 * 96), 3 * 96)


def test_the_page_needs_nothing_else_and_reads_without_a_mouse_or_a_screen(found, tmp_path):
    path = tmp_path / "report.html"
    found.to_html(path)
    text = path.read_text("utf-8")
    soup = BeautifulSoup(text, "html.parser")
    assert "a <hybrid>" in soup.h1.get_text() and soup.html["lang"] == "en"
    for tag in soup.find_all(True):
        for name in ("src", "href"):
            assert tag.get(name, "#").startswith(("#", "data:image/png;base64,"))
    assert not soup.find_all(["script", "link", "iframe"]) and not re.search(r"url\(|@import", text)
    assert "prefers-color-scheme: dark" in text
    images = soup.find_all("img")
    assert len(images) == 3 * len(found.layers)
    assert all(len(image["alt"]) > 40 for image in images)
    assert len({tag["id"] for tag in soup.select("[id]")}) == len(soup.select("[id]"))
    for link in soup.select("a[href]"):
        assert soup.find(id=link["href"][1:]) is not None
    for table in soup.find_all("table"):
        assert table.caption and all(th.has_attr("scope") for th in table.find_all("th"))
        assert table.find_parent(attrs={"tabindex": "0"}) is not None
    assert [h2.get_text() for h2 in soup.select("h2[id^=layer-]")] == [layer.name for layer in found.layers]
    nameless = dataclasses.replace(found.layers[0], name="")
    assert f'<h2 id="layer-7">{nameless.kind}</h2>' in _html._layer(nameless, 7)
    row = soup.table.tbody.tr.get_text(" ", strip=True)
    assert row.startswith("layers.0.mamba selective SSM 80 ")
    assert "Quantiles of the heads" in text and "Head by head" in text
    tables = [d for d in soup.select("details") if "ead" in d.summary.get_text() and d.tbody]
    for layer, table in zip(found.layers, tables, strict=True):
        cells = [td.get_text(" ").split()[0] for td in table.tbody.tr.find_all("td")]
        assert cells == [_html.short(values[0]) for values in layer.trained.heads.values()]


def test_the_page_says_the_numbers_of_the_report(found):
    soup = BeautifulSoup(_html.page(dataclasses.replace(found, notes=["n <b> 25"])), "html.parser")
    facts = {term.text: term.find_next("dd").text for term in soup.find_all("dt")}
    assert facts["epsilons"] == "10 %, 1 %, 0.1 %" and "Note: n <b> 25." in [
        p.text for p in soup.find_all("p")
    ]
    assert soup.table.caption.text == "Upper medians over 2 texts of 24 tokens"
    for row, (_, *cells) in zip(soup.table.tbody.find_all("tr"), found.table().cells, strict=True):
        assert [td.text for td in row.find_all("td")] == cells
        assert [bool(td.small) for td in row.find_all("td")] == ["(" in cell for cell in cells]
    for place, (section, layer) in enumerate(zip(soup.find_all("section"), found.layers, strict=True), 1):
        a, b, c = layer.trained.common.values()
        assert section.p.text == (
            f"This layer ({layer.kind}) has {layer.H} heads. With value maps common to the texts its "
            f"operator needs {a} for all but 10 %, {b} for all but 1 %, {c} for all but 0.1 % of the energy. "
            f"Read exactly: y = W x + offset to {layer.miss:.1g}."
        )
        assert all(image["alt"].startswith(f"{layer.name}: ") for image in section.find_all("img"))
        own, other = layer.trained.heads, layer.permuted.heads
        region = section.find("div", role="region")["aria-label"]
        assert own.keys() == other.keys() and region == f"Heads of layer {place}"
        names = [f"{10 * h} %" for h in range(11)] if layer.trained.quantiles else ["1", "2", "3", "4"]
        for h, (name, row) in enumerate(zip(names, section.tbody.find_all("tr"), strict=True)):
            said = [f"{_html.short(own[key][h])} ({_html.short(other[key][h])})" for key in own]
            assert [row.th.text, *(td.text for td in row.find_all("td"))] == [name, *said]


def test_counts_are_whole_and_shares_have_two_digits():
    assert [_table.short(value) for value in (12.0, 1, 2.5, 0.0, 0.254, None)] == [
        "12", "1", "2.5", number(0.0, 2), "0.25", number(None),
    ]  # fmt: skip


def test_two_reports_beside_each_other(found, build, ids):
    after = lens.report(build("jamba", 1, seed=1), ids(2, 24), name="tuned", permuted=False, gradient=False)
    table = lens.compare(found, after)
    assert [cells[0] for cells in table.cells] == [layer.name for layer in found.layers]
    column = table.header.index("1\N{NO-BREAK SPACE}% left")
    for cells, old, new in zip(table.cells, found.layers, after.layers, strict=True):
        assert cells[column] == f"{max(old.trained.counts['0.01'])} → {max(new.trained.counts['0.01'])}"
    assert all(
        a == b for cells in lens.compare(found, found).cells for a, b in (c.split(" → ") for c in cells[2:])
    )


def test_reports_that_cannot_be_compared(found, hybrid, build, ids):
    with pytest.raises(TypeError, match="after must be a Report; got str"):
        lens.compare(found, "report.json")
    short = lens.report(hybrid, ids(16), permuted=False, gradient=False)
    with pytest.raises(ValueError, match="after must be a report on 24 tokens, as before; got 16"):
        lens.compare(found, short)
    other = lens.report(build("mamba2"), ids(24), permuted=False, gradient=False)
    with pytest.raises(ValueError, match="got none of the same name in Mamba2Model"):
        lens.compare(found, other)


def test_reports_that_cannot_be_made(hybrid, ids):
    with pytest.raises(ValueError, match=r"layers must name some of layers.0.mamba, .*; got 'layers.7'"):
        lens.report(hybrid, ids(16), layers=["layers.7"])
    with pytest.raises(ValueError, match="at least 8 tokens to be measured; got 7"):
        lens.report(hybrid, ids(7))
    with pytest.raises(TypeError, match="inputs must be a tensor of token ids or hidden states; got dict"):
        lens.report(hybrid, {"input_ids": ids(1, 16)})
    with pytest.raises(TypeError, match="seed must be an int; got float"):
        lens.report(hybrid, ids(16), seed=0.5)


def test_activations_that_are_not_numbers(build, ids):
    model = build("llama")
    with torch.no_grad():
        model.layers[0].mlp.down_proj.weight[0, 0] = torch.inf
    with pytest.raises(ValueError, match="inputs, the input of layers.1.self_attn, must be finite"):
        lens.report(model, ids(16), permuted=False)
