"""Anyone's scan or layer, tried where trouble is known: one table of what passed, what failed, and why."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from ssmbook import scans
from ssmbook._checks import check_choice, check_integer
from ssmbook.testing._draws import draws

Outcome = Literal["passed", "failed", "refused", "not offered"]
ScanKind = Literal["diagonal", "logarithms", "selective", "mixed", "ssd"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check, and why: the figure that decided, or the error that was raised."""

    check: str
    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Conformance:
    """What all checks found; ``str()`` is a table. An error is "refused": it is no wrong number.

    >>> from ssmbook import scans
    >>> found = check_scan(scans.diagonal_scan, long=1000)
    >>> found.failed, len(found.findings)
    ((), 11)
    >>> isinstance(found.findings[0], Finding), found.findings[0].outcome
    (True, 'passed')
    """

    subject: str
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return tuple(finding.check for finding in self.findings if finding.outcome == "failed")

    def __str__(self) -> str:
        rows = [f"{f.check:20}{f.outcome:13}{f.why}".rstrip() for f in self.findings]
        return "\n".join([self.subject, *rows])


class _Broken(Exception):
    """A wrong result."""


class _NotOffered(Exception):
    """What a scan or layer does not claim to do."""


def _judged(subject: str, checks: dict[str, Callable[[], str]]) -> Conformance:
    findings = []
    for name, check in checks.items():
        try:
            outcome, why = "passed", check()
        except _Broken as broken:
            outcome, why = "failed", str(broken)
        except _NotOffered as missing:
            outcome, why = "not offered", str(missing)
        except Exception as error:  # whatever someone's code raises
            lines = str(error).strip().splitlines() or [""]
            outcome, why = "refused", f"{type(error).__name__}: {lines[0][:90]}"
        findings.append(Finding(name, outcome, why))
    return Conformance(subject, tuple(findings))


def _near(got: Tensor, wanted: Tensor, room: float, what: str = "off") -> str:
    """How far a result is from the wanted one, relative to its largest entry."""
    if got.shape != wanted.shape:
        raise _Broken(f"shape {tuple(got.shape)} where {tuple(wanted.shape)} is right")
    off = (got.detach().double() - wanted.detach().double()).abs().max() / wanted.detach().abs().max()
    if not off <= room:
        raise _Broken(f"{what} by {float(off):.1g} of the largest value")
    return f"{what} by {float(off):.0e}"


def _finite_alike(got: Tensor, wanted: Tensor, what: str) -> str:
    """Numbers that are not finite only where they must be; tokens along dim 1, the poison in sequence 0."""
    for wrong, says in ((wanted & ~got, "spoils"), (got & ~wanted, "is lost in")):
        if wrong.any():
            step = int(wrong.reshape(*wrong.shape[:2], -1).any(-1).nonzero()[0, 1])
            raise _Broken(f"{what} {says} {int(wrong.sum())} other outputs, the first at step {step}")
    return "stays in what it enters"


def _offers(function: Callable, argument: str) -> None:
    if argument not in inspect.signature(function).parameters:
        raise _NotOffered(f"no argument {argument}")


