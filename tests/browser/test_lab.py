"""The laboratory: its engine agrees with the library, and its page does what it says."""

import math
import random
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from browser.visit import finger
from playwright.sync_api import expect
from torch.nn.functional import logsigmoid, softplus

from headsandstates.lab import Lab
from headsandstates.site.built import chapters, soup
from ssmbook import System
from ssmbook.gradients import gradient_profile
from ssmbook.heads import head_count
from ssmbook.maps import linear_coefficients, scalar_decay_coefficients, softmax_coefficients
from ssmbook.maps.linear_attention import decayed_products
from ssmbook.operators import FactorizedOperator, LagOperator
from ssmbook.systems import jordan_block, rotation

SCRIPT = Path(__file__).resolve().parents[2] / "headsandstates/lab/lab.js"
TOLERANCE = 1e-12  # of the largest number
PI = math.pi
I2 = [[1.0, 0.0], [0.0, 1.0]]


def case(poles, B, C, n, D=None):
    """Poles (radius, angle, size): a pair if the angle is inside (0, pi), or if "pair" is added."""
    given = []
    for radius, angle, *rest in poles:
        size = next((each for each in rest if each != "pair"), 1)
        pair = "pair" in rest or angle not in (0.0, PI)
        given.append({"radius": radius, "angle": angle, "size": size, "pair": pair})
    return {"poles": given, "B": B, "C": C, "n": n} | ({"D": D} if D else {})


CASES = {
    "rotation": case([(1.0, 0.7)], I2, I2, 20),
    "slow rotation": case([(1.0, 0.1)], I2, I2, 20),
    "half turn": case([(0.9, PI), (0.9, PI)], I2, I2, 16),
    "half turn of a pair": case(
        [(0.9, PI, "pair"), (0.9, PI)], [*I2, [1.0, 1.0]], [[1, 0, 1], [0, 1, 2]], 16
    ),
    "alternating": case([(0.5, PI)], [[1.0]], [[1.0]], 16),
    "Jordan block": case([(0.9, 0.0, 2)], I2, I2, 24),
    "pairs in a Jordan block": case([(0.8, 0.6, 2)], [[1, 0], [0, 1], [1, 1], [0, 2]], [[1, 0, 2, 0]], 40),
    "pure delay": case([(0.0, 0.0, 3)], [[0.0], [0.0], [1.0]], [[1.0, 0.0, 0.0]], 8),
    "one delay longer": case([(0.0, 0.0, 3)], [[0.0], [0.0], [1.0]], [[1.0, 0.5, 0.0]], 3),
    "one state twice": case([(0.8, 0.0), (0.8, 0.0)], I2, I2, 30),
    "unseen state": case([(0.9, 0.0), (0.5, 0.0)], I2, [[1.0, 0.0]], 30),
    "one number in and out": case([(0.9, 0.4), (0.7, 1.9), (0.5, 0.0)], [[1.0]] * 5, [[1.0] * 5], 64),
    "three decays": case(
        [(0.9, 0.0), (0.6, 0.0), (0.3, 0.0)], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 2, 3]], 32
    ),
    "spiral in space": case([(0.95, 0.5), (0.8, PI)], [[1, 0], [0, 1], [1, 1]], [[1, 0, 1], [0, 1, -1]], 40),
    "skip": case([(0.9, 0.3)], I2, I2, 12, D=[[1.0, 2.0], [0.0, 1.0]]),
    "one token": case([(0.9, 0.3)], I2, I2, 1),
    "quarter turn seen from one side": case([(1.0, PI / 2)], [[1.0], [0.0]], [[1.0, 0.0]], 9),
    "no memory": case([(0.0, 0.0), (0.0, 0.0)], I2, I2, 9),
    "zero pair": case([(0.0, 1.0)], I2, I2, 9),
}


def random_case(draw):
    poles = []
    for _ in range(draw.randint(1, 3)):
        angle = draw.choice([0.0, PI, draw.uniform(0.05, 3.1), draw.uniform(0.05, 3.1)])
        poles.append((draw.uniform(0.2, 1.0), angle, draw.choice([1, 1, 1, 2])))
    N = sum(size * (1 if angle in (0.0, PI) else 2) for _, angle, size in poles)
    p, d = draw.randint(1, 3), draw.randint(1, 3)
    B, C = ([[draw.gauss(0, 1) for _ in range(c)] for _ in range(r)] for r, c in ((N, d), (p, N)))
    D = [[draw.gauss(0, 1) for _ in range(d)] for _ in range(p)] if draw.random() < 0.2 else None
    return case(poles, B, C, draw.randint(1, 64), D)


