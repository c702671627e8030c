"""The films that pages record: ten seconds that play and move; one line where that cannot be done."""

import base64

import pytest

PAGES = {
    "swap-a-head": ("swap-a-head.html#full", "Film"),
    "content-becomes-decay": ("laboratory.html#lab=attention&n=10&sharp=3&sink=1", "Save a film"),
}
SEEN = """async (film) => {
  const video = Object.assign(document.createElement("video"), { muted: true, src: film });
  await new Promise((seen, failed) => Object.assign(video, { onloadeddata: seen, onerror: failed }));
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d"), frames = [];
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  for (const time of [0.2, 5, 9]) {
    video.currentTime = time;
    await new Promise((seen) => { video.onseeked = seen; });
    pen.drawImage(video, 0, 0);
    frames.push(pen.getImageData(0, 0, canvas.width, canvas.height).data);
  }
  const moved = (a, b) => a.reduce((sum, value, i) => sum + (Math.abs(value - b[i]) > 40), 0) / a.length;
  return [video.duration, canvas.width, moved(frames[0], frames[1]), moved(frames[1], frames[2])];
}"""


@pytest.mark.parametrize("name", PAGES)
def test_a_film_is_saved_and_plays(open_page, disk, name, tmp_path):
    address, words = PAGES[name]
    visit = open_page(f"{disk}chapters/{address}")
    page = visit.page
    if "swap" in name:
        page.wait_for_selector("[data-swap][data-settled]", timeout=60_000)
    with page.expect_download(timeout=120_000) as saved:
        page.get_by_role("button", name=words, exact=True).click()
    assert saved.value.suggested_filename == f"{name}.mp4"
    saved.value.save_as(tmp_path / "film.mp4")
    film = (tmp_path / "film.mp4").read_bytes()
    assert not visit.messages
    seconds, width, first, second = page.evaluate(
        SEEN, f"data:video/mp4;base64,{base64.b64encode(film).decode()}"
    )
    assert len(film) > 10_000 and 8 < seconds < 12 and width == 1280
    assert first > 0.002 and second > 0.002, (first, second)
    assert page.get_by_text(f"The film is saved as {name}.mp4.").first.is_visible()


def test_a_browser_without_a_recorder_says_so(disk, browser):
    context = browser.new_context()
    context.add_init_script("delete window.MediaRecorder")
    page = context.new_page()
    page.goto(f"{disk}chapters/swap-a-head.html#full")
    page.wait_for_selector("[data-swap][data-settled]", timeout=60_000)
    page.get_by_role("button", name="Film", exact=True).click()
    assert "cannot record films" in page.locator(".swap-say").inner_text()
    context.close()