def _output(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def _views(call: Callable[..., Tensor], arguments: list[Tensor], room: float = 1e-11) -> str:
    """Transposed, strided and expanded arguments give what contiguous ones give, and none is changed."""
    before = [t.clone() for t in arguments]
    wanted = call(*arguments)
    if not all(map(torch.equal, before, arguments)):
        raise _Broken("changes its arguments")
    _near(call(*(t.mT.contiguous().mT for t in arguments)), wanted, room, "transposed: off")
    _near(call(*(t.repeat_interleave(2, -1)[..., ::2] for t in arguments)), wanted, room, "strided: off")
    alone = [t[:1].expand(t.shape) if len(t) == 2 else t for t in arguments]
    return _near(call(*alone), call(*(t.contiguous() for t in alone)), room, "expanded: off")


# --- Scans --------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """A recurrence: its twin, the time dimension of each argument, which is its input, and what forgets.

    ``draw(normal, n)`` draws arguments; ``constant(z, one)`` makes those of decays exp(z), z (2,), from a
    function ``one`` of ones.
    """

    twin: Callable
    time: tuple[int | None, ...]
    entry: int
    forget: tuple[int, float] | None
    draw: Callable[[Callable, int], list[Tensor]]
    constant: Callable[[Tensor, Callable], list[Tensor]]


def _selective(discretization: Literal["zoh", "mixed"]) -> _Kind:
    return _Kind(
        lambda *given, **more: scans.selective_scan_naive(*given, **more, discretization=discretization),
        (-2, -2, None, -2, -2), 0, None,
        lambda new, n: [new(n, 4), new(n, 4).sigmoid(), -new(4, 3)[0].abs(), new(n, 3), new(n, 3)],
        lambda z, one: [one(2), one(2), z[:, None], one(1), one(1)],
    )  # fmt: skip


KINDS = {
    "diagonal": _Kind(
        scans.diagonal_scan_naive, (-2, -2), 1, (0, 0.0),
        lambda new, n: [new(n, 4).sigmoid(), new(n, 4)],
        lambda z, one: [z.exp() * one(2), one(2)],
    ),
    "logarithms": _Kind(
        lambda *given, **more: scans.diagonal_scan_naive(*given, **more, log=True),
        (-2, -2), 1, (0, -torch.inf),
        lambda new, n: [-new(n, 4).abs(), new(n, 4)],
        lambda z, one: [z * one(2), one(2)],
    ),
    "selective": _selective("zoh"),
    "mixed": _selective("mixed"),
    "ssd": _Kind(
        scans.ssd_scan_naive, (-3, -2, -3, -3), 0, (1, -torch.inf),
        lambda new, n: [new(n, 2, 3), -new(n, 2).abs(), new(n, 2, 4), new(n, 2, 4)],
        lambda z, one: [one(2, 1), z * one(2), one(2, 1), one(2, 1)],
    ),
}  # fmt: skip


def _draw(kind: _Kind, n: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    new = draws(n)
    return [t.to(dtype) for t in kind.draw(lambda *shape: torch.randn(2, *shape, **new), n)]


def _part(kind: _Kind, given: list[Tensor], start: int, length: int) -> list[Tensor]:
    return [
        t if dim is None else t.narrow(dim, start, length) for t, dim in zip(given, kind.time, strict=True)
    ]


def check_scan(fn: Callable, kind: ScanKind = "diagonal", *, long: int = 1_000_000) -> Conformance:
    """Try a scan on eleven points: values, derivatives, causality, what is not finite, lengths, memory.

    Right is what the recurrence gives in float64, one step at a time. A sequence may be
    continued if ``fn`` has an argument ``state``.

    Parameters
    ----------
    fn : callable
        A scan of yours with the arguments of ``diagonal_scan``, ``selective_scan`` or ``ssd_scan``, with
        one batch dimension (a ``lambda`` adapts others); returns y, or (y, state).
    kind : {"diagonal", "logarithms", "selective", "mixed", "ssd"}, default "diagonal"
        The recurrence; "logarithms" has them for decays, "mixed" is ``selective_scan`` so discretized.
    long : int, default 1,000,000
        The steps of the long sequence, in float32.

    Returns
    -------
    Conformance
        What passed, failed, was refused or is not offered, and why.

    Raises
    ------
    ValueError, TypeError
        For another kind, and for no length.

    Examples
    --------
    >>> def forgetful(a, b):  # sums by a cumulative product, which vanishes
    ...     product = a.cumprod(-2)
    ...     return product * (b / product).cumsum(-2)
    >>> check_scan(forgetful, long=1000).failed[:2]
    ('values in float64', 'values in float32')
    """
    kind_ = KINDS[check_choice("kind", kind, get_args(ScanKind))]
    check_integer("long", long, low=1)
    twin = kind_.twin

    def y(*given: Tensor, **more: Tensor) -> Tensor:
        return _output(fn(*given, **more))

    def values(dtype: torch.dtype, room: float) -> str:
        for n in (1, 2, 33, 130, 1001):
            given = _draw(kind_, n, dtype)
            wanted = twin(*(t.double() for t in given))[0]
            said = _near(y(*given), wanted, room, f"at {n} steps off")
        return said

    def gradients(scan: Callable, again: bool) -> list[Tensor]:
        leaves = [t.requires_grad_() for t in _draw(kind_, 33)]
        out = _output(scan(*leaves))
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=again)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves) if again else list(first)

    def derivatives(again: bool) -> str:
        pairs = zip(gradients(fn, again), gradients(twin, again), strict=True)
        return [_near(*pair, 1e-9, f"by argument {i} off") for i, pair in enumerate(pairs)][-1]

    def causality() -> str:
        given = _draw(kind_, 70)
        other = [t.clone() for t in given]
        other[kind_.entry][:, 40:] *= 3
        return _near(y(*other)[:, :40], y(*given)[:, :40], 1e-12, "a later input moves an output")

    def poison(value: float) -> str:
        given = _draw(kind_, 70)
        given[kind_.entry][0, 40].view(-1)[1] = value
        return _finite_alike(y(*given).isfinite(), twin(*given)[0].isfinite(), str(value))

    def packed() -> str:
        if kind_.forget is None:
            raise _NotOffered("no decay of this recurrence is zero")
        given, (place, zero) = _draw(kind_, 70), kind_.forget
        given[place][:, 40], given[kind_.entry][:, :40] = zero, 1e12
        wanted = twin(*_part(kind_, given, 40, 30))[0]
        return _near(y(*given)[:, 40:], wanted, 1e-10, "after a decay of zero off")

    def constant(z: Tensor, n: int, dtype: torch.dtype) -> list[Tensor]:
        return [t.to(dtype) for t in kind_.constant(z, lambda *m: z.new_ones(1, n, *m))]

    def half() -> str:
        for dtype in (torch.bfloat16, torch.float16):
            given = _draw(kind_, 130, dtype)
            got, wanted = y(*given), twin(*(t.double() for t in given))[0]
            said = _near(got, wanted, 0.02, f"{dtype}: off".removeprefix("torch."))
            total = float(y(*constant(torch.zeros(2), 1024, dtype))[0, -1].flatten()[0])
            if abs(total - 1024) > 8:
                raise _Broken(f"1,024 ones add up to {total:g} in {dtype}")
        return said

    def long_sequence() -> str:
        z = torch.tensor([-1e-6, -0.7], dtype=torch.float64)
        given = constant(z, long, torch.float32)
        z = z.float().double()
        if kind == "diagonal":
            z = given[0][0, 0].double().log()
        t, late = torch.arange(1, long + 1, dtype=torch.float64)[:, None], long - long // 9
        given[kind_.entry][:, late:] *= 2  # so that not all inputs are alike
        wanted = torch.expm1(z * t) / (z if kind == "selective" else torch.expm1(z))
        wanted[late:] += wanted[: long - late].clone()
        return _near(y(*given).reshape(long, 2), wanted, 1e-4, f"at {long:,} steps off")

    def state() -> str:
        _offers(fn, "state")
        given = _draw(kind_, 70)
        first, carried = fn(*_part(kind_, given, 0, 40))
        then = y(*_part(kind_, given, 40, 30), state=carried)
        return _near(torch.cat([first, then], 1), y(*given), 1e-11, "in two pieces off")

    return _judged(
        f"{getattr(fn, '__name__', type(fn).__name__)}, {kind}",
        {
            "values in float64": lambda: values(torch.float64, 1e-10),
            "values in float32": lambda: values(torch.float32, 1e-5),
            "gradients": lambda: derivatives(False),
            "second derivatives": lambda: derivatives(True),
            "causality": causality,
            "NaN and infinity": lambda: poison(torch.nan) and poison(torch.inf),
            "packed sequences": packed,
            "half precision": half,
            "long sequence": long_sequence,
            "views": lambda: _views(y, _draw(kind_, 33)),
            "state": state,
        },
    )


# --- Layers -------------------------------------------------------------------------------------------


def check_layer(
    module: nn.Module, width: int | None = None, *, causal: bool = True, long: int = 10_000
) -> Conformance:
    """Try a layer (batch, n, width) -> (batch, n, …) on the points of :func:`check_scan` that apply.

    Copies of it run in float64, float32 and half precision. A sequence may be continued if
    ``run`` or ``forward`` has an argument ``state`` and returns a pair; packed sequences
    are tried if ``forward`` has an argument ``resets``, bool (n,).

    Parameters
    ----------
    module : torch.nn.Module
        The layer; its output is a tensor or comes first in a tuple.
    width : int, optional
        The width of a token. None: its ``d``, ``d_model`` or ``config.hidden_size``.
    causal : bool, default True
        Whether no output may depend on later tokens.
    long : int, default 10,000
        The tokens of the long sequence, in float32; too many for attention that keeps its n² weights.

    Returns
    -------
    Conformance
        What passed, failed, was refused or is not offered, and why.

    Raises
    ------
    ValueError, TypeError
        For a layer that does not tell its width, and for no length.

    Examples
    --------
    >>> from ssmbook import maps
    >>> found = check_layer(maps.SSD(4, 4, H=2, N=3, head_width=2))
    >>> found.failed
    ()
    """
    for name in ("d", "d_model", "hidden_size"):
        width = width or getattr(module, name, getattr(getattr(module, "config", None), name, None))
    if width is None:
        raise ValueError("width must be given: the layer has no d, d_model or config.hidden_size")
    width, long = check_integer("width", width, low=1), check_integer("long", long, low=65)

    def cast(dtype: torch.dtype) -> nn.Module:
        return copy.deepcopy(module).to(dtype).eval()

    wide, rounded = cast(torch.float64), []  # the names of what it rounds to single precision

    def tokens(n: int, seed: int = 0) -> Tensor:
        return torch.randn(2, n, width, **draws(seed))

    def y(x: Tensor, **more: Tensor) -> Tensor:
        return _output(wide(x, **more))

    def room() -> float:
        return 1e-5 if rounded else 1e-11

    def single() -> str:
        m, x = cast(torch.float32), tokens(130).float()
        return _near(_output(m(x)), _output(m.double()(x.double())), 1e-4)

    def half() -> str:
        m, x = cast(torch.bfloat16), tokens(130).bfloat16()
        got = _output(m(x))
        if got.dtype != torch.bfloat16:
            raise _Broken(f"bfloat16 tokens come out in {got.dtype}")
        return _near(got, _output(m.double()(x.double())), 0.05)

    def batches() -> str:
        x = tokens(33)
        return _near(torch.cat([y(x[:1]), y(x[1:])]), y(x), room(), "another sequence moves an output")

    def slope(value: Callable[[], Tensor], t: Tensor, name: str) -> str:
        """The derivative of a number along a random direction of t, by differences."""
        (found,) = torch.autograd.grad(value(), t, materialize_grads=isinstance(t, nn.Parameter))
        direction, original = torch.randn(t.shape, **draws(3)), t.detach().clone()
        scale = found.norm() * direction.norm()
        for step, room, noise in ((1e-5, 1e-6, 1e-15), (1e-3, 1e-2, 1e-6)):  # then as if rounded to float32
            sides = []
            for sign in (1, -1):
                t.data.copy_(original + sign * step * direction)
                sides.append(value().detach())
            t.data.copy_(original)
            off = ((sides[0] - sides[1]) / (2 * step) - (found * direction).sum()).abs()
            if off <= room * scale + noise * sides[0].abs() / step:
                return f"off by {float(off / scale.clamp(min=1e-9)):.0e}"
            rounded.append(name)
        off = float(off / scale.clamp(min=1e-9))
        raise _Broken(f"the derivative by {name} is off by {off:.1g} of its size")

    def double() -> str:
        if rounded:
            raise _Broken(f"rounds {rounded[0]} to single precision")
        return "no rounding to single precision seen"

    def measure(x: Tensor) -> Tensor:
        """A number to differentiate: squares by weights, since their plain sum is constant after a norm."""
        out = y(x)
        return (torch.randn(out.shape, **draws(4)) * out.square()).sum()

    def gradients() -> str:
        x = tokens(9).requires_grad_()
        named = {"the tokens": x, **{n: t for n, t in wide.named_parameters() if t.requires_grad}}
        return [slope(lambda: measure(x), t, name) for name, t in named.items()][0]

    def second() -> str:
        x = tokens(9).requires_grad_()

        def energy() -> Tensor:
            return torch.autograd.grad(measure(x), x, create_graph=True)[0].square().sum()

        return slope(energy, x, "the tokens, twice,")

    def causality() -> str:
        if not causal:
            raise _NotOffered("not causal")
        x = tokens(70)
        other = torch.cat([x[:, :40], 3 * x[:, 40:]], 1)
        return _near(y(other)[:, :40], y(x)[:, :40], room(), "a later token moves an output")

    def poison(value: float) -> str:
        x = tokens(70)
        x[0, 40, 0] = value
        may = torch.zeros(2, 70, dtype=torch.bool)
        may[0, 40 if causal else 0 :] = True
        spoilt = ~y(x).isfinite().flatten(2).all(-1)
        return _finite_alike(~(spoilt & ~may), torch.ones_like(may), str(value))

    def packed() -> str:
        _offers(wide.forward, "resets")
        x = tokens(70)
        got = y(x, resets=torch.arange(70) == 40)
        return _near(got, torch.cat([y(x[:, :40]), y(x[:, 40:])], 1), 10 * room(), "two packed sequences off")

    def long_sequence() -> str:
        m, x = cast(torch.float32), tokens(long).float()[:1]
        with torch.no_grad():
            got, wanted = _output(m(x)), _output(m(x[:, :64]))
        if not got.isfinite().all():
            raise _Broken(f"not finite within {long:,} tokens")
        return _near(got[:, :64], wanted, 1e-4, "its first 64 tokens off") if causal else "finite"

    def state() -> str:
        run = wide.run if hasattr(wide, "run") else wide.forward
        _offers(run, "state")
        x = tokens(70)
        first, carried = run(x[:, :40])
        then, _ = run(x[:, 40:], state=carried)
        return _near(torch.cat([first, then], 1), y(x), 10 * room(), "in two pieces off")

    return _judged(
        type(module).__name__,
        {
            "values in float32": single,
            "gradients": gradients,
            "second derivatives": second,
            "values in float64": double,
            "batches": batches,
            "causality": causality,
            "NaN and infinity": lambda: poison(torch.nan) and poison(torch.inf),
            "packed sequences": packed,
            "half precision": half,
            "long sequence": long_sequence,
            "views": lambda: _views(y, [tokens(33)], room()),
            "state": state,
        },
    )