def tensor(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def library_system(case):
    """The system of a case, put together from the library's blocks."""
    blocks = []
    for pole in case["poles"]:
        if not pole["pair"]:
            real = pole["radius"] * (1 if pole["angle"] == 0 else -1)
            block = jordan_block(pole["size"], real, dtype=torch.float64)
        else:
            turn = pole["radius"] * rotation(pole["angle"], dtype=torch.float64)
            above = torch.diag(torch.ones(pole["size"] - 1), 1).double()
            block = torch.kron(torch.eye(pole["size"]).double(), turn) + torch.kron(
                above, torch.eye(2).double()
            )
        blocks.append(block)
    D = tensor(case["D"]) if "D" in case else None
    return System(torch.block_diag(*blocks), tensor(case["B"]), tensor(case["C"]), D)


@pytest.fixture(scope="module")
def lab(browser):
    """Function of a JavaScript function and its argument, run beside the laboratory's script."""
    page = browser.new_page()
    page.set_content("<!doctype html><title>engine</title>")
    page.add_script_tag(path=SCRIPT)
    page.add_script_tag(path=SCRIPT)  # a second time changes nothing
    yield lambda code, argument: page.evaluate(code, argument)
    page.close()


ENGINE = """(cases) => cases.map((one) => {
  const A = Lab.matrixOf(one.poles), system = { ...one, A }, M = Lab.lags(system, one.n);
  const { sigma, V, floor } = Lab.spectrum(Lab.lagRows(M));
  const k = Lab.headCount(system, one.n);
  return {
    A, M, sigma, floor, k,
    best: sigma.map((_, H) => Lab.bestHeads(M, V, H + 1)),
    softmax: Lab.softmaxCount(system, one.n, k.rank),
    spread: Lab.rowSumSpread(M),
    response: one.omegas.map((omega) => Lab.frequencyResponse(system, omega)),
    gains: one.omegas.map((omega) => Lab.gain(Lab.frequencyResponse(system, omega))),
    reach: M.map((block) => Lab.spectralNorm(Array.from({ length: one.C.length }, (_, a) =>
      block.slice(a * one.B[0].length, (a + 1) * one.B[0].length)))),
  };
})"""
OMEGAS = [0.0, 0.3, 1.234, 2.5, PI]


def close(mine, theirs, scale=None):
    mine, theirs = (torch.as_tensor(numbers, dtype=torch.float64) for numbers in (mine, theirs))
    scale = scale if scale is not None else theirs.abs().max().clamp(min=1e-300)
    return mine.shape == theirs.shape and bool(((mine - theirs).abs() <= TOLERANCE * scale).all())


def check_system(case, found):
    system, n = library_system(case), case["n"]
    M = system.lags(n)
    assert close(found["A"], system.A) and close(found["M"], M.flatten(1))
    sigma, floor = LagOperator(M).spectrum(), LagOperator(M).floor()
    shared = min(len(sigma), len(found["sigma"]))  # of one token, p d columns have one value other than zero
    assert (
        close(found["sigma"][:shared], sigma[:shared], sigma[0])
        and max([0, *found["sigma"][shared:]]) <= 1e-12
    )
    assert close(found["floor"][: len(floor)], floor)
    for H in range(1, shared + 1):
        if sigma[H - 1] > 1e-12 * sigma[0] and (H == shared or sigma[H - 1] > 1.01 * sigma[H]):
            best, mine = LagOperator(M).best_heads(H).to_dense()[:, 0].flatten(1), found["best"][H - 1]
            assert close(tensor(mine["coefficients"]).T @ tensor(mine["V"]), best, sigma[0])
    assert close(found["reach"], torch.linalg.matrix_norm(M, ord=2))
    unit = torch.polar(torch.ones(len(OMEGAS)).double(), -tensor(OMEGAS))
    for z, mine, size in zip(unit, found["response"], found["gains"], strict=True):
        resolvent = torch.linalg.inv(torch.eye(system.N) - z * system.A)
        theirs = system.C.to(z.dtype) @ resolvent @ system.B.to(z.dtype) + (
            0 if system.D is None else system.D
        )
        scale = theirs.abs().max() * torch.linalg.cond(torch.eye(system.N) - z * system.A)
        assert close(mine["re"], theirs.real, scale) and close(mine["im"], theirs.imag, scale)
        assert close(size, torch.linalg.matrix_norm(theirs, ord=2), scale)
    return system


def check_counts(system, n, found):
    """Whether the laboratory decided both counts; where it did, the library says the same."""
    exact = head_count(system, n)
    if found["k"]["decided"]:
        assert found["k"]["rank"] == exact
    theirs, mine = head_count(system, n, "softmax"), found["softmax"]
    if found["k"]["decided"] and theirs.settled and mine["low"] == mine["high"]:
        assert mine["low"] == theirs, mine["reason"]
    assert (found["spread"] <= TOLERANCE) == head_count(system, n, "sinkless").possible
    return found["k"]["decided"], mine["low"] == mine["high"]


@pytest.mark.filterwarnings("ignore::ssmbook.heads.HeadCountTieWarning")
def test_committed_systems_have_the_librarys_numbers_and_counts(lab):
    found = lab(ENGINE, [one | {"omegas": OMEGAS} for one in CASES.values()])
    for (name, one), mine in zip(CASES.items(), found, strict=True):
        system = check_system(one, mine)
        assert check_counts(system, one["n"], mine) == (True, mine["k"]["rank"] <= 3), name


@pytest.mark.filterwarnings("ignore::ssmbook.heads.HeadCountTieWarning")
def test_fresh_random_systems_have_the_librarys_numbers_and_counts(lab):
    seed = time.time_ns() % 2**32
    print(f"seed {seed}")  # shown where the test fails
    draw, decided = random.Random(seed), []
    cases = [random_case(draw) for _ in range(60)]
    for one, mine in zip(cases, lab(ENGINE, [one | {"omegas": OMEGAS} for one in cases]), strict=True):
        decided.append(check_counts(check_system(one, mine), one["n"], mine)[0])
    assert sum(decided) > 0.8 * len(decided)


STEPS = """({ A, B, rules }) => rules.map((rule) => Lab.discretize({ A, B, C: [[1, 0]] }, 0.3, rule))"""


def test_steps_of_a_continuous_system_are_the_librarys(lab):
    A, B = [[0.0, 1.0], [-4.0, -0.4]], [[0.0], [1.0]]
    rules = ["zoh", "euler", "bilinear", "mixed"]
    spring = System(*(torch.tensor(X, dtype=torch.float64) for X in (A, B, [[1.0, 0.0]])), dt=0)
    for step, rule in zip(lab(STEPS, {"A": A, "B": B, "rules": rules}), rules, strict=True):
        expected = spring.discretize(0.3, rule)
        assert close(step["A"], expected.A) and close(step["B"], expected.B), rule


WEIGHTS = """({ q, k, logits, logA, decay, delta, A }) => ({
  softmax: Lab.softmaxWeights(logits), sink: Lab.softmaxWeights(logits, true),
  linear: Lab.linearWeights(q, k), positive: Lab.linearWeights(q, k, { features: "elu+1", normalized: true }),
  gated: Lab.gatedWeights(q, k, logA), decay: Lab.gatedWeights(q, k, decay),
  ssd: Lab.ssdWeights(k, q, delta, A),
  blocks: Lab.headBlocks([{ alpha: Lab.softmaxWeights(logits), V: [[1, 2, 3], [4, 5, 6]] }]),
})"""


def test_weights_of_heads_are_the_librarys(lab):
    generator = torch.Generator().manual_seed(0)
    q, k, gates = (torch.randn(1, 13, 3, generator=generator, dtype=torch.float64) for _ in range(3))
    log_a, delta, A = logsigmoid(gates), softplus(gates[0, :, 0]), -0.7
    given = {"q": q[0], "k": k[0], "logits": (4 * q @ k.mT)[0], "logA": log_a[0], "decay": log_a[0, :, :1]}
    given = {name: numbers.tolist() for name, numbers in (given | {"delta": delta}).items()} | {"A": A}
    found = lab(WEIGHTS, given)
    wide = 4 * 3**0.5  # softmax_coefficients divides by the root of the width
    expected = {
        "softmax": softmax_coefficients(wide * q, k),
        "sink": softmax_coefficients(wide * q, k, sink=True),
        "linear": linear_coefficients(q, k),
        "positive": linear_coefficients(*(torch.nn.functional.elu(z) + 1 for z in (q, k)), normalized=True),
        "gated": decayed_products(q, k, log_a).tril(),
        "decay": scalar_decay_coefficients(q, k, log_a[..., 0]),
        "ssd": scalar_decay_coefficients(q, k * delta[:, None], A * delta[None]),
    }
    for name, alpha in expected.items():
        assert close(found[name], alpha[0]), name
    W = FactorizedOperator(expected["softmax"], torch.arange(1.0, 7.0).double().reshape(1, 2, 3)).to_dense()
    assert close(found["blocks"], W[torch.ones(13, 13).tril().bool()].flatten(1))


GRADIENTS = """({ x, G, V, bias, logA, slopes }) => {
  const logits = x.map((row, i) => x.map((key, j) => {
    const Gx = G.map((line) => line.reduce((total, value, c) => total + value * key[c], 0));
    return row.reduce((total, value, c) => total + value * Gx[c], 0) + bias[i][j];
  }));
  const alpha = Lab.softmaxWeights(logits), sunk = Lab.softmaxWeights(logits, true);
  const gated = Lab.gatedWeights(Lab.multiply(x, G), x, logA);
  return {
    softmax: Lab.gradientByDistance(Lab.softmaxGradient(x, alpha, G, V)),
    sink: Lab.gradientByDistance(Lab.softmaxGradient(x, sunk, G, V)),
    gated: Lab.gradientByDistance(Lab.gatedGradient(x, gated, G, V, logA, slopes)),
  };
}"""


def test_gradients_of_heads_are_those_of_autograd(lab):
    generator = torch.Generator().manual_seed(1)
    x, G, V, bias, w = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((11, 2), (2, 2), (3, 2), (11, 11), (2,))
    )

    def softmax(sink):
        return lambda x: (
            softmax_coefficients(2**0.5 * (x @ G)[None], x[None], bias=bias[None], sink=sink)[0] @ (x @ V.mT)
        )

    def gated(x):
        alpha = scalar_decay_coefficients((x @ G)[None], x[None], logsigmoid(x @ w)[None])
        return alpha[0] @ (x @ V.mT)

    slopes = torch.sigmoid(-(x @ w))[:, None] * w
    given = {"x": x, "G": G, "V": V, "bias": bias, "logA": logsigmoid(x @ w)[:, None], "slopes": slopes}
    found = lab(GRADIENTS, {name: numbers.tolist() for name, numbers in given.items()})
    for name, F in (("softmax", softmax(False)), ("sink", softmax(True)), ("gated", gated)):
        assert close(found[name], gradient_profile(F, x)[1]), name


