"""Deliberately wrong scans and layers are each caught by the check that names them; right ones pass."""

import sys

import pytest
import torch
from torch import nn

from ssmbook import maps, scans
from ssmbook.testing import check_layer, check_scan
from ssmbook.testing.__main__ import main

LONG = 70_000  # steps; the square of it is no int32
right, F32 = scans.diagonal_scan, torch.float32


def outcomes(result):
    return {finding.check: finding.outcome for finding in result.findings}


SCANS = {
    "diagonal": right,
    "logarithms": lambda a, b, state=None: right(a, b, state, log=True),
    "selective": scans.selective_scan,
    "mixed": lambda *given, **more: scans.selective_scan(*given, **more, discretization="mixed"),
    "ssd": scans.ssd_scan,
}


@pytest.mark.parametrize("kind", SCANS)
def test_the_scans_of_the_book_pass(kind):
    result = check_scan(SCANS[kind], kind, long=LONG)
    said = {"packed sequences": "not offered"} if kind in ("selective", "mixed") else {}
    said |= {"state": "not offered"} if kind == "mixed" else {}  # its lambda does not name it
    assert outcomes(result) == dict.fromkeys(outcomes(result), "passed") | said, str(result)


class WrongGradient(torch.autograd.Function):
    """Leaves out by what the decay was multiplied."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a)
        return right(a, b)[0]

    @staticmethod
    def backward(ctx, d_h):
        (a,) = ctx.saved_tensors
        later = torch.cat([a[:, 1:], torch.ones_like(a[:, :1])], 1)
        g = right(later.flip(1), d_h.flip(1))[0].flip(1)
        return g, g


class OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return right(a, b)[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_h):
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            return torch.autograd.grad(right(*leaves)[0], leaves, d_h)


def by_products(a, b):
    """The closed form, divided by products that vanish."""
    product = a.cumprod(1)
    return product * (b / product).cumsum(1)


def by_matrix(a, b):
    """All weights at once: zero times NaN is NaN, also for what came before."""
    log = a.log().cumsum(1)
    later = torch.ones(a.shape[1], a.shape[1], dtype=torch.bool).tril()[None, :, :, None]
    weights = (log[:, :, None] - log[:, None]).masked_fill(~later, -torch.inf).exp()
    return torch.einsum("btsd,bsd->btd", weights, b)


def by_int32(a, b):
    """Finds its inputs by a product that 32 bits are too few for."""
    T = b.shape[1]
    place = torch.arange(T, dtype=torch.int32) * T // T
    return right(a, b[:, place.clamp(0, T - 1).long()])[0]


def stalls(a, b):
    """Carries its state in the dtype of the inputs."""
    h, out = torch.zeros_like(b[:, 0]), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        h = a_t * h + b_t
        out.append(h)
    return torch.stack(out, 1)


def in_place(a, b):
    y = right(a, b)[0]
    if not b.requires_grad:
        b.mul_(2)
    return y


WRONG_SCANS = {
    "values in float64": (lambda a, b: right(a, b)[0] * (1 + 1e-6), "failed"),
    "values in float32": (lambda a, b: right(a.bfloat16().to(a) if a.dtype == F32 else a, b)[0], "failed"),
    "gradients": (WrongGradient.apply, "failed"),
    "second derivatives": (OnceOnly.apply, "refused"),
    "causality": (lambda a, b: right(a, b + 1e-9 * b.mean(1, keepdim=True))[0], "failed"),
    "NaN and infinity": (by_matrix, "failed"),
    "packed sequences": (by_products, "failed"),
    "half precision": (stalls, "failed"),
    "long sequence": (by_int32, "failed"),
    "views": (in_place, "failed"),
    "state": (lambda a, b, state=None: right(a, b), "failed"),
}


@pytest.mark.parametrize("check", WRONG_SCANS)
def test_a_wrong_scan_is_caught_by_the_check_that_names_it(check):
    wrong, outcome = WRONG_SCANS[check]
    result = check_scan(wrong, long=LONG if check == "long sequence" else 300)
    assert outcomes(result)[check] == outcome, str(result)


class Layer(nn.Module):
    """y = V h with h_t = (1 - 1/4) h_{t-1} + x_t, reset where it is told to, and what a test spoils."""

    def __init__(self, before=lambda x: x, after=lambda y: y, ignore=False):
        super().__init__()
        self.d, self.before, self.after, self.ignore = 4, before, after, ignore
        new = torch.Generator().manual_seed(0)
        self.V = nn.Parameter(torch.randn(4, 4, generator=new))

    def forward(self, x, state=None, resets=None):
        x = self.before(x)
        decay = torch.full_like(x, 0.75)
        if resets is not None and not self.ignore:
            decay[:, resets] = 0
        h, end = right(decay, x, None if self.ignore else state)
        return self.after(h @ self.V.mT), end


LAYERS = {
    "values in float32": Layer(after=lambda y: y * (1 + 1e-3) if y.dtype == F32 else y),
    "values in float64": Layer(before=lambda x: x.float().to(x)),
    "gradients": Layer(after=lambda y: 2 * y - y.detach()),
    "batches": Layer(before=lambda x: x - x.mean(0) if len(x) > 1 else x),
    "causality": Layer(before=lambda x: x - x.mean(1, keepdim=True)),
    "NaN and infinity": Layer(before=lambda x: x + 0 * x.flip(1)),
    "packed sequences": Layer(ignore=True),
    "half precision": Layer(after=lambda y: y.float()),
    "long sequence": Layer(before=lambda x: x * torch.inf if x.shape[1] > 100 and x.dtype == F32 else x),
    "views": Layer(before=lambda x: x if x.is_contiguous() else x.contiguous() + 1),
    "state": Layer(ignore=True),
}


@pytest.mark.parametrize("check", LAYERS)
def test_a_wrong_layer_is_caught_by_the_check_that_names_it(check):
    result = check_layer(LAYERS[check], long=200)
    assert check in result.failed, str(result)


def test_second_derivatives_of_a_layer_whose_scan_has_first_ones_alone():
    layer = Layer(before=lambda x: OnceOnly.apply(torch.full_like(x, 0.5), x))
    assert outcomes(check_layer(layer, long=200))["second derivatives"] == "refused"


def test_right_layers_pass_and_what_is_not_offered_is_said():
    result = check_layer(Layer(), long=500)
    assert set(outcomes(result).values()) == {"passed"}, str(result)
    smooth = Layer(before=lambda x: x - x.mean(1, keepdim=True))
    assert outcomes(check_layer(smooth, causal=False, long=500))["causality"] == "not offered"
    assert not check_layer(maps.GLA(4, 4, H=2, head_width=2), long=500).failed


def test_the_command_prints_the_table_and_reports_failures(tmp_path, monkeypatch, capsys):
    code = "from torch import nn\nfrom ssmbook import maps, scans\nscan = scans.diagonal_scan\n"
    code += "def layer(): return maps.RNN(4, 4, N=3)\n"
    code += "wrong = lambda a, b: scan(a, 2 * b)\nplain = nn.Linear(3, 3)\n"
    (tmp_path / "someones.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["someones:scan", "--kind", "diagonal", "--long", "300"]) == 0
    assert "second derivatives  passed" in capsys.readouterr().out
    assert main(["someones:wrong", "--kind", "diagonal", "--long", "300"]) == 1
    assert main(["someones:layer", "--long", "300"]) == 0
    assert main(["someones:plain", "--long", "300"]) == 2 and "width" in capsys.readouterr().err
    assert main(["someones:plain", "--long", "300", "--width", "3"]) == 0
    assert main(["someones:nothing"]) == 2 and main(["no.such:thing"]) == 2
    sys.modules.pop("someones")
