"""Wrong tensors at the door of every public function: a list, integers, another dtype, no dimension, NaN.

The right call of a function is the first one in its own example, so there is no table of calls to keep.
"""

import dataclasses
import doctest
import functools
import inspect
from importlib import import_module

import pytest
import torch

import ssmbook
from headsandstates.site.public import SUBPACKAGES, everything, kind, public_names
from ssmbook.operators import InteractionOperator

REFUSED = (TypeError, ValueError)
FOLDERS = [f"ssmbook.{name}" for name in SUBPACKAGES if name not in ("display", "lens", "testing")]
CALLED = {name: value for name, value in everything(FOLDERS).items() if kind(value) in ("class", "function")}

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.parametrize("name", CALLED)]


class Recorder:
    """A function that keeps the arguments of its calls."""

    def __init__(self, function):
        self.function, self.calls = function, []

    def __call__(self, *args, **options):
        self.calls.append(inspect.signature(self.function).bind(*args, **options).arguments)
        return self.function(*args, **options)

    def __getattr__(self, name):
        return getattr(self.function, name)


@functools.cache
def right_call(name):
    """The arguments of the first call in the example of a function or its twin; {} where it is not called."""
    module, _, last = name.removesuffix("_naive").rpartition(".")
    name = f"{module}.{last}"
    offered = import_module(module)
    recorder = Recorder(CALLED[name])
    known = {"torch": torch, "System": ssmbook.System}
    known |= {key: getattr(offered, key) for key in public_names(offered)} | {last: recorder}
    finder = doctest.DocTestFinder(recurse=False)
    for example in finder.find(CALLED[name], name, module=False, globs=known):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            doctest.DocTestRunner().run(example, out=lambda text: None)
    return recorder.calls[0] if recorder.calls else {}


def call(name, changed):
    """The answer to the right call with some arguments changed."""
    function, arguments = CALLED[name], {**right_call(name), **changed}
    bound = inspect.BoundArguments(inspect.signature(function), arguments)
    return function(*bound.args, **bound.kwargs)


def tensors(name):
    return {key: value for key, value in right_call(name).items() if has_precision(value)}


def changed_precision(tensor):
    """The same numbers in single precision, or in double if they were in single."""
    other = torch.float64 if tensor.dtype in (torch.float32, torch.complex64) else torch.float32
    return tensor.to(other.to_complex() if tensor.is_complex() else other)


def has_precision(value):
    return torch.is_tensor(value) and (value.is_floating_point() or value.is_complex())


def found_in(answer):
    """The tensors and numbers of an answer."""
    if isinstance(answer, InteractionOperator):
        answer = answer.to_dense()
    if isinstance(answer, torch.nn.Module):
        answer = answer.state_dict()
    if dataclasses.is_dataclass(answer):
        answer = [getattr(answer, field.name) for field in dataclasses.fields(answer)]
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, (tuple, list, ssmbook.System)):
        return [part for each in answer for part in found_in(each)]
    return [answer] if isinstance(answer, (torch.Tensor, float)) else []


def test_a_wrong_tensor_is_refused(name):
    """A single number in place of a tensor may be taken where a function works entry by entry."""
    given = tensors(name)
    for key, value in given.items():
        wrong = [value.tolist(), value.real.long()] if value.ndim else [value.real.long()]
        for each in wrong + [changed_precision(value)] * (len(given) > 1):
            with pytest.raises(REFUSED):
                call(name, {key: each})
        number = value.reshape(-1)[0]
        try:
            answer = call(name, {key: number})
        except REFUSED:
            continue
        assert answer.shape == number.shape, key
    if not given and right_call(name):
        with pytest.raises(Exception):  # noqa: B017 (Python's own errors are good enough)
            call(name, {next(iter(right_call(name))): object()})


def test_nan_is_refused_or_carried(name):
    for key, value in tensors(name).items():
        poisoned = value.clone()
        poisoned.view(-1)[-1] = torch.nan
        try:
            answer = call(name, {key: poisoned})
        except REFUSED:
            continue
        assert any(torch.as_tensor(part).isnan().any() for part in found_in(answer)), key


def test_double_precision_is_kept(name):
    given = tensors(name)
    wide = {key: value.to(torch.promote_types(value.dtype, torch.float64)) for key, value in given.items()}
    try:
        double = found_in(call(name, wide)) if given else []
    except ValueError:  # what is exact in single precision only, such as equal row sums
        return
    for one, two in zip(found_in(call(name, {})) if given else [], double, strict=True):
        if has_precision(two):
            assert two.dtype in (torch.float64, torch.complex128)
            torch.testing.assert_close(one.to(two.dtype), two, rtol=1e-3, atol=1e-3, equal_nan=True)