# The page ---------------------------------------------------------------------------------------------------

PAGE = "chapters/laboratory.html"
LATE = 200  # ms: panels out of sight are drawn once nothing has moved for 120
NOT_A_NUMBER = r"\b(NaN|Infinity|undefined|null)\b"
SEEN = """() => {
  const board = document.querySelector(".lab-board"), text = (one) => board.querySelector(one).textContent;
  return {
    summary: text(".lab-summary"), problem: text(".lab-problem"), readout: text(".lab-readout"),
    everything: board.outerHTML, hash: location.hash,
    panels: [...board.querySelectorAll("figure:not([hidden]) svg")].map((svg) => svg.ariaLabel),
  };
}"""


@pytest.fixture
def board(open_page, disk):
    """Function of an experiment's address and a view: the page and what is seen on the board."""

    def opened(address="", view="light", **options):
        visit = open_page(f"{disk}{PAGE}{address and '#lab=' + address}", view, **options)
        assert not visit.messages

        def seen():
            visit.page.wait_for_timeout(LATE)
            return visit.page.evaluate(SEEN)

        return visit.page, seen

    return opened


def on_disc(page, place):
    """A point (x, y) of the disc as a point of the window, and the pixels of a unit of the drawing."""
    svg = page.locator(".lab-disc svg")
    svg.evaluate("(svg) => svg.scrollIntoView({ block: 'center', behavior: 'instant' })")
    box = svg.bounding_box()
    scale = min(box["width"] / 340, box["height"] / 320)
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2  # of the drawing, too
    return (middle[0] + 125 * scale * place[0], middle[1] - 125 * scale * place[1]), scale


def open_settings(page):
    """Where the settings are a drawer, open it."""
    drawer = page.get_by_role("button", name="Settings")
    if drawer.is_visible() and drawer.get_attribute("aria-expanded") == "false":
        drawer.click()


def drag(page, start, end, steps=5):
    """Press at a point of the disc (x, y within the unit circle), move to another and let go."""
    at = [on_disc(page, place)[0] for place in (start, end)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1], steps=steps)
    page.mouse.up()


def address_once_kept(page, part):
    page.wait_for_function("(part) => location.hash.includes(part)", arg=part)
    return page.evaluate("location.hash")


def test_a_pole_is_dragged_and_the_link_opens_the_same_picture(board):
    page, seen = board()
    assert "2 heads" in seen()["summary"] and "46.1 %" in seen()["summary"]
    assert not page.locator("#fig-laboratory").is_visible()
    drag(
        page, (math.cos(0.7), math.sin(0.7)), (-0.9, -0.02)
    )  # across the real axis: the mirror image follows
    first = seen()
    assert "1 head to equal it" in first["summary"] and "2 heads" in first["summary"]
    kept = address_once_kept(page, "@pi").removeprefix("#lab=")
    _, again = board(kept)
    assert again()["panels"] == first["panels"] and again()["summary"] == first["summary"]


def test_a_pole_stays_in_the_disc_and_the_page_says_so(board):
    page, seen = board()
    drag(page, (math.cos(0.7), math.sin(0.7)), (1.2, 0.9))
    assert "outside the unit circle" in seen()["problem"]
    assert "poles=1@" in address_once_kept(page, "poles=1@0.64")


def test_keys_move_a_pole_and_walk_through_the_blocks(board):
    page, seen = board()
    pole = page.locator(".lab-handle").first
    pole.focus()
    pole.press("ArrowRight")
    pole.press("ArrowDown")
    assert pole.get_attribute("aria-valuetext") == "radius 0.98, angle 0.75"
    matrix = page.locator(".lab-board svg[tabindex]")
    matrix.focus()
    matrix.press("ArrowRight")
    matrix.press("ArrowRight")
    assert seen()["readout"].startswith("Lag 1, 19 times in W: [0.717, −0.668; 0.668, 0.717].")
    assert page.locator('.lab-board [data-item="1"].lab-lit').count() >= 4
    page.wait_for_function("document.querySelector('.lab-heard').textContent.includes('2 heads')")


def test_a_gesture_is_one_step_back_by_button_keys_and_the_browser(board):
    page, seen = board()
    undo, entries = page.get_by_role("button", name="Undo"), page.evaluate("history.length")
    start = seen()["panels"]
    assert undo.is_disabled()
    drag(page, (math.cos(0.7), math.sin(0.7)), (0.1, 0.6), steps=30)
    first = address_once_kept(page, "lab=")
    drag(page, (0.1, 0.6), (-0.5, 0.5), steps=30)
    page.wait_for_function("(first) => location.hash !== first", arg=first)
    assert page.evaluate("history.length") == entries + 2 and undo.is_enabled()
    page.keyboard.press("Control+z")
    page.wait_for_function("(first) => location.hash === first", arg=first)
    page.go_forward()
    page.wait_for_function("(first) => location.hash !== first", arg=first)
    page.go_back()
    page.wait_for_function("(first) => location.hash === first", arg=first)
    undo.click()
    page.wait_for_function("location.hash === ''")
    assert seen()["panels"] == start and undo.is_disabled()
    assert "laboratory" in page.url


def test_shift_makes_a_small_step(board):
    page, _ = board()
    pole = page.locator(".lab-handle").first
    pole.press("Shift+ArrowRight")
    pole.press("Shift+ArrowDown")
    assert pole.get_attribute("aria-valuetext") == "radius 0.996, angle 0.71"


def test_a_field_takes_products_of_pi_and_says_of_others_where_they_are(board):
    page, seen = board()
    open_settings(page)
    angle = page.get_by_label("Pair of poles 1, angle")
    for text, written in (("pi/3", "pi/3"), ("2*pi/3", "2.0944"), ("2π / 3", "2.0944"), ("-0.5", "0.5")):
        angle.fill(text)
        angle.press("Enter")
        assert angle.input_value() == written and not seen()["problem"], text
    for text in ("pi/0", "2**pi", "pie", "1 2", "*2"):
        angle.fill(text)
        angle.press("Enter")
        assert angle.get_attribute("aria-invalid") == "true" and "is no number" in seen()["problem"], text
        told, field = (page.locator(one).bounding_box() for one in (".lab-problem", ".lab-pole"))
        assert 0 <= told["y"] - field["y"] - field["height"] <= 20
    angle.fill("1")
    angle.press("Enter")
    assert not page.locator(".lab-board [aria-invalid]").count() and not seen()["problem"]


IN_SIGHT = """() => [".lab-disc svg", ".lab-matrix svg", ".lab-plane svg", ".lab-first", ".lab-spectrum svg"]
.map((one) => {
  const { left, top, right, bottom, width } = document.querySelector(one).getBoundingClientRect();
  return width > 100 && left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
})"""


