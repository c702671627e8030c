"""Pictures of *past-one-machine*: slices fill the time, messages reach all later devices, bars are counts."""

import numpy as np
import pytest

from ssmbook.chapters.past_one_machine import figures


@pytest.mark.parametrize("lengths", [[5, 3, 4, 2], [6, 0, 0, 3], [7]])
def test_slices_fill_the_time_and_every_message_reaches_all_later_devices(lengths):
    numbers = [10 * (r + 1) for r in range(len(lengths))]
    (ax,) = figures.wire(lengths, numbers).axes
    lines = {
        look: [line.get_xydata() for line in ax.get_lines() if line.get_linewidth() == look]
        for look in (1, 13)
    }
    begin = np.concatenate([[0], np.cumsum(lengths)])
    last = len(lengths) - 1
    for device, (whole, own) in enumerate(zip(lines[1], lines[13], strict=True)):
        assert whole.tolist() == [[0, device], [begin[-1], device]]
        assert own.tolist() == [[begin[device], device], [begin[device + 1], device]]
    arrows = [line.get_xydata() for line in ax.get_lines() if line.get_marker() == "v"]
    assert [[round(y) for y in arrow[:, 1]] for arrow in arrows] == [
        list(range(device + 1, last + 1)) for device in range(last)
    ]
    sent = [
        line.get_xydata()
        for line in ax.get_lines()
        if len(line.get_xydata()) == 3 and line.get_marker() != "v"
    ]
    starts = [tuple(path[0]) for path in sent]
    assert starts == [(begin[device + 1], device) for device in range(last)]
    across = [arrow[0, 0] for arrow in arrows]
    assert all(x > end for x, (end, _) in zip(across, starts, strict=True))
    assert sorted(set(across)) == across  # no message hides another
    assert [text.get_text() for text in ax.texts] == [f"{10 * (r + 1)} numbers" for r in range(last)]
    words = [label.get_text() for label in ax.get_yticklabels()]
    assert words == [f"device {r}: {steps} steps" for r, steps in enumerate(lengths)]
    assert ax.get_xlim()[0] == 0 and ax.get_xlim()[1] >= begin[-1]
    assert ax.yaxis_inverted()


def test_a_longer_message_is_a_thicker_line_and_an_empty_one_is_none():
    (ax,) = figures.wire([4, 0, 2, 3], [60, 0, 30, 9]).axes
    sent = [line for line in ax.get_lines() if len(line.get_xdata()) == 3 and line.get_marker() != "v"]
    assert [tuple(line.get_xydata()[0]) for line in sent] == [(4, 0), (6, 2)]  # devices 0 and 2
    thick = np.array([line.get_linewidth() for line in sent])
    assert np.diff(thick) == pytest.approx((30 - 60) / 60)
    assert [text.get_text() for text in ax.texts] == ["60 numbers", "30 numbers"]


def test_a_bar_is_as_long_as_its_count():
    counts = {"all states": 2_000_000, "one state": 640, "two numbers": 2}
    (ax,) = figures.received(counts, (1.0, 1e7)).axes
    assert [bar.get_width() for bar in ax.patches] == list(counts.values())
    assert [bar.get_y() + bar.get_height() / 2 for bar in ax.patches] == pytest.approx([0, 1, 2])
    assert [text.get_text() for text in ax.texts] == [
        "all states: 2,000,000",
        "one state: 640",
        "two numbers: 2",
    ]
    assert ax.get_xscale() == "log" and ax.get_xlim() == (1, 1e7)