@pytest.mark.parametrize("width, height", [(1366, 768), (1440, 900)])
def test_hand_matrix_points_and_verdict_are_on_one_screen(board, width, height):
    page, seen = board(viewport={"width": width, "height": height})
    assert all(page.evaluate(IN_SIGHT)) and page.evaluate("scrollY") == 0
    before = page.locator(".lab-plane svg").bounding_box()
    drag(page, (math.cos(0.7), math.sin(0.7)), (-0.6, 0.62))
    radius, angle = map(float, re.search("poles=([^@]*)@([^&]*)", address_once_kept(page, "@2")).groups())
    scale = on_disc(page, (0, 0))[1]  # the pole is where the hand is, to a pixel
    off = math.hypot(radius * math.cos(angle) + 0.6, radius * math.sin(angle) - 0.62)
    assert 125 * scale * off < 1 and page.locator(".lab-plane svg").bounding_box() == before
    open_settings(page)
    assert all(page.evaluate(IN_SIGHT)) and page.get_by_label("tokens n").first.is_visible()
    told, drawer = (page.locator(one).bounding_box() for one in (".lab-told", ".lab-settings"))
    assert told["y"] + told["height"] <= drawer["y"]  # what a setting does is seen
    page.keyboard.press("Escape")
    assert not page.get_by_label("tokens n").first.is_visible()


def test_a_chip_sets_the_board_and_says_what_to_watch(board):
    page, seen = board(viewport={"width": 1366, "height": 768}, reduced_motion="reduce")
    assert not page.get_by_role("button", name="Play").is_visible()
    page.get_by_role("button", name="Attention becomes decay").click()
    assert "Press Play" in page.locator(".lab-step").inner_text()
    page.get_by_role("button", name="Play").click()
    assert "is a state space model" in seen()["summary"] and all(page.evaluate(IN_SIGHT))
    tabs = page.locator(".lab-tabs button:visible")
    assert tabs.all_inner_texts() == ["Where it looks", "Gradient"]
    tabs.nth(1).click()
    assert page.locator(".lab-reach svg").is_visible() and not page.locator(".lab-weights svg").is_visible()
    page.get_by_role("button", name="Six states, one head").click()
    assert "1 head to equal it" in seen()["summary"]
    page.get_by_role("button", name="How to read this").nth(2).click()
    assert page.locator(".lab-plane figcaption").is_visible()


def test_content_becomes_decay_on_the_whole_screen(open_page, disk):
    visit = open_page(f"{disk}chapters/laboratory.html#content-becomes-decay")
    page, summary = visit.page, visit.page.locator(".lab-summary")
    expect(summary).to_contain_text("differ from those of the state")  # it begins with content
    expect(summary).to_contain_text("is a state space model", timeout=20_000)  # by itself
    shown = page.locator(".lab-board > :visible, .lab-grid > figure:visible").count()
    box, (wide, high) = page.locator(".lab-full").bounding_box(), page.evaluate("[innerWidth, innerHeight]")
    assert (box["x"], box["y"], box["width"], box["height"]) == (0, 0, wide, high) and shown >= 4
    assert page.evaluate("location.hash") == "#content-becomes-decay"
    page.keyboard.press("Escape")
    expect(page.locator(".lab-full")).to_have_count(0)
    assert page.evaluate("location.hash").startswith("#lab=attention") and not page.locator("[inert]").count()
    page.get_by_role("button", name="Full screen", exact=True).click()
    expect(page.locator(".lab-full")).to_be_visible()
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator(".lab-full")).to_have_count(0)
    assert not visit.messages


def test_before_the_script_the_page_shows_what_the_script_will_show(board, built):
    still = soup(built / PAGE).select_one(".lab-still")
    page, seen = board()
    assert still.select_one(".lab-summary").get_text() == seen()["summary"]
    assert still.select_one(".lab-title").get_text() == page.locator(".lab-disc .lab-title").inner_text()
    drawn = [float(one[name]) for one in still.select("circle[r='9']") for name in ("cx", "cy")]
    x, y = 125 * math.cos(0.7), 125 * math.sin(0.7)
    assert drawn == pytest.approx([170 + x, 160 - y, 170 + x, 160 + y], abs=0.01)


@pytest.mark.parametrize("view", ["light", "phone"])
def test_the_laboratory_stands_before_its_script_comes(open_page, web, view):
    facts = open_page(f"{web}{PAGE}", view, late=(".js",)).facts
    assert facts["shift"] <= 0.02


PINNED = """() => [".lab-disc .lab-title", ".lab-disc svg", ".lab-first"].map((one) => {
  const { top, bottom } = document.querySelector(one).getBoundingClientRect();
  return [top, bottom];
})"""


@pytest.mark.parametrize("scroll", [0, 600, 1500])
def test_on_a_phone_hand_and_verdict_stay_while_the_panels_pass(board, scroll):
    page, seen = board("", "phone", is_mobile=True)
    page.evaluate("(y) => scrollTo({ top: y, behavior: 'instant' })", scroll)
    told = page.locator(".lab-first").inner_text()
    disc, start = page.locator(".lab-disc svg").bounding_box(), (math.cos(0.7), math.sin(0.7))
    scale = min(disc["width"] / 340, disc["height"] / 320)
    at = [disc["x"] + disc["width"] / 2, disc["y"] + disc["height"] / 2]
    at = at[0] + 125 * scale * start[0], at[1] - 125 * scale * start[1]
    finger(page, at, (-40, -10))
    assert page.locator(".lab-first").inner_text() != told and page.evaluate("scrollY") == scroll
    places = page.evaluate(PINNED)
    assert places == sorted(places) and places[0][0] >= 48 and places[-1][1] < 844 * 0.65


def test_on_a_phone_the_settings_rise_below_the_verdict_and_leave_the_place(board):
    page, seen = board("", "phone", is_mobile=True)
    page.evaluate("scrollTo({ top: 1500, behavior: 'instant' })")
    opener, n = page.locator(".lab-disc .lab-drawer"), page.get_by_label("tokens n").first
    box = opener.bounding_box()
    for shown in (True, False, True):
        assert n.is_visible() != shown
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert n.is_visible() == shown and page.evaluate("scrollY") == 1500
    sheet, told = page.locator(".lab-settings").bounding_box(), page.evaluate(PINNED)[-1][1]
    assert told <= sheet["y"] and sheet["y"] + sheet["height"] <= 845 and sheet["height"] > 300
    before = page.locator(".lab-first").inner_text()
    n.fill("10")
    assert page.locator(".lab-first").inner_text() != before  # cause and effect on one screen


UNCROWDED = """() => {
  const range = document.createRange(), box = (node) => node.getBoundingClientRect();
  range.selectNodeContents(document.querySelector(".lab-disc .lab-title"));
  const [undo, settings] = document.querySelectorAll(".lab-disc .lab-pinned button");
  const left = [range, undo, settings].map((one) => [box(one).left, box(one).right]).flat();
  return left.every((x, i) => !i || x > left[i - 1]) && left.at(-1) < innerWidth;
}"""


@pytest.mark.parametrize("width", [390, 320])
def test_on_a_phone_undo_is_beside_the_hand_and_adds_no_height(board, width):
    view = {"viewport": {"width": width, "height": 844}}
    page, seen = board("attention&n=10", "phone", is_mobile=True, **view)
    undo, hand = page.get_by_role("button", name="Undo"), page.locator(".lab-disc")
    assert undo.is_disabled() and page.evaluate(UNCROWDED)
    assert hand.bounding_box()["height"] == pytest.approx(0.3 * 844 + 92, abs=1)  # picture, title, Play
    before = seen()["panels"]
    play = page.locator(".lab-near input").bounding_box()
    page.touchscreen.tap(play["x"] + 0.8 * play["width"], play["y"] + play["height"] / 2)
    address_once_kept(page, "morph=")
    assert seen()["panels"] != before and undo.is_enabled()
    page.evaluate("scrollTo({ top: 1500, behavior: 'instant' })")
    box, row = undo.bounding_box(), page.locator(".lab-disc .lab-title").bounding_box()
    assert box["y"] >= row["y"] and box["height"] >= 44
    bar = page.locator(".bd-header-article").bounding_box()
    assert bar["y"] + bar["height"] <= row["y"]  # nothing of it is under the page's bar
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("!location.hash.includes('morph=0.')")
    assert seen()["panels"] == before and page.evaluate("scrollY") == 1500
    assert undo.is_disabled()


def test_on_a_phone_what_has_the_focus_is_not_under_the_hand(board):
    page, _ = board("", "phone", is_mobile=True)
    page.get_by_role("link", name="the primer", exact=True).focus()
    seen = []
    while "lab-handle" not in seen:  # up through the board
        page.keyboard.press("Shift+Tab")
        focus = page.locator("*:focus")
        seen.append(focus.get_attribute("class") or focus.inner_text())
        if not page.locator(".lab-disc *:focus").count():
            assert focus.bounding_box()["y"] >= page.evaluate(PINNED)[-1][1], seen
    assert "Copy as Python" in seen and "lab-svg" in seen


def test_on_the_whole_screen_of_a_phone_every_button_acts(board):
    page, _ = board("attention&n=10", "phone", is_mobile=True)
    page.get_by_role("button", name="Full screen", exact=True).tap()
    expect(page.locator(".lab-full")).to_be_visible()
    shown = page.locator(".lab-board button:visible").all_inner_texts()
    assert "Close" in shown and not {"Settings", "Undo"} & set(shown)  # what they set is not there
    heights = [one.bounding_box()["height"] for one in page.locator(".lab-near button:visible").all()]
    assert set(heights) == {44} and page.get_by_label("toward decay").bounding_box()["width"] > 80


def test_the_contents_of_the_page_open_on_a_phone(board):
    page, _ = board("", "phone", is_mobile=True)
    page.locator(".secondary-toggle").tap()
    page.get_by_role("link", name="What else to look for").last.tap()
    expect(page.get_by_role("heading", name="What else to look for")).to_be_in_viewport()


def test_on_a_phone_a_chip_at_the_edge_is_cut_to_say_that_more_follow(board):
    page, _ = board("", "phone", is_mobile=True)
    row = page.locator(".lab-tour")
    edge = row.evaluate("(one) => one.getBoundingClientRect().right")
    chips = [one.bounding_box() for one in row.locator("button:visible").all()]
    assert any(box["x"] + 20 < edge < box["x"] + box["width"] - 20 for box in chips)
    assert row.evaluate("(one) => one.scrollWidth > one.clientWidth")


# Points on a line, where their numbers would lie on each other.
IN_LINE = {
    "half turn": "system&n=20&poles=1@pi",
    "real poles": "system&n=24&poles=0.95x2,0.9x2,0.85,-0.8&p=4&d=4",
    "tokens": "attention&n=10&points="
    + ";".join(f"{x},0.3" for x in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.15, 0.25)),
}
UPON = """() => [".lab-disc svg", ".lab-plane svg"].flatMap((name) => {
  const texts = [...document.querySelectorAll(`${name} text`)].filter((one) => one.textContent
    && getComputedStyle(one).visibility === "visible");
  const boxes = texts.map((one) => {  // letters, without the room above and below them
    const { left, right, top, bottom, height } = one.getBoundingClientRect();
    return [left, right, top + 0.22 * height, bottom - 0.22 * height];
  });
  return boxes.flatMap(([l, r, t, b], i) => boxes.slice(0, i).flatMap(([left, right, top, bottom], j) =>
    l < right && left < r && t < bottom && top < b ? [[texts[i].textContent, texts[j].textContent]] : []));
})"""


@pytest.mark.parametrize("view", ["light", "phone"])
@pytest.mark.parametrize("state", IN_LINE)
def test_numbers_of_points_on_a_line_do_not_lie_on_each_other(board, state, view):
    page, _ = board(IN_LINE[state], view)
    page.wait_for_timeout(LATE)
    handles, plane = page.locator(".lab-handle"), page.locator(".lab-plane text")
    assert plane.count() >= 2 + 5 * (state != "tokens")  # the axes, and some lags
    for i in range(handles.count()):
        handles.nth(i).focus()
        assert not page.evaluate(UPON), i
        assert handles.nth(i).locator(".lab-at").text_content()


def test_numbers_stand_beside_what_is_held(board):
    page, _ = board()
    assert page.locator(".lab-handle .lab-at").first.text_content() == "1 @ 0.7"
    page.locator(".lab-handle").first.press("ArrowDown")
    assert page.locator(".lab-handle .lab-at").first.text_content() == "0.98 @ 0.7"


# Where the finger goes down on the disc, and what it drags there.
HELD = {
    "pole": ("", (math.cos(0.7), math.sin(0.7))),
    "mirror image": ("", (math.cos(0.7), -math.sin(0.7))),
    "token": ("attention&n=5", (0.1, -0.7)),
}
COUNT = """() => {
  window.told = [];
  for (const name of ["pointermove", "pointerup", "pointercancel"])
    document.addEventListener(name, () => window.told.push(name), true);
}"""


@pytest.mark.parametrize("by", [(-60, 0), (-10, 60)], ids=["sideways", "along the page"])
@pytest.mark.parametrize("what", HELD)
def test_a_finger_drags_a_handle_and_the_page_stays(board, what, by):
    address, start = HELD[what]
    by = by[0], math.copysign(by[1], start[1])  # into the circle
    page, seen = board(address, "phone", is_mobile=True)
    at, scale = on_disc(page, start)
    before, top = seen()["panels"], page.evaluate("scrollY")
    page.evaluate(COUNT)
    finger(page, at, by)
    assert page.evaluate("told.at(-1)") == "pointerup" and "pointercancel" not in page.evaluate("told")
    assert seen()["panels"] != before and page.evaluate("scrollY") == top
    x, y = start[0] + by[0] / (125 * scale), start[1] - by[1] / (125 * scale)
    kept = address_once_kept(page, "points=" if what == "token" else "poles=")
    if what == "token":
        points = re.search("points=([^&]*)", kept)[1].split(";")
        found = [[float(number) for number in one.split(",")] for one in points]
        assert min(math.hypot(a - x, b - y) for a, b in found) < 0.03
    else:
        radius, angle = map(float, re.search("poles=([^@]*)@([^&]*)", kept).groups())
        assert math.hypot(radius * math.cos(angle) - x, radius * math.sin(angle) - abs(y)) < 0.03


def test_a_finger_beside_the_handles_scrolls_the_page(board):
    page, seen = board("", "phone", is_mobile=True)
    at, _ = on_disc(page, (-0.6, -0.3))
    before, top = seen()["panels"], page.evaluate("scrollY")
    finger(page, at, (0, -150))
    page.wait_for_function("(top) => scrollY > top + 50", arg=top)
    assert seen()["panels"] == before


def test_targets_are_large_enough_for_a_finger(board):
    page, _ = board("", "phone")
    small = page.evaluate(
        """() => [...document.querySelectorAll(".lab-board :is(button, select, input, .lab-touch)")]
        .filter((one) => {
          const box = one.getBoundingClientRect();
          return !one.closest("[data-item], [data-heads]") && box.width && Math.round(box.height) < 44;
        }).map((one) => one.outerHTML)"""
    )
    assert not small


EXAMPLES = [
    *("system&n=20&poles=1@0.7", "system&n=20&poles=0.95@pi/3x2,-0.4&p=3&d=2&B=random&C=random"),
    *(
        "system&n=8&poles=0x3&p=1&d=1&B=0;0;1&C=1,0,0",
        "system&n=1&poles=0.9",
        "system&n=64&poles=0.99&p=4&d=4&C=ones",
        "system&n=12&poles=0.9@0.7&D=1,0.5;0,-1",
    ),
    *("attention&n=10&heads=2", "attention&n=12&kind=gated&sharp=1&decay=0.9&gate=3", "attention&n=1"),
    "attention&n=7&sink=0&morph=0.25&heads=2",
]


@pytest.mark.parametrize("address", EXAMPLES)
def test_the_python_of_an_experiment_prints_its_numbers(lab, address, capsys):
    found = lab("(address) => Lab.python(Lab.compute(Lab.read(address).experiment))", address)
    default = torch.get_default_dtype()
    try:
        exec(found["code"], {})
    finally:
        torch.set_default_dtype(default)
    assert capsys.readouterr().out.strip() == found["output"]


def test_every_example_is_shown_in_words_and_numbers_and_copied(board):
    page, seen = board()
    examples = page.locator(".lab-board select").first
    values = [
        one.get_attribute("value") for one in examples.locator("option").all() if one.get_attribute("value")
    ]
    assert len(values) == 17
    for value in values:
        examples.select_option(value)
        look = seen()
        assert not re.search(NOT_A_NUMBER, look["everything"]), value
        assert not look["problem"] and examples.input_value() == value
        assert len(look["panels"]) == (8 if value.startswith("system") else 7)
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_role("button", name="Copied")).to_have_count(0)  # but for a moment
    assert "scalar_decay_coefficients" in page.locator(".lab-board textarea").input_value()
    page.get_by_role("button", name="Copy as a picture").click()
    picture = page.locator(".lab-board textarea").input_value()
    drawing = ElementTree.fromstring(picture)
    assert drawing.tag.endswith("svg") and len(picture) > 5000
    assert set(re.findall(r"var\\((--ssm-[a-z]+)\\)", picture)) <= set(
        re.findall(r"(--ssm-[a-z]+):", picture)
    )


@pytest.mark.parametrize(
    "address, said",
    [
        ("%zz&&=", "names no experiment"),
        ("system&n=0&poles=fish", "no usable value for n"),
        ("system&n=20&poles=1.4@0.3", "kept on the circle"),
        ("system&n=20&poles=0.5@0.1x3,0.4@1x3", "no usable value for poles"),
        ("system&n=5&B=1,2;3", "no usable value for B"),
        ("attention&n=5&points=1;2&sharp=1e9", "no usable value for sharpness"),
        ("system&n=20&goal=11", "no usable value for goal"),
    ],
)
def test_a_mangled_address_is_answered_in_a_sentence(board, address, said):
    page, seen = board(address)
    assert said in seen()["problem"] and not re.search(NOT_A_NUMBER, seen()["everything"])


def test_empty_and_wrong_fields_are_answered_in_a_sentence(board):
    page, seen = board()
    open_settings(page)
    radius = page.get_by_label("Pair of poles 1, radius")
    for text, said in (
        ("", "The field is empty"),
        ("fish", "“fish” is no number"),
        ("-3", "outside the unit circle"),
    ):
        radius.fill(text)
        radius.press("Enter")
        assert said in seen()["problem"] and float(radius.input_value()) <= 1
    B = page.get_by_label("B, with semicolons between its rows")
    B.fill("1, 2; x")
    B.press("Enter")
    assert "B needs numbers" in seen()["problem"] and B.input_value() == "1,0; 0,1"
    B.fill("1 2")
    B.press("Enter")
    assert "missing entries are 0" in seen()["problem"] and B.input_value() == "1,2; 0,0"
    page.get_by_role("button", name="Add a pair").click()
    for _ in range(4):
        page.get_by_role("button", name="Add a pair").click()
    assert "at most 8" in seen()["problem"] and page.locator(".lab-pole").count() == 4


def test_a_skip_adds_a_head_and_is_kept_in_the_address(board):
    page, seen = board()
    open_settings(page)
    assert "2 state variables, and it takes 2 heads" in seen()["summary"]
    D = page.get_by_label("D, with semicolons between its rows")
    assert D.input_value() == "0,0; 0,0"
    D.fill("1, 0; 0, 0")
    D.press("Enter")
    assert "2 state variables and a skip D, and it takes 3 heads" in seen()["summary"]
    kept = address_once_kept(page, "D=1,0;0,0").removeprefix("#lab=")
    _, again = board(kept)
    assert again()["panels"] == seen()["panels"]


def test_the_morph_ends_in_a_state_space_model(board):
    page, seen = board(reduced_motion="reduce")
    page.get_by_role("button", name="Attention", exact=True).click()
    assert "differ from those of the state" in seen()["summary"] and "0.411" in seen()["summary"]
    page.get_by_role("button", name="Play").click()
    assert "is a state space model" in seen()["summary"] and "0.0268" in seen()["summary"]


def test_a_step_back_while_it_plays_ends_the_play(board):
    page, _ = board("attention&n=10")
    slider = page.locator(".lab-near input")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('.lab-near input').value > 0.1")
    page.keyboard.press("Control+z")
    page.wait_for_function("document.querySelector('.lab-near input').value === '0'")
    page.wait_for_timeout(500)
    assert slider.input_value() == "0" and page.get_by_role("button", name="Undo").is_disabled()


# Ten goals --------------------------------------------------------------------------------------------------

# For each goal an experiment that reaches it, and the library's word for it: of a system and n, or of what
# the copied cell of an attention head leaves behind.
WON = [
    ("system&n=20&poles=1@pi", lambda s, n: s.N == 2 and head_count(s, n) == 1),
    (
        "system&n=32&poles=0.9,0.9,0.9,0.9,0.9,0.9&B=random&C=random",
        lambda s, n: (s.N, s.d, s.p) == (6, 2, 2) and head_count(s, n) == 1,
    ),
    ("system&n=20&poles=0.8&B=ones&C=ones&D=identity", lambda s, n: s.N == 1 and head_count(s, n) == 2),
    ("system&n=60&poles=1@pi/2", lambda s, n: s.N == 2 and 0.49 < s.operator(n).floor(1) < 0.5),
    (
        "system&n=24&poles=0.95,0.94,0.93,0.92&p=4&d=4",
        lambda s, n: head_count(s, n) == 4 and s.operator(n).floor(1) < 0.02,
    ),
    (
        "system&n=20&poles=1@0.15",
        lambda s, n: head_count(s, n) == 2 and head_count(s, n, "softmax") == 2,
    ),
    (
        "system&n=20&poles=0.9,0.5&p=1&d=1&B=1;0&C=0,1",
        lambda s, n: s.B.any() and s.C.any() and not s.lags(n).any(),
    ),
    (
        "attention&n=10&heads=2&sharp=0",
        lambda left: len(left["V"]) == 2 and left["W"].interaction_rank() == 1,
    ),
    ("attention&n=10&morph=1&decay=0.99", lambda left: left["weights"](left["x"])[0, -1].sum() < 0.1),
    (
        "attention&n=10&sharp=8&points=0.9,0.1;-0.4,0.5;-0.6,-0.2;0.1,-0.7;-0.3,-0.6;-0.8,0.3;-0.2,0.8;0.3,0.6"
        ";-0.7,-0.5;0.5,-0.25",
        lambda left: left["gradient"][9] > 1.2,
    ),
]
GOAL = """([goal, address]) => {
  const one = Lab.GOALS[goal], at = (address) => Lab.compute(Lab.read(address).experiment);
  const found = at(address), { problems } = Lab.read(address);
  const kept = Lab.read(Lab.write({ ...found.experiment, goal: goal + 1 })).experiment;
  return {
    won: one.reached(found), kept: one.reached(Lab.compute(kept)) && kept.goal === goal + 1, problems,
    first: one.reached(at(one.address)), system: found.system, n: found.n, code: Lab.python(found).code,
  };
}"""


@pytest.mark.parametrize("goal", range(10))
def test_every_goal_can_be_reached_as_the_library_says_too(lab, goal):
    address, reached = WON[goal]
    found = lab(GOAL, [goal, address])
    assert found["won"] and found["kept"] and not found["problems"] and not found["first"]
    if found["system"]:
        parts = (found["system"].get(name) for name in "ABCD")
        assert reached(System(*(part and tensor(part) for part in parts)), found["n"])
        return
    left, default = {}, torch.get_default_dtype()
    try:
        exec(found["code"], left)
        assert reached(left)
    finally:
        torch.set_default_dtype(default)


def set_to(page, label, value):
    """Write a value into the settings, or choose it there."""
    open_settings(page)
    named = re.compile(rf"^{re.escape(label)}\W*[\d.]*$")  # a range has its value beside its name
    control = page.locator(".lab-settings").get_by_label(named).locator("visible=true")
    if control.evaluate("(one) => one.tagName") == "SELECT":
        control.select_option(value)
    else:
        control.fill(value)
        control.press("Tab")


def on_circle(angle, radius=1.0):
    return radius * math.cos(angle), radius * math.sin(angle)


# How each goal is won by what its text names: where a handle is dragged, or a setting and its value.
PLAYED = [
    [(on_circle(0.7), (-1, 0.01))],
    [("B", "ones"), ("C", "ones")],
    [("D", "identity")],
    [(on_circle(0.7), on_circle(1.5))],
    [((0.95, 0), (0.1, 0)), ((0.6, 0), (-0.02, 0)), ((-0.8, 0), (-0.16, 0)), ((-0.3, 0), (-0.09, 0))],
    [(on_circle(0.7), on_circle(0.1))],
    [("B, with semicolons between its rows", "1;0"), ("C, with semicolons between its rows", "0,1")],
    [("sharpness", "0")],
    [("Play", ""), ("decay", "0.99")],
    [((0.4, -0.4), (0.5, -0.25))],
]
NAMED = ["Drag", "settings", "settings", "Drag", "Drag", "Drag", "settings", "settings", "Play", "Drag"]


@pytest.mark.parametrize("goal", range(10))
def test_every_goal_is_won_by_what_its_text_names(board, goal):
    page, seen = board(viewport={"width": 1366, "height": 768}, reduced_motion="reduce")
    page.get_by_role("button", name="Ten goals").click()
    page.locator(".lab-goal").nth(goal).click()
    told = page.locator(".lab-step")
    assert told.inner_text().startswith(f"Goal {goal + 1}: ") and NAMED[goal] in told.inner_text()
    for what, to in PLAYED[goal]:
        if what == "Play":
            page.get_by_role("button", name="Play").click()
        elif isinstance(what, str):
            set_to(page, what, to)
        else:
            page.keyboard.press("Escape")
            drag(page, what, to)
    seen()
    assert told.inner_text().startswith(f"Goal {goal + 1} is reached.")


def test_goals_are_played_by_keys_remembered_and_shared(board):
    page, seen = board(viewport={"width": 1366, "height": 768})
    game, told = page.get_by_role("button", name="Ten goals"), page.locator(".lab-step")
    card = page.get_by_role("button", name="Copy my goals")
    assert not card.is_visible() and not page.locator(".lab-goal").first.is_visible()
    game.press("Enter")
    assert game.get_attribute("aria-pressed") == "true"
    assert told.inner_text().startswith("Goal 1: Two states, one head.") and "2 heads" in seen()["summary"]
    pole = page.locator(".lab-handle").first
    pole.focus()
    for _ in range(50):
        pole.press("ArrowRight")
    assert told.inner_text().startswith("Goal 1 is reached.") and all(page.evaluate(IN_SIGHT))
    first, third = (
        page.locator(".lab-goal").first,
        page.get_by_role("button", name="3, More heads than states"),
    )
    assert first.get_attribute("aria-label") == "1, Two states, one head, reached"
    link = address_once_kept(page, "@pi").removeprefix("#lab=")
    assert link.endswith("&goal=1")
    third.press("Enter")
    assert told.inner_text().startswith("Goal 3: ") and third.get_attribute("aria-pressed") == "true"
    assert page.locator("*:focus").get_attribute("aria-label").startswith("3, ")
    card.click()
    drawing = page.locator(".lab-board textarea").input_value()
    assert ElementTree.fromstring(drawing).tag.endswith("svg") and "1 of ten goals" in drawing
    page.reload()
    assert page.locator(".lab-goal").first.get_attribute("aria-label").endswith("reached")
    game.click()
    assert page.locator(".lab-goal:visible").count() == 0 and told.inner_text().startswith("Three things")
    other, again = board(link)
    assert other.locator(".lab-step").inner_text().startswith("Goal 1 is reached.")


def test_goals_are_played_by_a_finger(board):
    page, seen = board("", "phone", is_mobile=True)
    page.get_by_role("button", name="Ten goals").tap()
    finger(page, on_disc(page, (math.cos(0.7), math.sin(0.7)))[0], (-250, 0))
    page.wait_for_function("document.querySelector('.lab-step').textContent.startsWith('Goal 1')")
    assert page.locator(".lab-step").is_visible()
    boxes = [one.bounding_box() for one in page.locator(".lab-goal").all()]
    assert min(min(box["width"], box["height"]) for box in boxes) >= 44


# Live sliders of chapters -----------------------------------------------------------------------------------

# Page, slider, and how far to pull its dot from the start, in the picture's units, to get a value in a range.
LIVE = [
    ("preface", "turning-state", (-60, 0), (0.8, 3.14)),
    ("one-hour", "plane", (-200, -60), (1.6, 3.1)),
    ("1-one-operator/interaction-operator", "best-heads", None, None),
    ("1-one-operator/two-ways-to-mix", "ema-weights", None, None),
    ("1-one-operator/two-ways-to-mix", "plane", (-200, 0), (1.6, 3.1)),
    ("2-two-constructions/factorized", "turning-head", (-130, 0), (1.4, 2.9)),
    ("2-two-constructions/structured-dynamics", "friction", (-100, 60), (2, 7.9)),
    ("2-two-constructions/structured-dynamics", "step-rules", (60, 0), (0.2, 0.6)),
    ("2-two-constructions/scans", "scan-rungs", None, None),
    ("2-two-constructions/scans-deeper", "received", (60, 0), (40, 250)),
    ("3-three-theorems/gates-and-depth", "depth-doubling", None, None),
    ("3-three-theorems/head-count", "head-count", None, None),
    ("3-three-theorems/how-many-heads-really", "head-classes", None, None),
    ("3-three-theorems/how-many-heads-really", "sink-certificate", None, None),
    ("3-three-theorems/interaction-rank-gap", "clock-angle", (-200, -60), (1.6, 3.1)),
    ("3-three-theorems/gradient-highway", "lanes", (-100, 0), (1, 1.5)),
    ("3-three-theorems/positions", "alibi-signs", None, None),
    ("3-three-theorems/trade-off", "mix", (0, 100), (0.9, 1)),
    ("4-trained/tasks", "clock", (-60, 0), (119, 122)),
]
PI_NAMES = {"1.5708": "π/2", "3.14159": "π"}
CONTROL = ".ssm-slider-control :is(input, select)"
SAID = """(control) =>
  control.options ? control.selectedOptions[0].text : control.getAttribute("aria-valuetext")"""
MOVE = """(slider, share) => {
  const input = slider.querySelector(".ssm-slider-control :is(input, select)");
  input.value = share * (input.options ? input.length - 1 : input.max);
  input.dispatchEvent(new Event("input"));
}"""


WIDGET = """async (first) => {
  const kept = { ...first }, root = document.body.appendChild(document.createElement("div"));
  let hear;
  const set = (changes) => Object.assign(kept, changes);
  const model = { get: (name) => kept[name], set, save_changes() {} };
  Lab.render({ ...model, on: (name, act) => { hear = act; } }, root);
  const rested = () => new Promise((resolve) => setTimeout(resolve, 600));
  const key = new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true });
  root.querySelector(".lab-handle").dispatchEvent(key);
  await rested();
  const moved = { ...kept };
  kept.address = "attention&n=4";
  hear();
  await rested();
  return [moved, kept, root.querySelectorAll("button").length];
}"""


def test_a_notebook_reads_back_what_a_reader_moves(lab):
    widget = Lab(n=12)
    first = {"address": widget.address, "matrices": widget.matrices}
    moved, head, buttons = lab(WIDGET, first)
    assert buttons > 3 and "poles=1@0.65&" in moved["address"]
    widget.set_trait("matrices", moved["matrices"])
    turned = System(rotation(0.65, dtype=torch.float64), tensor(I2), tensor(I2))
    torch.testing.assert_close(widget.system.lags(widget.n), turned.lags(12), rtol=0, atol=1e-12)
    assert head["matrices"] == {} and head["address"].startswith("attention&n=4&kind=softmax")


def test_every_live_slider_is_tried(built):
    found = {
        (
            page.relative_to(built / "chapters").with_suffix("").as_posix(),
            figure["id"].removeprefix("ssm-slider-"),
        )
        for page in chapters(built)
        for figure in soup(page).select("figure.ssm-slider[data-lab]")
    }
    assert found == {(name, slider) for name, slider, *_ in LIVE}


@pytest.mark.parametrize("name, slider", [one[:2] for one in LIVE], ids=[f"{a}-{b}" for a, b, *_ in LIVE])
def test_a_live_slider_says_at_its_stops_what_python_said(open_page, disk, built, name, slider):
    drawn = soup(built / f"chapters/{name}.html").select_one(f"#ssm-slider-{slider}")
    frames = drawn.select(".ssm-slider-frames > div")
    stops = [(PI_NAMES.get(one["data-value"], one["data-value"]), one.img["alt"]) for one in frames]
    visit = open_page(f"{disk}chapters/{name}.html", reduced_motion="reduce")  # or the first picture moves
    live = visit.page.locator(f"#ssm-slider-{slider}")
    control, output = live.locator(CONTROL), live.locator("output")
    start = stops[int(drawn.select_one("input, option[selected]")["value"])]
    assert (control.evaluate(SAID), live.locator("figcaption").inner_text()) == start
    for i, (written, words) in enumerate(stops):
        live.evaluate(MOVE, i / (len(stops) - 1))
        assert control.evaluate(SAID) == written
        assert output.all_inner_texts() == ([] if drawn.select("select") else [written])
        assert live.locator("figcaption").inner_text() == words
        assert live.locator("svg").first.get_attribute("aria-label") == words
    before = live.locator("figcaption").inner_text()
    control.press("PageDown" if output.count() else "ArrowUp")
    between = live.locator("figcaption").inner_text()
    assert between != before and not re.search(NOT_A_NUMBER, live.inner_html())
    expect(live.locator(".lab-heard")).to_have_text(between)  # once the hand has rested
    said = control.evaluate(SAID)
    control.press("ArrowLeft")
    assert control.evaluate(SAID) != said  # one press, another value
    assert not visit.messages


@pytest.mark.parametrize("name, slider, by, expected", [one for one in LIVE if one[2]])
def test_a_dot_of_a_live_picture_is_pulled(open_page, disk, name, slider, by, expected):
    page = open_page(
        f"{disk}chapters/{name}.html", reduced_motion="reduce"
    ).page  # or the first picture moves
    live = page.locator(f"#ssm-slider-{slider}")
    live.scroll_into_view_if_needed()
    dot, before = live.locator(".lab-pull").bounding_box(), live.locator("figcaption").inner_text()
    assert min(dot["width"], dot["height"]) >= 44
    at = dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2
    scale = dot["width"] / 48
    page.mouse.move(*at)
    page.mouse.down()
    page.mouse.move(at[0] + scale * by[0], at[1] + scale * by[1], steps=4)
    page.mouse.up()
    assert expected[0] < float(live.locator("output").inner_text()) < expected[1]
    assert live.locator("figcaption").inner_text() != before


def test_a_row_of_a_live_picture_is_pressed(open_page, disk):
    name = "3-three-theorems/how-many-heads-really"
    page = open_page(f"{disk}chapters/{name}.html", "phone", is_mobile=True).page
    live = page.locator("#ssm-slider-head-classes")
    rows = live.locator("[data-stop]")
    rows.first.scroll_into_view_if_needed()
    assert min(row.bounding_box()["height"] for row in rows.all()) >= 44
    for i in range(rows.count()):
        rows.nth(i).tap()
        assert live.locator("select").input_value() == str(i)
        assert live.locator("option").nth(i).inner_text() in live.locator("figcaption").inner_text()


def test_a_finger_moves_a_live_slider_and_pulls_its_dot(open_page, disk):
    page = open_page(f"{disk}chapters/1-one-operator/two-ways-to-mix.html", "phone", is_mobile=True).page
    live = page.locator("#ssm-slider-plane")
    control, dot, caption = (live.locator(one) for one in ("input", ".lab-pull", "figcaption"))
    control.scroll_into_view_if_needed()
    box, before = control.bounding_box(), caption.inner_text()
    assert min(box["height"], dot.bounding_box()["height"]) >= 44
    page.touchscreen.tap(box["x"] + 0.8 * box["width"], box["y"] + box["height"] / 2)
    assert (tapped := caption.inner_text()) != before and live.locator("svg").count() == 2
    dot.evaluate("(dot) => dot.scrollIntoView({ block: 'center', behavior: 'instant' })")
    box, top = dot.bounding_box(), control.bounding_box()["y"]
    finger(page, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2), (30, 60))
    assert caption.inner_text() != tapped
    assert abs(control.bounding_box()["y"] - top) < 30  # it would follow by 60, if the page scrolled
